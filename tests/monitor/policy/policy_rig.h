// Made-up clients and a made-up clock for the tests of the policy.
//
// Threading: one test, one thread.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "monitor/policy/policy.h"

namespace switchyard::monitor::policy {

inline ClientView client(std::uint64_t id, Priority priority, double weight = 1) {
  ClientView view;
  view.client = id;
  view.job = id;
  view.priority = priority;
  view.weight = weight;
  view.contexts = 1;
  view.compute_groups = 1;
  return view;
}

// Clients that can be made to work, and a clock that only we move.
struct EventLoop {
  Snapshot snapshot;
  State state;
  Time now = std::chrono::seconds(100);

  ClientView& operator[](std::size_t at) { return snapshot.clients[at]; }
  Plan decide() { return policy::decide(snapshot, now, state); }
  // All of `who` work, and the monitor looks.
  Plan work(std::initializer_list<std::size_t> who) {
    decide();  // it has seen everybody before they work
    for (const std::size_t at : who) snapshot.clients[at].work += 10;
    return decide();
  }
};

inline unsigned shorts(const Plan& plan) {
  return static_cast<unsigned>(std::count_if(plan.clients.begin(), plan.clients.end(),
                                             [](const auto& c) { return is_short(c.slices); }));
}

inline constexpr Slices kNothing{0, 0};

}  // namespace switchyard::monitor::policy
