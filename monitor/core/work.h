// What the monitor's loop does, in units, and whose that is.
//
// Concept. A unit is one look at a client, a lane, a holding or a word of a page's rings. So a tick
// costs as many as there are clients. A question to /proc costs kOfQuestion. A user can cause work
// at any time, by clients that ring or by listings, or make it dear, by their claims. It is spent
// from that user's budget for the tick. Where nothing is left it waits for the next tick, or it is
// left out.
//
// Units are no time: so a test can count them.
//
// Threading: a plain value.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "monitor/platform/time.h"

namespace switchyard::monitor {

class Work {
 public:
  // Of one user in one tick. Some tens of milliseconds.
  static constexpr std::uint64_t kMostOfUser = 200'000;
  static constexpr std::uint64_t kOfQuestion = 100;

  void add(std::uint64_t units) { done_ += units; }
  // Since the monitor began, of all users.
  std::uint64_t done() const { return done_; }

  void spend(uid_t uid, std::uint64_t units) { spent_[uid] += units; }
  // In this tick.
  std::uint64_t spent(uid_t uid) const {
    const auto found = spent_.find(uid);
    return found != spent_.end() ? found->second : 0;
  }
  void next_tick() { spent_.clear(); }

 private:
  std::uint64_t done_ = 0;
  std::map<uid_t, std::uint64_t> spent_;
};

// Between two looks at so many clients, however often somebody wants one: they cost a small part of
// the time.
inline Time look_pause(std::size_t clients) {
  constexpr Time kLookEvery = std::chrono::milliseconds(2);
  constexpr std::size_t kClients = 16;
  return kLookEvery * (1 + static_cast<Time::rep>(clients / kClients));
}

// The part of one of a user's clients in that of all of them together.
inline std::size_t part_of(std::size_t all, std::size_t clients, std::size_t most) {
  return std::min(most, all / std::max<std::size_t>(clients, 1));
}

}  // namespace switchyard::monitor
