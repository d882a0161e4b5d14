// A job of many short kernels that reports when it completed how many, so that a change of its
// share can be seen within milliseconds. It speaks the line protocol of workloads/harness.py:
// "ready", then {"start"} and {"stop"} (also {"quit"} or end of input).
//
//   kernel_rate [microseconds of a kernel] [kernels in a group]
//
// The answer to stop has "completions": CLOCK_MONOTONIC seconds at which each group was complete.
#include <poll.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "driver.h"

namespace {

using namespace switchyard::bench;

// Groups in the queue at once: the GPU is never idle, and the CPU is never far ahead.
constexpr std::size_t kAhead = 4;

bool command_waits() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, 0) > 0;
}

bool next_command(std::string& line) {
  char buffer[4096];
  return std::fgets(buffer, sizeof(buffer), stdin) != nullptr && (line = buffer, true);
}

class Job {
 public:
  Job(unsigned microseconds, int group) : microseconds_(microseconds), group_(group) {
    check(driver().cuModuleGetFunction(&function_, load_module(), "busy"), "cuModuleGetFunction");
    check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (CUevent& event : events_) {
      check(driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
    enqueue();
    retire();
    stamps_.clear();
  }

  void run_until_told() {
    stamps_.clear();
    const double begun = seconds();
    std::printf("{\"started\": %.6f}\n", begun);
    while (!command_waits()) {
      enqueue();
      if (queued_.size() > kAhead) retire();
    }
    while (!queued_.empty()) retire();
    report(begun, seconds());
  }

 private:
  static double seconds() { return static_cast<double>(now_ns()) * 1e-9; }

  void enqueue() {
    void* arguments[] = {&microseconds_};
    for (int i = 0; i < group_; ++i) {
      check(launch_(function_, 1, 1, 1, 32, 1, 1, 0, stream_, arguments, nullptr),
            "cuLaunchKernel");
    }
    const CUevent event = events_[turn_++ % (kAhead + 2)];
    check(record_(event, stream_), "cuEventRecord");
    queued_.push_back(event);
  }

  void retire() {
    check(wait_(queued_.front()), "cuEventSynchronize");
    queued_.pop_front();
    stamps_.push_back(seconds());
  }

  void report(double begun, double ended) const {
    std::printf("{\"steps\": %zu, \"kernels_in_a_step\": %d, \"begun\": %.6f, \"ended\": %.6f, ",
                stamps_.size(), group_, begun, ended);
    std::printf("\"elapsed_seconds\": %.6f, \"completions\": [", ended - begun);
    for (std::size_t i = 0; i < stamps_.size(); ++i) {
      std::printf("%s%.5f", i == 0 ? "" : ",", stamps_[i]);
    }
    std::printf("]}\n");
  }

  unsigned microseconds_;
  int group_;
  CUfunction function_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent events_[kAhead + 2] = {};
  std::size_t turn_ = 0;
  std::deque<CUevent> queued_;
  std::vector<double> stamps_;
  decltype(&::cuLaunchKernel) launch_ = driver().cuLaunchKernel;
  decltype(&::cuEventRecord) record_ = driver().cuEventRecord;
  decltype(&::cuEventSynchronize) wait_ = driver().cuEventSynchronize;
};

}  // namespace

int main(int argc, char** argv) {
  const int microseconds = argc > 1 ? std::atoi(argv[1]) : 100;
  const int group = argc > 2 ? std::atoi(argv[2]) : 10;
  if (microseconds < 1 || group < 1) {
    std::fprintf(stderr, "kernel_rate: microseconds and kernels are numbers from 1\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::setvbuf(stdin, nullptr, _IONBF, 0);  // poll must see what is not read yet
  Job job(static_cast<unsigned>(microseconds), group);
  std::printf("{\"ready\": true, \"name\": \"kernel-rate\", \"pid\": %d}\n", ::getpid());
  for (std::string line; next_command(line);) {
    if (line.find("start") != std::string::npos) {
      job.run_until_told();
      if (!next_command(line)) break;  // the stop that ended it
    } else if (line.find("quit") != std::string::npos) {
      std::printf("{\"bye\": %.6f}\n", static_cast<double>(now_ns()) * 1e-9);
      break;
    } else {
      std::printf("{\"error\": \"kernel_rate knows start, stop and quit\"}\n");
    }
  }
  return 0;
}
