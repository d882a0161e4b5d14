// What a forked child forgets of its parent's swappable memory.
//
// Threading: the child's only thread; only calls that are async-signal-safe.
#pragma once

namespace switchyard::shim::swap {

// All of swap's modules begin anew: the parent's memory, threads and locks are not ours.
void clear();

}  // namespace switchyard::shim::swap
