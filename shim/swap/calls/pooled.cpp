#include "shim/swap/calls/pooled.h"

#include <stddef.h>

#include <algorithm>

#include "shim/client/process.h"
#include "shim/clock.h"
#include "shim/gate/gate.h"
#include "shim/inside.h"
#include "shim/memory/account.h"
#include "shim/memory/owner.h"
#include "shim/memory/pools.h"
#include "shim/memory/relaxed.h"
#include "shim/swap/calls/allocate.h"
#include "shim/swap/memory/lifetime.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap::pooled {
namespace {

using cache::key_of;
using cache::Known;

constexpr std::uint64_t kLookNs = 50'000;
constexpr std::uint64_t kLongestLookNs = 1'000'000;

bool is_default_of(CUdevice device, CUmemoryPool pool) {
  CUmemoryPool own = nullptr;
  const auto ask = driver().cuDeviceGetDefaultMemPool;
  return ask != nullptr && ask(&own, device) == CUDA_SUCCESS && own == pool;
}

// pre: a RangesLock lives.
bool moves(CUmemoryPool pool) {
  const Known* known = cache::find_pool(key_of(pool));
  const auto lane = static_cast<unsigned>(lane_index(current_lane()));
  // Memory of another GPU's pool is of that GPU, whichever is current.
  if (known != nullptr) return !known->stays && known->lane == lane;
  return is_default_of(static_cast<CUdevice>(lane), pool) &&
         cache::add_pool({.pool = key_of(pool), .lane = lane});
}

bool reuse(CUdeviceptr* address, std::uint64_t asked, const Range& wanted, const FreePoint& place) {
  if (!cache::any()) return false;
  return admitted([&] {
    Range* range = cache::pick(wanted.pool, wanted.bytes, place);
    if (range == nullptr) return false;
    cache::take_out(*range, Use::kLive);
    range->asked = asked;
    range->context = wanted.context;
    range->id = new_id();
    set_sync(range->sync, SyncMemops::kUnset);
    *address = range->address;
    cache::raise_high(range->pool);
    return true;
  });
}

// pre: a RangesLock lives.
void rename(std::uint64_t from, std::uint64_t to) {
  for (std::size_t i = 0; i < count(); ++i) {
    if (at(i).pool == from) at(i).pool = to;
  }
}

// No more is asked of an event in a context that may be about to end. pre: a RangesLock lives.
void leave_context(Range& range, const Askable& may_ask) {
  if (may_ask && cache::query(range) == CUDA_SUCCESS) return;
  bind_lifetime(range, range.freed.context);
  cache::take_out(range, Use::kEnding);
  defer_free(range);
}

}  // namespace

void learn(CUmemoryPool pool, const CUmemPoolProps& properties) {
  const bool own = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                   properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                   properties.handleTypes == CU_MEM_HANDLE_TYPE_NONE;
  // Newer headers have more fields behind these: a size that it may not exceed, a use.
  const auto* bytes = reinterpret_cast<const unsigned char*>(&properties);
  const bool plain = std::all_of(bytes + offsetof(CUmemPoolProps, win32SecurityAttributes),
                                 bytes + sizeof(properties), [](auto byte) { return byte == 0; });
  if (!own || !plain) return;
  const RangesLock held;
  cache::take_pool(key_of(pool));
  cache::add_pool({.pool = key_of(pool), .lane = static_cast<unsigned>(properties.location.id)});
}

void access_given(CUmemoryPool pool, const CUmemLocation& to) {
  const bool device = to.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const RangesLock held;
  Known* known = cache::find_pool(key_of(pool));
  if (known != nullptr) {
    known->stays = known->stays || !device || to.id != static_cast<int>(known->lane);
  } else if (!device || !is_default_of(to.id, pool)) {
    cache::add_pool({.pool = key_of(pool), .stays = true});
  }
}

bool takes(CUmemoryPool pool, std::uint64_t bytes) {
  if (!swap::takes(bytes) || pool == nullptr || !may_stand_behind()) return false;
  const memory::Relaxed relaxed;
  const RangesLock held;
  return moves(pool);
}

CUresult allocate(CUdeviceptr* address, std::uint64_t bytes, CUmemoryPool pool, Order order) {
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  abi::Lane* lane = current_lane();
  Range range;
  range.asked = bytes;
  range.bytes = account::rounded(bytes);
  range.lane = static_cast<unsigned>(lane_index(lane));
  range.owner = kNobody;
  range.pool = key_of(pool);
  range.properties = plain_memory(static_cast<int>(range.lane));
  FreePoint place;
  if (const CUresult bad = place_of(order, place)) return bad;
  range.context = place.context;
  if (reuse(address, bytes, range, place)) return CUDA_SUCCESS;
  if (const CUresult refused = account::reserve(lane, range.bytes, pools::reclaim)) return refused;
  const CUresult made = create_where_room(range);
  if (made != CUDA_SUCCESS) {
    account::release(lane, range.bytes);
    return made;
  }
  *address = range.address;
  const RangesLock held;
  cache::raise_high(range.pool);
  return CUDA_SUCCESS;
}

bool free(CUdeviceptr address, Order order, CUresult& result) {
  {
    const RangesLock held;
    Range* range = live(address);
    if (range == nullptr || range->pool == 0) return false;
    result = address == range->address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) return true;
    if (resident_bytes(*range) == 0) {
      end(range);
      return true;
    }
    range->use = Use::kEnding;
  }
  FreePoint place;
  result = may_stand_behind() ? place_of(order, place) : driver().cuCtxGetCurrent(&place.context);
  const bool behind = result == CUDA_SUCCESS && stand_behind(place, order);
  const RangesLock held;
  Range& range = *find(address);  // nobody else ends it
  if (result != CUDA_SUCCESS) {
    range.use = Use::kLive;
  } else if (behind) {
    cache::put(range, place);
  } else {
    bind_lifetime(range, place.context);
    defer_free(range);
  }
  return true;
}

bool pool_of(CUdeviceptr address, CUmemoryPool& pool) {
  const RangesLock held;
  const Range* range = live(address);
  if (range == nullptr || range->pool == 0) return false;
  pool = reinterpret_cast<CUmemoryPool>(range->pool & ~cache::kEnded);
  return true;
}

void shrink() {
  const memory::Relaxed relaxed;
  const RangesLock held;
  cache::shrink_all();
}

namespace {

std::uint64_t release_all(std::uint64_t& pending) {
  const RangesLock held;
  pending = 0;
  return cache::release(cache::kAny, UINT64_MAX, &pending);
}

}  // namespace

// Until so much has come as was pending at first: other threads may free all the time. Nothing is
// held between two looks: the GPU may wait for another thread, and an event's context may end.
bool reclaim() {
  if (!cache::any()) return false;
  std::uint64_t pending = 0;
  const std::uint64_t at_once = release_all(pending);
  const std::uint64_t wanted = pending;
  if (pending == 0 || !may_wait()) return at_once != 0;
  const gate::Waiting waiting(gate::Waiting::kStream);
  std::uint64_t came = 0;
  for (std::uint64_t look_ns = kLookNs; pending != 0 && came < wanted && may_wait();
       look_ns = std::min(look_ns + kLookNs, kLongestLookNs)) {
    {
      const Outside outside;
      sleep_ns(look_ns);
    }
    came += release_all(pending);
  }
  return at_once + came != 0;
}

std::uint64_t trim(CUmemoryPool pool, std::uint64_t keep) {
  const memory::Relaxed relaxed;
  const RangesLock held;
  if (cache::find_pool(key_of(pool)) == nullptr) return keep;
  cache::release(key_of(pool), cache::excess(key_of(pool), keep));
  const std::uint64_t ours = cache::totals_of(key_of(pool)).reserved;
  return keep > ours ? keep - ours : 0;
}

void add_ours(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  const RangesLock held;
  const Known* known = cache::find_pool(key_of(pool));
  if (known == nullptr) return;
  const cache::Totals now = cache::totals_of(key_of(pool));
  auto& sum = *static_cast<cuuint64_t*>(value);
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) sum += now.used;
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) sum += known->used_high;
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) sum += now.reserved;
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) sum += known->reserved_high;
}

void reset_high(CUmemoryPool pool, CUmemPool_attribute attribute) {
  const RangesLock held;
  Known* known = cache::find_pool(key_of(pool));
  if (known == nullptr) return;
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) known->used_high = 0;
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) known->reserved_high = 0;
  cache::raise_high(known->pool);
}

Ending::Ending(CUmemoryPool pool) {
  const RangesLock held;
  known_ = cache::take_pool(key_of(pool));
  if (known_.pool != 0) rename(known_.pool, known_.pool | cache::kEnded);
}

void Ending::lives_on() const {
  if (known_.pool == 0) return;
  const RangesLock held;
  cache::add_pool(known_);
  rename(known_.pool | cache::kEnded, known_.pool);
}

void context_ends(std::uint64_t owner) {
  if (!cache::any()) return;
  const RangesLock held;
  const Askable may_ask;
  for (std::size_t i = 0; i < count(); ++i) {
    Range& range = at(i);
    if (range.use == Use::kCached && range.freed.event != nullptr &&
        memory::owner_of(range.freed.context) == owner) {
      leave_context(range, may_ask);
    }
  }
}

}  // namespace switchyard::shim::swap::pooled
