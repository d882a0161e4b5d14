// Two processes at once: the memory of the one leaves while that of the other comes.
//
// Concept. The effect that jobs which take turns have on each other, without the library. Both
// directions of the link are at work, and the driver gives back and makes memory meanwhile. Ways
// differ in which of that there is, so they tell what each costs; where neither is, the link alone
// is the bound. The one that leaves is this program once more.
//
//     it     out ▓▓▓▓ give back ▓▓▓▓ give back
//     we     make, in ▓▓▓▓ make, in ▓▓▓▓
//
// Threading: one thread in each.
#pragma once

#include <cstddef>

#include "bench/ablation/child.h"
#include "bench/ablation/moves.h"

namespace switchyard::bench::ablation {

struct Turn {
  double out_ms = 0;
  double in_ms = 0;
};

class Pair {
 public:
  // So many bytes each. `memory` has our copy.
  Pair(std::size_t bytes, const HostMemory& memory);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // `gives_back`: it gives its chunks back as they have left; `makes`: we make ours as they come.
  Turn turn(std::size_t chunk_bytes, bool gives_back, bool makes);

 private:
  std::size_t bytes_;
  const HostMemory& memory_;
  Child other_;
};

// What the other does, told by lines on standard input.
int be_leaver(std::size_t bytes);

}  // namespace switchyard::bench::ablation
