// The rule of the time-sliced engine: how long a group may run, what a switch costs, who is next.
//
// Concept. Pure functions of their arguments, so that a test plays hours of sharing at once. The
// engine of the simulated GPU (engine.h) obeys the same rule under real threads. Fitted to the
// table "Two saturating processes" measured on an H200:
//
//   slices 2048/2048 keep 90.4 % of the GPU, 10000/10000 97.9 %, 200/200 42.9 %, 30000/1000 98.8 %
//
// Two groups with slices shorter than the switch itself stand still, as measured: restoring eats
// the slice. A group that alone wants the engine is never switched out: its slice begins anew.
//
// Threading: plain functions and values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace fakecuda {

inline constexpr std::uint32_t kDefaultSliceUs = 2048;
inline constexpr std::uint32_t kShortSliceUs = 100;
inline constexpr std::uint64_t kUs = 1000;  // nanoseconds

enum Engine : std::uint32_t { kCompute = 0, kCopyIn = 1, kCopyOut = 2, kCopyAcross = 3, kEngines };

// What it costs to put `in` on an engine on which `out` ran. `waited`: `in` was waiting while `out`
// ran; else the engine was idle, and there is less to save.
inline std::uint64_t switch_cost_ns(Engine engine, std::uint32_t out_slice_us,
                                    std::uint32_t in_slice_us, bool waited) {
  if (engine != kCompute) return 3 * kUs;  // a copy engine keeps next to no state
  if (!waited) return 60 * kUs;
  const std::uint32_t out = std::max(out_slice_us, 1u);
  if (out < kShortSliceUs && in_slice_us < kShortSliceUs) return 500'000 * kUs / out;
  const double cost_us = 200.0 + 12.0 * std::pow(2048.0 / out, 0.7);
  return static_cast<std::uint64_t>(std::min(cost_us, 300.0) * kUs);
}

// The state of a group's turn on an engine.
struct Turn {
  std::uint64_t slice_ns = kDefaultSliceUs * kUs;
  std::uint64_t used_ns = 0;
};

// How much of an operation may run before the next decision.
inline std::uint64_t run_for(const Turn& turn, std::uint64_t left_ns) {
  const std::uint64_t slice_left = turn.slice_ns > turn.used_ns ? turn.slice_ns - turn.used_ns : 0;
  return std::min(left_ns, std::max<std::uint64_t>(slice_left, 1));
}

// Counts `ns` of work. True when the slice is used up and somebody waits: switch now.
inline bool used_up(Turn& turn, std::uint64_t ns, bool others_wait) {
  turn.used_ns += ns;
  if (turn.used_ns < turn.slice_ns) return false;
  turn.used_ns = 0;
  return others_wait;
}

// Round robin: the first runnable group after `current`, or -1. `runnable(i)` for i in [0, count).
template <class Runnable>
int next_group(int current, int count, Runnable runnable) {
  for (int step = 1; step <= count; ++step) {
    const int candidate = (current + step) % count;
    if (candidate != current && runnable(candidate)) return candidate;
  }
  return -1;
}

}  // namespace fakecuda
