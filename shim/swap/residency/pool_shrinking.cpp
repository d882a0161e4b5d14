#include "shim/swap/residency/pool_shrinking.h"

#include <algorithm>

#include "shim/clock.h"
#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/memory/range_table.h"

namespace switchyard::shim::swap {
namespace {

// Of each slab, as find_next() needs it. Each GPU's is its mover's.
constinit std::uint64_t g_kept_of[abi::kMaxGpus][pinned_pool::kMostSlabs];

// slabs(): there is none. The last of several, for the first ones are filled first. pre: a
// ChunksLock lives.
unsigned find_next(unsigned lane) {
  const unsigned slabs = pinned_pool::slabs(lane);
  std::uint64_t* const kept = g_kept_of[lane];
  std::fill(kept, kept + slabs, 0);
  each_kept(lane, [kept](const Chunk& chunk) {
    kept[pinned_pool::slab_of(chunk.host)] += chunk.host.bytes;
    return false;
  });
  unsigned next = slabs;
  for (unsigned i = 0; i < slabs; ++i) {
    const bool clears = pinned_pool::free_bytes_of(lane, i) + kept[i] == pinned_pool::kSlab;
    if (clears && (next == slabs || kept[i] <= kept[next])) next = i;
  }
  return next;
}

bool drop_next(unsigned lane) {
  unsigned next = 0;
  {
    const ChunksLock held;
    next = find_next(lane);
    if (next == pinned_pool::slabs(lane)) return false;
    if (g_kept_of[lane][next] != 0) {
      each_kept(lane, [next](Chunk& chunk) {
        if (pinned_pool::slab_of(chunk.host) == next) pinned_pool::give_back(chunk.host);
        return false;
      });
    }
  }
  return pinned_pool::drop(lane, next);
}

}  // namespace

bool can_shrink(unsigned lane) {
  const ChunksLock held;
  return find_next(lane) != pinned_pool::slabs(lane);
}

unsigned shrink(unsigned lane, std::uint64_t limit_bytes, std::uint64_t end_ns) {
  unsigned dropped = 0;
  while (pinned_pool::pinned_bytes(lane) > limit_bytes && monotonic_ns() < end_ns &&
         drop_next(lane)) {
    ++dropped;
  }
  return dropped;
}

}  // namespace switchyard::shim::swap
