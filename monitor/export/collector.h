// The snapshot of metrics out of the monitor, and the counters of jobs that have ended.
//
// Concept. A job that ends between two scrapes must be in the next one, so its series stay for five
// minutes. A job of the same labels that begins meanwhile goes on counting where that one ended. So
// a counter never falls within a life of the monitor. One that is started anew counts from 0.
//
// Threading: one thread, the monitor's.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "monitor/export/metrics.h"
#include "monitor/monitor.h"

namespace switchyard::monitor::metrics {

inline constexpr Time kEndedStay = std::chrono::minutes(5);
// Of those that ended, at most. The first to end go first.
inline constexpr std::size_t kMostEnded = 1000;

class Collector {
 public:
  // From now on it is told of each job that ends. REQUIRES: the monitor lives longer.
  explicit Collector(Monitor& monitor, std::string pod_links = "/var/log/containers");
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  Snapshot look(Time now);

 private:
  using ByGpu = std::map<std::size_t, Sums>;
  struct Ended {
    metrics::Job job;
    Time at{0};
  };
  metrics::Job see(const monitor::Job& job, Time now);
  OnGpu see(const monitor::Job& job, std::size_t gpu) const;
  void add_gauges(const monitor::Job& job, OnGpu& out) const;
  // Lets a job that has the labels of one that ended go on with its counters.
  void continue_ended(JobKey key, const metrics::Job& seen);
  // The job, with what its counters began at.
  metrics::Job whole(const monitor::Job& job, Time now);
  void ends(const monitor::Job& job, Time now);
  void forget(Time now);

  Monitor& monitor_;
  Pods pods_;
  std::string hostname_;
  double start_time_seconds_ = 0;
  std::deque<Ended> ended_;
  std::map<JobKey, ByGpu> before_;  // what a living job's counters begin at
};

}  // namespace switchyard::monitor::metrics
