#include "shim/gate/timing.h"

#include <algorithm>

#include "shim/client/process.h"
#include "shim/reset.h"

namespace switchyard::shim::timing {
namespace {

constexpr unsigned kTimers = 64;  // launches that may be on their way at once

using Key = std::uint64_t;
using Pool = timers::Pool<Key, kTimers>;
using Timer = Pool::Each;

struct State {
  Pool pools[abi::kMaxGpus];
  costs::Table tables[abi::kMaxGpus];
};
constinit State g_state;

// pre: the pool's lock.
void read(unsigned lane) {
  g_state.pools[lane].read([&](const Timer& timer, const Timer*) {
    constexpr float kLongestMs = 4000;
    float ms = 0;
    const CUresult result = driver().cuEventElapsedTime(&ms, timer.before, timer.after);
    if (result == CUDA_SUCCESS) {
      g_state.tables[lane].learn(timer.note,
                                 static_cast<std::uint32_t>(std::min(ms, kLongestMs) * 1e6F) + 1);
    }
    return result;
  });
}

}  // namespace

costs::Cost cost(unsigned lane, std::uint64_t key) { return g_state.tables[lane].look(key); }

Timed begin(unsigned lane, const costs::Cost& cost, CUcontext context, CUstream stream) {
  Pool& pool = g_state.pools[lane];
  if (!pool.try_lock()) return {};
  // A program may poll and never wait. A launch of unknown cost comes before one that is timed
  // again.
  const unsigned room = cost.ns == 0 ? kTimers : kTimers / 2;
  if (pool.count() >= room) read(lane);
  Timer* timer = pool.count() < room ? pool.take(context) : nullptr;
  Timed timed{{}, lane};
  if (timer != nullptr && g_state.tables[lane].expect(cost.key)) {
    timed.running = pool.start(*timer, cost.key, stream);
  }
  pool.unlock();
  pool.record_before(timed.running);
  return timed;
}

void end(const Timed& timed) { g_state.pools[timed.lane].record_after(timed.running, true); }

void collect(unsigned lane) {
  Pool& pool = g_state.pools[lane];
  if (pool.count() == 0 || !pool.try_lock()) return;
  read(lane);
  pool.unlock();
}

void suspend(unsigned lane, std::uint64_t owner) { g_state.pools[lane].suspend(owner, true); }

void lives_on(unsigned lane, std::uint64_t owner) { g_state.pools[lane].suspend(owner, false); }

// Kernels go with their context, and their handles may come again as others.
void context_gone(unsigned lane, std::uint64_t owner) {
  if (g_state.pools[lane].context_gone(owner)) g_state.tables[lane].forget();
}

void clear() {
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    g_state.pools[lane].clear();
    g_state.tables[lane].forget();
  }
}
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::timing
