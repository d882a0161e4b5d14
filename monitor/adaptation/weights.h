// Weights that jobs with `--share auto` find by themselves: what pages say, brought into the rule
// (policy/provision.h).
//
// Concept. Looked at ten times a second while there is such a job. Its ranks go at one pace, so one
// of them is looked at.
//
// Threading: one thread, the monitor's.
#pragma once

#include <map>

#include "monitor/adaptation/reader.h"
#include "monitor/core/registry.h"
#include "monitor/policy/provision.h"
#include "monitor/statistics/progress.h"

namespace switchyard::monitor {

class Weights {
 public:
  static constexpr Time kEvery = std::chrono::milliseconds(100);

  Weights(Registry& registry, Progress& progress) : registry_(registry), progress_(progress) {}

  // True: what the scheduler has to carry out has changed.
  bool follow(Time now);
  // When to follow again; 0: there is no such job.
  Time due() const { return due_; }

 private:
  struct Found {
    provision::State state;
    ClientId looked_at = 0;  // the rank; 0: none yet
  };
  provision::Look look_of(const Job& job, Found& found, Time now);
  bool is_contended(const Job& job) const;

  Registry& registry_;
  Progress& progress_;
  IterationReader reader_;
  std::map<JobKey, Found> found_;
  Time due_{0};
};

}  // namespace switchyard::monitor
