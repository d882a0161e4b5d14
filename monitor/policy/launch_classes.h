// Which launches a process records, so that the ring of its page holds them: the rule alone.
//
// Concept. A framework launches up to some hundred thousand kernels a second, and the ring has room
// for a few thousand. A class that repeats once in an iteration is rare, so the frequent ones are
// left out. Kernels are told apart by classes, a byte of a hash. All are asked for first. While
// more come than the ring holds, the classes that came most often are dropped, until the rest would
// fit:
//
//     all ──► what came is too much: drop the most frequent ──► the rest fits: settled
//      ▲                                                              │
//      └──── nothing has come for kTryAgain: the program changed ◄────┘
//
// Threading: a plain value.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <vector>

#include "monitor/platform/time.h"
#include "switchyard/abi.h"

namespace switchyard::monitor {

class LaunchClasses {
 public:
  using Set = std::bitset<abi::kLaunchClasses>;
  // The ring is emptied five times a second.
  static constexpr std::size_t kMost = abi::kRecords * 3 / 4;
  static constexpr std::size_t kKept = abi::kRecords / 2;
  static constexpr Time kTryAgain = std::chrono::seconds(30);

  LaunchClasses() { wanted_.set(); }
  const Set& wanted() const { return wanted_; }

  // `came` launches were recorded since the last look, of which the last ones are of these classes.
  // True: the sequence is whole, for what is wanted has not changed since the look before.
  bool look(std::size_t came, const std::vector<std::uint8_t>& last, Time now) {
    if (came != 0 || came_at_ == Time{0}) came_at_ = now;
    const bool whole = !changed_;
    changed_ = false;
    if (came > kMost && !last.empty()) {
      drop(came, last);
      changed_ = true;
      return false;
    }
    if (now - came_at_ >= kTryAgain) {
      came_at_ = now;
      if (!wanted_.all()) changed_ = true;
      wanted_.set();
    }
    return whole;
  }

 private:
  void drop(std::size_t came, const std::vector<std::uint8_t>& last) {
    std::array<std::size_t, abi::kLaunchClasses> counts{};
    for (const std::uint8_t each : last) ++counts[each];
    for (std::size_t left = last.size(); left * came > kKept * last.size();) {
      std::size_t most = 0;
      for (std::size_t i = 1; i < counts.size(); ++i) {
        if (counts[i] > counts[most]) most = i;
      }
      left -= counts[most];
      counts[most] = 0;
      wanted_.reset(most);
    }
  }

  Set wanted_;
  bool changed_ = true;
  Time came_at_{0};
};

}  // namespace switchyard::monitor
