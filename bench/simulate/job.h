// A job as a simulation plays it, and what came out. The text form is what the program's --job
// takes.
//
// Threading: plain values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/platform/time.h"
#include "switchyard/settings.h"

namespace switchyard::simulate {

using monitor::Time;

enum class Pattern : std::uint8_t {
  kTraining,  // step after step: gpu_ms of GPU work, then cpu_ms without any
  kRequests,  // gpu_ms each, arriving at random
  kBursty,    // requests at `rate` for on_s on average, then none for off_s on average
  kEager,     // a server that waits for its CPU: `launches` small kernels, gpu_ms in all, which the
              // CPU launches within cpu_ms; then it waits for the last, and begins anew
};

// What an eager server does from a moment on.
struct Phase {
  double from_s = 0;
  double cpu_ms = 0;
  double gpu_ms = 0;
  unsigned launches = 1;
};

struct JobSpec {
  std::string name;
  Priority priority = Priority::kNormal;
  Pattern pattern = Pattern::kTraining;
  double weight = 1;
  double limit = 0;
  double rate = 10;    // per second
  double gpu_ms = 50;  // of a step or request
  double cpu_ms = 0;
  double kernel_ms = 0;  // its longest kernel: what a closing gate can't stop
  double on_s = 5, off_s = 5;
  unsigned launches = 200;  // of each step of an eager server
  unsigned tail = 0;        // waits that follow within the step, after a few launches each
  // A language model by graphs. After a step come so many tokens, each one launch of token_ms after
  // token_cpu_ms of CPU. Then it rests for rest_ms on average. Latencies are theirs.
  unsigned tokens = 0;
  double token_ms = 2.5, token_cpu_ms = 0.15;
  double rest_ms = 0;
  double scatter = 0;         // by what part the launches of its steps vary
  bool timed = true;          // its library times its bursts (an older one doesn't)
  std::vector<Phase> phases;  // of an eager server, by time; before them as the figures above say
  double start_s = 0;
  double stop_s = 0;      // it is killed then; 0: never
  double work_s = 0;      // it ends after so much GPU time; 0: never
  double deadline_s = 0;  // from its start; 0: none
  unsigned processes = 1;
  unsigned island = 0;  // its processes run at once with those of other jobs of the island; 0: no
  unsigned count = 1;   // so many such jobs
  bool sliceable = true;
};

inline constexpr char kJobForms[] =
    "CLASS:PATTERN[:KEY=VALUE,...] with high, normal or low, and training, requests, bursty or "
    "eager; "
    "keys: name, weight, limit (such as 30%), rate (per second), gpu_ms, cpu_ms, kernel_ms, on_s, "
    "off_s, start_s, stop_s, work_s, deadline_s, launches, tail, scatter, tokens, token_ms, "
    "token_cpu_ms, rest_ms, processes, count";

// Nothing, and a reason, when it can't be understood.
std::optional<JobSpec> parse_job(std::string_view text, std::string& why);

struct JobResult {
  std::string name;
  double gpu_s = 0;
  double share = 0;                      // of the time for which it was there
  std::vector<float> latencies_ms;       // of requests and steps, from arrival to end
  std::vector<Time> ends;                // of the same requests and steps
  double finished_s = 0;                 // when its work_s was done; 0: it was not
  bool missed = false;                   // its deadline
  std::vector<float> samples_s;          // GPU time so far, at each sample
  std::vector<std::uint32_t> slices_us;  // of its first process, likewise
};

struct Result {
  std::vector<JobResult> jobs;
  double seconds = 0;
  double busy = 0;             // parts of the time: somebody got on
  double switching = 0;        // lost between groups
  double idle_with_work = 0;   // nothing ran though a job that may have the GPU wanted it
  double longest_idle_ms = 0;  // likewise, at a time
  unsigned most_short = 0;     // short slices in force at one instant
  std::uint64_t looks = 0;
  std::uint64_t closes = 0;
};

double percentile(std::vector<float> values, double part);

}  // namespace switchyard::simulate
