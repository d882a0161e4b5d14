// What the tests of turns of memory share.
//
// Threading: plain values.
#pragma once

#include "monitor/policy/residency.h"

namespace switchyard::monitor::policy {

inline constexpr std::uint64_t kGiB = 1ull << 30;
inline constexpr Time kNow = std::chrono::seconds(100);

// One that has worked on its memory for long.
inline Oversubscriber resident(std::uint64_t job, Time since = std::chrono::seconds(1)) {
  return {.job = job, .resident_bytes = kGiB, .resident_since = since, .active = true};
}

}  // namespace switchyard::monitor::policy
