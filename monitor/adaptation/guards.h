// Guards: what pages say, brought into the rule (policy/guard.h), and what comes of it into the
// restraints of other jobs.
//
// Concept. Looked at twenty times a second while a job has a `--guard`. Iterations come from the
// job's own records, what others do from the counters of their pages. Of a job that several guard
// themselves against, the strictest counts.
//
// The bytes of copies come in lumps: a copy of 10 GB is counted in one look, and takes four. So
// they move one after the other at nominal rates, and a second's worth at most waits. Whatever a
// client says it has copied, it moves for no more than the time that passes.
//
// Threading: one thread, the monitor's.
#pragma once

#include <map>

#include "monitor/adaptation/reader.h"
#include "monitor/core/registry.h"
#include "monitor/policy/guard.h"
#include "monitor/scheduling/scheduler.h"
#include "monitor/statistics/progress.h"

namespace switchyard::monitor {

class Guards {
 public:
  static constexpr Time kEvery = std::chrono::milliseconds(50);

  Guards(Registry& registry, const Scheduler& scheduler, const SliceController& slice_controller,
         Progress& progress)
      : registry_(registry),
        scheduler_(scheduler),
        slice_controller_(slice_controller),
        progress_(progress) {}

  // True: what the scheduler has to carry out has changed.
  bool follow(Time now);
  // When to follow again; 0: nobody guards himself.
  Time due() const { return due_; }
  const guard::State& of(const Job& job) const;

 private:
  // What a client did on one of its GPUs, as far as it was counted.
  struct Counted {
    std::uint64_t work = 0;
    std::uint64_t copies = 0;
    std::uint64_t link_bytes = 0;
    std::uint64_t device_bytes = 0;
  };
  // A job's work on one GPU.
  struct OnGpu {
    guard::Activity sums;
    double to_move_s = 0;  // what its copies have still to move, at nominal rates
    bool wants = false;
  };
  void count(Time now);
  bool count_lane(const Client& client, unsigned lane, const Client::Lane& state, OnGpu& on);
  guard::Look look_of(const Job& job, Time now);
  guard::Other other_of(const Job& guarded, const Job& job,
                        const std::set<std::size_t>& gpus) const;
  guard::Measures possible(const Job& guarded, const Job& job,
                           const std::set<std::size_t>& gpus) const;
  bool restrain();

  Registry& registry_;
  const Scheduler& scheduler_;
  const SliceController& slice_controller_;
  Progress& progress_;
  IterationReader reader_;
  std::map<JobKey, guard::State> states_;
  std::map<std::pair<ClientId, unsigned>, Counted> counted_;
  std::map<std::pair<JobKey, std::size_t>, OnGpu> activity_;  // by job and GPU
  Time counted_at_{0};
  Time due_{0};
};

}  // namespace switchyard::monitor
