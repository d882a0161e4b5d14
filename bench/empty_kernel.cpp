// Nanoseconds of CPU for one launch of an empty kernel, in batches that never fill the queue: a
// full queue would measure the GPU. Prints one JSON line; bench/run.py compares processes with and
// without the preload library.
//
//   empty_kernel [batches] [launches in a batch]
#include <algorithm>
#include <string>
#include <vector>

#include "driver.h"

using namespace switchyard::bench;

int main(int argc, char** argv) {
  const int batches = argc > 1 ? std::atoi(argv[1]) : 800;
  const int launches = argc > 2 ? std::atoi(argv[2]) : 400;
  if (batches < 1 || launches < 1) {
    std::fprintf(stderr, "empty_kernel: batches and launches are numbers from 1\n");
    return 2;
  }
  const CUmodule module = load_module();
  CUfunction function = nullptr;
  check(BENCH_CALL(cuModuleGetFunction)(&function, module, "nop"), "cuModuleGetFunction");
  const auto launch = BENCH_CALL(cuLaunchKernel);
  const auto synchronize = BENCH_CALL(cuCtxSynchronize);

  std::vector<double> per_launch;
  // The first tenth warms up the launch path and is not counted.
  const int warm = batches / 10 + 1;
  for (int batch = 0; batch < batches + warm; ++batch) {
    const std::int64_t begun = now_ns();
    for (int i = 0; i < launches; ++i) {
      const CUresult result = launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
      if (result != CUDA_SUCCESS) check(result, "cuLaunchKernel");
    }
    const std::int64_t ended = now_ns();
    check(synchronize(), "cuCtxSynchronize");
    if (batch >= warm) {
      per_launch.push_back(static_cast<double>(ended - begun) / launches);
    }
  }
  std::sort(per_launch.begin(), per_launch.end());
  std::printf("{\"median_ns\": %.2f, \"tenth_ns\": %.2f, \"fastest_ns\": %.2f, \"batches\": %d}\n",
              per_launch[per_launch.size() / 2], per_launch[per_launch.size() / 10],
              per_launch.front(), batches);
  return 0;
}
