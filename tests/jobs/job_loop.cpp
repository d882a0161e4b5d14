// job_loop [--door DOOR] [--us N] [--count N] [--fork before|after] [--exec] [--fault]: launches
// busy(N us).
//
// Without --count it prints "ready", then the number of kernels that ended for each line on stdin,
// and ends with stdin. With --count it launches so many, prints "kernels N" and ends.
// --fork before: a child, forked before the first CUDA call, does the same as the parent, first.
// --fork after: a child, forked in the middle, says what cuInit tells it; then the parent goes on.
// --exec: becomes itself anew, without --exec, when it is done.
// --fault: after --count kernels, one more writes to an address that is nobody's.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>

#include "driver_api.h"
#include "kernels_ptx.h"

namespace {

struct Options {
  std::string door;
  std::string fork;
  unsigned us = 100;
  unsigned long count = 0;
  bool exec = false;
  bool fault = false;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--exec" || word == "--again") {  // --again: an --exec that has happened
      options.exec = word == "--exec";
      continue;
    }
    if (word == "--fault") {
      options.fault = true;
      continue;
    }
    if (word == "--door") options.door = value;
    if (word == "--fork") options.fork = value;
    if (word == "--us") options.us = static_cast<unsigned>(std::strtoul(value, nullptr, 10));
    if (word == "--count") options.count = std::strtoul(value, nullptr, 10);
    ++i;
  }
  return options;
}

int fail(const char* what) {
  std::printf("error %s\n", what);
  return 1;
}

class Loop {
 public:
  const char* prepare(const Options& options) {
    us_ = options.us;
    CUdevice device = 0;
    CUmodule module = nullptr;
    if (const char* why = jobs::load(api_, options.door)) return why;
    if (const char* why = jobs::open_gpu(api_, device)) return why;
    if (api_.cuModuleLoadData(&module, kKernelsPtx) != CUDA_SUCCESS) return "cuModuleLoadData";
    if (api_.cuModuleGetFunction(&busy_, module, "busy") != CUDA_SUCCESS ||
        api_.cuModuleGetFunction(&fill_, module, "fill") != CUDA_SUCCESS) {
      return "cuModuleGetFunction";
    }
    return api_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS ? nullptr
                                                                                 : "cuStreamCreate";
  }

  bool batch(unsigned long kernels) {
    void* parameters[] = {&us_};
    for (unsigned long i = 0; i < kernels; ++i) {
      if (api_.cuLaunchKernel(busy_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr) !=
          CUDA_SUCCESS) {
        return false;
      }
    }
    if (api_.cuStreamSynchronize(stream_) != CUDA_SUCCESS) return false;
    done_ += kernels;
    return true;
  }

  CUresult fault() {
    CUdeviceptr nowhere = 16;
    unsigned word = 1;
    unsigned long long count = 1;
    void* parameters[] = {&nowhere, &word, &count};
    api_.cuLaunchKernel(fill_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr);
    return api_.cuStreamSynchronize(stream_);
  }

  CUresult init_again() { return api_.cuInit(0); }
  unsigned long done() const { return done_; }

 private:
  jobs::Api api_;
  CUfunction busy_ = nullptr, fill_ = nullptr;
  CUstream stream_ = nullptr;
  unsigned us_ = 100;
  std::atomic<unsigned long> done_{0};
};

void answer(const Loop& loop) {
  for (std::string line; std::getline(std::cin, line);) {
    std::printf("%lu\n", loop.done());
    std::fflush(stdout);
  }
  ::_exit(0);
}

// The child says what the driver tells a process whose parent has used it.
void fork_in_the_middle(Loop& loop) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    std::printf("child cuInit %d\n", static_cast<int>(loop.init_again()));
    std::fflush(stdout);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
}

int work(const Options& options) {
  static Loop loop;  // the answering thread outlives this frame
  if (const char* why = loop.prepare(options)) return fail(why);
  if (options.count > 0) {
    if (!loop.batch(options.count)) return fail("a launch");
    if (options.fault) {
      std::printf("fault %d\n", static_cast<int>(loop.fault()));
      return 1;
    }
    if (options.fork == "after") {
      fork_in_the_middle(loop);
      if (!loop.batch(options.count)) return fail("a launch after the fork");
    }
    std::printf("kernels %lu\n", loop.done());
    std::fflush(stdout);
    return 0;
  }
  if (!loop.batch(1)) return fail("the first launch");
  std::printf("ready\n");
  std::fflush(stdout);
  std::thread(answer, std::cref(loop)).detach();
  while (loop.batch(4)) {
  }
  return fail("a launch");
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.fork == "before") {
    const pid_t child = ::fork();
    if (child == 0) return work(options);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) return fail("the child");
  }
  const int code = work(options);
  if (code != 0 || !options.exec) return code;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--exec") == 0) argv[i] = const_cast<char*>("--again");
  }
  ::execv("/proc/self/exe", argv);
  return fail("execv");
}
