// This process as a client: its page, which lane a thread works on, and what fork does to both.
//
// Concept. The page stands at a fixed address inside this library: zeroes before joining, and the
// monitor's memfd mapped over them after. So the launch path needs no pointer and no check, and a
// rejoin replaces the mapping under the feet of running threads in one step.
//
// Fork. A child inherits the parent's page, which is not its own. The word `alive` lives in memory
// that the kernel wipes in a child (MADV_WIPEONFORK); whoever finds it zero starts afresh. Where
// the kernel can't (gVisor, before 4.14), a fork handler wipes it. For children made without the
// handlers begin_process() compares the PID. A child of vfork shares the parent's memory until it
// calls exec, so nothing happens there.
//
// Threading: any thread. current_lane() is the launch path: no lock, no system call.
#pragma once

#include <pthread.h>

#include <cstdint>

#include "shim/wake_word.h"
#include "switchyard/abi.h"

namespace switchyard::shim {

extern "C" {
extern __attribute__((visibility("hidden"))) unsigned char switchyard_page[abi::kPageBytes];
extern __attribute__((visibility("hidden"))) unsigned char switchyard_wiped_on_fork[4096];
}

inline abi::Page& page() { return *reinterpret_cast<abi::Page*>(switchyard_page); }

// What a forked child must not inherit. Wiped by the kernel in the child; at most one memory page.
struct PerProcess {
  std::atomic<std::uint32_t> alive;      // 1: this process has begun
  std::atomic<std::uint32_t> joined;     // 1: a monitor gave us the page
  std::atomic<std::uint32_t> uses_cuda;  // 1: cuInit succeeded, so it is a client, not an observer
  std::atomic<std::uint32_t> served;     // sections that the monitor serves, a bit for each id
  std::atomic<std::uint32_t> captures;   // streams that this process is capturing just now
  std::atomic<std::uint32_t> swappable;  // on so many GPUs the job's memory may be moved (swap/)
  // The mover sleeps on this (swap/mover.h). The service thread wakes it when the monitor rings.
  WakeWord mover;
  // Charged by our own ledger. The page shows a copy, so that a rejoin can publish it again.
  std::atomic<std::uint64_t> used_bytes[abi::kMaxGpus];
  std::atomic<std::uint64_t> debt_bytes[abi::kMaxGpus];  // charged without credit
  // That can't leave its GPU, by reason (memory/stays.h). The page shows a copy of this, too.
  std::atomic<std::uint64_t> stays_bytes[abi::kMaxGpus][abi::kMostStays];
  // Of begin_process(). Here, because another thread of the parent may hold it at the fork. Zeroes
  // are an open mutex (PTHREAD_MUTEX_INITIALIZER of every glibc).
  pthread_mutex_t begin;
};
static_assert(sizeof(PerProcess) <= sizeof(switchyard_wiped_on_fork));

inline PerProcess& process() { return *reinterpret_cast<PerProcess*>(switchyard_wiped_on_fork); }

// Whether the monitor of this page serves a section of it. True before there is any.
inline bool is_served(abi::SectionId id) {
  const std::uint32_t served = process().served.load(std::memory_order_relaxed);
  return served == 0 || (served & 1u << static_cast<std::uint32_t>(id)) != 0;
}

// What t_lane says where it says no lane. A GPU beyond kMaxGpus has none, but the thread may change
// to another GPU. In a library that is disabled nothing ever has one.
inline constexpr int kAskForLane = 0, kLanesDisabled = -1, kBeyondLanes = -2;

// The calling thread's lane + 1, or one of those.
// Not thread_local: g++ 11 reads that of another file by way of a function, constinit or not. So it
// is one instruction (-ftls-model=initial-exec).
extern __thread int t_lane;

abi::Lane* find_current_lane();

// The lane of the calling thread's current context, or null when its work isn't ours to count.
inline abi::Lane* current_lane() {
  if (t_lane > 0 && process().alive.load(std::memory_order_relaxed) != 0) [[likely]] {
    return &page().lanes[t_lane - 1];
  }
  return t_lane < 0 ? nullptr : find_current_lane();
}

// The calling thread's context changed: ask again at its next work.
inline void forget_lane() {
  if (t_lane != kLanesDisabled) t_lane = kAskForLane;
}

// A word of one page into another's.
inline constexpr auto copy_word = [](auto& target, const auto& source) {
  target.store(source.load(std::memory_order_relaxed), std::memory_order_relaxed);
};

// The lane of a CUDA device ordinal; null when it isn't managed.
abi::Lane* lane_of_device(int device);

int lane_index(const abi::Lane* lane);

// Called first by everything that may be a process's first step: cleans up after a fork.
void begin_process();

// Puts the memfd `fd` (or zeroes, when negative) at the page's address. False: errno says why.
bool map_page(int fd);

}  // namespace switchyard::shim
