#include "shim/client/process.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/client/settings.h"
#include "shim/driver.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/reset.h"

extern "C" {
// What pthread_atfork calls: that one is in no shared object of every glibc.
int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* dso);

alignas(4096) unsigned char switchyard_page[switchyard::abi::kPageBytes];
// A memory page of its own, so that wiping it wipes nothing else.
alignas(4096) unsigned char switchyard_wiped_on_fork[4096];
}

namespace switchyard::shim {
namespace {

struct State {
  pthread_once_t watched = PTHREAD_ONCE_INIT;
  std::atomic<bool> kernel_wipes{false};
  std::atomic<std::int32_t> owner{0};  // the process that has begun
};
constinit State g_state;

// A mapping of the same size is replaced, which takes no memory. Were it to fail, the child's
// launches would be counted as the parent's until it joins; there is nothing better to do here.
void drop_page() { map_page(-1); }

// Nothing of the program has run in the child yet: the descriptors have the parent's numbers still.
// Not left to begin_process(): an exit handler that frees memory takes locks without it.
void in_child() {
  if (!g_state.kernel_wipes.load(std::memory_order_relaxed)) {
    ::memset(switchyard_wiped_on_fork, 0, sizeof(switchyard_wiped_on_fork));
  }
  run_resets();
}

// Once per process, and its forked children inherit both.
void watch_for_forks() {
  g_state.kernel_wipes.store(
      ::madvise(switchyard_wiped_on_fork, sizeof(switchyard_wiped_on_fork), MADV_WIPEONFORK) == 0,
      std::memory_order_relaxed);
  if (::__register_atfork(nullptr, nullptr, in_child, nullptr) != 0) {
    log_line(Level::kWarn, "registering a fork handler failed: no memory");
  }
}

// Whether this process has begun, and not only its parent.
bool has_begun() {
  return process().alive.load(std::memory_order_acquire) != 0 &&
         (g_state.kernel_wipes.load(std::memory_order_relaxed) ||
          g_state.owner.load(std::memory_order_relaxed) == ::getpid());
}

}  // namespace
SWITCHYARD_RESET(kPage, drop_page);

__thread int t_lane = kAskForLane;

bool map_page(int fd) {
  const int flags = fd >= 0 ? MAP_SHARED | MAP_FIXED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  // The kernel changes the pages while other threads use them. We make the bare system call,
  // because ThreadSanitizer takes the C library's mmap for a plain write of the whole page. Its
  // last argument is on the stack, where an int has no upper half.
  return ::syscall(SYS_mmap, switchyard_page, abi::kPageBytes, PROT_READ | PROT_WRITE, flags, fd,
                   off_t{0}) ==
         static_cast<long>(reinterpret_cast<std::uintptr_t>(switchyard_page));
}

void begin_process() {
  if (has_begun()) return;
  ::pthread_once(&g_state.watched, watch_for_forks);
  // A child without handlers, where the kernel doesn't wipe. It has one thread so far.
  if (process().alive.load(std::memory_order_acquire) != 0 && !has_begun()) {
    ::memset(switchyard_wiped_on_fork, 0, sizeof(switchyard_wiped_on_fork));
  }
  const Locked locked(process().begin);
  if (process().alive.load(std::memory_order_relaxed) != 0) return;
  // Either the first time ever, or a child that may have been made without the fork handlers.
  run_resets();
  g_state.owner.store(::getpid(), std::memory_order_relaxed);
  process().alive.store(1, std::memory_order_release);
}

abi::Lane* lane_of_device(int device) {
  if (device < 0 || device >= static_cast<int>(abi::kMaxGpus) || disabled()) return nullptr;
  // A forked child may come here first, from an exit handler that ends the parent's context.
  if (process().alive.load(std::memory_order_acquire) == 0) begin_process();
  return &page().lanes[device];
}

int lane_index(const abi::Lane* lane) { return static_cast<int>(lane - page().lanes); }

abi::Lane* find_current_lane() {
  if (disabled()) {
    t_lane = kLanesDisabled;
    return nullptr;
  }
  begin_process();
  CUdevice device = 0;
  // No context: the call itself will say so; ask again next time.
  if (driver().cuCtxGetDevice == nullptr || driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) {
    return nullptr;
  }
  abi::Lane* lane = lane_of_device(device);
  t_lane = lane != nullptr ? device + 1 : kBeyondLanes;
  return lane;
}

}  // namespace switchyard::shim
