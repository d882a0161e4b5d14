// Takes memory in pieces of 200 MiB until there is no more, and says how much it got.
#include "open.h"

int main() {
  demo::Gpu gpu = examples::open_gpu();
  std::string why;
  int pieces = 0;
  while (pieces < 100 && gpu.allocate(200UL << 20, why)) ++pieces;
  std::printf("hungry: got %d MiB, then %s\n", 200 * pieces,
              why.empty() ? "no refusal" : why.c_str());
}
