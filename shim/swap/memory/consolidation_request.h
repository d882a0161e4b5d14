// Wanted: what a thread of the application wants of the mover, which is that an allocation is made
// whole (consolidate.h).
//
// Concept. One thing at a time, and who wants it waits. While memory is away, or the process is
// paused, a thread waits as long as all others do. Else the wait ends: a request that was not begun
// in time is withdrawn.
//
//     none ──► asked ──► taken: work is being held ──► begun ──► answered ──► none
//       ▲─────── late ─────┴─ late
//
// `lane`: of the allocation. The mover of that GPU is asked.
//
// Threading: ask() from any thread; the rest is the mover's.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/swap/memory/vmm_allocation.h"

namespace switchyard::shim::swap::consolidation_request {

// Longer than to hold work and to wait for it (work_guard.cpp), and to pin some of the host.
inline constexpr std::uint64_t kLimitNs = 20'000'000'000;

// Not ready: too late. Refused at once while anybody captures: a capture's next call may be the
// calling thread's own. pre: outside of any WorkGuard, and nothing of ours is held.
CUresult ask(Handle number, unsigned lane, std::uint64_t limit_ns = kLimitNs);

enum RequestStage : std::uint32_t { kNone, kAsked, kTaken, kBegun, kAnswered };
extern std::atomic<std::uint32_t> g_stage;
extern std::atomic<unsigned> g_lane;  // whose mover is asked
inline bool is_asked(unsigned lane) {
  return g_stage.load(std::memory_order_acquire) == kAsked &&
         g_lane.load(std::memory_order_relaxed) == lane;
}
// False: it was withdrawn.
bool take(unsigned lane);
bool is_taken();
bool begin();
// The memory that is wanted. pre: it is not answered yet.
Handle number();
// pre: begun.
void answer(CUresult result);

}  // namespace switchyard::shim::swap::consolidation_request
