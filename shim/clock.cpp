#include "shim/clock.h"

#include <time.h>

#include "shim/no_cancel.h"

namespace switchyard::shim {

std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void sleep_ns(std::uint64_t ns) {
  const NoCancel whole;
  const timespec span{0, static_cast<long>(ns)};
  ::nanosleep(&span, nullptr);
}

}  // namespace switchyard::shim
