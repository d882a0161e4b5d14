// How long the slices around a gang may be: the rule alone.
//
// Concept. Ranks on several GPUs wait for each other in collectives. Each GPU slices by itself. Two
// gangs on the same two GPUs can fall into opposite phases: each of them has one GPU while the
// other has the other one. Then a collective ends only after the next slice begins, so there is
// about one for each slice. Its kernels spin meanwhile, so neither GPU idles, and the phases stay
// as they are. On two H200s with slices of 25 ms a DDP training fell to a sixth of its rate. In
// equal phases the same slices gave 9 % more than the driver's default (docs/measurements.md).
//
// The phases can't be seen from outside. The rate of the gang's collectives can, and that beside
// slices of the default's length says what to expect of it. So long slices are tried, and ended as
// soon as that rate collapses:
//
//     phase   a window shows                                     → phase
//     Short   a rate, and the rest is over                       → Long    the rate is expected
//     Long    at least kCollapsed of what is expected            → Long    a higher one is expected
//     Long    less, within kProven since they began              → Short   a rest, each time longer
//     Long    less, later: its work may be another one           → Short   no rest
//     any     too few collectives to tell, or counts went back   → the same
//     any     it is held: its window begins anew afterwards      → the same
//
// A window is over before its time where less than a half came of kPlenty that were expected.
//
// Threading: a plain value.
#pragma once

#include <cstdint>

#include "monitor/platform/time.h"

namespace switchyard::monitor::gang_slices {

inline constexpr Time kWindow = std::chrono::seconds(2);
inline constexpr Time kShortWindow = std::chrono::milliseconds(500);
inline constexpr std::uint64_t kEnough = 40;  // collectives in a window
inline constexpr double kPlenty = 100;
inline constexpr double kCollapsed = 0.75;
inline constexpr Time kProven = std::chrono::seconds(10);
inline constexpr Time kLeastRest = std::chrono::seconds(4);
inline constexpr Time kMostRest = std::chrono::seconds(64);

enum class Phase : std::uint8_t { kShort, kLong };

struct State {
  Phase phase = Phase::kShort;
  Time since{0};        // of the phase
  Time rest{0};         // for which short slices last, at least
  double expected = 0;  // collectives per second
  // The window.
  Time begun{0};  // 0: none
  std::uint64_t at_begin = 0;
  double last_rate = 0;  // of the last one, for people
};

// `launched`: collectives that the gang has launched so far. True: the phase is another one.
bool next(State& state, std::uint64_t launched, Time now);

// The gang is held. Its rate says nothing about slices until it goes on.
void interrupt(State& state);

}  // namespace switchyard::monitor::gang_slices
