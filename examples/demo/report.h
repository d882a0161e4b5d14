// What the demo measured, and what it makes of it: pure, so that tests can ask it.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <vector>

namespace demo {

struct Cell {
  std::vector<double> request_us;  // latencies, empty where no requests ran
  double loop_per_second = 0;      // kernels, 0 where no loop ran
};

struct Results {
  Cell requests_alone;
  Cell loop_alone;
  std::vector<Cell> by_default;  // one cell per round, alternated with...
  std::vector<Cell> switchyard;  // ...these
};

struct Verdict {
  double fraction = 0;    // the percentile that was judged: 0.99, or less on a busy machine
  double tail_ratio = 0;  // requests' latency at it under Switchyard : under the default
  double loop_ratio = 0;  // the loop's throughput under Switchyard : under the default
  bool better = false;
};

// Switchyard has to be better by more than noise: both limits must hold.
inline constexpr double kMostTailRatio = 0.75;
inline constexpr double kLeastLoopRatio = 0.9;

double percentile(std::vector<double> values, double fraction);
double median(std::vector<double> values);

// The furthest of p99, p90 and p50 that says something here. When the CPUs are busy with other
// things, requests are late even alone on the GPU, and beyond that percentile all cells show only
// this.
double telling_percentile(const Cell& requests_alone);

// Medians over the rounds, so that one round disturbed from outside decides nothing.
Verdict judge(const Results& results);

// The table with its bars. `unicode`: bars of eighths; else '#'.
std::string table(const Results& results, bool unicode);

}  // namespace demo
