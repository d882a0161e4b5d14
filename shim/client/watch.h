// What the service thread knows of its monitor: whether it lives, and when to look for another.
//
// Concept. A monitor is gone when its socket closed, or when its heartbeat stood still for
// kSilentMs. Time in which the thread itself did not run says nothing: on a machine that stood
// still the monitor did not run either. After that the thread tries to join again, at growing
// intervals. The clock and the heartbeat are arguments: nothing here reads a clock, a page or a
// descriptor.
//
// Threading: a plain value of the service thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shim/client/client.h"

namespace switchyard::shim::service {

inline constexpr std::int64_t kFirstRetryMs = 100;
inline constexpr std::int64_t kLastRetryMs = 2000;
inline constexpr int kLookMs = 500;   // how often the thread looks at the heartbeat
inline constexpr int kFollowMs = 20;  // the same while work must not wait for the next look

class Watch {
 public:
  explicit Watch(std::int64_t now_ms) : looked_ms_(now_ms) {}

  // A monitor that is connected was looked at. False: it has been silent for too long.
  bool hears(std::int64_t now_ms, std::uint64_t heartbeat) {
    silent_ms_ += std::min<std::int64_t>(now_ms - looked_ms_, kLookMs);
    looked_ms_ = now_ms;
    if (heartbeat != heartbeat_) silent_ms_ = 0;
    heartbeat_ = heartbeat;
    return silent_ms_ <= kSilentMs;
  }

  void gone(std::int64_t now_ms) {
    retry_ms_ = kFirstRetryMs;
    next_try_ms_ = now_ms + retry_ms_;
  }

  // There is no connection. Whether to try now; silence begins anew with the next connection.
  bool tries(std::int64_t now_ms) {
    looked_ms_ = now_ms;
    silent_ms_ = 0;
    return now_ms >= next_try_ms_;
  }

  void failed(std::int64_t now_ms) {
    retry_ms_ = std::min(retry_ms_ * 2, kLastRetryMs);
    next_try_ms_ = now_ms + retry_ms_;
  }

  // How long the thread may sleep. `busy`: work stands before a retired view, or is drained.
  int sleep_ms(bool connected, bool busy) const {
    const int look = connected ? kLookMs : static_cast<int>(retry_ms_);
    return busy ? std::min(kFollowMs, look) : look;
  }

 private:
  std::uint64_t heartbeat_ = 0;
  std::int64_t looked_ms_;
  std::int64_t silent_ms_ = 0;
  std::int64_t retry_ms_ = kFirstRetryMs;
  std::int64_t next_try_ms_ = 0;
};

}  // namespace switchyard::shim::service
