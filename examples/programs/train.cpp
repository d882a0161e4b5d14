// A training: 768 MiB of memory, and kernels of 3 ms without end, two of them in flight. Every 10 s
// it says how many it did.
#include <ctime>

#include "open.h"

int main() {
  demo::Gpu gpu = examples::open_gpu();
  std::string why;
  for (int i = 0; i < 12; ++i) {
    if (!gpu.allocate(64UL << 20, why)) examples::end_with("train: " + why);
  }
  std::time_t said = std::time(nullptr);
  long steps = 0;
  for (unsigned round = 0;; ++round, ++steps) {
    if (round >= 2 && !gpu.wait_for(round % 2)) examples::end_with("train: a step failed");
    if (!gpu.launch(1, 3000) || !gpu.mark(round % 2)) examples::end_with("train: a step failed");
    const std::time_t now = std::time(nullptr);
    if (now - said < 10) continue;
    std::printf("train: %ld steps per second\n", steps / (now - said));
    std::fflush(stdout);
    said = now;
    steps = 0;
  }
}
