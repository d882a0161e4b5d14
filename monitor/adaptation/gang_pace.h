// Long slices around gangs, while these bear them: what pages say, brought into the rule
// (policy/gang_slices.h).
//
// Concept. Looked at by each tick. All ranks of a gang on this machine count: a collapse shows in
// all of them. Without a visible NCCL nothing is counted, and slices stay short. While no other job
// has a context on its GPUs nothing is learnt or tried: there are no slices.
//
// Threading: one thread, the monitor's.
#pragma once

#include <map>

#include "monitor/core/registry.h"
#include "monitor/policy/gang_slices.h"

namespace switchyard::monitor {

class GangPace {
 public:
  explicit GangPace(Registry& registry) : registry_(registry) {}

  // The scheduler's next look carries it out.
  void follow(Time now);

 private:
  Registry& registry_;
  std::map<JobKey, gang_slices::State> states_;
};

}  // namespace switchyard::monitor
