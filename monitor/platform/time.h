// Time as a value: nanoseconds on a clock that never jumps. A function that decides takes it as an
// argument; only the loop reads the clock.
//
// Threading: plain values.
#pragma once

#include <algorithm>
#include <chrono>

namespace switchyard::monitor {

using Time = std::chrono::nanoseconds;

inline Time steady_now() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

// The earlier of two times of which 0 means never.
constexpr Time earlier(Time a, Time b) {
  if (a == Time{0} || b == Time{0}) return a + b;
  return a < b ? a : b;
}

inline double ns(Time span) { return static_cast<double>(span.count()); }
// What counts of the time between two looks: where monitor and jobs stood still together (a
// suspended machine or container), nobody had the GPU.
inline double counted_ns(Time span) { return std::clamp(ns(span), 0.0, 1e9); }
inline double seconds(Time span) { return std::chrono::duration<double>(span).count(); }

}  // namespace switchyard::monitor
