// A job of many short kernels that reports when it completed how many, so that a change of its
// share can be seen within milliseconds. It speaks the line protocol of workloads/harness.py:
// "ready", then {"start"} and {"stop"} (also {"quit"} or end of input). After {"start", "rate": R}
// groups come at random, R a second on average, and each is waited for: a service.
//
//   kernel_rate [microseconds of a kernel] [kernels in a group] [blocks for each multiprocessor]
//
// By default a kernel is one warp. With blocks it fills the GPU and takes longer: a microsecond is
// that of one warp. The answer to stop has "completions": CLOCK_MONOTONIC seconds at which each
// group was complete.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "driver.h"

namespace {

using namespace switchyard::bench;

// Groups in the queue at once: the GPU is never idle, and the CPU is never far ahead.
constexpr std::size_t kAhead = 4;

constexpr unsigned kWarp = 32, kThreadsOfABlock = 256;

bool command_waits(double seconds = 0) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, static_cast<int>(std::ceil(std::max(seconds, 0.0) * 1e3))) > 0;
}

// 0: none is named.
double rate_in(const std::string& line) {
  const std::string key = "\"rate\":";
  const std::size_t at = line.find(key);
  return at == std::string::npos ? 0 : std::strtod(line.c_str() + at + key.size(), nullptr);
}

bool next_command(std::string& line) {
  char buffer[4096];
  return std::fgets(buffer, sizeof(buffer), stdin) != nullptr && (line = buffer, true);
}

class Job {
 public:
  Job(unsigned microseconds, int group, unsigned blocks_each)
      : microseconds_(microseconds), group_(group) {
    check(driver().cuModuleGetFunction(&function_, load_module(), "busy"), "cuModuleGetFunction");
    if (blocks_each > 0) fill_the_gpu(blocks_each);
    check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (CUevent& event : events_) {
      check(driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
    enqueue();
    retire();
    stamps_.clear();
  }

  // `rate`: groups a second; 0: one after the other.
  void run_until_told(double rate) {
    stamps_.clear();
    const double begun = seconds();
    std::printf("{\"started\": %.6f}\n", begun);
    if (rate > 0) {
      serve(rate, begun);
    } else {
      saturate();
    }
    while (!queued_.empty()) retire();
    report(begun, seconds());
  }

 private:
  static double seconds() { return static_cast<double>(now_ns()) * 1e-9; }

  void fill_the_gpu(unsigned blocks_each) {
    int multiprocessors = 0;
    check(driver().cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                        0),
          "cuDeviceGetAttribute");
    blocks_ = blocks_each * static_cast<unsigned>(multiprocessors);
    threads_ = kThreadsOfABlock;
  }

  void saturate() {
    while (!command_waits()) {
      enqueue();
      if (queued_.size() > kAhead) retire();
    }
  }

  // One that arrives while another is served comes right after it.
  void serve(double rate, double begun) {
    std::mt19937 random(1);
    std::exponential_distribution<double> gap(rate);
    double due = begun + gap(random);
    while (!command_waits(due - seconds())) {
      enqueue();
      retire();
      due += gap(random);
    }
  }

  void enqueue() {
    void* arguments[] = {&microseconds_};
    for (int i = 0; i < group_; ++i) {
      check(launch_(function_, blocks_, 1, 1, threads_, 1, 1, 0, stream_, arguments, nullptr),
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
  unsigned blocks_ = 1, threads_ = kWarp;
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
  const int blocks_each = argc > 3 ? std::atoi(argv[3]) : 0;
  if (microseconds < 1 || group < 1 || blocks_each < 0) {
    std::fprintf(stderr,
                 "kernel_rate: microseconds and kernels are numbers from 1, blocks from 0\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::setvbuf(stdin, nullptr, _IONBF, 0);  // poll must see what is not read yet
  Job job(static_cast<unsigned>(microseconds), group, static_cast<unsigned>(blocks_each));
  std::printf("{\"ready\": true, \"name\": \"kernel-rate\", \"pid\": %d}\n", ::getpid());
  for (std::string line; next_command(line);) {
    if (line.find("start") != std::string::npos) {
      job.run_until_told(rate_in(line));
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
