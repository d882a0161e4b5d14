// What the checkpoint asks of folders that include it; wiring/checkpoint.cpp does it
// (client/neighbours.h).
//
// Threading: the mover's thread.
#pragma once

#include <cstdint>

namespace switchyard::shim::neighbours {

// The process has no channel groups any more.
void contexts_left(unsigned lane);
// From now on, until contexts_came(), whoever makes channel groups makes them on the GPU of `lane`.
void contexts_come(unsigned lane);
// `all`: what was there before is there again.
void contexts_came(unsigned lane, bool all);
// The two GPUs have changed places: the process's contents of each are on the other.
void gpus_exchanged(const std::uint8_t (&one)[16], const std::uint8_t (&other)[16]);

}  // namespace switchyard::shim::neighbours
