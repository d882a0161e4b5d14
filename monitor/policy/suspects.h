// The jobs that began to do more just when a job became slower: the rule alone, for the guard
// (guard.h).
//
// Concept. Of each other job on its GPUs we know for how long it had work there, and how many
// kernels and copies it launched. We also know how many bytes those copies moved. The work of a job
// while the guarded one goes at its usual pace is *usual*, too. The most of it counts, and is
// forgotten over half a minute. Its work from the last such moment on is *new*:
//
//     the new against the usual                            → it has grown
//     it has work for half as long again, and 5 % of the time more   → yes
//     it launches four times as many kernels, or copies              → yes, by these
//     its copies move for four times as long, 5 % of the time more   → yes, by its copies
//     anything else                                                  → no
//
// A job that always has work gets on faster when another leaves it room. So the work that it got
// done says little: it takes four times as much.
//
// *Moving* puts bytes into the unit of work: for how long they keep a link, or the GPU's memory,
// busy at a nominal rate. On a slower link it is less than it takes. That is good enough: a job
// that fills half of such a link still moves for many times 5 % of the time.
//
// The *score* says which of several has grown most, in GPUs. The time for which a job has work for
// copies says nothing of their cost. A job that launches a tiny copy now and then has work all the
// time. So of the time with work only the kernels' part counts, by its launches, and of copies
// their moving.
//
// The guarded job's CPU is ahead of its GPU, so it seems to go at its usual pace for a moment after
// another has begun. So the last two rounds don't count as usual yet.
//
// Threading: a plain value.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "monitor/platform/time.h"

namespace switchyard::monitor::guard {

// PCIe 5 x16 moves 55 GB/s each way. Inside its memory an HBM GPU copies more than 1 TB/s.
inline constexpr double kLinkBytesPerSecond = 50e9;
inline constexpr double kDeviceBytesPerSecond = 1e12;

constexpr double moving_seconds(double link_bytes, double device_bytes) {
  return link_bytes / kLinkBytesPerSecond + device_bytes / kDeviceBytesPerSecond;
}

// Sums since it was seen first.
struct Activity {
  double worked_s = 0;  // for so long it had work, or threads that waited to launch some
  double kernels = 0;
  double copies = 0;
  double moving_s = 0;    // of its copies; on each GPU never more than the time that has passed
  double link_bytes = 0;  // what they moved, for the log
  double device_bytes = 0;

  // Each sum by itself: `make` gets a pointer to the member.
  template <typename Make>
  static Activity of_each(Make make) {
    Activity out;
    for (double Activity::*sum :
         {&Activity::worked_s, &Activity::kernels, &Activity::copies, &Activity::moving_s,
          &Activity::link_bytes, &Activity::device_bytes}) {
      out.*sum = make(sum);
    }
    return out;
  }
};

struct Growth {
  Activity before, now;  // per second
  bool kernels = false;  // it is by kernels, or by copies, or both
  bool copies = false;
  double score() const {
    const double launches = now.kernels + now.copies;
    const double by_kernels = launches > 0 ? now.kernels / launches : 1;
    return by_kernels * (now.worked_s - before.worked_s) + now.moving_s - before.moving_s;
  }
};

class Suspects {
 public:
  using Activities = std::map<std::uint64_t, Activity>;  // by job

  // The guarded job went at its usual pace until now. The work of those in `but` is not usual: a
  // measure is taken against them.
  void usual(const Activities& all, const std::set<std::uint64_t>& but, Time now);
  // The job's present work is usual from now on.
  void accept(std::uint64_t job, const Activities& all, Time now);
  // Nothing that a job does is usual any more.
  void forget(std::uint64_t job) { seen_.erase(job); }
  // The guarded job was disturbed, perhaps for longer than it seemed.
  void disturbed() { pending_.clear(); }
  // Whether and how it has grown.
  std::optional<Growth> grown(std::uint64_t job, const Activities& all, Time now) const;

 private:
  struct Seen {
    Activity usual;  // per second
    Time at{0};
  };
  struct Rates {
    Time at{0};
    Activities rates;
  };
  Activity rate(std::uint64_t job, const Activities& all, Time now) const;
  void commit(const Rates& rates);

  Activities last_;  // when the pace was the usual one last
  Time last_at_{0};  // likewise; 0: never
  std::deque<Rates> pending_;
  std::map<std::uint64_t, Seen> seen_;
};

}  // namespace switchyard::monitor::guard
