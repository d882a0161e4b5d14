// Giving pinned memory of the host back, for others to pin.
//
// Concept. Only whole slabs can be given back (pinned_pool.h). Next is the one that costs least: of
// those in which nothing is but kept copies (range_table.h), the one with the fewest of them. What
// is away stays where it is.
//
// Threading: the mover's thread, between moves.
#pragma once

#include <cstdint>

namespace switchyard::shim::swap {

// Whether a slab of the GPU's pool could be given back.
bool can_shrink(unsigned lane);

// Gives slabs of it back until no more than `limit_bytes` are pinned, with what was kept in them;
// begins none after `end_ns` (CLOCK_MONOTONIC). The driver waits for all work: pre: work is held
// and done, and a context is current. How many.
unsigned shrink(unsigned lane, std::uint64_t limit_bytes, std::uint64_t end_ns);

}  // namespace switchyard::shim::swap
