// Time as a value: nanoseconds on a clock that never jumps. Whoever decides takes it as an
// argument; only the loop reads the clock.
//
// Threading: plain values.
#pragma once

#include <chrono>

namespace switchyard::monitor {

using Time = std::chrono::nanoseconds;

inline Time steady_now() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

inline double seconds(Time span) { return std::chrono::duration<double>(span).count(); }

}  // namespace switchyard::monitor
