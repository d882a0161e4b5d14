// Who must leave the device so that another fits: the turns of jobs that oversubscribe its memory.
//
// Concept. Those who want room stand in one line: the higher class first, then who has waited
// longest. Only the first is served, by one job that leaves: one that idles, else one whose stay is
// over, the lowest class first, of these the one that has been there longest. A higher class waits
// for nobody's stay, and an active one gives nothing to a lower class. A stay lasts twenty times
// what moving the job out and in took last, so that moving costs at most a twentieth of the time.
// Nobody leaves for one that fits already, nor while another's memory moves.
//
// Threading: pure functions of what they are told.
#pragma once

#include <cstdint>
#include <span>

#include "monitor/time.h"
#include "switchyard/settings.h"

namespace switchyard::monitor::policy {

inline constexpr Time kShortestStay = std::chrono::milliseconds(200);

// A job that oversubscribes, as one GPU sees it.
struct Oversubscriber {
  std::uint64_t job = 0;
  Priority priority = Priority::kNormal;
  std::uint64_t resident_bytes = 0;  // that can leave; 0: it has nothing to give
  Time resident_since{0};
  Time rests_until{0};  // not asked to leave before: it could not
  Time move_cost{0};    // of the last time out and the last time in
  bool active = false;
  bool moves = false;       // its memory is on its way, out or in
  bool wants_room = false;  // it asks for memory, or is out and has work
  bool fits = false;        // what it wants is free
  Time waits_since{0};
};

struct RoomPlan {
  std::uint64_t first = 0;  // of those who want room; 0: nobody does
  std::uint64_t giver = 0;  // a job whose room it will get; 0: it fits, or nobody can give
  bool leaves = false;      // the giver must leave now
  Time look_again{0};       // 0: when something happens
};

RoomPlan plan_room(std::span<const Oversubscriber> jobs, Time now);

// How long a job keeps its room at least, while it works.
Time stay_of(const Oversubscriber& job);

}  // namespace switchyard::monitor::policy
