// What people are told of the jobs: iterations, GPU seconds, waits, and ranks that others wait for.
// Of these only iterations decide something (monitor/adaptation).
//
// Threading: one thread, the monitor's.
#pragma once

#include "monitor/statistics/progress.h"
#include "monitor/statistics/stall_watch.h"
#include "monitor/statistics/usage.h"

namespace switchyard::monitor {

struct Statistics {
  Progress progress;
  Usage usage;
  StallWatch stalls;

  void tick(const Registry& registry, Time now) {
    progress.tick(registry, now);
    usage.tick(registry, now);
    stalls.tick(registry, now);
  }
};

}  // namespace switchyard::monitor
