// Nanoseconds that the preload library adds to one launch of an empty kernel (both_ways.h). Batches
// never fill the queue: a full queue would measure the GPU. Prints one JSON line.
//
// With KiB, so much memory is walked before each launch, as a framework's own work between two
// launches does. Then the library's memory comes from farther away than the nearest cache.
//
//   empty_kernel [pairs of batches] [launches in a batch] [KiB]
#include <vector>

#include "both_ways.h"
#include "median.h"

using namespace switchyard::bench;

namespace {

using Launch = decltype(&::cuLaunchKernel);

void launch_once(Launch launch, CUfunction function) {
  const CUresult result = launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  if (result != CUDA_SUCCESS) check(result, "cuLaunchKernel");
}

double batch_ns(Launch launch, CUfunction function, int launches) {
  const std::int64_t begun = now_ns();
  for (int i = 0; i < launches; ++i) launch_once(launch, function);
  return static_cast<double>(now_ns() - begun) / launches;
}

// The launches alone are timed, each by itself; the clock's own time is in both sides. The answer
// is their median, for one that an interrupt meets takes longer than all others.
double cold_batch_ns(Launch launch, CUfunction function, int launches,
                     std::vector<unsigned char>& memory) {
  constexpr std::size_t kCacheLine = 64;
  std::vector<double> each;
  for (int i = 0; i < launches; ++i) {
    for (std::size_t at = 0; at < memory.size(); at += kCacheLine) ++memory[at];
    const std::int64_t begun = now_ns();
    launch_once(launch, function);
    each.push_back(static_cast<double>(now_ns() - begun));
  }
  return median(each);
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 1500;
  const int launches = argc > 2 ? std::atoi(argv[2]) : 200;
  const int kibibytes = argc > 3 ? std::atoi(argv[3]) : 0;
  if (pairs < 1 || launches < 1 || kibibytes < 0) {
    std::fprintf(stderr, "empty_kernel: pairs and launches are numbers from 1, KiB from 0\n");
    return 2;
  }
  std::vector<unsigned char> memory(static_cast<std::size_t>(kibibytes) * 1024);
  const CUmodule module = load_module();
  CUfunction function = nullptr;
  check(driver().cuModuleGetFunction(&function, module, "nop"), "cuModuleGetFunction");
  const auto launches_by = BENCH_BOTH_WAYS(cuLaunchKernel);
  const auto synchronize = driver().cuCtxSynchronize;

  std::vector<double> added;
  std::vector<double> direct;
  // The first tenth warms up the launch path and is not counted.
  const int warm = pairs / 10 + 1;
  for (int pair = 0; pair < pairs + warm; ++pair) {
    double ns[2] = {};
    for (int turn = 0; turn < 2; ++turn) {
      const int side = (pair + turn) % 2;  // A B, B A, ...
      const Launch launch = launches_by.by(side == 1);
      ns[side] = memory.empty() ? batch_ns(launch, function, launches)
                                : cold_batch_ns(launch, function, launches, memory);
      check(synchronize(), "cuCtxSynchronize");
    }
    if (pair < warm) continue;
    direct.push_back(ns[0]);
    added.push_back(ns[1] - ns[0]);
  }
  std::printf("{\"added_ns\": %.2f, \"direct_ns\": %.2f, \"pairs\": %d, \"same\": %s}\n",
              median(added), median(direct), pairs,
              launches_by.own == launches_by.found ? "true" : "false");
  return 0;
}
