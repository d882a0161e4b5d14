// Parking: memory of another GPU for what is swapped out (--park).
//
// Concept. A piece is memory on the neighbour, as large as the chunk that it holds, mapped at
// addresses of its own. The GPU that the chunk left reads and writes it there, over NVLink. The
// process needs nothing else on the neighbour, in particular no context. Each piece is given back
// by itself, so the neighbour has its room again as soon as it is wanted.
//
// The monitor says how much may be there (abi.h: park_bytes). Who takes a piece has counted it
// before: the monitor never sees less than there is.
//
// Threading: take() by the mover's thread of the GPU; the rest by whoever holds the ranges
// (range_table.h). The numbers are atomics.
#pragma once

#include <cstdint>

#include "shim/driver.h"

namespace switchyard::shim::swap::parking {

struct Piece {
  CUdeviceptr at = 0;  // 0: none
  std::uint64_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
  unsigned lane = 0;  // whose memory is in it
  explicit operator bool() const { return at != 0; }
};

// What of the GPU's memory is parked or about to be, and the GPU that it is on; none: 0 bytes.
struct Parked {
  unsigned on = 0;
  std::uint64_t bytes = 0;
};
Parked parked(unsigned lane);

// Before a piece is taken: so much more of `lane` will be on the neighbour `on`, where all of it is
// that is parked. uncount(): it was not taken after all.
void count(unsigned lane, unsigned on, std::uint64_t bytes);
void uncount(unsigned lane, std::uint64_t bytes);

// A piece of `bytes`, which were counted. Fails with the driver's complaint, and counts it off.
CUresult take(unsigned lane, std::uint64_t bytes, Piece& piece);
// Gives it back, if there is one. pre: no copy reads or writes it.
void give_back(Piece& piece);

// In a forked child: the parent's pieces are not there.
void clear();

}  // namespace switchyard::shim::swap::parking
