#include "shim/work_guard.h"

#include <limits.h>
#include <linux/futex.h>
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

// Of each GPU two bits of one word: so whoever asks whether all are open reads it once.
constexpr unsigned kBits = 2;
static_assert(abi::kMaxGpus * kBits <= 32);

constexpr Admission of(std::uint32_t word, unsigned lane) {
  return static_cast<Admission>(word >> kBits * lane & 3u);
}
constexpr std::uint32_t with(std::uint32_t word, unsigned lane, Admission state) {
  return (word & ~(3u << kBits * lane)) | state << kBits * lane;
}
// The first GPU that is not open. pre: the word is not 0.
unsigned first_shut(std::uint32_t word) {
  return static_cast<unsigned>(__builtin_ctz(word)) / kBits;
}

struct State {
  ThreadCount working;
  std::atomic<std::uint32_t> admission{0};  // a futex word; 0: all are open
  std::atomic<std::uint64_t> deadline_ns[abi::kMaxGpus] = {};
  std::atomic<bool> drains{false};       // some mover waits for the GPUs
  std::atomic<std::uint32_t> asking{0};  // Askables
};
constinit State g_state;

// A thread inside a call comes out as the GPU gets on; the accepted work ends. Longer than this
// only work that waits for a held thread, or for another GPU.
constexpr std::uint64_t kShutNs = 5'000'000'000;
constexpr std::uint64_t kDrainNs = 10'000'000'000;
constexpr std::uint64_t kLookNs = 50'000;
// From a look at the captures into the driver it is less than a microsecond.
constexpr unsigned kEntryNaps = 300;
constexpr std::uint64_t kEntryNapNs = 1'000'000;

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

Admission state_of(unsigned lane) {
  return of(g_state.admission.load(std::memory_order_acquire), lane);
}

// False: it was in another state.
bool change(unsigned lane, Admission from, Admission to) {
  std::uint32_t word = g_state.admission.load(std::memory_order_relaxed);
  while (of(word, lane) == from) {
    if (g_state.admission.compare_exchange_weak(word, with(word, lane, to),
                                                std::memory_order_seq_cst)) {
      return true;
    }
  }
  return false;
}

}  // namespace

void WorkGuard::enter() {
  if (t_depth++ != 0) return;
  for (;;) {
    // Counted before it looks, so that the mover, which shuts before it counts, sees one of both.
    g_state.working.enter(&t_depth);
    if (g_state.admission.load(std::memory_order_seq_cst) == 0) return;
    g_state.working.leave(&t_depth);
    admission::wait_until_open();
  }
}

void WorkGuard::leave() {
  if (--t_depth == 0) g_state.working.leave(&t_depth);
}

// Counted before it looks, so that whoever captures, who counts before it looks, sees it.
Askable::Askable() {
  g_state.asking.fetch_add(1, std::memory_order_seq_cst);
  yes_ = process().captures.load(std::memory_order_seq_cst) == 0;
}

Askable::~Askable() { g_state.asking.fetch_sub(1, std::memory_order_release); }

// In naps and not by the clock: while the whole process stood still, nobody came into the driver.
void let_questions_begin() {
  for (unsigned nap = 0; nap < kEntryNaps; ++nap) {
    if (g_state.asking.load(std::memory_order_seq_cst) == 0) return;
    sleep_ns(nap < 20 ? kLookNs : kEntryNapNs);
  }
}

namespace admission {

void wait_until_open() {
  for (;;) {
    const std::uint32_t word = g_state.admission.load(std::memory_order_acquire);
    if (word == 0) return;
    const Outside outside;
    sleep_held(g_state.admission, word, first_shut(word));
  }
}

bool is_open() { return g_state.admission.load(std::memory_order_acquire) == 0; }

bool inside() { return t_depth != 0; }

bool is_open(unsigned lane) { return state_of(lane) == kOpen; }

bool shut(unsigned lane) { return change(lane, kOpen, kShut); }

bool empty() { return g_state.working.empty(); }

void drain_until(unsigned lane, std::uint64_t deadline_ns) {
  g_state.deadline_ns[lane].store(deadline_ns, std::memory_order_relaxed);
  change(lane, kShut, kDraining);
}

bool draining(unsigned lane) { return state_of(lane) == kDraining; }
bool mark_quiesced(unsigned lane) { return change(lane, kDraining, kQuiesced); }
bool is_quiesced(unsigned lane) { return state_of(lane) == kQuiesced; }

bool any_quiesced() {
  const std::uint32_t word = g_state.admission.load(std::memory_order_seq_cst);
  return (word & word >> 1 & 0x55555555u) != 0;  // both bits of some GPU
}

void open(unsigned lane) {
  g_state.admission.fetch_and(~(3u << kBits * lane), std::memory_order_release);
  wake_all();
}

bool overrule(std::uint64_t now_ns) {
  bool drains = false;
  bool late = false;
  for (unsigned lane = 0; lane < abi::kMaxGpus && !is_open(); ++lane) {
    if (!draining(lane)) continue;
    drains = true;
    late = late || now_ns >= g_state.deadline_ns[lane].load(std::memory_order_relaxed);
  }
  if (!late) return drains;
  // No store of ours may come later than that: the mover may have begun anew.
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) change(lane, kDraining, kOpen);
  wake_all();
  return false;
}

SWITCHYARD_RENEW(kState, g_state, t_depth);

}  // namespace admission

bool block_new_work(unsigned lane) {
  for (const std::uint64_t limit = monotonic_ns() + kShutNs; monotonic_ns() < limit;) {
    // A context that was made over memory that is away has shut it already.
    if (process().captures.load() == 0 && (admission::shut(lane) || !admission::is_open(lane))) {
      while (!admission::empty() && monotonic_ns() < limit) sleep_ns(kLookNs);
      // A capture begins inside a WorkGuard: none can, from here on.
      if (admission::empty() && process().captures.load() == 0) return true;
      admission::open(lane);
    }
    sleep_ns(kLookNs);
  }
  return false;
}

namespace {

// Waits for a GPU's accepted work. `lane` is whose memory is being drained.
CUresult wait_for_gpu(unsigned gpu, unsigned lane) {
  const MadeContexts made(gpu);
  if (!made.all) return CUDA_ERROR_NOT_SUPPORTED;
  // Opened meanwhile: somebody may capture again, which a wait would end.
  CUresult result = admission::draining(lane) ? wait_for_primary(gpu) : CUDA_ERROR_NOT_READY;
  for (CUcontext context : made) {
    if (result != CUDA_SUCCESS || !admission::draining(lane)) break;
    result = wait_for(context);
  }
  return result;
}

// Its own last: one of its contexts is current afterwards.
CUresult wait_for_all_gpus(unsigned lane) {
  CUresult result = CUDA_SUCCESS;
  for (unsigned gpu = 0; gpu < lanes() && result == CUDA_SUCCESS; ++gpu) {
    if (gpu != lane && admission::draining(lane)) result = wait_for_gpu(gpu, lane);
  }
  return result == CUDA_SUCCESS ? wait_for_gpu(lane, lane) : result;
}

}  // namespace

CUresult drain(unsigned lane) {
  admission::drain_until(lane, monotonic_ns() + kDrainNs);
  while (admission::draining(lane) && !admission::any_quiesced()) {
    if (g_state.drains.exchange(true, std::memory_order_acquire)) {
      sleep_ns(kLookNs);
      continue;
    }
    CUresult result = wait_for_all_gpus(lane);
    // Before the next one may wait: it shall find it.
    if (result == CUDA_SUCCESS && !admission::mark_quiesced(lane)) result = CUDA_ERROR_NOT_READY;
    g_state.drains.store(false, std::memory_order_release);
    return result;
  }
  return admission::mark_quiesced(lane) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

}  // namespace switchyard::shim::swap
