// Long slices around gangs, while these bear them: what pages say, brought into the rule
// (policy/gang_slices.h).
//
// Concept. Looked at twice a second while there is a gang. All of its ranks on this machine count:
// a collapse shows in all of them. Without a visible NCCL nothing is counted, and slices stay
// short.
//
// Threading: one thread, the monitor's.
#pragma once

#include <map>

#include "monitor/core/registry.h"
#include "monitor/policy/gang_slices.h"

namespace switchyard::monitor {

class GangPace {
 public:
  static constexpr Time kEvery = std::chrono::milliseconds(500);

  explicit GangPace(Registry& registry) : registry_(registry) {}

  // True: what the scheduler has to carry out has changed.
  bool follow(Time now);
  // When to follow again; 0: there is no gang.
  Time due() const { return due_; }

 private:
  Registry& registry_;
  std::map<JobKey, gang_slices::State> states_;
  Time due_{0};
};

}  // namespace switchyard::monitor
