// Gangs of ranks on GPUs of their own beside other jobs, and the monitor that grants them turns,
// played step by step. The policy of each GPU and the grants are the monitor's own
// (monitor/policy/decide.cpp, grants.h).
//
// A rank works on its CPU, launches a kernel and a collective behind it, and waits for both. The
// collective occupies its GPU until all ranks are in it. A closed gate stops launches, and kernels
// where they are; it does not stop a collective that has begun.
//
// Threading: a simulation is one thread's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/policy/policy.h"

namespace switchyard::simulate {

using monitor::Time;

struct GangSpec {
  std::vector<std::size_t> gpus = {};  // one rank on each; one GPU: a job without ranks
  Priority priority = Priority::kLow;
  double gpu_ms = 20;  // of a step, without the collective
  double cpu_ms = 2;   // before it, on average
  double limit = 0;
  double start_s = 0;
  std::string name = {};
};

inline constexpr char kGangForms[] =
    "CLASS:gpus=GPUS[,KEY=VALUE,...] with high, normal or low, and GPUs such as 0, 0+2 or 0-7, of "
    "which each has a rank; keys: name, gpu_ms (of a step, without its collective), cpu_ms, limit "
    "(such as 30%), start_s";

// Nothing, and a reason, when it can't be understood, or names a GPU that is not there.
std::optional<GangSpec> parse_gang(std::string_view text, std::size_t gpus, std::string& why);

struct GangSettings {
  monitor::policy::Rules rules;
  std::size_t gpus = 2;
  double seconds = 20;
  std::uint64_t seed = 1;
  bool together = true;  // false: each GPU decides by itself, as if there were no gangs
};

struct GangResult {
  std::uint64_t steps = 0;
  double gpu_s = 0;           // that it worked on one GPU, without waiting for its ranks
  double longest_wait_s = 0;  // between two ends of steps
  // A rank of it occupied its GPU while another was behind its gate.
  double held_for_nothing_s = 0;
};

struct GangsResult {
  std::vector<GangResult> jobs;
  // All GPUs of one that wanted them had stood still for longer than a pause, for each such GPU.
  double idle_though_fits_s = 0;
  double busy_s = 0;  // of all GPUs together
};

GangsResult simulate_gangs(const std::vector<GangSpec>& jobs, const GangSettings& settings);

}  // namespace switchyard::simulate
