// Turns of gangs: granted on all their GPUs at once, or on none.
//
// Concept. decide() looks at one GPU. The ranks of a gang work on several and wait for each other
// there. While one of them is behind its gate, the others hold their GPUs for nothing. So each look
// at a GPU where a gang takes turns tells which jobs take them (Claim). Here it is decided for all
// GPUs together who has a turn, and the next look at each GPU carries it out (ClientView::grant). A
// GPU where no gang takes turns decides by itself (turns.cpp).
//
// A unit is a gang with all GPUs where it takes turns, or what another job has on one of them.
//
//     state      seen                                                   → state
//     Waiting    its GPUs are free, and it may have them                → Open
//     Open       its time is over for who is before all others in line  → Stopping
//     Stopping   its ranks are stopped at a cut, or not waited for      → Draining
//     Draining   nothing of it runs on its GPUs, or it took too long    → Waiting
//     any        it takes no turns any more                             → forgotten
//
// Gates of ranks that are stopped at a cut stay open until their launched work has ended. A gate
// closed in the middle of it would keep the others waiting on their GPUs. Others are closed while
// they drain.
//
// Ranks are waited for up to kStopsWithin. After an end for which they did not come, one end is not
// waited for. After the next such end it is 3, and so on, up to 63. Such ends make no turn longer.
//
// The line: who is owed of the lower classes' minimum, then the higher class, then who had fewer
// turns. A unit that wants a GPU of those before it in line has to wait, and reserves its other
// GPUs, too. These go to later ones for no longer than it has to wait anyway. The first in line
// ends turns only when those of all in its way are over. So no GPU of a gang waits for another one.
// GPUs idle only while turns are handed over, or where no unit that wants one fits.
//
// A gang with a limit is closed on all its GPUs when it has had its part of one, and opens on all
// together. So it does at a cut.
//
// Threading: pure functions over plain values.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "monitor/platform/time.h"

namespace switchyard::monitor::policy {

// Ranks that can be stopped at a cut come within a part of an iteration, and what they have
// launched ends within such a part. A rank that takes longer is closed where it is: its turn is
// over.
inline constexpr Time kStopsWithin = std::chrono::milliseconds(200);
inline constexpr Time kEndsWithin = std::chrono::milliseconds(200);
// The work that still runs behind a closed gate then is one long kernel, which the slices bound.
inline constexpr Time kDrainsWithin = std::chrono::milliseconds(5);

// The order to the GPUs about a job.
enum class Grant : std::uint8_t {
  kLocal,     // each GPU decides by itself
  kOpen,      // it has its turn
  kStopping,  // the same, but its ranks are to stop at a cut
  kClosed,    // it waits
};

// A job on one GPU, as the last look there shows it.
struct Claim {
  std::uint64_t job = 0;
  bool gang = false;
  bool stops = false;        // its ranks can be stopped at a cut,
  bool stopped = false;      // and are
  bool takes_turns = false;  // there, with others
  int rank = 0;              // of its class, where classes count
  double turn_ns = 0;        // how long a turn of it is
  bool wants = false;
  bool drained = true;
  bool metered = false;  // it has a limit,
  bool spent = false;    // and has had what that allows
};

struct Unit {
  enum class Phase : std::uint8_t { kWaiting, kOpen, kStopping, kDraining };
  // As of the last look.
  std::vector<std::size_t> gpus = {};  // where it takes turns that are decided here
  Claim claim = {};                    // of all of them together
  // Remembered.
  Phase phase = Phase::kWaiting;
  Time since{0};          // of the phase
  double left_ns = 0;     // of its turn
  double turns = 0;       // that it had,
  double turn_ns = 0;     // each of so long; 0: none is counted yet
  int rank = 0;           // as of the last look
  Time worked_at{0};      // when it had work last, while it has its turn
  Time wants_since{0};    // 0: it does not
  Time ends_since{0};     // its last turn ended then, or begins to,
  double ends_ns = 0;     // which took so long, smoothed
  unsigned missed = 0;    // ends that were waited for in vain since its ranks came to a cut,
  unsigned unwaited = 0;  // and those that are not waited for next
  double owed_ns = 0;     // of the lower classes' minimum
  bool repaying = false;  // its turn is of that
};

// The memory between two looks.
struct Grants {
  using Key = std::pair<std::uint64_t, std::size_t>;  // a job; a GPU, or kAllGpus for a gang
  static constexpr std::size_t kAllGpus = ~std::size_t{0};
  std::map<std::size_t, std::vector<Claim>> claims;  // by GPU, as of its last look
  std::map<Key, Unit> units;
  Time looked_at{0};

  Grant of(std::uint64_t job, std::size_t gpu) const;
};

// Decides anew, after the claims of some GPU changed. `minimum`: what a busy higher class leaves to
// the lower ones, together. Answers who got another grant.
std::vector<Grants::Key> decide_grants(Grants& grants, double minimum, Time now);

}  // namespace switchyard::monitor::policy
