// The guard of a job: who slows it down, and what is done about it. The rule alone.
//
// Concept. A job with `--guard 5%` shall not lose more than 5 % of its rate to other jobs. It is
// *disturbed* when more than half of its ranks are slow in two rounds of iterations (pace.h) and
// another job has grown meanwhile (suspects.h). That job is the interferer. Something is done to
// one interferer at a time, the mildest first, and each measure is judged by the next two rounds:
//
//     kSlices    its weight is so small that it gets a quarter of what may be missing
//     kCopies    the slices of its copy engines are as short as may be
//     kCeiling   it has work on the GPU for a limited part of the time: a quarter of what may be
//                missing. All that time counts, also what others work beside it (account.cpp)
//     kHold      its gate is closed
//
// *May be missing* is kBack of the guard, so that a job that is helped is well within it. The rest
// goes to switches, and to the gaps of the guarded job: who fills one keeps the GPU until its slice
// ends.
//
//     phase     what is seen                               → phase     what is done
//     kQuiet    disturbed                                  → kTrying   the mildest that is possible
//     kQuiet    slow, and nobody has grown                 → kQuiet    nothing: its pace changed
//     kQuiet    an answer has lasted for its stay          → kEasing   the next milder one, or none
//     kTrying   back                                       → kQuiet    it stays: an answer
//     kTrying   helped by a quarter, and there are more    → kTrying   the next, on top
//     kTrying   did not help, and there are more           → kTrying   the next, instead
//     kTrying   no more, but all of it has helped          → kQuiet    they stay: an answer
//     kTrying   no more, and nothing has helped            → kQuiet    none; the job is cleared
//     kEasing   slow again                                 → kQuiet    as before; the stay doubles
//     kEasing   not slow                                   → kQuiet    it stays, if any is left
//     any       the interferer has gone, or has no work    → kQuiet    none
//     any       the guarded job is held by others' will,   → kQuiet    none at all
//               does not iterate, or is not guarded
//
// A hold is tried only while more than the guard is missing. A job that is cleared is left alone
// for a time, which doubles. An answer's stay doubles as well, up to kLongestStay: so a hold is
// undone within that and the time of a judgement. A job without an iteration for kCeases, or four
// usual ones, doesn't iterate.
//
// Nobody is answered for a job of a lower class. Of the same class only a job of the same user is
// answered for, which has no guard of its own. Two that guard themselves against each other would
// take turns to hold each other (`answerable`, said by the caller).
//
// Threading: a plain value.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "monitor/platform/time.h"
#include "monitor/policy/pace.h"
#include "monitor/policy/suspects.h"

namespace switchyard::monitor::guard {

inline constexpr double kBack = 0.4;
inline constexpr double kHelped = 0.25;
// A measure is in force, and what ran before has ended.
inline constexpr Time kSettles = std::chrono::milliseconds(100);
inline constexpr Time kStay = std::chrono::seconds(10);
inline constexpr Time kLongestStay = std::chrono::seconds(60);
inline constexpr Time kCleared = std::chrono::seconds(60);
inline constexpr Time kLongestCleared = std::chrono::minutes(10);
inline constexpr Time kIdle = std::chrono::seconds(3);
inline constexpr Time kCeases = std::chrono::seconds(3);

enum class Measure : std::uint8_t { kSlices, kCopies, kCeiling, kHold };  // the mildest first
inline constexpr std::array kMeasures = {Measure::kSlices, Measure::kCopies, Measure::kCeiling,
                                         Measure::kHold};

class Measures {
 public:
  constexpr Measures() = default;
  constexpr Measures(std::initializer_list<Measure> all) {
    for (const Measure each : all) *this = with(each);
  }
  constexpr bool has(Measure each) const { return (bits_ >> static_cast<unsigned>(each) & 1) != 0; }
  constexpr bool none() const { return bits_ == 0; }
  constexpr Measures with(Measure each) const {
    Measures out = *this;
    out.bits_ = static_cast<std::uint8_t>(bits_ | 1u << static_cast<unsigned>(each));
    return out;
  }
  constexpr Measures without(Measure each) const {
    Measures out = *this;
    out.bits_ = static_cast<std::uint8_t>(bits_ & ~(1u << static_cast<unsigned>(each)));
    return out;
  }
  constexpr bool operator==(const Measures&) const = default;

 private:
  std::uint8_t bits_ = 0;
};

// An interferer's part of the GPU's time at most, and its weight for each of the guarded job's.
constexpr double part_of(double guard) { return std::max(0.005, kBack * guard / 4); }

// A rank of the guarded job: iterations that it has begun since the last look.
struct Rank {
  std::uint64_t id = 0;
  std::uint32_t marker = 0;  // what an iteration is told by: another one is another pace
  bool broken = false;       // the first of `began` does not follow on what was told last
  std::vector<Time> began = {};
};

// Another job on the guarded job's GPUs.
struct Other {
  Activity activity;
  bool wants = false;       // has work there, or would
  bool answerable = false;  // by its class and its user
  Measures possible = {};
};

struct Look {
  double guard = 0;   // 0: none
  bool held = false;  // by a person, for memory, or by its own limit: its pace says nothing
  std::vector<Rank> ranks = {};
  std::map<std::uint64_t, Other> others = {};
};

enum class Phase : std::uint8_t { kQuiet, kTrying, kEasing };

// The measure, for the log.
enum class What : std::uint8_t {
  kDisturbed,  // by `job`, and `measure` is the first answer
  kNext,       // the last measure helped in part: this one on top
  kInstead,    // the last measure did not help: this one instead
  kAnswered,   // the pace is back
  kCleared,    // nothing helped: the job is not the reason
  kEases,      // `measure` is taken back, to see whether it is needed
  kNeeded,     // it is: it is back
  kOver,       // the last one was not needed any more
  kGone,       // the interferer has no work any more, or has ended
  kStopped,    // the guarded job does not iterate, or is held
};
struct Event {
  What what = What::kOver;
  std::uint64_t job = 0;
  Measure measure = Measure::kSlices;
  double missing = 0;  // of the rate
  Growth growth = {};  // of kDisturbed
};

struct Answer {
  Measures on;
  Measures tried;
  Measures before;  // kEasing: what was on
  Time since{0};    // it is answered so
  Time stay = kStay;
  Time idle_since{0};  // 0: it has work
};

struct State {
  struct Member {
    Pace pace;
    std::uint32_t marker = 0;
  };
  struct Cleared {
    Time until{0};
    Time span{0};
  };
  std::map<std::uint64_t, Member> ranks = {};
  std::map<std::uint64_t, Answer> answers = {};
  std::map<std::uint64_t, Cleared> cleared = {};
  Suspects suspects = {};
  Phase phase = Phase::kQuiet;
  std::uint64_t about = 0;             // of kTrying and kEasing: which job
  Measure measure = Measure::kSlices;  // likewise
  Growth growth = {};                  // of kTrying: of that job, when it was found
  double at_first = 0;                 // likewise: what was missing before the first measure
  double before = 0;                   // and before this one
  double missing = 0;                  // of the rate, as last judged
  std::size_t rounds = 0;              // of all ranks
  Time iterated_at{0};                 // 0: not yet
};

std::vector<Event> next(State& state, const Look& look, Time now);

// For listings: the median of the ranks' usual periods; nothing: not known yet.
std::optional<double> usual_seconds(const State& state);

}  // namespace switchyard::monitor::guard
