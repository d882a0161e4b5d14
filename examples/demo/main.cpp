// The demo: a server's requests beside a batch job that never stops, on one GPU.
//
// The server and the batch job run alone, both under the driver's default, and both under
// `switchyard run`. Then come a table, a quota and a pause. Exit 1 unless Switchyard is better and
// keeps both. `--brief`: shorter rounds. The jobs are processes of this same program (worker.h) and
// know nothing of Switchyard. Without a real GPU the simulated one of the build is used, and the
// demo says so.
//
// Threading: one thread; the jobs are child processes.
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "child.h"
#include "jobs.h"
#include "report.h"
#include "scenes.h"
#include "worker.h"

namespace demo {
namespace {

struct Lengths {
  int rounds = 4;
  double settle_seconds = 0.8;  // before counting: the monitor has seen who is active
  double measure_seconds = 2.5;
};
// For the test that nothing is gained without Switchyard (tests/demo).
constexpr Lengths kBrief{7, 0.1, 0.5};

volatile sig_atomic_t g_interrupted = 0;

// Finds the GPU, the real one first. Returns its name, or nothing with the reason said. REQUIRES: a
// simulated GPU has a place of its own, or it leaves its files in /tmp.
std::string find_gpu() {
  std::string name = Child(plain("probe"), true).ready();
  if (!name.empty()) return name;
  const std::string simulated = build_folder() + "/fakecuda";
  const char* old = std::getenv("LD_LIBRARY_PATH");
  const std::string path = old != nullptr && *old != '\0' ? simulated + ":" + old : simulated;
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  name = Child(plain("probe")).ready();
  return name;
}

// A simulated GPU that is ours alone has a monitor that is ours alone. Both are gone with it.
class Isolation {
 public:
  bool begin() {
    char path[] = "/tmp/switchyard-demo-XXXXXX";
    if (::mkdtemp(path) == nullptr) {
      std::fprintf(stderr, "demo: cannot make a folder in /tmp: %s\n", std::strerror(errno));
      return false;
    }
    folder_ = path;
    ::setenv("FAKECUDA_STATE", (folder_ / "gpu").c_str(), 1);
    return true;
  }
  // The GPU is simulated.
  void isolate_monitor() const {
    ::setenv("SWITCHYARD_SOCKET", (folder_ / "monitor.sock").c_str(), 1);
    ::setenv("XDG_STATE_HOME", (folder_ / "state").c_str(), 1);
  }
  ~Isolation() {
    if (folder_.empty()) return;
    if (std::filesystem::exists(folder_ / "monitor.sock")) switchyard({"stop", "--force"});
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
    if (error) {
      std::fprintf(stderr, "demo: cannot remove %s: %s\n", folder_.c_str(),
                   error.message().c_str());
    }
  }

 private:
  std::filesystem::path folder_;
};

// Runs the given jobs over the same stretch of time. False when one of them failed.
bool measure(const std::vector<std::string>& requests, const std::vector<std::string>& loop,
             const Lengths& lengths, Cell& cell) {
  std::unique_ptr<Child> batch;
  std::unique_ptr<Child> server;
  if (!loop.empty()) batch = std::make_unique<Child>(loop);
  if (!requests.empty()) server = std::make_unique<Child>(requests);
  for (Child* child : {batch.get(), server.get()}) {
    if (child != nullptr && child->ready().empty()) return false;
  }
  const long begin = now() + static_cast<long>(lengths.settle_seconds * 1e9);
  const long end = begin + static_cast<long>(lengths.measure_seconds * 1e9);
  for (Child* child : {batch.get(), server.get()}) {
    if (child != nullptr) child->go(begin, end);
  }
  if (server) cell.request_us = server->numbers();
  if (batch) {
    const auto rate = batch->numbers();
    cell.loop_per_second = rate.empty() ? 0 : rate.front();
  }
  return (!server || !cell.request_us.empty()) && (!batch || cell.loop_per_second > 0);
}

// Measures a cell and prints it.
bool show(const std::string& name, const std::vector<std::string>& requests,
          const std::vector<std::string>& loop, const Lengths& lengths, Cell& cell,
          const Cell& loop_alone) {
  if (g_interrupted != 0 || !measure(requests, loop, lengths, cell)) return false;
  std::fputs(row(name, cell, loop_alone.loop_per_second).c_str(), stdout);
  std::fflush(stdout);
  return true;
}

bool measure_all(const Lengths& lengths, Results& results) {
  const Cell& solo = results.loop_alone;
  std::fputs(heading().c_str(), stdout);
  if (!show("requests alone", plain("requests"), {}, lengths, results.requests_alone, solo) ||
      !show("loop alone", {}, plain("loop"), lengths, results.loop_alone, solo)) {
    return false;
  }
  for (int round = 1; round <= lengths.rounds; ++round) {
    const std::string which =
        std::to_string(round) + " of " + std::to_string(lengths.rounds) + ": ";
    Cell by_default;
    Cell shared;
    if (!show(which + "default", plain("requests"), plain("loop"), lengths, by_default, solo) ||
        !show(which + "Switchyard", under_switchyard({"--priority", "high"}, "requests"),
              under_switchyard({"--priority", "low"}, "loop"), lengths, shared, solo)) {
      return false;
    }
    results.by_default.push_back(by_default);
    results.switchyard.push_back(shared);
  }
  return true;
}

// Prints the table and what it means. Whether Switchyard is better.
bool report(const Results& results, bool simulated) {
  const bool unicode = ::isatty(1) != 0 && std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0;
  const double judged = simulated ? kMiddle : kTail;
  std::printf("\nMedians of %zu rounds:\n%s", results.by_default.size(),
              table(results, judged, unicode).c_str());
  const Verdict verdict = judge(results, judged);
  if (simulated) {
    std::printf(
        "\n%s\nA simulated GPU runs on the CPUs, whose own delays are in the tails: p50 is judged.",
        recorded().c_str());
  }
  std::printf("\n%s: the requests' p%d is %.2f of the default's, the loop's throughput %.2f.\n",
              verdict.better ? "Switchyard is better" : "No gain from Switchyard",
              static_cast<int>(std::lround(judged * 100)), verdict.latency_ratio,
              verdict.loop_ratio);
  return verdict.better;
}

// Lines that a person can paste where the demo ran.
void say_what_is_next(bool simulated) {
  const std::string build = build_folder();
  std::printf("\nNext, in this shell:\n");
  if (simulated) {
    std::printf("  export LD_LIBRARY_PATH=%s/fakecuda    # the simulated GPU\n", build.c_str());
  }
  std::printf(
      "  %s/switchyard run --name train --priority low -- %s/examples/train &\n"
      "  %s/switchyard ps      (and `switchyard --help`, docs/guide/)\n",
      build.c_str(), build.c_str(), build.c_str());
}

int run(const Lengths& lengths) {
  ::signal(SIGPIPE, SIG_IGN);
  // The jobs end by the same signal, and what they leave is removed.
  for (const int each : {SIGINT, SIGTERM}) ::signal(each, [](int) { g_interrupted = 1; });
  ::setlocale(LC_CTYPE, "");
  Isolation isolation;
  if (!isolation.begin()) return 1;
  const std::string gpu = find_gpu();
  if (gpu.empty()) return 1;
  const bool simulated = gpu.find("imulated") != std::string::npos;
  if (simulated) isolation.isolate_monitor();
  std::printf("GPU: %s%s\n", gpu.c_str(),
              simulated ? " (no real GPU could be used here; this one is simulated)" : "");
  std::printf(
      "requests: %u kernels of %u us, 50 a second.  loop: kernels of %u us without end.\n\n",
      kKernelsPerRequest, kRequestKernelMicroseconds, kLoopKernelMicroseconds);
  std::fflush(stdout);
  Results results;
  if (!measure_all(lengths, results)) {
    if (g_interrupted != 0) return 128 + SIGINT;
    std::fprintf(stderr, "demo: a job ended early; what it said is above\n");
    return 1;
  }
  const bool better = report(results, simulated);
  if (disabled()) return better ? 0 : 1;
  std::printf("\n");
  const bool kept = show_quota() && show_pause();
  if (!kept) std::fprintf(stderr, "demo: a quota or a pause was not kept\n");
  say_what_is_next(simulated);
  return better && kept ? 0 : 1;
}

}  // namespace
}  // namespace demo

int main(int argc, char** argv) {
  if (argc == 1) return demo::run({});
  if (argc == 2 && std::strcmp(argv[1], "--brief") == 0) return demo::run(demo::kBrief);
  if (argc == 3 && std::strcmp(argv[1], "--worker") == 0) {
    struct {
      const char* name;
      int (*work)();
    } const workers[] = {{"probe", demo::work_probe},
                         {"requests", demo::work_requests},
                         {"loop", demo::work_loop},
                         {"memory", demo::work_memory},
                         {"beat", demo::work_beat}};
    for (const auto& worker : workers) {
      if (std::strcmp(argv[2], worker.name) == 0) return worker.work();
    }
  }
  std::fprintf(stderr, "usage: %s [--brief]\n", argv[0]);
  return 2;
}
