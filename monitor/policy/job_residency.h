// Where a job's swappable memory is, why it is wanted off the device, and what comes next: the
// rules alone.
//
// Concept. A state, an input and the time give the next state and one action. Anybody may say that
// the job is wanted out or in. The executor (residency/residency.h) looks, does the actions and
// tells what came of them; here is no page, account, log or clock.
//
//     state        input                                → state        action
//     Resident     look, a reason to be out             → SwappingOut  BeginOut
//                  look, none                           → Resident     Prepare
//                  found away                           → SwappedOut   Adopt
//     SwappingOut  look, a reason to be out             → SwappingOut  OrderOut
//                  look, none, and it is its turn       → SwappingOut  Reclaim
//                  look, none, and it is not            → SwappingOut  OrderOut
//                  room                                 → SwappingIn   LetIn
//                  no room                              → SwappingOut  OrderOut
//                  all has left                         → SwappedOut   Suspend
//                  it stays (an error, or too late)     → SwappingIn   StayIn, all reasons end
//                  found away                           → SwappingOut  LimitThere
//     SwappedOut   look, a reason to be out             → SwappedOut   OrderOut
//                  look, one that takes the contexts    → SwappedOut   OrderContexts
//                  look, none                           → SwappedOut   FollowRoom
//                  room followed, and it is its turn    → SwappedOut   Reclaim
//                  room                                 → SwappingIn   LetIn
//                  no room                              → SwappedOut
//                  it stays in part                     → SwappedOut   all reasons end; of one
//                                                                      that moves only that
//                  found away                           → SwappedOut   LimitThere
//     SwappingIn   reported, all is resident            → Resident
//                  look, found away                     → as Resident
//     any          wanted out, wanted in, room came, works: remembered until the next look
//                  not held (its ranks were not stopped): it is left alone for a while
//
// "Its turn": nobody is before it, and it is time to try, or all of its memory is there anyway.
// SwappedOut without a reason is what people see as waiting. A job is told to come only after the
// account has counted it in full (LetIn follows room). Contexts leave after all memory has, and
// come with LetIn, or with the first memory. An input that is not in the table changes nothing.
//
// Threading: pure functions; Machine is a plain value.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>

#include "monitor/platform/standstill.h"
#include "monitor/platform/time.h"

namespace switchyard::monitor::residency {

enum class State : std::uint8_t { kResident, kSwappingOut, kSwappedOut, kSwappingIn };
inline constexpr unsigned kStates = 4;

// The account counts only what is there of it (core/account.h: set_released).
constexpr bool released(State state) {
  return state == State::kSwappingOut || state == State::kSwappedOut;
}

// Why a job is wanted off the device. It is wanted in when no reason is left.
enum class Reason : std::uint8_t {
  kUser = 1,   // a person wants it
  kPause = 2,  // a pause with --release
  kIdle = 4,   // it does not work (idle_release.h)
  kYield = 8,  // another job lacks room (oversubscription.h)
  kMove = 16,  // it goes to another GPU (migration.h), with its contexts
};

class Reasons {
 public:
  constexpr Reasons() = default;
  constexpr Reasons(Reason reason) : bits_(static_cast<std::uint8_t>(reason)) {}  // NOLINT
  constexpr bool any() const { return bits_ != 0; }
  constexpr std::uint8_t bits() const { return bits_; }
  constexpr bool has(Reason reason) const { return (bits_ & static_cast<unsigned>(reason)) != 0; }
  // Only another job needs its memory, so a part of it may stay.
  constexpr bool only_yields() const { return without(Reason::kYield) == Reasons(); }
  constexpr Reasons with(Reasons others) const { return Reasons(bits_ | others.bits_); }
  constexpr Reasons without(Reasons others) const { return Reasons(bits_ & ~others.bits_); }
  constexpr bool operator==(const Reasons&) const = default;

 private:
  constexpr explicit Reasons(unsigned bits) : bits_(static_cast<std::uint8_t>(bits)) {}
  std::uint8_t bits_ = 0;
};
constexpr Reasons operator|(Reason a, Reason b) { return Reasons(a).with(b); }

// These end when a thread of the job wants to work.
inline constexpr Reasons kUntilItWorks = Reason::kIdle | Reason::kYield;
// All that a person ends who wants it in. A move ends by itself.
inline constexpr Reasons kAllReasons = kUntilItWorks.with(Reason::kUser | Reason::kPause);

// Why the last attempt to leave was given up.
struct Failure {
  bool failed = false;
  bool overdue = false;                   // it took too long
  std::uint32_t error = 0;                // else, as the client says (abi.h: kSwap*),
  std::uint32_t result = 0;               // and the driver
  Standstill stands = Standstill::kNone;  // or why
  pid_t pid = 0;                          // this process can't act
  bool operator==(const Failure&) const = default;
};

// The memory between two inputs.
struct JobResidency {
  State state = State::kResident;
  Reasons wanted_out;
  Reasons contexts_out;  // of these, what takes the contexts as well
  Failure failure;
  bool arriving = false;          // SwappedOut: it comes in parts, as room comes
  Time try_at{0};                 // SwappedOut: when coming back is tried next
  Time worked_at{0};              // when it was last seen at work; 0: the next look counts as that
  Time moves_since{0};            // when its last move began,
  std::uint64_t pinned_then = 0;  // and the host memory that all clients had pinned then
  Time cost_out{0}, cost_in{0};   // how long the last moves took
  Time returns_since{0};          // when it was last told to come
  Time resident_since{0};         // 0: it had no memory yet
  Time waits_since{0};            // SwappedOut: since when it wants to be in
  Time stayed_at{0};              // when it was last told to leave and could not
  Time rests_until{0};            // until then nobody asks it to leave
};

enum class Event : std::uint8_t {
  // From anybody.
  kWantedOut,  // for `reasons`
  kWantedIn,   // `reasons` end
  kRoomCame,   // memory was given back
  kWorks,      // or has a use for its memory
  kNotHeld,    // its ranks could not be stopped together, so it stays (gangs.h)
  // From the executor.
  kReported,      // the clients' reports of this look are read
  kFoundAway,     // it is away and was not told so by this monitor, or its room is another's
  kKeeps,         // SwappedOut: what it keeps beyond its limit does not leave
  kLook,          // nothing is under way
  kLeaves,        // OrderOut: not all has left yet
  kLeft,          // OrderOut: it has, but for what may stay
  kStays,         // OrderOut: `failure` says why
  kRoomFollowed,  // FollowRoom
  kRoom,          // Reclaim: it is counted in full
  kNoRoom,        // Reclaim: it does not fit
};
inline constexpr unsigned kEvents = 15;

// The observations of the job and of the others.
struct Seen {
  bool has_memory = false;         // some of it is on a device, or may come at any time
  bool all_there = false;          // none of its memory is away
  bool resident = false;           // its clients say that they work with it
  bool first = true;               // nobody who waits is before it
  bool room_comes = false;         // the room of another that leaves is meant for it
  std::uint64_t pinned_bytes = 0;  // host memory, by all clients
};

struct Input {
  Event event = Event::kLook;
  Seen seen{};            // of what comes from the executor
  Reasons reasons{};      // of kWantedOut, kWantedIn
  bool contexts = false;  // kWantedOut: they are to leave as well
  Failure failure{};      // of kStays
};

enum class Action : std::uint8_t {
  kNothing,
  kPrepare,        // offer what must leave soon to who comes
  kBeginOut,       // count only what is there, then as kOrderOut
  kOrderOut,       // lower the limits, and see what has left
  kOrderContexts,  // the same, and the contexts are to leave as well
  kSuspend,        // make its reservation a mere ceiling: others may have the room
  kFollowRoom,     // set the limits to what the account has room for
  kReclaim,        // count it in full, if it fits
  kLetIn,          // lift the limits
  kStayIn,         // count it in full, fitting or not, then as kLetIn
  kAdopt,          // count what is there, and suspend; then as kLimitThere
  kLimitThere,     // let no client have more than it has
};

struct Step {
  JobResidency to;
  Action action = Action::kNothing;
  bool changed = false;  // of state or reasons: others decide anew
};

// Jobs that lack room leave one that could not leave alone for so long. By who has waited since
// before that it is left alone as long as it waits.
inline constexpr Time kRests = std::chrono::seconds(10);
// NVML is asked before anything is promised: not for who waits in every look.
inline constexpr Time kTryEvery = std::chrono::milliseconds(100);
// A job that leaves for the first time pins host memory for it, which takes ten times as long as to
// move. The next move costs less, so one in which any process pins counts for no more than this.
inline constexpr Time kMostOfFirst = std::chrono::milliseconds(250);

Step next(const JobResidency& from, const Input& input, Time now);

// Whether one may follow the other.
bool is_legal(State from, State to);

// The state of one job. Inputs are the only way to change it.
class Machine {
 public:
  const JobResidency* operator->() const { return &now_; }
  const JobResidency& operator*() const { return now_; }
  Step take(const Input& input, Time now);

 private:
  JobResidency now_;
};

}  // namespace switchyard::monitor::residency
