// The demo: a server's requests beside a batch job that never stops, on one GPU.
//
// Each alone, both under the driver's default, both under `switchyard run`; a table; exit 1 unless
// Switchyard is better. The jobs are processes of this same program (worker.h) and know nothing of
// Switchyard. Without a real GPU the simulated one of the build is used, and the demo says so.
//
// Threading: one thread; the jobs are child processes.
#include <fcntl.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "report.h"
#include "worker.h"

namespace demo {
namespace {

constexpr int kRounds = 4;
constexpr double kSettleSeconds = 0.8;  // before counting: the monitor has seen who is active
constexpr double kMeasureSeconds = 3.0;

// A child process with pipes to its standard input and output.
class Child {
 public:
  explicit Child(const std::vector<std::string>& command, bool quiet = false) {
    int in[2];
    int out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      if (quiet) ::dup2(::open("/dev/null", O_WRONLY), 2);
      std::vector<char*> arguments;
      for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
      arguments.push_back(nullptr);
      ::execv(arguments[0], arguments.data());
      std::fprintf(stderr, "demo: cannot run %s: %s\n", arguments[0], std::strerror(errno));
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    to_ = ::fdopen(in[1], "w");
    from_ = ::fdopen(out[0], "r");
  }
  ~Child() {
    if (to_ != nullptr) std::fclose(to_);
    if (from_ != nullptr) std::fclose(from_);
    if (pid_ > 0) {
      ::kill(pid_, SIGTERM);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool read_line(std::string& line) {
    char text[512];
    if (from_ == nullptr || std::fgets(text, sizeof(text), from_) == nullptr) return false;
    line.assign(text, std::strcspn(text, "\n"));
    return true;
  }

  // The name of the GPU, once the worker is ready; empty when it failed.
  std::string ready() {
    std::string line;
    return read_line(line) && line.rfind("ready ", 0) == 0 ? line.substr(6) : "";
  }

  void go(long begin, long end) {
    std::fprintf(to_, "go %ld %ld\n", begin, end);
    std::fflush(to_);
  }

  std::vector<double> numbers() {
    std::vector<double> values;
    for (std::string line; read_line(line);) values.push_back(std::atof(line.c_str()));
    return values;
  }

 private:
  pid_t pid_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

std::string self() {
  char path[PATH_MAX] = {};
  return ::readlink("/proc/self/exe", path, sizeof(path) - 1) > 0 ? path : "";
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::vector<std::string> plain(const char* job) { return {self(), "--worker", job}; }

// --require: the figures must not quietly be those of an unmanaged run. Who switches Switchyard off
// wants just that.
std::vector<std::string> under_switchyard(const char* priority, const char* job) {
  const std::string build = folder_of(folder_of(self()));
  std::vector<std::string> command = {build + "/switchyard", "run", "--priority", priority};
  if (std::getenv("SWITCHYARD_DISABLE") == nullptr) command.push_back("--require");
  for (const std::string& word : plain(job)) command.push_back(word);
  return command;
}

// Finds the GPU, the real one first. Returns its name, or nothing with the reason said.
std::string find_gpu() {
  std::string name = Child(plain("probe"), true).ready();
  if (!name.empty()) return name;
  const std::string simulated = folder_of(folder_of(self())) + "/fakecuda";
  const char* old = std::getenv("LD_LIBRARY_PATH");
  const std::string path = old != nullptr && *old != '\0' ? simulated + ":" + old : simulated;
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  name = Child(plain("probe")).ready();
  return name;
}

// A GPU that is ours alone, simulated, has a monitor that is ours alone.
bool isolate(std::string& folder) {
  char path[] = "/tmp/switchyard-demo-XXXXXX";
  if (::mkdtemp(path) == nullptr) return false;
  folder = path;
  ::setenv("SWITCHYARD_SOCKET", (folder + "/monitor.sock").c_str(), 1);
  ::setenv("FAKECUDA_STATE", (folder + "/gpu").c_str(), 1);
  return true;
}

// Runs the given jobs over the same stretch of time. False when one of them failed.
bool measure(const std::vector<std::string>& requests, const std::vector<std::string>& loop,
             Cell& cell) {
  std::unique_ptr<Child> batch;
  std::unique_ptr<Child> server;
  if (!loop.empty()) batch = std::make_unique<Child>(loop);
  if (!requests.empty()) server = std::make_unique<Child>(requests);
  for (Child* child : {batch.get(), server.get()}) {
    if (child != nullptr && child->ready().empty()) return false;
  }
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  const double start = static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
  const long begin = static_cast<long>(start + kSettleSeconds * 1e9);
  const long end = begin + static_cast<long>(kMeasureSeconds * 1e9);
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

bool measure_all(Results& results) {
  if (!measure(plain("requests"), {}, results.requests_alone) ||
      !measure({}, plain("loop"), results.loop_alone)) {
    return false;
  }
  for (int round = 0; round < kRounds; ++round) {
    Cell by_default;
    Cell switchyard;
    if (!measure(plain("requests"), plain("loop"), by_default) ||
        !measure(under_switchyard("high", "requests"), under_switchyard("low", "loop"),
                 switchyard)) {
      return false;
    }
    results.by_default.push_back(by_default);
    results.switchyard.push_back(switchyard);
    if (::isatty(2) != 0) {
      std::fprintf(stderr, "\rround %d of %d done%s", round + 1, kRounds,
                   round + 1 == kRounds ? "\r\033[K" : "");
    }
  }
  return true;
}

int run() {
  ::signal(SIGPIPE, SIG_IGN);
  ::setlocale(LC_CTYPE, "");
  const std::string gpu = find_gpu();
  if (gpu.empty()) return 1;
  std::string folder;
  const bool simulated = gpu.find("imulated") != std::string::npos;
  if (simulated && !isolate(folder)) {
    std::fprintf(stderr, "demo: cannot make a folder in /tmp: %s\n", std::strerror(errno));
    return 1;
  }
  std::printf("GPU: %s%s\n", gpu.c_str(),
              simulated ? " (no real GPU could be used here; this one is simulated)" : "");
  std::printf(
      "requests: %u kernels of %u us, 50 a second.  loop: kernels of %u us without end.\n\n",
      kKernelsPerRequest, kRequestKernelMicroseconds, kLoopKernelMicroseconds);
  std::fflush(stdout);
  Results results;
  const bool measured = measure_all(results);
  if (!folder.empty()) {
    for (const char* file : {"/monitor.sock", "/gpu"}) ::unlink((folder + file).c_str());
    ::rmdir(folder.c_str());
  }
  if (!measured) {
    std::fprintf(stderr, "demo: a job ended early; what it said is above\n");
    return 1;
  }
  const bool unicode = ::isatty(1) != 0 && std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0;
  const double judged = simulated ? kMiddle : kTail;
  std::fputs(table(results, judged, unicode).c_str(), stdout);
  const Verdict verdict = judge(results, judged);
  if (simulated) {
    std::printf(
        "\nA simulated GPU runs on the CPUs, whose own delays are in the tails: p50 is judged.");
  }
  std::printf("\n%s: the requests' p%d is %.2f of the default's, the loop's throughput %.2f.\n",
              verdict.better ? "Switchyard is better" : "No gain from Switchyard",
              static_cast<int>(std::lround(judged * 100)), verdict.latency_ratio,
              verdict.loop_ratio);
  return verdict.better ? 0 : 1;
}

}  // namespace
}  // namespace demo

int main(int argc, char** argv) {
  if (argc == 1) return demo::run();
  if (argc == 3 && std::strcmp(argv[1], "--worker") == 0) {
    if (std::strcmp(argv[2], "probe") == 0) return demo::work_probe();
    if (std::strcmp(argv[2], "requests") == 0) return demo::work_requests();
    if (std::strcmp(argv[2], "loop") == 0) return demo::work_loop();
  }
  std::fprintf(stderr, "usage: %s (without arguments)\n", argv[0]);
  return 2;
}
