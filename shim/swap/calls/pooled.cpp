#include "shim/swap/calls/pooled.h"

#include <pthread.h>
#include <stddef.h>

#include <algorithm>

#include "shim/client/process.h"
#include "shim/gate/gate.h"
#include "shim/lock.h"
#include "shim/memory/account.h"
#include "shim/memory/owner.h"
#include "shim/memory/pools.h"
#include "shim/memory/relaxed.h"
#include "shim/reset.h"
#include "shim/swap/calls/allocate.h"
#include "shim/swap/memory/lifetime.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap::pooled {
namespace {

using cache::key_of;
using cache::Known;

// Held while an event is waited for: its context doesn't end meanwhile.
pthread_mutex_t g_waiting = PTHREAD_MUTEX_INITIALIZER;

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

// A cached range that this thread alone waits for. It counts as cached meanwhile, so that whoever
// ends its context waits, too.
struct Waited {
  CUdeviceptr address = 0;
  FreePoint freed;

  bool claim() {
    const RangesLock held;
    for (std::size_t i = 0; i < count(); ++i) {
      Range& range = at(i);
      if (range.use != Use::kCached) continue;
      address = range.address;
      freed = range.freed;
      range.use = Use::kEnding;
      return true;
    }
    return false;
  }

  CUresult wait() const {
    const NoCapture none;
    if (!may_wait()) return CUDA_ERROR_NOT_READY;
    return freed.event != nullptr ? driver().cuEventSynchronize(freed.event) : CUDA_SUCCESS;
  }

  bool finish() const {
    const bool done = wait() == CUDA_SUCCESS;
    const RangesLock held;
    Range* range = find(address);
    if (range == nullptr || range->use != Use::kEnding) return false;
    range->use = Use::kCached;
    if (done) {
      cache::take_out(*range, Use::kEnding);
      end(range);
    }
    return done;
  }
};

// pre: a RangesLock lives.
void rename(std::uint64_t from, std::uint64_t to) {
  for (std::size_t i = 0; i < count(); ++i) {
    if (at(i).pool == from) at(i).pool = to;
  }
}

// No more is asked of an event in a context that may be about to end. pre: a RangesLock lives.
void leave_context(Range& range, const Askable& may_ask) {
  if (may_ask && cache::done(range)) return;
  bind_lifetime(range, range.freed.context);
  cache::take_out(range, Use::kEnding);
  defer_free(range);
}

}  // namespace

void learn(CUmemoryPool pool, const CUmemPoolProps& properties) {
  const bool own = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                   properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                   properties.handleTypes == CU_MEM_HANDLE_TYPE_NONE;
  // What newer headers have behind these: a size that it may not exceed, a use.
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

bool reclaim() {
  if (!cache::any()) return false;
  bool any = false;
  {
    const RangesLock held;
    any = cache::release(cache::kAny, UINT64_MAX) != 0;
  }
  if (!cache::any() || !may_wait()) return any;
  const gate::Waiting waiting(gate::Waiting::kStream);
  const Locked waits(g_waiting);
  for (Waited one; one.claim() && one.finish();) any = true;
  return any;
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
  const Locked waits(g_waiting);
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

namespace {
void forget() { g_waiting = PTHREAD_MUTEX_INITIALIZER; }
}  // namespace
SWITCHYARD_RESET(kState, forget);

}  // namespace switchyard::shim::swap::pooled
