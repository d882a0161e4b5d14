#include "shim/memory/pools.h"

#include <pthread.h>

#include <algorithm>

#include "shim/client/process.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/memory/account.h"
#include "shim/memory/neighbours.h"
#include "shim/memory/relaxed.h"
#include "shim/memory/stays.h"
#include "shim/reset.h"

namespace switchyard::shim::pools {

std::atomic<std::uint32_t> g_in_use{0};

namespace {

constexpr int kSlots = 512;

struct Pool {
  CUmemoryPool handle;  // null: the memory of graphs on `device`
  int device;
  bool used;              // the slot is taken
  std::uint64_t charged;  // taken from the account for it
  std::uint64_t pending;  // allocations under way
  std::uint64_t growing;  // their needs
  std::uint64_t id;       // never given again
  PoolKind kind;
  std::uint64_t live;  // of a managed one: what lives in it
  bool exported;       // others may have its memory
  bool made;           // by cuMemPoolCreate: the driver destroys no other
  bool ending;         // it is destroying it
};

Stays why(const Pool& pool) {
  if (pool.exported) return Stays::kIpcExported;
  return pool.handle != nullptr ? Stays::kPools : Stays::kGraphs;
}

struct State {
  Pool pools[kSlots] = {};
  int slots = 0;  // slots ever used
  std::uint64_t last_id = 0;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

// The difference between the account and a pool after a look at it.
struct Difference {
  abi::Lane* lane = nullptr;
  std::uint64_t more = 0;
  std::uint64_t less = 0;
};

bool apply(const Difference& difference) {
  account::release(difference.lane, difference.less);
  return account::charge(difference.lane, difference.more);
}

// pre: Locked, for all of these.

int find(CUmemoryPool handle, int device) {
  for (int i = 0; i < g_state.slots; ++i) {
    const Pool& pool = g_state.pools[i];
    if (!pool.used || pool.ending || pool.handle != handle) continue;
    if (handle != nullptr || pool.device == device) return i;
  }
  return -1;
}

int find_or_add(CUmemoryPool handle, int device, PoolKind kind = PoolKind::kDevice) {
  const int found = find(handle, device);
  if (found >= 0) return found;
  for (int i = 0; i < kSlots; ++i) {
    if (g_state.pools[i].used) continue;
    g_state.pools[i] = {};
    g_state.pools[i].handle = handle;
    g_state.pools[i].device = device;
    g_state.pools[i].used = true;
    g_state.pools[i].id = ++g_state.last_id;
    g_state.pools[i].kind = kind;
    g_state.slots = std::max(g_state.slots, i + 1);
    return i;
  }
  static Once said;
  log_once(said, Level::kWarn, "more than %d memory pools: the others are not counted", kSlots);
  return -1;
}

bool read_pool(const Pool& pool, CUmemPool_attribute which, std::uint64_t& value) {
  cuuint64_t bytes = 0;
  const auto ask = driver().cuMemPoolGetAttribute;
  if (ask == nullptr || ask(pool.handle, which, &bytes) != CUDA_SUCCESS) return false;
  value = bytes;
  return true;
}

bool read_graphs(const Pool& pool, CUgraphMem_attribute which, std::uint64_t& value) {
  cuuint64_t bytes = 0;
  const auto ask = driver().cuDeviceGetGraphMemAttribute;
  if (ask == nullptr || ask(pool.device, which, &bytes) != CUDA_SUCCESS) return false;
  value = bytes;
  return true;
}

// Memory that lives in a managed pool counts, whatever the driver says.
template <typename Read>
bool at_least_live(const Pool& pool, std::uint64_t& bytes, Read read) {
  bytes = 0;
  const bool known = read();
  bytes = std::max(bytes, pool.live);
  return known || pool.kind == PoolKind::kManaged;
}

bool read_reserved_by_driver(const Pool& pool, std::uint64_t& bytes) {
  return pool.handle != nullptr ? read_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, bytes)
                                : read_graphs(pool, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, bytes);
}

bool read_used_by_driver(const Pool& pool, std::uint64_t& bytes) {
  return pool.handle != nullptr ? read_pool(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, bytes)
                                : read_graphs(pool, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, bytes);
}

bool read_reserved(const Pool& pool, std::uint64_t& bytes) {
  return at_least_live(pool, bytes, [&] { return read_reserved_by_driver(pool, bytes); });
}

bool read_used(const Pool& pool, std::uint64_t& bytes) {
  return at_least_live(pool, bytes, [&] { return read_used_by_driver(pool, bytes); });
}

void set_charged(Pool& pool, std::uint64_t bytes) {
  memory::stays(pool.device, why(pool), static_cast<std::int64_t>(bytes - pool.charged));
  if ((pool.charged == 0) != (bytes == 0)) g_in_use.fetch_add(bytes == 0 ? -1u : 1u);
  pool.charged = bytes;
}

// Puts the charge right; the account is changed by the caller, outside the lock.
Difference look(Pool& pool) {
  std::uint64_t reserved = 0;
  if (pool.ending || !read_reserved(pool, reserved)) return {};
  // Growth under way may be in `reserved` already, or still to come: charged for at most once.
  const std::uint64_t target = std::clamp(pool.charged, reserved, reserved + pool.growing);
  Difference difference{lane_of_device(pool.device), 0, 0};
  if (target > pool.charged) difference.more = target - pool.charged;
  if (target < pool.charged) difference.less = pool.charged - target;
  set_charged(pool, target);
  return difference;
}

void trim(const Pool& pool) {
  if (pool.handle != nullptr) {
    if (driver().cuMemPoolTrimTo != nullptr) driver().cuMemPoolTrimTo(pool.handle, 0);
  } else if (driver().cuDeviceGraphMemTrim != nullptr) {
    driver().cuDeviceGraphMemTrim(pool.device);
  }
}

// What an allocation may make the pool grow by.
std::uint64_t need_of(const Pool& pool, std::uint64_t bytes) {
  std::uint64_t used = 0;
  if (!read_used(pool, used)) return account::rounded(bytes);
  const std::uint64_t wanted = used + pool.pending + bytes;
  if (wanted <= pool.charged) return 0;
  return account::rounded(std::min(bytes, wanted - pool.charged));
}

std::uint64_t need_of_one_that_has_run(const Pool& pool, std::uint64_t bytes) {
  return account::rounded(bytes - std::min(bytes, pool.charged));
}

using NeedOf = std::uint64_t (*)(const Pool& pool, std::uint64_t bytes);

CUresult begin_slot(int slot, std::uint64_t bytes, Growth& growth, NeedOf need_of) {
  abi::Lane* lane = nullptr;
  {
    const memory::Relaxed relaxed;
    const Locked locked(g_state.lock);
    Pool& pool = g_state.pools[slot];
    growth = {slot, bytes, need_of(pool, bytes), pool.id};
    pool.pending += bytes;
    lane = lane_of_device(pool.device);
  }
  if (account::reserve(lane, growth.need, reclaim) != CUDA_SUCCESS) {
    const Locked locked(g_state.lock);
    g_state.pools[slot].pending -= bytes;
    growth.slot = -1;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const Locked locked(g_state.lock);
  Pool& pool = g_state.pools[slot];
  pool.growing += growth.need;
  set_charged(pool, pool.charged + growth.need);
  return CUDA_SUCCESS;
}

template <typename Which>
void each_charged(Which which, memory::Relaxed::When when = memory::Relaxed::kInCapture) {
  const memory::Relaxed relaxed(when);
  for (int i = 0; i < kSlots; ++i) {
    Difference difference;
    {
      const Locked locked(g_state.lock);
      if (i >= g_state.slots) return;
      Pool& pool = g_state.pools[i];
      if (!pool.used || pool.ending || pool.charged == 0) continue;
      which(pool);
      difference = look(pool);
    }
    apply(difference);
  }
}

void settle_slot(CUmemoryPool handle, int device) {
  const memory::Relaxed relaxed;
  Difference difference;
  {
    const Locked locked(g_state.lock);
    const int slot = find(handle, device);
    if (slot < 0) return;
    difference = look(g_state.pools[slot]);
  }
  apply(difference);
}

}  // namespace

void learn(CUmemoryPool handle, int device, PoolKind kind) {
  const Locked locked(g_state.lock);
  const int slot = handle != nullptr ? find_or_add(handle, device, kind) : -1;
  if (slot >= 0 && g_state.pools[slot].device < 0) g_state.pools[slot].device = device;
}

void made(CUmemoryPool handle) {
  const Locked locked(g_state.lock);
  const int slot = handle != nullptr ? find(handle, -1) : -1;
  if (slot >= 0) g_state.pools[slot].made = true;
}

void exported(CUmemoryPool handle) {
  const Locked locked(g_state.lock);
  const int slot = handle != nullptr ? find(handle, -1) : -1;
  if (slot < 0 || g_state.pools[slot].exported) return;
  Pool& pool = g_state.pools[slot];
  const auto bytes = static_cast<std::int64_t>(pool.charged);
  memory::stays(pool.device, why(pool), -bytes);
  pool.exported = true;
  memory::stays(pool.device, why(pool), bytes);
}

bool lacks_gpu(CUmemoryPool handle) {
  const Locked locked(g_state.lock);
  const int slot = find(handle, -1);
  return slot < 0 ||
         (g_state.pools[slot].device < 0 && g_state.pools[slot].kind != PoolKind::kHost);
}

CUresult begin(CUmemoryPool pool, std::uint64_t bytes, Growth& growth) {
  int slot = -1;
  {
    const Locked locked(g_state.lock);
    slot = pool != nullptr ? find(pool, -1) : -1;
    if (slot >= 0 && g_state.pools[slot].kind == PoolKind::kHost) return CUDA_SUCCESS;
  }
  // The table is full: nothing is known of it, so under a quota nothing is taken from it.
  abi::Lane* lane = slot < 0 && pool != nullptr ? current_lane() : nullptr;
  if (lane != nullptr && lane->quota_bytes.load(std::memory_order_relaxed) != 0) {
    return account::refuse(lane, bytes);
  }
  return slot < 0 ? CUDA_SUCCESS : begin_slot(slot, bytes, growth, need_of);
}

namespace {
CUresult begin_graph_slot(int device, std::uint64_t bytes, Growth& growth, NeedOf need_of) {
  int slot = -1;
  {
    const Locked locked(g_state.lock);
    if (lane_of_device(device) != nullptr) slot = find_or_add(nullptr, device);
  }
  return slot < 0 ? CUDA_SUCCESS : begin_slot(slot, bytes, growth, need_of);
}
}  // namespace

CUresult begin_graph(int device, std::uint64_t bytes, Growth& growth) {
  return begin_graph_slot(device, bytes, growth, need_of);
}

CUresult begin_graph_again(int device, std::uint64_t bytes, Growth& growth) {
  return begin_graph_slot(device, bytes, growth, need_of_one_that_has_run);
}

bool end(const Growth& growth, bool made) {
  if (growth.slot < 0) return true;
  const memory::Relaxed relaxed;
  Difference difference;
  {
    const Locked locked(g_state.lock);
    Pool& pool = g_state.pools[growth.slot];
    pool.pending -= growth.bytes;
    pool.growing -= growth.need;
    if (made && pool.kind == PoolKind::kManaged) pool.live += account::rounded(growth.bytes);
    difference = look(pool);
  }
  return apply(difference);
}

void freed(const ledger::Charge& note) {
  const Locked locked(g_state.lock);
  for (int i = 0; i < g_state.slots; ++i) {
    Pool& pool = g_state.pools[i];
    if (!pool.used || pool.kind != PoolKind::kManaged || pool.id != note.owner) continue;
    pool.live -= std::min(pool.live, account::rounded(note.bytes));
  }
}

CUresult refuse(const Growth& growth) {
  int device = -1;
  {
    const Locked locked(g_state.lock);
    device = g_state.pools[growth.slot].device;
  }
  reclaim();
  return account::refuse(lane_of_device(device), growth.bytes);
}

void settle(CUmemoryPool pool) { settle_slot(pool, -1); }

void settle_graphs(int device) { settle_slot(nullptr, device); }

void settle_charged() {
  each_charged([](const Pool&) {});
}

void reclaim() {
  // It may take long, and a capture may begin meanwhile.
  each_charged([](const Pool& pool) { trim(pool); }, memory::Relaxed::kAlways);
  neighbours::reclaim_swappable();
}

int ending(CUmemoryPool handle) {
  const Locked locked(g_state.lock);
  const int slot = handle != nullptr ? find(handle, -1) : -1;
  // Another thread may use a default pool meanwhile, and would make it known once more.
  if (slot >= 0) g_state.pools[slot].ending = g_state.pools[slot].made;
  return slot;
}

void ended(int slot) {
  if (slot < 0) return;
  Pool was;
  {
    const Locked locked(g_state.lock);
    Pool& pool = g_state.pools[slot];
    was = pool;
    set_charged(pool, 0);
    pool = {};
  }
  if (was.device < 0) return;
  abi::Lane* lane = lane_of_device(was.device);
  const std::uint64_t alive = ledger::orphan_pooled(was.id, was.device);
  if (alive > was.charged) account::charge(lane, alive - was.charged);
  if (alive < was.charged) account::release(lane, was.charged - alive);
}

void lives_on(int slot) {
  if (slot < 0) return;
  const Locked locked(g_state.lock);
  g_state.pools[slot].ending = false;
}

namespace {
void forget() {
  renew(g_state);
  g_in_use.store(0);
}
}  // namespace
SWITCHYARD_RESET(kState, forget);

}  // namespace switchyard::shim::pools
