// Which job must leave the device so that another fits: the turns of jobs that oversubscribe
// memory.
//
// Concept. Jobs that want room stand in one line. Only the first is served, by one donor at a time,
// which gives as much as is lacking.
//
//     first in line   the higher class, then the one that needs more within its stay, then the one
//                     that has waited longest
//     donor           a job that is out, of the memory that it has kept; else an idle job; else one
//                     whose stay is over: of the lowest class the one that has been there longest
//
// A higher class waits for no stay, and an active job gives nothing to a lower class. A stay lasts
// twenty times as long as the last move, in which one job goes while the other comes. So moving
// costs at most a twentieth of the time, unless kLongestStay ends the stay before. No job leaves
// for one that fits already, nor while another's memory moves. A job that asks for memory, and so
// can be refused, asks each of the others once. A job that was told to leave since then, and
// stayed, is no donor for it.
//
// A job that doesn't oversubscribe takes no turns: it gets only memory kept by jobs that are out.
//
// Room is granted whole or not at all. A job works with all of its memory. So one that wants room
// on several GPUs is served on all of them in one look, or on none. It has one place in the line
// for all its GPUs. A job waits if one before it in the line wants one of its GPUs. It takes
// nothing on its others meanwhile, so later jobs may have these. No job holds room on a GPU while
// it waits for another's on a second one, and the first in line waits for stays only.
//
// A gang with a rank that waits for memory may come to no cut: its other ranks may have launched
// work that needs this one. A gang is served first in its class if the memory kept by jobs that are
// out suffices. On its way to a cut it comes before all jobs, because the others wait for that.
// Else it keeps its place, and gives after all others that could. Of two such gangs only the one
// that is behind is asked to give to the other.
//
// Threading: pure functions of what they are told.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "monitor/platform/time.h"
#include "switchyard/settings.h"

namespace switchyard::monitor::policy {

// A stay lasts so many moves.
inline constexpr unsigned kStayMoves = 20;
inline constexpr Time kShortestStay = std::chrono::milliseconds(200);
// Of two jobs each shall get on within every half minute, whatever their moves take or a client
// says of that. So past 1.2 s a move costs more than a twentieth.
inline constexpr Time kLongestStay = std::chrono::seconds(25);
// The donor is named this long in advance: as long as it takes to offer a thousand chunks.
inline constexpr Time kKnownAhead = std::chrono::milliseconds(250);

// A job that oversubscribes, as one GPU sees it.
struct Oversubscriber {
  std::uint64_t job = 0;
  Priority priority = Priority::kNormal;
  bool takes_turns = true;
  std::uint64_t resident_bytes = 0;      // that can leave; 0: it has nothing to give
  std::uint64_t may_give_bytes = ~0ull;  // of that, what the host has room for
  Time resident_since{0};
  Time stayed_at{0};    // when it was told to leave and could not
  Time rests_until{0};  // not asked to leave before
  Time move_cost{0};    // of the last time out or in, the longer
  unsigned stay_moves = kStayMoves;
  bool active = false;
  bool out = false;               // it works with none of its memory: what is there was kept
  bool gang = false;              // its processes wait for each other
  bool stopping = false;          // its ranks are being stopped, so that it can leave,
  bool gathers = false;           // and are not all at the cut yet
  bool leaving = false;           // its memory is on its way out
  bool returning = false;         // or in
  bool wants_room = false;        // it asks for memory, or is out and has work
  bool asks = false;              // the former: it can be refused
  std::uint64_t lacks_bytes = 0;  // 0: what it wants is free
  Time waits_since{0};
};

struct RoomPlan {
  std::uint64_t first = 0;        // of those who want room; 0: nobody does
  std::uint64_t giver = 0;        // a job whose room it will get; 0: it fits, or nobody can give
  std::uint64_t gives_bytes = 0;  // that must leave now; 0: nothing
  std::uint64_t soon_bytes = 0;   // that must leave at look_again, which is near
  bool arrives = false;           // room is there, or comes: the first's memory may come meanwhile
  bool served = false;            // room is there, leaves now, or is leaving
  Time look_again{0};             // 0: when something happens
};

// Of each GPU, in the order of the GPUs.
std::vector<RoomPlan> plan_rooms(std::span<const std::vector<Oversubscriber>> gpus, Time now);

// How long a job keeps its room at least, while it works.
Time stay_of(const Oversubscriber& job);

}  // namespace switchyard::monitor::policy
