// A bound for lines of the log that others cause: at most so many for each key in a minute.
//
// Threading: a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "monitor/platform/time.h"

namespace switchyard::monitor {

class LineBound {
 public:
  explicit LineBound(unsigned most) : most_(most) {}

  // Whether another line may be written; `last`: none after it in this minute.
  bool may(std::uint64_t key, Time now, bool& last) {
    constexpr Time kMinute = std::chrono::minutes(1);
    if (minutes_.size() >= kMostKeys) {
      std::erase_if(minutes_, [=](const auto& each) { return now - each.second.since >= kMinute; });
      if (minutes_.size() >= kMostKeys && !minutes_.contains(key)) return false;
    }
    Minute& minute = minutes_.emplace(key, Minute{now, 0}).first->second;
    if (now - minute.since >= kMinute) minute = {now, 0};
    if (minute.lines >= most_) return false;
    last = ++minute.lines == most_;
    return true;
  }

 private:
  struct Minute {
    Time since{0};
    unsigned lines = 0;
  };
  static constexpr std::size_t kMostKeys = 1024;
  unsigned most_;
  std::map<std::uint64_t, Minute> minutes_;
};

}  // namespace switchyard::monitor
