// The ledger: what each job had, second by second, brought into rows of the history. Unmanaged
// processes have rows by user.
//
// Concept. Once in a second, sums that other folders keep are compared with those of the last time.
// The same happens at the end of each process and job. The differences go to the sink, which is the
// store (store.h). The sink must not wait. The ledger decides nothing and writes nothing.
//
//     GPU seconds, seconds by state and reason     statistics/usage.h
//     launches, copies, refusals, bytes swapped    the processes' pages
//     memory on the device                         the GPUs' accounts
//     what unmanaged processes had                 accounting/unmanaged.h
//
// Memory is sampled: what comes and goes within a second is not seen. A process that joined another
// monitor before brings its counts along: they count from its first words on.
//
// Threading: one thread, the monitor's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "monitor/accounting/gpu_accounts.h"
#include "monitor/accounting/unmanaged.h"
#include "monitor/core/registry.h"
#include "monitor/history/rows.h"
#include "monitor/statistics/usage.h"
#include "monitor/status/snapshot.h"

namespace switchyard::monitor::history {

class Ledger {
 public:
  static constexpr Time kEvery = std::chrono::seconds(1);
  using Sink = std::function<void(Rows)>;
  using Wall = std::function<std::int64_t()>;  // seconds since 1970

  Ledger(const Registry& registry, const GpuAccounts& gpus, const Unmanaged& unmanaged,
         const status::Statuses& statuses, const Usage& usage)
      : registry_(registry),
        gpus_(gpus),
        unmanaged_(unmanaged),
        statuses_(statuses),
        usage_(usage) {}

  // Without a sink it does nothing.
  void records_to(Sink sink, Wall wall);
  void joined(const Client& client, bool rejoins);
  // Before its page is gone.
  void leaves(const Client& client);
  // Before the job is gone.
  void ends(const Job& job, Time now);
  // Several times a second; REQUIRES: the statuses and the usage are of the same moment.
  void tick(Time now);
  // The same at once, at the monitor's end.
  void sample(Time now);

 private:
  // What a page counts.
  struct Counts {
    std::uint64_t copied = 0, swapped = 0, launches = 0, refusals = 0;
    bool any() const { return (copied | swapped | launches | refusals) != 0; }
  };
  struct Lane {
    bool rejoined = false;  // nothing is known of its counts yet
    Counts counts;
  };
  // One job on one GPU, as of the last sample.
  struct OnGpu {
    double gpu_seconds = 0, estimated_seconds = 0;
    std::map<status::Code, Time> times;
  };
  struct Entry {
    std::map<std::size_t, OnGpu> gpus;
    std::map<std::size_t, Bill> left;  // of processes that have left since then
    std::int64_t started = 0;
    Time lived_until{0};
  };

  static Counts counts_of(const Client& client, unsigned lane);
  void add_counts(const Client& client, unsigned lane, Bill& bill);
  Entry& entry_of(const Job& job);
  void add_memory(const Job& job, std::map<std::size_t, Bill>& bills, double span);
  void add_usage(const Job& job, Entry& entry, std::map<std::size_t, Bill>& bills);
  void sample(const Job& job, Time now, std::int64_t wall, Rows& rows);
  void sample_unmanaged(std::int64_t wall, Rows& rows);

  const Registry& registry_;
  const GpuAccounts& gpus_;
  const Unmanaged& unmanaged_;
  const status::Statuses& statuses_;
  const Usage& usage_;
  Sink sink_;
  Wall wall_;
  std::map<JobKey, Entry> jobs_;
  std::map<std::pair<ClientId, unsigned>, Lane> lanes_;
  Unmanaged::Users unmanaged_before_;  // as of the last sample
  Time sampled_at_{0};
};

}  // namespace switchyard::monitor::history
