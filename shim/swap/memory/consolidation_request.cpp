#include "shim/swap/memory/consolidation_request.h"

#include <pthread.h>

#include <atomic>

#include "shim/client/process.h"
#include "shim/clock.h"
#include "shim/gate/hold.h"
#include "shim/inside.h"
#include "shim/no_copy.h"
#include "shim/reset.h"
#include "shim/swap/mover.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap::consolidation_request {

std::atomic<std::uint32_t> g_stage{kNone};
std::atomic<unsigned> g_lane{0};

namespace {

struct State {
  std::atomic<Handle> number{0};
  std::atomic<CUresult> result{CUDA_SUCCESS};
  pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

bool is(RequestStage stage) { return g_stage.load(std::memory_order_acquire) == stage; }

bool change(std::uint32_t from, RequestStage to) {
  return g_stage.compare_exchange_strong(from, to, std::memory_order_acq_rel);
}

// One asks at a time. Its wait may be long, so the next one must not keep the contexts here.
class Alone : NoCopy {
 public:
  Alone() {
    const Outside outside;
    ::pthread_mutex_lock(&g_state.asking);
  }
  ~Alone() { ::pthread_mutex_unlock(&g_state.asking); }
};

}  // namespace

CUresult ask(Handle number, unsigned lane, std::uint64_t limit_ns) {
  if (process().captures.load() != 0) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (admission::inside()) return CUDA_ERROR_NOT_READY;
  const Alone alone;
  g_state.number.store(number);
  g_lane.store(lane, std::memory_order_relaxed);
  g_stage.store(kAsked, std::memory_order_release);
  mover::poke();
  std::uint64_t end = monotonic_ns() + limit_ns;
  while (!is(kAnswered)) {
    // The monitor shall see who waits for what is away.
    if (admission::is_quiesced(lane) && is(kAsked)) admission::wait_until_open();
    const std::uint64_t now = monotonic_ns();
    const bool pause = paused().paused;
    if (pause || admission::is_quiesced(lane)) end = now + limit_ns;
    if (now >= end && (change(kAsked, kNone) || change(kTaken, kNone))) return CUDA_ERROR_NOT_READY;
    const Outside outside;
    sleep_ns(pause ? 10'000'000 : 50'000);
  }
  g_stage.store(kNone);
  return g_state.result.load();
}

bool take(unsigned lane) {
  if (!is_asked(lane) || !change(kAsked, kTaken)) return false;
  if (g_lane.load(std::memory_order_relaxed) == lane) return true;
  // It was withdrawn, and another mover is asked since.
  change(kTaken, kAsked);
  return false;
}
bool is_taken() { return is(kTaken); }
bool begin() { return change(kTaken, kBegun); }
Handle number() { return g_state.number.load(); }

void answer(CUresult result) {
  g_state.result.store(result);
  g_stage.store(kAnswered, std::memory_order_release);
}

namespace {
void forget() {
  renew(g_state);
  g_stage.store(kNone, std::memory_order_relaxed);
}
}  // namespace
SWITCHYARD_RESET(kState, forget);

}  // namespace switchyard::shim::swap::consolidation_request
