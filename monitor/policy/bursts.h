// What the library says of the bursts of a client's CPU (shim/gate/bursts.h), copied and bounded.
//
// Concept. A burst is what the CPU does from the first launch after a wait to the end of the next
// wait. The sums are of all bursts; the last few are known one by one.
//
// Threading: plain values.
#pragma once

#include <array>
#include <cstdint>

#include "switchyard/abi.h"

namespace switchyard::monitor::policy {

struct Burst {
  std::uint16_t launches = 0;   // 0: it counts for nothing
  std::uint16_t cpu_us = 0;     // for which the CPU worked; 0: an older library, which does not say
  std::uint16_t waited_us = 0;  // and waited then
  bool operator==(const Burst&) const = default;
};

struct Bursts {
  std::uint32_t count = 0;  // these may begin anew at 0
  std::uint64_t waited_ns = 0;
  std::uint64_t burst_ns = 0;
  std::array<Burst, abi::kCountedBursts> last{};  // burst n at n % 8
  std::uint32_t launched = 0;                     // since the last wait
  bool waiting = false;                           // the CPU waits now

  const Burst& number(std::uint32_t n) const { return last[n % last.size()]; }
  Burst& number(std::uint32_t n) { return last[n % last.size()]; }
  bool operator==(const Bursts&) const = default;
};

}  // namespace switchyard::monitor::policy
