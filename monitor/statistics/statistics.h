// What people are told of the jobs and nothing is decided by: iterations, GPU seconds, waits, ranks
// that others wait for, and the gradient noise scale.
//
// Threading: one thread, the monitor's.
#pragma once

#include "monitor/statistics/gradient_noise.h"
#include "monitor/statistics/progress.h"
#include "monitor/statistics/stall_watch.h"
#include "monitor/statistics/usage.h"

namespace switchyard::monitor {

struct Statistics {
  Progress progress;
  Usage usage;
  StallWatch stalls;
  GradientNoise noise;

  void tick(const Registry& registry, Time now) {
    progress.tick(registry, now);
    usage.tick(registry, now);
    stalls.tick(registry, now);
    noise.tick(registry);
  }
};

}  // namespace switchyard::monitor
