// How a range begins and ends (range_table.h), for those who hand ranges out: allocate.h and
// pooled.h.
//
// Threading: any thread.
#pragma once

#include <cstddef>

#include "shim/memory/relaxed.h"
#include "shim/swap/memory/range_table.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap {

// Acts under RangesLock while nothing is moved: waits for the end of a move, unless the calling
// thread is one that the mover waits for. pre: nothing of ours is held.
template <typename Act>
auto admitted(Act act) {
  const memory::Relaxed relaxed;
  for (;;) {
    const bool inside = admission::inside();
    if (!inside) admission::wait_until_open();
    const RangesLock held;
    if (inside || admission::is_open()) return act();
  }
}

// Makes the memory of `range`, whose addresses and chunks are still to be, and adds it. On failure
// nothing is left. pre: as admitted().
CUresult create(Range& range);

// Gives back all that stands behind one, its addresses and, of pooled memory, its charge.
// pre: a RangesLock lives, and no work can touch it.
void end(std::size_t index);
void end(const Range* range);

}  // namespace switchyard::shim::swap
