// A consistent cut: the rules alone. The processes of a job wait for each other in collectives, and
// a cut stops them so that none of them waits.
//
// Concept. All ranks of a communicator launch the same operations in the same order. If all have
// launched as many, nothing that was launched waits for what was not. So the target of each
// communicator is the largest count among its ranks. A process below a target goes on; one that has
// reached all of its targets stops before its next collective (switchyard/abi.h: Cut). A process
// that was past its look at the word passes the target once: then the target is raised.
//
//     state       seen                                            → state
//     Settling    some count is above its target                  → Settling    targets are raised
//                 a rank is not seen any more                     → Failed      it is gone
//                 none is above, somebody is not there            → Gathering
//                 none is above, all are there                    → There
//     Gathering   as Settling
//     any of them kComesWithin after the begin                    → Failed      who did not come
//     any of them a process that is not there can't act           → Failed      it
//     There       whatever                                        → There
//     Failed      whatever                                        → Failed
//
// The first look only sets targets: what it sees was counted before anybody was asked. A process is
// *there* when its counts have reached their targets and no thread of it is in a launch. One that
// also sends or receives between more than two ranks must have stopped at a collective, too. No one
// can tell which of these belong together, but all that were launched before the same collective
// do.
//
// The missing one is a process that is below a target, else one that is in a launch, else one that
// has not stopped. Of several it is the one that lacks most.
//
// Threading: pure functions.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "monitor/platform/standstill.h"
#include "monitor/platform/time.h"

namespace switchyard::monitor::cut {

// A rank that does not come ends the attempt so long after the begin.
inline constexpr Time kComesWithin = std::chrono::seconds(5);

// A process's place in a communicator.
struct Place {
  std::uint64_t communicator = 0;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  std::uint64_t launched = 0;
};

// One process, as of one moment.
struct Process {
  pid_t pid = 0;
  std::vector<Place> places = {};
  bool launching = false;  // a thread is in a launch, or was while this was read
  bool stopped = false;    // a thread sleeps at the cut
  bool sends = false;      // between more than two ranks
  Standstill stands = Standstill::kNone;
};

enum class Phase : std::uint8_t { kSettling, kGathering, kThere, kFailed };

// Why an attempt failed.
struct Blame {
  enum class Why : std::uint8_t { kNobody, kBelow, kLaunching, kNotStopped, kGone };
  Why why = Why::kNobody;
  pid_t pid = 0;  // of kGone: which it was; 0: it was never seen
  std::uint32_t rank = 0;
  std::uint64_t communicator = 0;
  std::uint64_t lacks = 0;  // operations, of kBelow
  Standstill stands = Standstill::kNone;
  bool operator==(const Blame&) const = default;
};

struct State {
  Phase phase = Phase::kSettling;
  Time since{0};
  std::map<std::uint64_t, std::uint64_t> targets = {};  // by communicator
  bool asked = false;                                   // the targets were set by an earlier look
  std::map<std::pair<std::uint64_t, std::uint32_t>, pid_t> pids = {};  // by communicator and rank
  Blame blame = {};
};

// What comes of one look. True: the targets changed, so tell them.
bool next(State& state, const std::vector<Process>& processes, Time now);

// A rank of a communicator that none of the processes is; kNobody: all are there to be asked.
Blame missing(const std::vector<Process>& processes);

// "rank 1 (pid 4711) did not launch 2 operations that others of communicator 1a2b... wait for".
std::string text_of(const Blame& blame);

}  // namespace switchyard::monitor::cut
