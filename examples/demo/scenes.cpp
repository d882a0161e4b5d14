#include "scenes.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "child.h"
#include "jobs.h"
#include "worker.h"

namespace demo {
namespace {

constexpr unsigned kQuotaGiB = 2;
constexpr double kArriveSeconds = 0.2;  // lines from before the pause need less to arrive
constexpr double kPausedSeconds = 0.5;

// Not a name that another demo on this machine has taken.
std::string name_of_job() { return "demo-" + std::to_string(::getpid()); }

}  // namespace

bool show_quota() {
  const std::string quota = std::to_string(kQuotaGiB) + "GiB";
  Child job(under_switchyard({"--memory", quota}, "memory"));
  std::string line;
  if (job.ready().empty() || !job.read_line(line)) return false;
  char* error = nullptr;
  const double gib = std::strtod(line.c_str(), &error) / (1024.0 * 1024 * 1024);
  const bool held = gib > 0 && gib < kQuotaGiB && *error != '\0';
  std::printf("run --memory %s    %.2f GiB besides its context, then%s\n", quota.c_str(), gib,
              *error != '\0' ? error : " no refusal");
  std::fflush(stdout);
  return job.succeeded() && held;
}

bool show_pause() {
  const std::string name = name_of_job();
  Child job(under_switchyard({"--name", name}, "beat"));
  std::string line;
  if (job.ready().empty() || !job.read_line(line) || !switchyard({"pause", name})) return false;
  job.lines_within(kArriveSeconds);
  const int meanwhile = job.lines_within(kPausedSeconds);
  const bool goes_on = switchyard({"resume", name}) && job.read_line(line);
  std::printf("pause, resume        %d kernels in %.1f s, then it %s\n",
              meanwhile * static_cast<int>(kLoopBatch), kPausedSeconds,
              goes_on ? "goes on" : "stands still");
  std::fflush(stdout);
  return meanwhile == 0 && goes_on;
}

}  // namespace demo
