// Times single launches behind an armed gate, so that costs.h knows what they are worth.
//
// Concept. Two of the driver's events (timers.h) stand around a launch that is to be timed. They
// are read after a wait of the CPU, when the GPU has passed them.
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
#include "shim/gate/timers.h"

namespace switchyard::shim::timing {

// A launch that is being timed, between begin() and end().
struct Timed {
  timers::Running running;
  unsigned lane = 0;
};

// The known cost of a launch. key: costs::key_of.
costs::Cost cost(unsigned lane, std::uint64_t key);

// pre: `stream` is `context`'s and not captured. Nothing is timed from within another context.
Timed begin(unsigned lane, const costs::Cost& cost, CUcontext context, CUstream stream);
void end(const Timed& timed);

// Reads what the GPU has passed.
void collect(unsigned lane);

// A context may be about to end (owner: memory/owner.h). Its events are left alone until it has
// ended or turns out to live on.
void suspend(unsigned lane, std::uint64_t owner);
void lives_on(unsigned lane, std::uint64_t owner);

// The context has ended, and its events with it.
void context_gone(unsigned lane, std::uint64_t owner);

// In a forked child.
void clear();

}  // namespace switchyard::shim::timing
