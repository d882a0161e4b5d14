// Takes memory in pieces of 200 MiB until there is no more, and says how much it got.
//
//   hungry [SECONDS]    then keeps it for so long, and does nothing
#include <unistd.h>

#include <cstdlib>

#include "open.h"

int main(int argc, char** argv) {
  demo::Gpu gpu = examples::open_gpu();
  std::string why;
  int pieces = 0;
  while (pieces < 100 && gpu.allocate(200UL << 20, why)) ++pieces;
  std::printf("hungry: got %d MiB, then %s\n", 200 * pieces,
              why.empty() ? "no refusal" : why.c_str());
  std::fflush(stdout);
  if (argc > 1) ::sleep(static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)));
}
