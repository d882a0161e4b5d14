// CLOCK_MONOTONIC, which all processes of a machine share, as one number.
//
// Threading: any thread.
#pragma once

#include <time.h>

#include <cstdint>

namespace switchyard::shim {

inline std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace switchyard::shim
