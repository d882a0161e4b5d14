// One GPU, its jobs and its monitor, played event by event. The policy and the applier are the
// monitor's own. The engine, the processes and the delays between them are models.
//
// Threading: a simulation is one thread's; several may run at once.
#pragma once

#include <functional>
#include <vector>

#include "bench/simulate/engine.h"
#include "bench/simulate/job.h"
#include "monitor/policy/policy.h"

namespace switchyard::simulate {

struct Settings {
  monitor::policy::Rules rules;
  double seconds = 60;
  std::uint64_t seed = 1;
  double sample_s = 0;  // how often GPU time is noted in JobResult::samples_s; 0: never
  Costs costs;
  // The driver's own scheduling: nobody decides anything.
  bool unmanaged = false;
  Time look_every = std::chrono::milliseconds(250);  // at least
  // Tests: who is paused then; called at every look.
  std::function<bool(std::size_t job, Time now)> paused;
  // Tests: what else the monitor says of a process of the job, by what it has done so far;
  // likewise.
  std::function<void(std::size_t job, Time now, const JobResult& so_far,
                     monitor::policy::ClientView& view)>
      adjust;
};

Result simulate(const std::vector<JobSpec>& jobs, const Settings& settings);

}  // namespace switchyard::simulate
