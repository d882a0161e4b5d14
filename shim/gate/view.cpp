#include "shim/gate/view.h"

#include <sys/mman.h>

#include <new>

#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/clock.h"
#include "shim/gate/errors.h"
#include "shim/gate/hold.h"
#include "shim/log.h"
#include "shim/memory/owner.h"
#include "shim/memory/relaxed.h"
#include "shim/reset.h"

namespace switchyard::shim::view {
namespace {

constexpr std::size_t kBytes = abi::kGatesBytes;
constexpr unsigned kMost = 256;
// Ten tries, the last after 5 s.
constexpr unsigned kMostTries = 10;
constexpr std::uint64_t kFirstPauseNs = 10'000'000;
// Kernels may be long, but who waits so long for one has no use for a gate before the next.
constexpr std::uint64_t kMotionlessNs = 60'000'000'000;
constexpr std::uint64_t kAtItNs = 1'000'000'000;
constexpr std::uint64_t kLookNs = 50'000;

enum Stage : std::uint32_t {
  kFresh,       // no GPU sees it
  kAtIt,        // a thread asks the driver, or changes it
  kRegistered,  // a GPU sees it
  kWithdrawn,   // the context that registered it ends
};

struct State {
  View views[kMost];
  std::atomic<unsigned> count{0};
  std::atomic<View*> current{nullptr};
};
constinit State g_state;

// Makes the GPU of `lane` see the view. pre: this thread alone is at it.
CUresult show_to(View& view, unsigned lane) {
  CUresult result = driver().cuMemHostRegister_v2(
      view.gates, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE);
  if (result == CUDA_SUCCESS) {
    view.lane = static_cast<int>(lane);
    view.owner = memory::current_owner();
  } else if (result != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
    return result;
  }
  CUdeviceptr address = 0;
  result = driver().cuMemHostGetDevicePointer_v2(&address, view.gates, 0);
  if (result == CUDA_SUCCESS) view.device[lane].store(address, std::memory_order_release);
  return result;
}

bool complete() {
  const Driver& calls = driver();
  return calls.cuMemHostRegister_v2 != nullptr && calls.cuMemHostGetDevicePointer_v2 != nullptr &&
         calls.cuStreamWaitValue32_v2 != nullptr && calls.cuStreamWriteValue32_v2 != nullptr &&
         calls.cuCtxGetCurrent != nullptr;
}

// pre: this thread alone is at it.
void failed(View& view, unsigned lane, CUresult why) {
  if (no_context(why)) return;
  const unsigned tries = view.tries[lane]++;
  if (unable(why) || tries + 1 >= kMostTries) {
    refuse(view, lane, why);
  } else {
    view.again_ns[lane].store(monotonic_ns() + (kFirstPauseNs << tries), std::memory_order_relaxed);
  }
}

// Takes the view, to be alone at it, from the stage that it is in.
bool try_take(View& view, std::uint32_t& stage) {
  stage = view.stage.load(std::memory_order_relaxed);
  return stage != kAtIt && stage != kWithdrawn && view.stage.compare_exchange_strong(stage, kAtIt);
}

// Waits for a thread that shows it to one more GPU meanwhile. False: that takes longer than such a
// call ever does, or another thread ends the context that registered it.
bool take(View& view, std::uint32_t& stage) {
  const std::uint64_t end = monotonic_ns() + kAtItNs;
  while (!try_take(view, stage)) {
    if (stage == kWithdrawn || monotonic_ns() >= end) return false;
    sleep_ns(kLookNs);
  }
  return true;
}

// pre: this thread alone is at it. The next context is asked anew.
void forget_failures(View& view, unsigned lane) {
  view.tries[lane] = 0;
  view.again_ns[lane].store(0, std::memory_order_relaxed);
  if ((view.refused_lanes.fetch_and(~(1u << lane)) & 1u << lane) == 0) return;
  const bool seen = view.device[lane].load(std::memory_order_relaxed) != 0;
  view.gates[lane].state.store(seen ? abi::kGateReady : abi::kGateUnready,
                               std::memory_order_release);
}

// pre: this thread alone is at it.
void unpublish(View& view) {
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    if (view.device[lane].exchange(0) == 0) continue;
    view.gates[lane].state.store(abi::kGateUnready, std::memory_order_release);
  }
}

// Whether anything still runs before an old view, or is kept from it by its closed gate.
bool moves(View& view, std::uint64_t now_ns) {
  std::uint32_t done = 0;
  bool closed = false;
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    const abi::Gate& gate = view.gates[lane];
    closed = closed || gate.closed.load(std::memory_order_relaxed) != 0;
    for (const abi::Word32& number : gate.done) done += number.load(std::memory_order_relaxed);
  }
  if (closed || view.moved_ns == 0 || done != view.seen_done) {
    view.seen_done = done;
    view.moved_ns = now_ns;
  }
  return now_ns - view.moved_ns < kMotionlessNs;
}

bool has_work(const View& view) {
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    for (unsigned slot = 0; slot < abi::kProgressSlots; ++slot) {
      const abi::Gate& gate = view.gates[lane];
      if (gate.done[slot].load(std::memory_order_relaxed) !=
          gate.submitted[slot].load(std::memory_order_relaxed)) {
        return true;
      }
    }
  }
  return false;
}

void follow_page(View& view) {
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    const std::uint32_t closed = page().gates[lane].closed.load(std::memory_order_acquire);
    abi::Word32& mine = view.gates[lane].closed;
    if (mine.exchange(closed, std::memory_order_acq_rel) != closed) wake_held(mine);
  }
}

}  // namespace

void make(int fd) {
  View* before = g_state.current.load(std::memory_order_relaxed);
  const unsigned index = g_state.count.load(std::memory_order_relaxed);
  View* made = nullptr;
  if (index < kMost) {
    void* mapped =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, abi::kGatesOffset);
    if (mapped != MAP_FAILED) {
      // The GPU work of the parent isn't in a forked child, which needs no mapping of the parent's
      // gate. Where the kernel refuses this, the child has the mapping and forgets it (clear()).
      (void)::madvise(mapped, kBytes, MADV_DONTFORK);
      made = &g_state.views[index];
      made->gates = static_cast<abi::Gate*>(mapped);
      g_state.count.store(index + 1, std::memory_order_release);
    }
  }
  if (made == nullptr) {
    log_line(Level::kWarn, "gate: no second mapping of page %u: only threads are held", index);
  }
  g_state.current.store(made, std::memory_order_release);
  if (before == nullptr) return;
  before->followed.store(true, std::memory_order_release);
  // No one wakes the old page's word any more, so threads that sleep on it are woken here.
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) wake_held(before->gates[lane].closed);
}

View* current() { return g_state.current.load(std::memory_order_acquire); }

View* usable(unsigned lane) {
  View* view = current();
  if (view == nullptr) return nullptr;
  if ((view->refused_lanes.load(std::memory_order_relaxed) & 1u << lane) != 0) return nullptr;
  if (view->device[lane].load(std::memory_order_acquire) != 0) return view;
  if (!complete()) {
    refuse(*view, lane, CUDA_ERROR_NOT_SUPPORTED);
    return nullptr;
  }
  const std::uint64_t again = view->again_ns[lane].load(std::memory_order_relaxed);
  if (again != 0 && monotonic_ns() < again) return nullptr;
  std::uint32_t stage = kFresh;
  if (!try_take(*view, stage)) return nullptr;
  CUresult result = CUDA_SUCCESS;
  {
    // Registering is "potentially unsafe": it would spoil a capture, another thread's too.
    const memory::Relaxed relaxed(memory::Relaxed::kAlways);
    result = show_to(*view, lane);
  }
  if (result == CUDA_SUCCESS) {
    view->gates[lane].state.store(abi::kGateReady, std::memory_order_release);
    stage = kRegistered;
  } else {
    failed(*view, lane, result);
  }
  view->stage.store(stage, std::memory_order_release);
  if (result != CUDA_SUCCESS) return nullptr;
  log_line(Level::kDebug, "gate: GPU %u sees it", lane);
  wake_monitor();
  return view;
}

void refuse(View& view, unsigned lane, CUresult why) {
  if ((view.refused_lanes.fetch_or(1u << lane) & 1u << lane) != 0) return;
  abi::Gate& gate = view.gates[lane];
  gate.gate_error.store(static_cast<std::uint32_t>(why), std::memory_order_relaxed);
  gate.state.store(abi::kGateRefused, std::memory_order_release);
  log_line(Level::kWarn,
           "gate: the driver refused it on GPU %u with %d: what is queued can't be stopped, only "
           "threads are held",
           lane, static_cast<int>(why));
  wake_monitor();
}

View* withdraw(unsigned lane, std::uint64_t owner) {
  View* view = current();
  std::uint32_t stage = kFresh;
  if (view == nullptr || !take(*view, stage)) return nullptr;
  if (stage != kRegistered || view->lane != static_cast<int>(lane) || view->owner != owner) {
    view->stage.store(stage, std::memory_order_release);
    return nullptr;
  }
  unpublish(*view);
  view->stage.store(kWithdrawn, std::memory_order_release);
  return view;
}

void give_back(View& view) { view.stage.store(kFresh, std::memory_order_release); }

void context_gone(unsigned lane, std::uint64_t owner) {
  View* view = current();
  std::uint32_t stage = kFresh;
  if (view == nullptr || !try_take(*view, stage)) return;
  forget_failures(*view, lane);
  if (stage == kRegistered && view->lane == static_cast<int>(lane) && view->owner == owner) {
    unpublish(*view);
    stage = kFresh;
  }
  view->stage.store(stage, std::memory_order_release);
}

bool follow(std::uint64_t now_ns) {
  bool pending = false;
  const unsigned count = g_state.count.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count; ++i) {
    View& view = g_state.views[i];
    if (!view.followed.load(std::memory_order_acquire)) continue;
    follow_page(view);
    if (has_work(view) && moves(view, now_ns)) {
      pending = true;
    } else {
      view.followed.store(false, std::memory_order_relaxed);
      for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) view.gates[lane].closed.store(0);
    }
  }
  return pending;
}

namespace {
// The parent's views are not mapped here. Most of them were never used, so not all are renewed.
void forget() {
  const unsigned count = g_state.count.exchange(0);
  g_state.current.store(nullptr);
  for (unsigned i = 0; i < count; ++i) {
    ::new (static_cast<void*>(&g_state.views[i])) View;
  }
}
}  // namespace
SWITCHYARD_RESET(kState, forget);

}  // namespace switchyard::shim::view
