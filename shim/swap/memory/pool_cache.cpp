#include "shim/swap/memory/pool_cache.h"

#include <algorithm>

#include "shim/reset.h"
#include "shim/swap/memory/flat_map.h"
#include "shim/swap/memory/lifetime.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap::cache {

std::atomic<std::uint32_t> g_count{0};

namespace {

constinit FlatMap<Known> g_known;

// What the driver counts an allocation by.
constexpr std::uint64_t kPiece = 512;

bool fits(const Range& range, std::uint64_t pool, std::uint64_t bytes) {
  return range.use == Use::kCached && range.pool == pool && range.bytes == bytes;
}

// The place in the table of the first pool with at least this key.
std::size_t index_of(std::uint64_t pool) { return g_known.up_to(pool) - 1; }

std::uint64_t ask(std::uint64_t pool, CUmemPool_attribute which) {
  cuuint64_t value = 0;
  const auto call = driver().cuMemPoolGetAttribute;
  const bool told =
      call != nullptr && call(reinterpret_cast<CUmemoryPool>(pool), which, &value) == CUDA_SUCCESS;
  return told ? value : 0;
}

}  // namespace

void put(Range& range, const FreePoint& freed) {
  range.freed = freed;
  range.use = Use::kCached;
  g_count.fetch_add(1, std::memory_order_relaxed);
}

void take_out(Range& range, Use use) {
  if (range.freed.event != nullptr) driver().cuEventDestroy_v2(range.freed.event);
  range.freed = {};
  range.use = use;
  g_count.fetch_sub(1, std::memory_order_relaxed);
}

Range* pick(std::uint64_t pool, std::uint64_t bytes, const FreePoint& place) {
  for (std::size_t i = 0; i < count(); ++i) {
    Range& range = at(i);
    const bool same_stream =
        range.freed.context == place.context && range.freed.stream == place.stream;
    if (fits(range, pool, bytes) && same_stream) return &range;
  }
  const Askable may_ask;
  for (std::size_t i = 0; may_ask && i < count(); ++i) {
    if (fits(at(i), pool, bytes) && query(at(i)) == CUDA_SUCCESS) return &at(i);
  }
  return nullptr;
}

CUresult query(Range& range) {
  FreePoint& freed = range.freed;
  if (freed.event == nullptr) return CUDA_SUCCESS;
  const CUresult result = driver().cuEventQuery(freed.event);
  if (result != CUDA_SUCCESS) return result;
  driver().cuEventDestroy_v2(freed.event);
  freed.event = nullptr;
  return CUDA_SUCCESS;
}

std::uint64_t release(std::uint64_t pool, std::uint64_t wanted, std::uint64_t* pending) {
  std::uint64_t bytes = 0;
  const Askable may_ask;
  for (std::size_t i = count(); may_ask && i-- > 0 && bytes < wanted;) {
    Range& range = at(i);
    if (range.use != Use::kCached || (pool != kAny && range.pool != pool)) continue;
    const CUresult result = query(range);
    if (result == CUDA_ERROR_NOT_READY && pending != nullptr) *pending += range.bytes;
    if (result != CUDA_SUCCESS) continue;
    bytes += range.bytes;
    take_out(range, Use::kEnding);
    end(i);
  }
  return bytes;
}

std::uint64_t resident_on(unsigned lane) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < count(); ++i) {
    if (at(i).use == Use::kCached && at(i).lane == lane) bytes += resident_bytes(at(i));
  }
  return bytes;
}

Known* find_pool(std::uint64_t pool) {
  const std::size_t behind = g_known.up_to(pool);
  return behind != 0 && g_known.at(behind - 1).pool == pool ? &g_known.at(behind - 1) : nullptr;
}

bool add_pool(const Known& known) { return g_known.add(known); }

Known take_pool(std::uint64_t pool) {
  return find_pool(pool) != nullptr ? g_known.take(index_of(pool)) : Known{};
}

Totals totals_of(std::uint64_t pool) {
  Totals sum;
  for (std::size_t i = 0; i < count(); ++i) {
    const Range& range = at(i);
    if (range.pool != pool) continue;
    sum.reserved += range.bytes;
    if (range.use == Use::kLive) sum.used += (range.asked + kPiece - 1) / kPiece * kPiece;
  }
  return sum;
}

void raise_high(std::uint64_t pool) {
  Known* known = find_pool(pool);
  if (known == nullptr) return;
  const Totals now = totals_of(pool);
  known->used_high = std::max(known->used_high, now.used);
  known->reserved_high = std::max(known->reserved_high, now.reserved);
}

std::uint64_t excess(std::uint64_t pool, std::uint64_t keep) {
  const std::uint64_t both =
      totals_of(pool).reserved + ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  return both > keep ? both - keep : 0;
}

void shrink_all() {
  for (std::size_t i = 0; i < g_known.count(); ++i) {
    const std::uint64_t pool = g_known.at(i).pool;
    release(pool, excess(pool, ask(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)));
  }
  for (std::size_t i = count(); i-- > 0;) {
    // Each call may end more than one.
    if (i < count() && at(i).use == Use::kCached && (at(i).pool & kEnded) != 0) {
      release(at(i).pool, UINT64_MAX);
    }
  }
}

void drop_all(unsigned lane) {
  for (std::size_t i = count(); i-- > 0;) {
    if (at(i).use != Use::kCached || at(i).lane != lane) continue;
    take_out(at(i), Use::kEnding);
    end(i);
  }
}

namespace {
void forget() {
  g_known.forget();
  g_count.store(0, std::memory_order_relaxed);
}
}  // namespace
SWITCHYARD_RESET(kState, forget);

}  // namespace switchyard::shim::swap::cache
