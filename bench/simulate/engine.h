// The compute engine of one GPU, as far as time slices are concerned. Channel groups with work run
// in turn, each for its slice. To switch takes time in which no group gets on, and the first part
// of a slice goes into bringing its group back. So slices as short as that part stop all progress
// as soon as two groups have them, and cost nothing while one runs alone.
//
// Groups of one server, as MPS has it, take their turns as one. All of them run at once for the
// slice of the first, each as fast as alone.
//
// The two costs are fitted to what an H200 did (tests: SimulatorModel).
//
// Threading: a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "monitor/platform/time.h"

namespace switchyard::simulate {

using monitor::Time;

inline constexpr Time kNever = Time::max();

struct Costs {
  Time switching = std::chrono::microseconds(195);
  Time restoring = std::chrono::microseconds(20);
};

class Engine {
 public:
  explicit Engine(Costs costs = {}) : costs_(costs) {}

  std::size_t add_group(std::uint32_t slice_us);
  // From now on they take turns as one, by the slice of `first`. pre: `group` has no work.
  void join(std::size_t group, std::size_t first) { groups_[group].first = first; }
  void set_slice(std::size_t group, std::uint32_t us);
  // From now on the group has so much to run, instead of what it had.
  void offer(std::size_t group, Time work);

  // When something happens by itself.
  Time next() const;
  // Runs, but not beyond the first moment at which a group has run all it had. That group is the
  // answer and may be offered more. Then settle() lets the others go on.
  // Of several that end at once it is one, and the next call tells the next.
  std::optional<std::size_t> run_until(Time to);
  // Puts the next group with work onto the engine if the current one is done.
  void settle();

  Time now() const { return now_; }
  Time left(std::size_t group) const { return groups_[group].work; }
  Time ran(std::size_t group) const { return groups_[group].ran; }
  std::uint32_t slice_us(std::size_t group) const { return groups_[group].slice_us; }
  bool idle() const { return with_work_ == 0; }
  Time lost() const { return lost_; }  // to switching

 private:
  struct Group {
    std::uint32_t slice_us = 0;
    Time work{0};
    Time ran{0};
    std::size_t first = 0;      // of those that it takes its turns with
    std::size_t with_work = 0;  // of these; counted by the first
  };
  Time slice(std::size_t group) const { return std::chrono::microseconds(groups_[group].slice_us); }
  bool others_wait() const;
  bool works(std::size_t first) const { return groups_[first].with_work != 0; }
  void count(std::size_t group, bool has_work);
  Time shortest_work() const;
  std::optional<std::size_t> done();

  Costs costs_;
  std::vector<Group> groups_;
  std::vector<std::size_t> ended_;  // that have run all they had, and nobody was told
  std::size_t with_work_ = 0;       // turns that somebody wants
  Time now_{0};
  Time lost_{0};
  std::optional<std::size_t> current_;  // whose context is on the engine: the first of them
  Time runs_from_{0};                   // it gets on from here
  Time slice_ends_{0};
};

}  // namespace switchyard::simulate
