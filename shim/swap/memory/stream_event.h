// Stream order: where a stream stands, and when what was put into it is done.
//
// Concept. A stream is known by its context and its number, which no other stream ever has; a
// handle may be another's tomorrow. An event tells when it has got as far. Events end with their
// context, unseen where that is a green one. So no event is put any more once the process has made
// a green context.
//
// Threading: any thread.
#pragma once

#include "shim/driver.h"
#include "shim/swap/memory/range_table.h"

namespace switchyard::shim::swap::pooled {

// The stream of a call, of either twin.
struct Order {
  CUstream stream = nullptr;
  bool per_thread = false;
};

// Its context and number.
CUresult place_of(Order order, FreePoint& place);

// Whether events can be put at all.
bool may_stand_behind();
// Puts one behind what is in the stream, at its place. False: it can't be told when that is done.
bool stand_behind(FreePoint& place, Order order);

// From here on the end of `range` waits for that context, and comes with it. Its own may have
// ended.
void bind_lifetime(Range& range, CUcontext context);
CUresult bind_lifetime_to_current(Range& range);

void green_context_made();

// In a forked child.
void clear_order();

}  // namespace switchyard::shim::swap::pooled
