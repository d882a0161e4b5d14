// What swap asks of folders that include it; wiring/swap.cpp does it (client/neighbours.h).
//
// Threading: any thread.
#pragma once

#include "shim/swap/memory/range_table.h"

namespace switchyard::shim::neighbours {

// A range that stays has been freed: nobody shall open it any more. pre: a RangesLock lives.
void shared_range_ended(const swap::Range& range);

}  // namespace switchyard::shim::neighbours
