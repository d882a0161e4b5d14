#include "shim/gate/timing.h"

#include <pthread.h>

#include <algorithm>

#include "shim/client/process.h"
#include "shim/gate/errors.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/memory/owner.h"
#include "shim/memory/relaxed.h"
#include "shim/reset.h"

namespace switchyard::shim::timing {
namespace {

constexpr unsigned kTimers = 64;  // launches that may be on their way at once

enum class Stage { kHeld, kPassing, kSpoilt };

struct Timer {
  CUevent before = nullptr, after = nullptr;
  std::uint64_t key = 0;
  Stage stage = Stage::kHeld;
};

// A ring: timers are read in the order in which they were begun.
struct Pool {
  CUcontext context = nullptr;
  std::uint64_t owner = 0;
  std::uint32_t generation = 0;
  bool refused = false;
  bool suspended = false;
  unsigned oldest = 0;
  std::atomic<unsigned> count = 0;
  Timer timers[kTimers];
};

struct State {
  Pool pools[abi::kMaxGpus];
  pthread_mutex_t locks[abi::kMaxGpus] = {};
  costs::Table tables[abi::kMaxGpus];
};
constinit State g_state;

bool complete() {
  const Driver& calls = driver();
  return calls.cuEventCreate != nullptr && calls.cuEventRecord != nullptr &&
         calls.cuEventQuery != nullptr && calls.cuEventElapsedTime != nullptr;
}

// pre for the rest: the pool's lock.

void refuse(Pool& pool, CUresult why) {
  pool.refused = true;
  log_line(Level::kInfo, "timing: the driver refused with %d: batches go by the average launch",
           static_cast<int>(why));
}

bool made(Pool& pool, Timer& timer) {
  if (timer.after != nullptr) return true;
  const memory::Relaxed relaxed(memory::Relaxed::kAlways);
  CUresult result = driver().cuEventCreate(&timer.before, CU_EVENT_DEFAULT);
  if (result == CUDA_SUCCESS) result = driver().cuEventCreate(&timer.after, CU_EVENT_DEFAULT);
  if (result != CUDA_SUCCESS) refuse(pool, result);
  return result == CUDA_SUCCESS;
}

bool usable(const Pool& pool) { return !pool.refused && !pool.suspended; }

bool current_is(CUcontext context) {
  CUcontext current = nullptr;
  return context != nullptr && driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
         current == context;
}

// The next timer of the ring, ready to be used; null: none. pre: there is room.
Timer* take(Pool& pool, CUcontext context) {
  if (!usable(pool) || !complete() || !current_is(context)) return nullptr;
  if (pool.context == nullptr) {
    pool.context = context;
    pool.owner = memory::current_owner();
  }
  if (pool.context != context) return nullptr;
  const unsigned count = pool.count.load(std::memory_order_relaxed);
  Timer& timer = pool.timers[(pool.oldest + count) % kTimers];
  return made(pool, timer) ? &timer : nullptr;
}

// What the oldest took. False: the GPU, or the launching thread, is not that far.
bool read_oldest(Pool& pool, costs::Table& table) {
  const Timer& timer = pool.timers[pool.oldest];
  if (timer.stage == Stage::kHeld) return false;
  if (timer.stage == Stage::kPassing) {
    float ms = 0;
    CUresult result = driver().cuEventQuery(timer.after);
    if (result == CUDA_ERROR_NOT_READY) return false;
    if (result == CUDA_SUCCESS) {
      result = driver().cuEventElapsedTime(&ms, timer.before, timer.after);
    }
    if (ends_context(result) || unable(result)) {
      refuse(pool, result);
      return false;
    }
    constexpr float kLongestMs = 4000;
    if (result == CUDA_SUCCESS) {
      table.learn(timer.key, static_cast<std::uint32_t>(std::min(ms, kLongestMs) * 1e6F) + 1);
    }
  }
  pool.oldest = (pool.oldest + 1) % kTimers;
  pool.count.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void read(Pool& pool, costs::Table& table) {
  if (!usable(pool)) return;
  const memory::Relaxed relaxed(memory::Relaxed::kAlways);
  while (pool.count.load(std::memory_order_relaxed) != 0 && read_oldest(pool, table)) {
  }
}

// Kernels go with their context, and their handles may come again as others.
void reset(unsigned lane) {
  Pool& pool = g_state.pools[lane];
  g_state.tables[lane].forget();
  pool.context = nullptr;
  ++pool.generation;
  pool.refused = false;
  pool.suspended = false;
  pool.oldest = 0;
  pool.count.store(0, std::memory_order_relaxed);
  for (Timer& timer : pool.timers) timer = {};
}

bool is_of(const Pool& pool, std::uint64_t owner) {
  return pool.context != nullptr && pool.owner == owner;
}

void passed(const Timed& timed, CUresult result) {
  const Locked locked(g_state.locks[timed.lane]);
  Pool& pool = g_state.pools[timed.lane];
  if (pool.generation != timed.generation) return;
  pool.timers[timed.index].stage = result == CUDA_SUCCESS ? Stage::kPassing : Stage::kSpoilt;
}

}  // namespace

costs::Cost cost(unsigned lane, std::uint64_t key) { return g_state.tables[lane].look(key); }

Timed begin(unsigned lane, const costs::Cost& cost, CUcontext context, CUstream stream) {
  if (::pthread_mutex_trylock(&g_state.locks[lane]) != 0) return {};
  Pool& pool = g_state.pools[lane];
  // A program may poll and never wait. What is not known at all comes before what is timed again.
  const unsigned room = cost.ns == 0 ? kTimers : kTimers / 2;
  if (pool.count.load(std::memory_order_relaxed) >= room) read(pool, g_state.tables[lane]);
  Timer* timer = pool.count.load(std::memory_order_relaxed) < room ? take(pool, context) : nullptr;
  Timed timed{};
  CUevent before = nullptr;
  if (timer != nullptr && g_state.tables[lane].expect(cost.key)) {
    timer->key = cost.key;
    timer->stage = Stage::kHeld;
    before = timer->before;
    timed = {timer->after, stream, lane, static_cast<unsigned>(timer - pool.timers),
             pool.generation};
    pool.count.fetch_add(1, std::memory_order_relaxed);
  }
  ::pthread_mutex_unlock(&g_state.locks[lane]);
  if (before == nullptr) return {};
  // Outside the lock: where the queue is full the driver waits here.
  const CUresult result = driver().cuEventRecord(before, stream);
  if (result == CUDA_SUCCESS) return timed;
  passed(timed, result);
  return {};
}

void end(const Timed& timed) {
  if (timed.after == nullptr) return;
  passed(timed, driver().cuEventRecord(timed.after, timed.stream));
}

void collect(unsigned lane) {
  Pool& pool = g_state.pools[lane];
  if (pool.count.load(std::memory_order_relaxed) == 0) return;
  if (::pthread_mutex_trylock(&g_state.locks[lane]) != 0) return;
  read(pool, g_state.tables[lane]);
  ::pthread_mutex_unlock(&g_state.locks[lane]);
}

void suspend(unsigned lane, std::uint64_t owner) {
  const Locked locked(g_state.locks[lane]);
  if (is_of(g_state.pools[lane], owner)) g_state.pools[lane].suspended = true;
}

void lives_on(unsigned lane, std::uint64_t owner) {
  const Locked locked(g_state.locks[lane]);
  if (is_of(g_state.pools[lane], owner)) g_state.pools[lane].suspended = false;
}

void context_gone(unsigned lane, std::uint64_t owner) {
  const Locked locked(g_state.locks[lane]);
  if (is_of(g_state.pools[lane], owner)) reset(lane);
}

void clear() {
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    g_state.locks[lane] = PTHREAD_MUTEX_INITIALIZER;
    reset(lane);
  }
}
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::timing
