// Nanoseconds that the preload library adds to one launch of an empty kernel: batches through the
// address that dlsym gives and batches through the driver's own address take turns in one process,
// so that both meet the same CPU, caches and neighbours. Batches never fill the queue: a full queue
// would measure the GPU. Prints one JSON line. Without the library both are the same address.
//
//   empty_kernel [pairs of batches] [launches in a batch]
#include <algorithm>
#include <string>
#include <vector>

#include "driver.h"

using namespace switchyard::bench;

namespace {

using Launch = decltype(&::cuLaunchKernel);

double batch_ns(Launch launch, CUfunction function, int launches) {
  const std::int64_t begun = now_ns();
  for (int i = 0; i < launches; ++i) {
    const CUresult result = launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    if (result != CUDA_SUCCESS) check(result, "cuLaunchKernel");
  }
  return static_cast<double>(now_ns() - begun) / launches;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 1500;
  const int launches = argc > 2 ? std::atoi(argv[2]) : 200;
  if (pairs < 1 || launches < 1) {
    std::fprintf(stderr, "empty_kernel: pairs and launches are numbers from 1\n");
    return 2;
  }
  const CUmodule module = load_module();
  CUfunction function = nullptr;
  check(BENCH_CALL(cuModuleGetFunction)(&function, module, "nop"), "cuModuleGetFunction");
  const auto found = BENCH_CALL(cuLaunchKernel);
  const auto own = reinterpret_cast<Launch>(own_symbol(BENCH_STRING(cuLaunchKernel)));
  const auto synchronize = BENCH_CALL(cuCtxSynchronize);
  if (own == nullptr) {
    std::fprintf(stderr, "empty_kernel: the driver's symbol table has no cuLaunchKernel\n");
    return 1;
  }

  std::vector<double> added;
  std::vector<double> direct;
  // The first tenth warms up the launch path and is not counted.
  const int warm = pairs / 10 + 1;
  for (int pair = 0; pair < pairs + warm; ++pair) {
    double ns[2] = {};
    for (int turn = 0; turn < 2; ++turn) {
      const int side = (pair + turn) % 2;  // A B, B A, ...
      ns[side] = batch_ns(side == 0 ? own : found, function, launches);
      check(synchronize(), "cuCtxSynchronize");
    }
    if (pair < warm) continue;
    direct.push_back(ns[0]);
    added.push_back(ns[1] - ns[0]);
  }
  std::printf("{\"added_ns\": %.2f, \"direct_ns\": %.2f, \"pairs\": %d, \"same\": %s}\n",
              median(added), median(direct), pairs, own == found ? "true" : "false");
  return 0;
}
