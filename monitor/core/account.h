// The memory account of one GPU: pure arithmetic over who was granted what.
//
// Concept. A job is charged its clients' *grants* (credit that lies unused included) and their
// *overhead*. That is the driver's use for a process beyond the process's own count: contexts,
// modules. A job with a reserved quota holds its quota, used or not; any other job holds what it is
// charged. The rest is free:
//
//     capacity = total - the driver's reserve - outside processes        (or --capacity)
//     held     = sum over jobs of  max(quota if reserved, charged)
//     free     = capacity - held - parked
//
// Other GPUs' memory that is *parked* here (--park) belongs to no quota and makes way for all. So
// it counts in `free`, and not where it is asked whether more can be promised. Memory that a job
// leaves behind on its way to another GPU is within the room that is kept for it here (keep()).
//
// A job that was *released* is leaving the device (residency.h): it holds what is still there of
// its memory, or may come. Its bound stays as it was, wherever the memory is.
//
// The words in the pages are client_page.h's business; this only knows numbers, and the caller
// tells it the credit that it saw.
//
// Threading: a plain value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace switchyard::monitor {

using ClientId = std::uint64_t;
using JobKey = std::uint64_t;

class Account {
 public:
  struct Holding {
    JobKey job = 0;
    std::uint64_t granted = 0;
    std::uint64_t credit = 0;         // unused, as last told; never more than granted
    std::uint64_t overhead = 0;       // NVML's figure minus what the client uses
    std::uint64_t away = 0;           // of what it uses, not on the device; never more than used()
    std::uint64_t coming = 0;         // of that, what may come at any time; never more than away
    std::uint64_t overhead_away = 0;  // of contexts that are away, or came back unmeasured
    bool detached = false;            // its contexts are away
    std::uint64_t parked = 0;         // memory of other GPUs that is here, beside all of the above
    std::uint64_t parking = 0;        // and that may come at any time
    bool operator==(const Holding&) const = default;
    std::uint64_t used() const { return granted - credit; }
    std::uint64_t overhead_in_full() const { return std::max(overhead, overhead_away); }
    std::uint64_t resident() const { return used() > away ? used() - away : 0; }
  };
  struct Quota {
    std::uint64_t bytes = 0;
    bool reserved = false;  // false: not promised, or not just now
    bool ceiling = false;   // root's cap for a job that asked for no quota: never promised
    bool returns = false;   // promised again when the job's memory comes back
  };

  // What can be given out at all; unknown capacity refuses nothing.
  void set_capacity(std::optional<std::uint64_t> bytes) { capacity_ = bytes; }
  void set_outside(std::uint64_t bytes) { outside_ = bytes; }
  std::optional<std::uint64_t> capacity() const { return capacity_; }
  std::uint64_t outside() const { return outside_; }

  void set_quota(JobKey job, Quota quota);
  void clear_quota(JobKey job);
  std::optional<Quota> quota(JobKey job) const;
  // Whether a quota of `bytes` could be promised to `job`, beside what all others hold.
  bool fits(JobKey job, std::uint64_t bytes) const { return short_of(job, bytes) == 0; }
  // What the others hold too much of for that; 0: it fits.
  std::uint64_t short_of(JobKey job, std::uint64_t bytes) const;

  // At least so much is the job's, whatever it has there; 0: no more than that.
  void keep(JobKey job, std::uint64_t bytes);

  void set_released(JobKey job, bool released);
  bool released(JobKey job) const { return released_.count(job) != 0; }

  void join(ClientId client, JobKey job, std::uint64_t granted);
  void leave(ClientId client) { take_out(client); }
  // Its holding there is elsewhere from now on, or comes from elsewhere.
  std::optional<Holding> take_out(ClientId client);
  void put_in(ClientId client, const Holding& holding);
  const Holding* holding(ClientId client) const;
  // Of what it uses, what counts as being on the device: beyond resident(), what may come.
  std::uint64_t counted(const Holding& holding) const;
  const std::map<ClientId, Holding>& holdings() const { return holdings_; }
  // Told before anything is asked: what the client's page shows now.
  void set_credit(ClientId client, std::uint64_t credit);
  void set_away(ClientId client, std::uint64_t bytes, std::uint64_t coming = 0);
  void set_overhead(ClientId client, std::uint64_t bytes);
  void set_parked(ClientId client, std::uint64_t bytes, std::uint64_t coming);
  // Its contexts are away, with all that it has: what was measured of them counts again once the
  // job comes back, before they do.
  void set_detached(ClientId client, bool detached);
  void granted(ClientId client, std::uint64_t bytes);     // credit and granted grow
  void taken_back(ClientId client, std::uint64_t bytes);  // credit and granted shrink
  // Of what it uses, at most so much is believed.
  void believe(ClientId client, std::uint64_t used_bytes);

  std::uint64_t charged(JobKey job) const;
  std::uint64_t held(JobKey job) const;
  // Its holding once all of it is there and its quota is promised again, where it was.
  std::uint64_t in_full(JobKey job) const;
  std::uint64_t reserved() const;  // the sum of all promises
  std::uint64_t free() const;      // never below zero
  // How far the promises and charges, and so much more, are over the capacity; 0 when they are not.
  std::uint64_t overdrawn(std::uint64_t more = 0) const;
  std::uint64_t parked() const;  // or may be, beyond the room that is kept for its job
  // The part of that which is where the promises and charges, and so much more, would be.
  std::uint64_t in_the_way(std::uint64_t more) const;

  // What `job` could still be granted now, without taking anything back.
  std::uint64_t headroom(JobKey job) const;
  // How much a client that needs `need` more is granted: `need`, or a chunk when much is left.
  // pre: need <= headroom(job)
  std::uint64_t grant_size(JobKey job, std::uint64_t need) const;
  // The clients whose idle credit may be taken back for `job`, the largest first.
  std::vector<ClientId> givers(JobKey job, ClientId except) const;

  // Sums over all holdings, so that the words of many pages cost one walk and not one walk each.
  struct Totals {
    struct Sums {
      std::uint64_t granted = 0, credit = 0, overhead = 0;
    };
    std::map<JobKey, Sums> jobs;
    std::uint64_t free = 0;
    std::uint64_t loose_credit = 0;  // idle, and inside nobody's promise
  };
  // Of all clients of the job.
  Totals::Sums totals(JobKey job) const;
  Totals totals() const;
  // The words of the page. One is the job's quota that others and overhead use. The other is the
  // most that the account could still grant beyond the client's credit, taking back idle credit.
  std::uint64_t others_used(ClientId client, const Totals& totals) const;
  std::uint64_t available(ClientId client, const Totals& totals) const;
  std::uint64_t others_used(ClientId client) const { return others_used(client, totals()); }
  std::uint64_t available(ClientId client) const { return available(client, totals()); }

  // Holdings and jobs that were walked over so far: units of work (work.h).
  std::uint64_t walked() const { return walked_; }

 private:
  // Of one job's holdings. All that is asked is asked of jobs, and far more often than a holding
  // changes.
  struct Sums {
    std::set<ClientId> clients;
    bool fresh = false;  // what follows is that of the holdings as they are
    std::uint64_t granted = 0, credit = 0, overhead = 0;
    std::uint64_t charged = 0, present = 0, parked = 0;
  };
  std::uint64_t present(const Holding& holding) const;
  std::uint64_t kept(JobKey job) const;
  std::uint64_t held_by_all() const;
  const Sums& sums(JobKey job) const;
  void changed(JobKey job);
  // Calls `change` on the client's holding. What it changes counts from then on.
  template <typename Change>
  void change(ClientId client, Change change);

  std::optional<std::uint64_t> capacity_;
  std::uint64_t outside_ = 0;
  std::map<JobKey, Quota> quotas_;
  std::map<ClientId, Holding> holdings_;
  mutable std::map<JobKey, Sums> sums_;  // of jobs with a holding
  mutable std::optional<std::uint64_t> held_by_all_;
  mutable std::optional<std::uint64_t> parked_;
  mutable std::uint64_t walked_ = 0;
  std::map<JobKey, std::uint64_t> kept_;
  std::set<JobKey> released_;
};

// The overhead of one process, from readings of NVML that race with its allocations. A rise counts
// at once, a fall when two readings agree. Memory that is reserved but not yet allocated looks like
// a fall for a moment.
class OverheadMeter {
 public:
  // Of what NVML says, what is beyond the process's own count.
  std::uint64_t reading(std::uint64_t beyond_bytes);
  std::uint64_t value() const;

 private:
  std::uint64_t last_ = 0;
  std::uint64_t before_last_ = 0;
};

// The use of a GPU that is no process's. It rises and falls when two readings agree. A process that
// has not joined yet looks like a rise for a moment, memory that is reserved but not yet allocated
// like a fall.
class UnattributedMeter {
 public:
  void reading(std::uint64_t bytes);
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t last_ = 0;
  std::uint64_t value_ = 0;
};

}  // namespace switchyard::monitor
