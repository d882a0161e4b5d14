// What memory asks of folders that include it; wiring/memory.cpp does it (client/neighbours.h).
//
// Threading: any thread.
#pragma once

#include <cstdint>

namespace switchyard::shim::neighbours {

// The owner (owner.h) has ended. Memory that is not the driver's has not ended with it: swappable
// memory, and memory that was opened of another process.
void free_owned(int lane, std::uint64_t owner);

// Room is needed: gives back the swappable memory that is freed but kept. It may wait for the GPU.
void reclaim_swappable();

}  // namespace switchyard::shim::neighbours
