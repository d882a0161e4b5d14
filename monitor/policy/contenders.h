// The jobs that take turns on one GPU: which of them comes next, and for how long. It also has each
// job's credit or debt from turns before. Private to turns.
//
// Threading: plain values, on the stack of decide().
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "monitor/policy/look.h"

namespace switchyard::monitor::policy {

inline constexpr std::size_t kRanks = 3;

struct Contender {
  double weight = 0;
  int rank = 0;  // of its class, where classes count; a higher one goes first
  bool wants = false;
  bool at_work = false;
  bool busy = false;
  bool barred = false;  // it has had what its limit allows
  bool drained = true;
};

class TurnQueue {
 public:
  TurnQueue(Tick& tick, const TurnRules& rules);

  std::size_t size() const { return jobs_.size(); }
  const Contender* find(std::uint64_t job) const;
  // Somebody but `than` wants the GPU, of those that `test` lets through.
  template <typename Test>
  bool another_wants(std::uint64_t than, Test test) const {
    return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
      return entry.first != than && entry.second.wants && test(entry.second);
    });
  }

  bool are_equal() const;  // in weight
  double turn_ns(std::uint64_t job) const;
  double this_turn_ns(std::uint64_t job) const;  // shorter if it is of the minimum
  double cycle_ns() const;                       // a turn of each, with the hand-overs
  // The lower classes' due part of their minimum is as much as such a turn.
  bool lower_due() const;
  // The holder of the next turn after `holder`: the lower classes' when that is due, else the
  // highest's. A job that owes a turn or more pays with this one.
  std::uint64_t choose(std::uint64_t holder);

  // What came after the last look: use of the GPU beyond a turn, and ends of pauses in work.
  void settle();

 private:
  int highest_wanting() const;
  int top() const;
  void note_lower();

  struct Rank {
    double lightest = 0, heaviest = 0;  // of its jobs
  };

  Tick& tick_;
  const TurnRules& rules_;
  std::map<std::uint64_t, Contender> jobs_;
  std::array<Rank, kRanks> ranks_;
};

// A pause in the work of a job is brief up to here: not worth a hand-over where the job is owed.
double brief_pause_ns(const Turns& turns);

}  // namespace switchyard::monitor::policy
