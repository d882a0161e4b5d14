// What each job has had of its GPUs, and for how long it waited, by reason: sums since it began.
//
// Concept. Looked at five times a second, so the sums are samples. GPU seconds are the share of the
// time that the policy says, else NVML's, over all its GPUs. A job waits for one thing at a time:
// the first of the list that holds it.
//
// Threading: one thread, the monitor's.
#pragma once

#include <array>
#include <map>

#include "monitor/core/registry.h"
#include "monitor/policy/stalls.h"
#include "monitor/residency/residency.h"

namespace switchyard::monitor {

// What holds the work of a process, if we do. `where`: residency_of() the job, the same for all of
// its processes.
stalls::Hold hold_of(const Job& job, ResidencyState where, const Client& client);

class Usage {
 public:
  static constexpr std::array kReasons = {
      stalls::Hold::kPause, stalls::Hold::kSwap,  stalls::Hold::kMemory, stalls::Hold::kCut,
      stalls::Hold::kGuard, stalls::Hold::kLimit, stalls::Hold::kTurn};
  struct Sums {
    double gpu_seconds = 0;
    std::map<stalls::Hold, Time> waits;
  };

  void tick(const Registry& registry, Time now);
  const Sums& of(const Job& job) const;

 private:
  std::map<JobKey, Sums> jobs_;
  Time ticked_at_{0};
};

}  // namespace switchyard::monitor
