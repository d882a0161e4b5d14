// What communication costs a job, by timings of its collectives on the GPU: the rule alone.
//
// Concept. A process tells of some of its collectives when they began and how long they took. It
// also tells when its busiest stream, the one that computes, waited (abi.h: Timings). Between two
// marks kUntimed all were timed: a *stretch*. Its times are on one clock.
//
//     busiest stream   kernels kernels ▒▒ waits ▒▒ kernels     computing: what is not ▒
//     another stream           [ collective       ]            communicating: [ ]
//
//     span             from the beginning of a stretch's first collective to that of its last
//     communicating    of the span, when at least one collective ran
//     exposed          of that, when the busiest stream waited too. Before its first wait in a
//                      stretch and behind its last, nothing is known of it: that is left out
//     hidden           what is not exposed
//
// A collective takes as long as the last rank lets the others wait, and then as long as the
// transfer. So of ranks that all timed the same collective the shortest time is the transfer. The
// rest of another rank's time is its *wait for peers*.
//
// How much is timed: a process may time kPerLook between two looks. A process with more collectives
// is timed in stretches of kPerStretch. The pauses between them differ in length, or each stretch
// would begin at the same point of an iteration.
//
// Threading: plain values and pure functions.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "monitor/platform/time.h"

namespace switchyard::monitor::communication {

// Shares are those of the last so long.
inline constexpr Time kShareOf = std::chrono::seconds(10);
inline constexpr std::size_t kMostTimings = 4096;

struct Timing {
  enum class What : std::uint8_t { kCollective, kStalled, kUntimed, kGraph, kRefused };
  What what = What::kCollective;
  unsigned lane = 0;  // of a kUntimed: kAllLanes too
  std::uint64_t communicator = 0;
  std::uint64_t number = 0;
  bool meets = false;  // all ranks of the communicator have a collective of this number
  Time began{0};
  Time took{0};
  Time seen{0};  // by the monitor
};
inline constexpr unsigned kAllLanes = ~0u;

// What one process told lately.
class History {
 public:
  // Keeps as many as that, the last ones.
  void bound(std::size_t most) { most_ = most; }
  void add(const Timing& timing);
  void forget(Time now);
  const std::deque<Timing>& timings() const { return timings_; }
  bool has(Timing::What what) const;

 private:
  std::size_t most_ = kMostTimings;
  std::deque<Timing> timings_;
};

struct Shares {
  Time span{0};
  Time communicating{0};
  Time known{0};  // of communicating: it is known whether the busiest stream waited
  Time exposed{0};
};
Shares shares_of(const History& history);

// Of a process's collectives that all ranks timed.
struct Meetings {
  Time took{0};
  Time waited{0};  // for peers
};
// `ranks`: of one job. `sizes`: how many ranks each communicator has.
struct Rank {
  const History* history = nullptr;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> sizes;
};
std::vector<Meetings> meetings_of(const std::vector<Rank>& ranks);

// How many timings a process may make.
class Allowance {
 public:
  static constexpr std::uint32_t kPerLook = 100;
  static constexpr std::uint32_t kPerStretch = 200;
  static constexpr std::uint32_t kMostPauses = 3;

  // `timed`: how many it has made. `look`: counts looks, the same for all processes. Answers up to
  // which it may go on.
  std::uint32_t next(std::uint32_t timed, std::uint32_t look);

 private:
  std::uint32_t until_ = 0;
};

}  // namespace switchyard::monitor::communication
