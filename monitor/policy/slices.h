// A pair of time slices: what a client's compute and copy-engine channel groups get.
//
// Threading: plain values.
#pragma once

#include <cstdint>

#include "switchyard/abi.h"

namespace switchyard::monitor {

// Microseconds; 0 leaves the driver's own default (2048 us on compute).
struct Slices {
  std::uint32_t compute_us = 0;
  std::uint32_t copy_us = 0;
  bool operator==(const Slices&) const = default;
};

// Two clients with short slices on one GPU bring everybody to a standstill, so at most one may have
// one at any instant.
constexpr bool is_short(Slices slices) {
  const auto below = [](std::uint32_t us) { return us != 0 && us < abi::kShortBelowUs; };
  return below(slices.compute_us) || below(slices.copy_us);
}

}  // namespace switchyard::monitor
