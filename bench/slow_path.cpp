// What the preload library adds to a launch and to a wait of a service (both_ways.h), with whatever
// the monitor has armed for it. Prints one JSON line: nanoseconds per launch and microseconds per
// wait, each as medians of consecutive requests, so that the reader sees their spread.
//
//   slow_path [requests] [launches in a request] [microseconds of GPU work between]
//
// A request launches empty kernels, works on its CPU, and waits. Before it waits the driver itself
// is asked until the GPU is done. So the wait is timed without the GPU's part, which depends on the
// neighbour. The library's own work in the stream at a wait is waited for.
//
// Without work between, the service waits for its CPU alone. With it, unmeasured requests of one
// kernel of that length come in between, and it is bound by the GPU.
#include <string>
#include <vector>

#include "both_ways.h"
#include "median.h"

namespace {

using namespace switchyard::bench;

constexpr std::int64_t kCpuWorkNs = 2'000'000;   // of a request, beside its launches
constexpr int kBetween = 4;                      // requests, for each that is measured
constexpr std::int64_t kWarmNs = 4'000'000'000;  // until the monitor has seen what it is
constexpr int kGroups = 20;                      // of which each gives a median

struct Figures {
  double launch_ns = 0;
  double wait_us = 0;
};

class Service {
 public:
  explicit Service(int launches) : launches_(launches) {
    const CUmodule module = load_module();
    check(driver().cuModuleGetFunction(&nop_, module, "nop"), "cuModuleGetFunction");
    check(driver().cuModuleGetFunction(&busy_, module, "busy"), "cuModuleGetFunction");
    check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }

  Figures request(bool library) {
    const auto launch = launch_.by(library);
    const auto wait = wait_.by(library);
    const std::int64_t begun = now_ns();
    for (int i = 0; i < launches_; ++i) {
      check(launch(nop_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr), "cuLaunchKernel");
    }
    const std::int64_t launched = now_ns();
    while (now_ns() < launched + kCpuWorkNs || query_.own(stream_) == CUDA_ERROR_NOT_READY) {
    }
    const std::int64_t waits = now_ns();
    check(wait(stream_), "cuStreamSynchronize");
    const std::int64_t ended = now_ns();
    return {static_cast<double>(launched - begun) / launches_,
            static_cast<double>(ended - waits) / 1e3};
  }

  void work_on_gpu(unsigned microseconds) {
    void* arguments[] = {&microseconds};
    for (int i = 0; microseconds != 0 && i < kBetween; ++i) {
      check(launch_.found(busy_, 1, 1, 1, 32, 1, 1, 0, stream_, arguments, nullptr),
            "cuLaunchKernel");
      check(wait_.found(stream_), "cuStreamSynchronize");
    }
  }

  bool has_library() const { return launch_.own != launch_.found; }

 private:
  int launches_;
  CUfunction nop_ = nullptr;
  CUfunction busy_ = nullptr;
  CUstream stream_ = nullptr;
  BothWays<decltype(&::cuLaunchKernel)> launch_ = BENCH_BOTH_WAYS(cuLaunchKernel);
  BothWays<decltype(&::cuStreamSynchronize)> wait_ = BENCH_BOTH_WAYS(cuStreamSynchronize);
  BothWays<decltype(&::cuStreamQuery)> query_ = BENCH_BOTH_WAYS(cuStreamQuery);
};

// Medians of consecutive groups.
void print_groups(const char* name, const std::vector<double>& values) {
  std::printf("\"%s\": [", name);
  for (int group = 0; group < kGroups; ++group) {
    const auto edge = [&](int at) {
      return values.begin() + static_cast<std::ptrdiff_t>(values.size()) * at / kGroups;
    };
    std::printf("%s%.3f", group == 0 ? "" : ", ", median({edge(group), edge(group + 1)}));
  }
  std::printf("], ");
}

}  // namespace

int main(int argc, char** argv) {
  const int requests = argc > 1 ? std::atoi(argv[1]) : 600;
  const int launches = argc > 2 ? std::atoi(argv[2]) : 200;
  const int between = argc > 3 ? std::atoi(argv[3]) : 0;
  if (requests < kGroups || launches < 1 || between < 0) {
    std::fprintf(stderr, "slow_path: %d requests or more, launches from 1, microseconds from 0\n",
                 kGroups);
    return 2;
  }
  Service service(launches);
  std::vector<double> launch_added;
  std::vector<double> wait_added;
  std::vector<double> launch_own;
  std::vector<double> wait_own;
  const std::int64_t counts_from = now_ns() + kWarmNs;
  for (int number = 0; wait_own.size() < static_cast<std::size_t>(requests); ++number) {
    service.work_on_gpu(static_cast<unsigned>(between));
    Figures by[2];
    for (int turn = 0; turn < 2; ++turn) {
      const bool library = (number + turn) % 2 != 0;  // A B, B A, ...
      by[library ? 1 : 0] = service.request(library);
    }
    if (now_ns() < counts_from) continue;
    launch_added.push_back(by[1].launch_ns - by[0].launch_ns);
    wait_added.push_back(by[1].wait_us - by[0].wait_us);
    launch_own.push_back(by[0].launch_ns);
    wait_own.push_back(by[0].wait_us);
  }
  std::printf("{");
  print_groups("launch_added_ns", launch_added);
  print_groups("wait_added_us", wait_added);
  std::printf("\"launch_ns\": %.1f, \"wait_us\": %.3f, \"library\": %s}\n", median(launch_own),
              median(wait_own), service.has_library() ? "true" : "false");
  return 0;
}
