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
  double latency_ratio = 0;  // the requests' latency under Switchyard : under the default
  double loop_ratio = 0;     // the loop's throughput under Switchyard : under the default
  bool better = false;
};

// Switchyard has to be better by more than noise: both limits must hold.
inline constexpr double kMostLatencyRatio = 0.75;
inline constexpr double kLeastLoopRatio = 0.9;

double percentile(std::vector<double> values, double fraction);
double median(std::vector<double> values);

// The percentile to judge by. On a real GPU the tail is what counts. A simulated GPU's time is the
// CPUs', and one request in ten may show only these. The middle is decided by the GPU's sharing,
// also with twice as many busy threads as CPUs.
inline constexpr double kTail = 0.99;
inline constexpr double kMiddle = 0.50;

// Medians over the rounds, so that one round disturbed from outside decides nothing.
Verdict judge(const Results& results, double fraction);

// The heading of the table's columns, and one row of it. `solo`: the loop's rate alone, or 0.
std::string heading();
std::string row(const std::string& name, const Cell& cell, double solo);

// The table of medians with its bars of the percentile `fraction`. `unicode`: bars of eighths; else
// '#'.
std::string table(const Results& results, double fraction, bool unicode);

// The figures recorded on a real GPU (bench/chart/latency.json), which the simulated one can't
// show.
std::string recorded();

}  // namespace demo
