// The time-sliced engines: how the processes of a simulated GPU take turns on it.
//
// Concept. Each engine (compute, and three for copies) has one token in the state file. A Seat is a
// channel group's place at one engine. To run an operation it takes the token and *spends* the
// operation's cost in virtual time. When its slice is used up and another group waits, the token
// goes on, round robin. The rest of the cost is spent in a later turn. Virtual time keeps pace with
// the wall clock (at most kLeadNs ahead), so programs feel a real GPU. The counters in the state
// file are exact whatever the machine's speed.
//
//   idle ── take ──► holding ── spend ──► holding (slice used up, others wait: waits its turn)
//     ▲                 │
//     └──── give_up ────┘   at once, when nothing is ready: the engine is work-conserving
//
// The waiting groups find a dead holder after at most 20 ms. A stopped one (SIGSTOP) loses the
// engine after half a second, and asks for it anew when it goes on.
//
// Clients of the simulated MPS have their seats in the groups of their server. While that group has
// the engine all of them spend at once, each at its own pace. So the engine's clock is that of the
// one that is furthest. Nothing bounds how much runs at once.
//
// Threading: a Seat belongs to one thread, the group's worker; set_slice may come from any.
#pragma once

#include "shared_state.h"

namespace fakecuda {

inline constexpr std::uint64_t kLeadNs = 200 * kUs;

class Seat {
 public:
  Seat(State& state, int gpu, Engine engine, int group);

  void take();
  void spend(std::uint64_t cost_ns);
  void give_up();

  bool holding() const { return holding_; }
  // The engine's virtual clock. REQUIRES: holding.
  std::uint64_t clock() const { return engine_.clock_ns.load(std::memory_order_relaxed); }
  void count_operation() { group_.operations.fetch_add(1, std::memory_order_relaxed); }

 private:
  void seize_locked();
  // Of a seat in a server's group (mps/seat.cpp).
  void take_shared();
  void spend_shared(std::uint64_t cost_ns);
  void give_up_shared();
  bool pass_shared(std::uint64_t slice_ns);
  std::uint64_t turn_ns() const;
  void advance(std::uint64_t step_ns);
  bool is_of_server() const;
  void pass_on_locked();
  void pass_locked(int to);
  void wait_for_grant();
  bool take_over();
  void keep_pace();

  State& state_;
  Engine kind_;
  EngineEntry& engine_;
  GroupEntry& group_;
  int index_;
  bool holding_ = false;
  Turn turn_;
  const bool shared_;
  std::uint64_t own_ns_ = 0;  // of a shared one: how far it is
};

}  // namespace fakecuda
