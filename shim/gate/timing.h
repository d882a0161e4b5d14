// Times single launches behind an armed gate, so that costs.h knows what they are worth.
//
// Concept. Two of the driver's events stand around a launch that is to be timed; what lies between
// them is read after a wait of the CPU, when the GPU has passed them. A GPU has one pool of them,
// in the context that came first; launches in others go untimed.
//
//     record | launch | record ......... a wait of the CPU ends ──► collect()
//
// Where the driver refuses, nothing is timed any more and batches go by the average (spacing.h).
//
// Threading: any thread. A pool's lock is never held in a call that may wait for the GPU.
#pragma once

#include <cstdint>

#include "shim/driver.h"
#include "shim/gate/costs.h"

namespace switchyard::shim::timing {

// A launch that is being timed, between begin() and end().
struct Timed {
  CUevent after = nullptr;  // null: it is not
  unsigned lane = 0;
  unsigned index = 0;
  std::uint32_t generation = 0;
};

// What is known of a launch. key: costs::key_of.
costs::Cost cost(unsigned lane, std::uint64_t key);

// pre: `stream` and the current context are `context`'s, and the stream is not captured.
Timed begin(unsigned lane, std::uint64_t key, CUcontext context, CUstream stream);
void end(const Timed& timed, CUstream stream);

// Reads what the GPU has passed.
void collect(unsigned lane);

// The context has ended, and its events with it (owner: memory/owner.h).
void context_gone(unsigned lane, std::uint64_t owner);

// In a forked child.
void clear();

}  // namespace switchyard::shim::timing
