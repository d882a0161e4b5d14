// Iterations of a program, found in the sequence of what it launches: the rule alone.
//
// Concept. A training repeats itself: the same collectives of the same sizes, or the same kernels
// on the same grids. One of them that comes once in each iteration is the *marker*. Iterations are
// markers; their rate is that of the markers' times. The launches need not be understood.
//
//     events    a b b c   a b b c   a b b c  L  a b b c      a: first layer, L: a log every 3 steps
//     marker    a         a         a           a
//
// The marker is chosen among the last events, at most kMostEvents:
//
//     a candidate   comes at least four times, at distances that are mostly the same, and these
//                   make up half of the events. So what an evaluation does is no candidate while
//                   most of the time goes to training, and one more or less event is no matter
//     a level       candidates that come about equally often. With gradient accumulation there are
//                   two: what each micro-batch does, and what each step does
//     the choice    the rarest level that has enough of the weight of all events: a fiftieth of the
//                   launches, or a five-hundredth of the bytes of collectives. So a log every so
//                   many steps, which moves a few bytes, is no iteration, and a step of several
//                   micro-batches is one. In a sharded model of a hundred layers, only embedding
//                   and head come once in a step; they may be a two-hundredth of its bytes
//
// Where nothing is a candidate the later half of the events is asked, and so on: a program's start
// looks otherwise. A marker is looked for anew as events come:
//
//     the marker                                        → the marker
//     none, or none came for too long                   → what the choice is now
//     is a candidate still                              → what the choice is now
//     is none, and came lately: an evaluation, say      → the same
//     is none, and comes between those of the choice    → what the choice is now
//     events were lost                                  → the same; its rate is not known
//
// The last but one ends a wrong marker, which was chosen by a program's first events. The forward
// pass of a sharded model gathers the same for each layer. What an evaluation repeats comes after
// the marker, and not on both sides of it.
//
// Too long are half as many iterations as there were, at least four and at most kMostMissed.
//
// With accumulation that runs the same collectives in each micro-batch and little besides in a
// step, micro-batches are counted: nothing tells them apart.
//
// Threading: a plain value.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "monitor/platform/time.h"

namespace switchyard::monitor::iterations {

inline constexpr std::size_t kMostEvents = 4096;
inline constexpr std::size_t kFewestMarkers = 4;
inline constexpr std::size_t kMostMissed = 64;
// The rate is that of so long, and of four iterations at least.
inline constexpr Time kRateOf = std::chrono::seconds(10);
// A class that comes more often is a burst of launches, and no iterations.
inline constexpr double kMostPerSecond = 1000;

struct Event {
  std::uint32_t what = 0;
  Time at{0};
  std::uint64_t weight = 1;
  std::uint64_t number = 0;  // by which ranks find the same event (Mark)
};

// When an iteration was seen.
struct Mark {
  Time at{0};
  std::uint64_t number = 0;
};

// What events weigh.
enum class Weight : std::uint8_t { kLaunches, kBytes };

class Finder {
 public:
  explicit Finder(Weight weight = Weight::kLaunches) : weight_(weight) {}

  // Keeps as many events as that, the last ones.
  void bound(std::size_t most) { most_ = most; }
  void add(const Event& event);
  // Events were lost.
  void lost();
  // Once several events have been added.
  void look();

  bool known() const { return marker_.has_value(); }
  std::optional<std::uint32_t> marker() const { return marker_; }
  // Since `generation` changed last: counts of two generations don't compare.
  std::uint64_t count() const { return count_; }
  std::uint32_t generation() const { return generation_; }
  const std::deque<Mark>& marks() const { return marks_; }
  // The marker comes in each event: there is nothing else by which to tell a step.
  bool counts_each() const { return known() && distance_ == 1; }
  // Nothing where it isn't known; 0 where iterations have ceased.
  std::optional<double> per_second(Time now) const;

 private:
  bool missed() const;
  void mark(const Event& event);
  void choose(std::uint32_t marker);

  Weight weight_;
  std::size_t most_ = kMostEvents;
  std::deque<Event> events_;
  std::optional<std::uint32_t> marker_;
  std::uint64_t count_ = 0;
  std::uint32_t generation_ = 0;
  std::deque<Mark> marks_;        // the last ones
  std::size_t distance_ = 0;      // events from one marker to the next, as a rule
  std::size_t since_marker_ = 0;  // events
  std::size_t since_look_ = 0;
};

// The choice among these launches; nothing: none is a marker.
std::optional<std::uint32_t> marker_of(const std::vector<Event>& events);

}  // namespace switchyard::monitor::iterations
