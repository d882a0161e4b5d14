#include "shim/gate/view.h"

#include <sys/mman.h>

#include <new>

#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/gate/hold.h"
#include "shim/log.h"
#include "shim/memory/owner.h"
#include "shim/memory/relaxed.h"

namespace switchyard::shim::view {
namespace {

constexpr std::size_t kBytes = abi::kPageBytes - abi::kGatesOffset;
constexpr unsigned kMost = 256;

enum Stage : std::uint32_t { kFresh = 0, kAtIt = 1, kRegistered = 2 };

View g_views[kMost];
std::atomic<unsigned> g_count{0};
std::atomic<View*> g_current{nullptr};

// What says nothing about the driver's abilities: the launch itself will fail, too.
bool passing(CUresult error) {
  return error == CUDA_ERROR_INVALID_CONTEXT || error == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
         error == CUDA_ERROR_NOT_INITIALIZED || error == CUDA_ERROR_DEINITIALIZED;
}

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
  View* before = g_current.load(std::memory_order_relaxed);
  const unsigned index = g_count.load(std::memory_order_relaxed);
  View* made = nullptr;
  if (index < kMost) {
    void* mapped =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, abi::kGatesOffset);
    if (mapped != MAP_FAILED) {
      // A child has no business with the parent's gate, and its GPU work isn't in the child.
      ::madvise(mapped, kBytes, MADV_DONTFORK);
      made = &g_views[index];
      made->gates = static_cast<abi::Gate*>(mapped);
      g_count.store(index + 1, std::memory_order_release);
    }
  }
  if (made == nullptr) {
    log_line(Level::kWarn, "gate: no second mapping of page %u: only threads are held", index);
  }
  g_current.store(made, std::memory_order_release);
  if (before == nullptr) return;
  before->followed.store(true, std::memory_order_release);
  // Whoever sleeps on the old page's word sleeps on a word that nobody wakes any more.
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) wake_held(before->gates[lane].closed);
}

View* usable(unsigned lane) {
  View* view = g_current.load(std::memory_order_acquire);
  if (view == nullptr) return nullptr;
  if ((view->refused_lanes.load(std::memory_order_relaxed) & 1u << lane) != 0) return nullptr;
  if (view->device[lane].load(std::memory_order_acquire) != 0) return view;
  if (!complete()) {
    refuse(*view, lane, CUDA_ERROR_NOT_SUPPORTED);
    return nullptr;
  }
  std::uint32_t stage = view->stage.load(std::memory_order_relaxed);
  if (stage == kAtIt || !view->stage.compare_exchange_strong(stage, kAtIt)) return nullptr;
  CUresult result = CUDA_SUCCESS;
  {
    // Registering is "potentially unsafe": it would spoil a capture, another thread's too.
    const memory::Relaxed relaxed(memory::Relaxed::kAlways);
    result = show_to(*view, lane);
  }
  view->stage.store(result == CUDA_SUCCESS ? kRegistered : stage, std::memory_order_release);
  if (result != CUDA_SUCCESS) {
    if (!passing(result)) refuse(*view, lane, result);
    return nullptr;
  }
  view->gates[lane].state.store(abi::kGateReady, std::memory_order_release);
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

void context_gone(unsigned lane, std::uint64_t owner) {
  View* view = g_current.load(std::memory_order_acquire);
  std::uint32_t stage = kRegistered;
  if (view == nullptr || !view->stage.compare_exchange_strong(stage, kAtIt)) return;
  if (view->lane != static_cast<int>(lane) || view->owner != owner) {
    view->stage.store(kRegistered, std::memory_order_release);
    return;
  }
  for (unsigned i = 0; i < abi::kMaxGpus; ++i) {
    if (view->device[i].exchange(0) != 0) {
      view->gates[i].state.store(abi::kGateUnready, std::memory_order_release);
    }
  }
  view->lane = -1;
  view->stage.store(kFresh, std::memory_order_release);
}

bool follow() {
  bool pending = false;
  const unsigned count = g_count.load(std::memory_order_acquire);
  for (unsigned i = 0; i < count; ++i) {
    View& view = g_views[i];
    if (!view.followed.load(std::memory_order_acquire)) continue;
    follow_page(view);
    if (has_work(view)) {
      pending = true;
    } else {
      view.followed.store(false, std::memory_order_relaxed);
      for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) view.gates[lane].closed.store(0);
    }
  }
  return pending;
}

void clear() {
  const unsigned count = g_count.exchange(0);
  g_current.store(nullptr);
  for (unsigned i = 0; i < count; ++i) {
    ::new (static_cast<void*>(&g_views[i])) View;
  }
}

}  // namespace switchyard::shim::view
