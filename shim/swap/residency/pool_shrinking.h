// Giving pinned memory of the host back, for others to pin, or unpinning it before a move.
//
// Concept. Only whole slabs can be given back (pinned_pool.h). Next is the one that costs least: of
// those in which nothing is but kept copies (range_table.h), the one with the fewest of them.
// Memory that is away stays where it is.
//
// Threading: the mover's thread, between moves.
#pragma once

#include <cstdint>

#include "shim/driver.h"

namespace switchyard::shim::swap {

// Whether a slab of the GPU's pool could be given back.
bool can_shrink(unsigned lane);

// Gives slabs of it back until no more than `limit_bytes` are pinned, with what was kept in them;
// begins none after `end_ns` (CLOCK_MONOTONIC). The driver waits for all work: pre: work is held
// and done, and a context is current. How many.
unsigned shrink(unsigned lane, std::uint64_t limit_bytes, std::uint64_t end_ns);

// A slab is *needed* if a move by the host will copy to it. Then it should stay pinned.
void none_is_needed(unsigned lane);
// Looks at a part of the memory below the address `below`. It notes slabs whose kept copies are not
// right any more, and free slabs for chunks without a copy. Afterwards `below` is where the next
// part ends; 0: all is noted. Begin with none_is_needed() and UINT64_MAX. pre: as shrink().
void find_needed(unsigned lane, CUdeviceptr& below);

// Unpins slabs of it that no copy needs: nothing is in them but kept copies, which stay, and they
// are not needed. It begins none after `end_ns`. pre: as shrink().
struct Unpinned {
  std::uint64_t bytes = 0;
  bool all = false;  // there is no more, or the driver refused
};
Unpinned unpin_spare(unsigned lane, std::uint64_t end_ns);

}  // namespace switchyard::shim::swap
