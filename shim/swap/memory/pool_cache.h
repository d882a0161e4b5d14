// The cache of pooled memory (pooled.h): ranges that were freed, and which of them may be used
// again. It also keeps what is known of their pools.
//
// Concept. A cached range stands behind an event. It may be used again by what comes later in the
// stream that it was freed in, or by anybody once the event has come. Only its whole is handed out:
// its addresses and chunks stay as they are.
//
// The sums are read from the ranges, so they can't drift; only high marks are remembered.
//
// Threading: whoever calls any of it holds RangesLock (range_table.h), except any().
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/driver.h"
#include "shim/swap/memory/range_table.h"

namespace switchyard::shim::swap::cache {

// In a range's `pool`: that pool has ended, and its memory is given back as soon as it is free.
inline constexpr std::uint64_t kEnded = 1;
// As a pool: any.
inline constexpr std::uint64_t kAny = 0;

inline std::uint64_t key_of(CUmemoryPool pool) { return reinterpret_cast<std::uintptr_t>(pool); }

// Ranges that are cached, or more.
extern std::atomic<std::uint32_t> g_count;
inline bool any() { return g_count.load(std::memory_order_relaxed) != 0; }

void put(Range& range, const FreePoint& freed);
// It isn't cached any more, and its event is gone.
void take_out(Range& range, Use use);

// A cached range of `pool` in that size that may be used at `place` now; null: none.
Range* pick(std::uint64_t pool, std::uint64_t bytes, const FreePoint& place);

// Success: nothing that was put before the free is to be waited for. pre: an Askable says yes.
CUresult query(Range& range);

// Gives back what is cached of `pool` and done, until it was `wanted` bytes; how many it was. Adds
// to `pending` what the GPU has not come to yet.
std::uint64_t release(std::uint64_t pool, std::uint64_t wanted, std::uint64_t* pending = nullptr);

// Gives all of it back. pre: no work is left that could touch it.
void drop_all(unsigned lane);

// The cached memory of a GPU that is on it.
std::uint64_t resident_on(unsigned lane);

// --- pools ---

struct Known {
  std::uint64_t pool = 0;
  unsigned lane = 0;   // the GPU whose memory it is
  bool stays = false;  // others may know its memory, so it isn't ours to move
  std::uint64_t used_high = 0;
  std::uint64_t reserved_high = 0;

  std::uint64_t key() const { return pool; }
};

// Null: not known.
Known* find_pool(std::uint64_t pool);
// False: no memory for it.
bool add_pool(const Known& known);
Known take_pool(std::uint64_t pool);

struct Totals {
  std::uint64_t used = 0;
  std::uint64_t reserved = 0;
};
Totals totals_of(std::uint64_t pool);
// After each allocation.
void raise_high(std::uint64_t pool);

// How much of ours is above what the pool may keep: `keep` bytes of both parts.
std::uint64_t excess(std::uint64_t pool, std::uint64_t keep);
// Brings every pool down to its release threshold, as far as it is done.
void shrink_all();

}  // namespace switchyard::shim::swap::cache
