#include "shim/work_guard.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "shim/client/process.h"
#include "shim/clock.h"
#include "shim/contexts.h"
#include "shim/inside.h"
#include "shim/reset.h"
#include "shim/thread_count.h"

namespace switchyard::shim::swap {
namespace {

enum Admission : std::uint32_t { kOpen, kShut, kDraining, kQuiesced };

struct State {
  ThreadCount working;
  std::atomic<std::uint32_t> admission{kOpen};  // a futex word
  std::atomic<std::uint64_t> deadline_ns{0};
  pthread_mutex_t capturing = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

// Who is inside a call comes out as the GPU gets on; the accepted work ends. Longer than this only
// work that waits for a held thread, or for another GPU.
constexpr std::uint64_t kShutNs = 5'000'000'000;
constexpr std::uint64_t kDrainNs = 10'000'000'000;
constexpr std::uint64_t kLookNs = 50'000;

__thread unsigned t_depth = 0;

void wake_all() {
  ::syscall(SYS_futex, &g_state.admission, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

CUresult wait_for(CUcontext context) {
  const CUresult result = driver().cuCtxSetCurrent(context);
  return result == CUDA_SUCCESS ? driver().cuCtxSynchronize() : result;
}

CUresult wait_for_primary(unsigned lane) {
  const PrimaryContext primary(static_cast<CUdevice>(lane));
  return primary.get() != nullptr ? wait_for(primary.get()) : primary.result();
}

}  // namespace

void WorkGuard::enter() {
  if (t_depth++ != 0) return;
  for (;;) {
    // Counted before it looks, so that the mover, which shuts before it counts, sees one of both.
    g_state.working.enter(&t_depth);
    if (g_state.admission.load(std::memory_order_seq_cst) == kOpen) return;
    g_state.working.leave(&t_depth);
    admission::wait_until_open();
  }
}

void WorkGuard::leave() {
  if (--t_depth == 0) g_state.working.leave(&t_depth);
}

NoCapture::NoCapture(bool needed) : needed_(needed) {
  if (needed_) ::pthread_mutex_lock(&g_state.capturing);
}

NoCapture::~NoCapture() {
  if (needed_) ::pthread_mutex_unlock(&g_state.capturing);
}

Askable::Askable()
    : locked_(::pthread_mutex_trylock(&g_state.capturing) == 0),
      yes_(locked_ && process().captures.load(std::memory_order_seq_cst) == 0) {}

Askable::~Askable() {
  if (locked_) ::pthread_mutex_unlock(&g_state.capturing);
}

namespace admission {

void wait_until_open() {
  for (;;) {
    const std::uint32_t state = g_state.admission.load(std::memory_order_acquire);
    if (state == kOpen) return;
    const Outside outside;
    sleep_held(g_state.admission, state);
  }
}

bool is_open() { return g_state.admission.load(std::memory_order_acquire) == kOpen; }

bool inside() { return t_depth != 0; }

bool shut() {
  std::uint32_t expected = kOpen;
  return g_state.admission.compare_exchange_strong(expected, kShut, std::memory_order_seq_cst);
}

bool empty() { return g_state.working.empty(); }

void drain_until(std::uint64_t deadline_ns) {
  g_state.deadline_ns.store(deadline_ns, std::memory_order_relaxed);
  std::uint32_t expected = kShut;
  g_state.admission.compare_exchange_strong(expected, kDraining, std::memory_order_acq_rel);
}

bool draining() { return g_state.admission.load(std::memory_order_acquire) == kDraining; }

bool mark_quiesced() {
  std::uint32_t expected = kDraining;
  return g_state.admission.compare_exchange_strong(expected, kQuiesced, std::memory_order_acq_rel);
}

bool is_quiesced() { return g_state.admission.load(std::memory_order_acquire) == kQuiesced; }

void open() {
  g_state.admission.store(kOpen, std::memory_order_release);
  wake_all();
}

bool overrule(std::uint64_t now_ns) {
  if (g_state.admission.load(std::memory_order_acquire) != kDraining) return false;
  if (now_ns < g_state.deadline_ns.load(std::memory_order_relaxed)) return true;
  std::uint32_t expected = kDraining;
  // No store of ours may come later than that: the mover may have begun anew.
  if (g_state.admission.compare_exchange_strong(expected, kOpen, std::memory_order_acq_rel))
    wake_all();
  return false;
}

namespace {
void forget() {
  renew(g_state);
  t_depth = 0;
}
}  // namespace
SWITCHYARD_RESET(kState, forget);

}  // namespace admission

bool block_new_work() {
  for (const std::uint64_t limit = monotonic_ns() + kShutNs; monotonic_ns() < limit;) {
    // A context that was made over memory that is away has shut it already.
    if (process().captures.load() == 0 && (admission::shut() || !admission::is_open())) {
      while (!admission::empty() && monotonic_ns() < limit) sleep_ns(kLookNs);
      // A capture begins inside a WorkGuard: none can, from here on.
      if (admission::empty() && process().captures.load() == 0) return true;
      admission::open();
    }
    sleep_ns(kLookNs);
  }
  return false;
}

CUresult drain(unsigned lane) {
  const MadeContexts made(lane);
  if (!made.all) return CUDA_ERROR_NOT_SUPPORTED;
  admission::drain_until(monotonic_ns() + kDrainNs);
  CUresult result = wait_for_primary(lane);
  for (CUcontext context : made) {
    // Opened meanwhile: somebody may capture again, which a wait would end.
    if (result != CUDA_SUCCESS || !admission::draining()) break;
    result = wait_for(context);
  }
  return result;
}

}  // namespace switchyard::shim::swap
