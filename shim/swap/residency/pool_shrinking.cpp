#include "shim/swap/residency/pool_shrinking.h"

#include <algorithm>

#include "shim/clock.h"
#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/memory/range_table.h"
#include "shim/swap/transfer/pipeline.h"

namespace switchyard::shim::swap {
namespace {

// Of each slab, as find_next() and find_spare() need it. Each GPU's is its mover's.
constinit std::uint64_t g_kept_of[abi::kMaxGpus][pinned_pool::kMostSlabs];
constinit bool g_spare[abi::kMaxGpus][pinned_pool::kMostSlabs];
constinit bool g_needed[abi::kMaxGpus][pinned_pool::kMostSlabs];
constinit std::uint64_t g_lacking[abi::kMaxGpus];  // of chunks that have no copy, in find_needed()
// By one call of it: some milliseconds for the digests of a GPU that nobody else uses.
constexpr std::uint64_t kLookedAt = 8ull << 30;

// pre: a ChunksLock lives. How many slabs there are.
unsigned count_kept(unsigned lane) {
  const unsigned slabs = pinned_pool::slabs(lane);
  std::uint64_t* const kept = g_kept_of[lane];
  std::fill(kept, kept + slabs, 0);
  each_kept(lane, [kept](const Chunk& chunk) {
    kept[pinned_pool::slab_of(chunk.host)] += chunk.host.bytes;
    return false;
  });
  return slabs;
}

// Nothing is in it but kept copies.
bool is_spare(unsigned lane, unsigned slab) {
  return pinned_pool::free_bytes_of(lane, slab) + g_kept_of[lane][slab] == pinned_pool::kSlab;
}

// slabs(): there is none. The last of several, for the first ones are filled first. pre: a
// ChunksLock lives.
unsigned find_next(unsigned lane) {
  const unsigned slabs = count_kept(lane);
  const std::uint64_t* const kept = g_kept_of[lane];
  unsigned next = slabs;
  for (unsigned i = 0; i < slabs; ++i) {
    if (is_spare(lane, i) && (next == slabs || kept[i] <= kept[next])) next = i;
  }
  return next;
}

// How many slabs there are.
unsigned find_spare(unsigned lane) {
  const ChunksLock held;
  const unsigned slabs = count_kept(lane);
  for (unsigned i = 0; i < slabs; ++i) g_spare[lane][i] = is_spare(lane, i);
  return slabs;
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

void none_is_needed(unsigned lane) {
  std::fill(g_needed[lane], g_needed[lane] + pinned_pool::kMostSlabs, false);
  g_lacking[lane] = 0;
}

void find_needed(unsigned lane, CUdeviceptr& below) {
  const ChunksLock held;
  each_to_copy(lane, below, kLookedAt, [](unsigned of, const Chunk& chunk) {
    if (chunk.host) {
      g_needed[of][pinned_pool::slab_of(chunk.host)] = true;
    } else {
      g_lacking[of] += chunk.bytes;
    }
  });
  if (below != 0) return;
  // The first slabs are filled first.
  std::uint64_t lacking = g_lacking[lane];
  for (unsigned i = 0; i < pinned_pool::slabs(lane) && lacking != 0; ++i) {
    const std::uint64_t free = std::min(lacking, pinned_pool::free_bytes_of(lane, i));
    g_needed[lane][i] = g_needed[lane][i] || free != 0;
    lacking -= free;
  }
}

// The table of ranges is not held while the driver is asked: work that is admitted needs it. Only
// this thread fills a slab.
Unpinned unpin_spare(unsigned lane, std::uint64_t end_ns) {
  const unsigned slabs = find_spare(lane);
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < slabs; ++i) {
    if (!g_spare[lane][i] || g_needed[lane][i] || pinned_pool::is_unpinned(lane, i)) continue;
    if (monotonic_ns() >= end_ns) return {bytes, false};
    if (!pinned_pool::unpin(lane, i)) break;
    bytes += pinned_pool::kSlab;
  }
  return {bytes, true};
}

}  // namespace switchyard::shim::swap
