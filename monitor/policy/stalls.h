// Which rank the others wait for: the rule alone.
//
// Concept. All ranks of a communicator launch the same operations in the same order. A rank is
// *late* while it has launched less than another, and its count stands still. Ranks run ahead of
// each other, so only one that is late for kLateAfter is told of, by what it is:
//
//     seen of the rank                                          → told
//     late, and held by us now                                  → held: why, and since when
//     late, and held by us until less than kLateAfter ago       → nothing yet
//     late, and free for kLateAfter                             → late: it has not launched number
//     late, and its process has ended                           → the same: gone
//     as many as all others, but its last operation is another,
//       and nobody's count has moved for kLateAfter             → other: it has left one out, say
//     the same, but what some rank did last is not known        → nothing
//     as many as all others, the same operation, nobody's count
//       has moved for kLateAfter, nor has a signal let it go on   → stopped: over a network, its
//       threads carry what it has launched, and they stand still
//     the same, but all that are there are stopped              → nothing: nobody waits
//     late, but it waits itself for one that is told of         → nothing: it is not to blame
//
// Where all that are late wait for each other, in several communicators, all are told.
//
// A rank whose process has ended stays known while another of its communicator is there. One whose
// communicator has ended in a living process is forgotten.
//
// Threading: pure functions.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "monitor/platform/time.h"

namespace switchyard::monitor::stalls {

inline constexpr Time kLateAfter = std::chrono::seconds(3);
// Of one communicator that are looked at: a process may claim to be any rank.
inline constexpr std::size_t kMostRanks = 1024;
// Of one job whose processes have ended and that stay known, and that are told of after one look.
inline constexpr std::size_t kMostGone = 1024;
inline constexpr std::size_t kMostTold = 64;

// What holds a process, if we do.
enum class Hold : std::uint8_t { kNone, kPause, kCut, kSwap, kMemory, kTurn, kLimit, kGuard };
const char* key_of(Hold hold);  // for JSON; null: none

struct Operation {
  std::uint32_t kind = 0;  // switchyard/collectives.h; 0: not known
  std::uint64_t bytes = 0;
  bool operator==(const Operation&) const = default;
};

struct Place {
  std::uint64_t communicator = 0;
  std::uint32_t rank = 0;
  std::uint64_t launched = 0;
  Operation last = {};
  Time last_at{0};  // when that was launched
};

// One process, as of one moment.
struct Process {
  pid_t pid = 0;
  std::vector<Place> places = {};
  Hold hold = Hold::kNone;
  bool stopped = false;  // by a signal, or a debugger
};

enum class What : std::uint8_t { kLate, kOther, kStopped };

const char* key_of(What what);  // for JSON

struct Stall {
  What what = What::kLate;
  std::uint64_t communicator = 0;
  std::uint32_t rank = 0;
  pid_t pid = 0;
  bool gone = false;
  std::uint64_t number = 0;   // of the operation that it lacks, or has launched instead, or last
  Time since{0};              // it is late, or stands still
  std::uint32_t waiting = 0;  // ranks that have launched it
  Hold hold = Hold::kNone;
  Time held_since{0};
  bool operator==(const Stall&) const = default;
};

struct State {
  struct Member {
    pid_t pid = 0;
    bool present = false;
    std::uint64_t launched = 0;
    Operation last = {};
    Time last_at{0};
    Time moved_at{0};    // its count
    Time late_since{0};  // 0: it is not late
    Hold hold = Hold::kNone;
    Time held_since{0};
    Time free_since{0};  // when it was held last
    bool stopped = false;
    Time stopped_at{0};
  };
  using Ranks = std::map<std::uint32_t, Member>;
  std::map<std::uint64_t, Ranks> communicators = {};
};

// The stalls to be told after one look.
std::vector<Stall> next(State& state, const std::vector<Process>& processes, Time now);

}  // namespace switchyard::monitor::stalls
