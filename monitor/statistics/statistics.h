// The figures on jobs for people: iterations, communication, the gradient noise scale, GPU seconds,
// waits, and ranks that others wait for. Of these only iterations decide something
// (monitor/adaptation).
//
// Threading: one thread, the monitor's.
#pragma once

#include "monitor/statistics/communication.h"
#include "monitor/statistics/counters.h"
#include "monitor/statistics/gradient_noise.h"
#include "monitor/statistics/island_gains.h"
#include "monitor/statistics/progress.h"
#include "monitor/statistics/stall_watch.h"
#include "monitor/statistics/usage.h"

namespace switchyard::monitor {

struct Statistics {
  Communication communication;
  Progress progress;
  Usage usage;
  StallWatch stalls;
  GradientNoise noise;
  Counters counters;
  IslandGains islands;

  // Somebody wants to know what takes a little of the jobs' time.
  void ask(Time now) {
    progress.ask(now);
    communication.ask(now);
  }
  void tick(const Registry& registry, const status::Statuses& statuses, Time now) {
    communication.tick(registry, now);
    progress.tick(registry, now);
    usage.tick(registry, statuses, now);
    stalls.tick(registry, statuses, now);
    noise.tick(registry);
    counters.tick(registry);
    islands.tick(registry, now);
  }
};

}  // namespace switchyard::monitor
