// The library's clock and its naps: the one door to time. Tests link a clock of their own.
//
// Threading: any thread. Only threads that may wait anyway call sleep_ns().
#pragma once

#include <cstdint>

namespace switchyard::shim {

// CLOCK_MONOTONIC, which all processes of a machine share, as one number.
std::uint64_t monotonic_ns();

// pre: less than a second.
void sleep_ns(std::uint64_t ns);

}  // namespace switchyard::shim
