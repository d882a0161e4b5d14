// The policy: who gets which slices on one GPU, and whose gate is shut. Pure: no clock, no log, no
// page.
//
// Concept. `decide(snapshot, now, state)` looks at the clients that have a context on the GPU and
// answers what each should have. All that it remembers between two looks is in `State`.
//
//   nobody else there        the driver's default: left alone
//   a high class to protect  highs get long slices (10 ms and more, by weight). Of those that yield
//                            (normal and low) one may have the short slice: the only one that is
//                            active, or, where several are, the one whose turn it is: the others
//                            wait behind their gates, because two short slices bring everybody to
//                            a standstill. Without gates they share slices of the default's length.
//                            Beside highs that wait for their CPU, the short slice is longer.
//   no high class active     slices in proportion to the weights; low counts a tenth beside normal;
//                            around a gang as short as the default's, unless it bears longer ones
//   no slices here           a high class that works shuts the gates of the others; unequal weights
//                            take turns in proportion
//
// A high client that sleeps keeps its long slice, and the only active yielder beside it stays
// short. That costs nothing while the high one has no work. Its first request after the sleep finds
// the GPU as quick as the next. A high class that never sleeps leaves the others a minimum.
//
// The other kinds only say who is high, or that one job at a time has the GPU (exclusive). By
// deadline it is the job with the earliest, by fair none is. Limits and pauses hold in all of them.
//
// The rooms, in the order in which a look goes through them:
//
//   activity   who works, who would                account  how much of the GPU each had
//   sampling   the same where no gate is armed, by windows
//   limits     ceilings, by the gate               classes  who is high, weights, slices
//   turns      one job after the other             holding  the lower class held by gates alone
//   claims     what is decided for all GPUs together (grants.h)
//   bursts     who waits for the GPU, who for its CPU
//   foresight  when the next wait comes, and the low gate closed before it
//   islands    jobs that share channel groups, before all of these (islands.h)
//
// Threading: pure functions over plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "monitor/platform/time.h"
#include "monitor/policy/bursts.h"
#include "monitor/policy/grants.h"
#include "monitor/policy/slices.h"
#include "monitor/policy/state.h"
#include "switchyard/abi.h"
#include "switchyard/settings.h"

namespace switchyard::monitor::policy {

// A class counts as active this long after its last work.
inline constexpr Time kActiveFor = std::chrono::seconds(2);

// The short slice, and the longest that takes its place beside a high class that waits for its CPU
// (bursts.cpp).
inline constexpr Slices kYieldShort{20, 50};
inline constexpr std::uint32_t kYieldLongestUs = abi::kDefaultSliceUs;
inline constexpr Slices kYieldShared{abi::kDefaultSliceUs, abi::kDefaultSliceUs};
inline constexpr std::uint32_t kHighSliceUs = 10'000;    // the smallest of the high class
inline constexpr std::uint32_t kGreedyRoundUs = 50'000;  // of all of it, while it leaves a minimum
inline constexpr std::uint32_t kSmallestSliceUs = 2'000;
// Of one that a guard holds back: who fills a gap of another keeps the GPU until its slice ends.
// Only one of them may be that short.
inline constexpr std::uint32_t kSmallestRestrainedUs = 100;
inline constexpr std::uint32_t kShortCycleUs = abi::kDefaultSliceUs;  // around a gang that needs it
// Of the copies of one whose memory moves: as short as may be where others have short ones, too. Of
// the one that leaves: whoever maps memory meanwhile waits for about that long at each chunk.
inline constexpr std::uint32_t kMovingCopySliceUs = abi::kShortBelowUs;
inline constexpr std::uint32_t kLeavingCopySliceUs = 50;
inline constexpr std::uint32_t kLargestSliceUs = 200'000;
// Between two waits, beside a high class. A wait costs about 4 us of GPU time: at 400 it was 1.2 %.
inline constexpr std::uint32_t kHighSpacingUs = 500;
inline constexpr double kLowBesideNormal = 0.1;

enum class Kind : std::uint8_t { kPriority, kFair, kExclusive, kDeadline };

// A person's choice for the GPU, and its settings.
struct Rules {
  Kind kind = Kind::kPriority;
  bool slices = true;     // the driver takes slices here
  bool gates = true;      // gates may be used
  double minimum = 0.02;  // what a busy high class leaves to the lower ones, together
  // Of one among its equals. Each waits so long for each of the others. At each change the GPU does
  // nothing for a while: at the driver's 2 ms that is 8 to 10 % of its time.
  std::uint32_t slice_us = kUsualSliceUs;
  // A high job that waits for its CPU is served by foreseen waits (wait_history.h), where they can
  // be foreseen, instead of by a slice alone. A monitor asks for it unless told otherwise.
  bool foresee = false;
  // Of the time that passes, what the clients of the snapshot have of the GPU together. Less than 1
  // for the members of an island (islands.h).
  double part = 1;

  bool operator==(const Rules&) const = default;
};

struct ClientView {
  std::uint64_t client = 0;
  std::uint64_t job = 0;
  Priority priority = Priority::kNormal;
  double weight = 1;                 // the job's; its active processes share it
  std::uint32_t contexts = 0;        // live contexts on this GPU
  std::uint32_t compute_groups = 0;  // live compute channel groups on this GPU
  std::uint64_t work = 0;            // a counter that moves with every launch and copy
  std::uint64_t copies = 0;          // of that, the copies
  bool sliceable = true;             // the driver takes its slices
  bool gateable = true;              // its shim holds back what the gate tells it to
  bool busy = false;                 // its GPU has work of it now; known while `watch` is planned
  bool numbered = false;             // `busy` is the GPU's own word; else a guess from launches
  std::uint64_t progress = 0;        // moves when its GPU gets on (the sum of `done`); likewise
  bool held = false;                 // threads of it sleep before its closed gate
  Bursts bursts;                     // while `time_bursts` is planned
  bool slices_in_force = true;       // what was wanted last is in force
  bool paused = false;               // a person paused the job
  bool stands = false;               // its process can't act, or that of another rank can't
  bool moves = false;                // its memory is on its way off this GPU, away, or coming back
  bool leaves = false;               // it is on its way off
  double limit = 0;                  // of the GPU's time, for the whole job; 0: none
  // Of the job, for the sake of a job that guards itself. The limit may be of that, its copies'
  // slices as short as may be, and its gate closed as if its limit were used up. `restrained`: any
  // of this, or a smaller weight.
  bool limited_by_guard = false, short_copies = false, held_by_guard = false, restrained = false;
  Time deadline{0};  // of the job, on `now`'s clock; 0: none
  // Of the job: its ranks wait for each other on several GPUs; they can be stopped at a cut, and
  // are.
  bool gang = false, stops = false, stopped = false;
  bool short_slices = false;    // of the job: long ones around it are not proven (gang_slices.h)
  Grant grant = Grant::kLocal;  // of its turn, where that is decided for several GPUs together
  // The key of its island, which is nobody's as client or job; 0: it is in none. Whether it is the
  // server that has the island's channel groups; else it is a member. Looked at by islands.cpp.
  std::uint64_t island = 0;
  bool serves = false;
};

struct Snapshot {
  std::vector<ClientView> clients;
  Rules rules = {};
};

struct ClientPlan {
  std::uint64_t client = 0;
  Slices slices;
  std::uint32_t closed = 0;  // abi::kClosed* bits: the gate is shut for these reasons
  bool armed = false;        // waits stand around its launches, so that a close stops the GPU
  bool watch = false;        // its progress is wanted: who has work on the GPU just now
  bool linger = false;       // it keeps the GPU for a moment after each burst
  bool time_bursts = false;  // its bursts are wanted
  // It rings when a wait begins or ends, and with so many launches since the last wait; 0: not for
  // launches. A wait that is foreseen may begin without.
  bool tell_waits = false;
  bool wait_foreseen = false;
  std::uint32_t ring_after = 0;
  std::uint32_t spacing_us = 0;  // GPU work between two waits; 0: abi's default
  bool active = false;
  bool wake = false;         // the monitor wants to know when it works again
  double share_asked = 0;    // of the GPU's time, 0 to 1, for the whole job
  double share_got = -1;     // of the GPU's time, by estimate over a second; -1: not known
  double cpu_burst_us = -1;  // the CPU's part of its bursts, on average; -1: not known
  // Of the time since the last look: what it had of the GPU, as far as its work got on; -1: not
  // known. `divided`: others had some of the same time by their slices, so that is an allotment.
  // And what these others had while it had work.
  double had_ns = -1;
  bool divided = false;
  double lost_ns = 0;
};

struct Plan {
  double dt_ns = 0;                 // since the last look
  std::vector<ClientPlan> clients;  // in the order of the snapshot
  std::vector<Claim> claims;        // of those who take turns here, where a gang does; by job
  Time look_again{0};               // when something may have to change; 0: no need
};

Plan decide(const Snapshot& snapshot, Time now, State& state);

// For listings and the log. The slice of the one that yields to the high class, and why it is that
// long; 0: nobody yields.
struct Yielding {
  std::uint32_t slice_us = 0;
  const char* reason = "";
  const char* not_foreseen = nullptr;  // why the high jobs' waits aren't; null: they are
};
Yielding yielding(const HighState& high);
// For what a high client waits beside a lower one, "gpu" or "cpu"; null: not known.
const char* waits_for(const BurstState& bursts);

}  // namespace switchyard::monitor::policy
