// Room that others gave up, on its way: the account has it a little before the device.
//
// Concept. The driver clears what it was given back. Memory that is offered to another job
// (handover.h) and freed meanwhile is there until the offer has ended. And what was handed over in
// vain is held until the end of that move. So where jobs take turns, who was granted room waits for
// it a little.
//
// Threading: any thread. Threads that need what the caller holds wait, too.
#pragma once

#include <cstdint>

#include "shim/clock.h"
#include "shim/driver.h"

namespace switchyard::shim::swap {

inline constexpr std::uint64_t kRoomComesNs = 2'000'000'000;

// Whether this process's job takes turns with others (--oversubscribe).
bool takes_turns();

// After a call that found no room on the device: again and again, for two seconds at most.
template <typename Call>
CUresult retry_on_oom(Call call) {
  CUresult made = CUDA_ERROR_OUT_OF_MEMORY;
  if (!takes_turns()) return made;
  const std::uint64_t end = monotonic_ns() + kRoomComesNs;
  while (made == CUDA_ERROR_OUT_OF_MEMORY && monotonic_ns() < end) {
    sleep_ns(2'000'000);
    made = call();
  }
  return made;
}

}  // namespace switchyard::shim::swap
