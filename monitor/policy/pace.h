// How fast a rank goes, against its usual pace: the rule alone, for the guard (guard.h).
//
// Concept. Iterations are taken together to rounds of at least kShortestRound: below that they
// scatter more than what is looked for. The *usual* period is the median of the last rounds that
// were not slow. A round is slow when it takes longer than the usual by more than the guard allows.
// It must also be longer by more than four times the median deviation of the usual rounds:
//
//     a round                                        → slow in a row   usual
//     fewer than kFewestUsual are known              → 0               learns it
//     not slow                                       → 0               learns it, if it may
//     slow                                           → one more        waits for what is decided:
//     excused: nobody else is the reason             → 0               learns the slow ones, too
//     forgiven: somebody is, or something was done   → 0               forgets the slow ones
//
// So an evaluation, or a run of longer steps, becomes the usual when it lasts.
//
// Threading: a plain value.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "monitor/platform/time.h"

namespace switchyard::monitor::guard {

inline constexpr Time kShortestRound = std::chrono::milliseconds(25);
inline constexpr std::size_t kFewestUsual = 8;
inline constexpr std::size_t kMostUsual = 32;
// Two slow rounds are no accident.
inline constexpr unsigned kSlowRounds = 2;

class Pace {
 public:
  // An iteration began. `guard`: the part of its rate that may be missing. `learn`: nothing is done
  // to others for its sake.
  void add(Time at, double guard, bool learn);
  // What begins next doesn't follow on the last.
  void interrupt() { begun_.reset(); }
  void excuse();
  void forgive() { slow_.clear(); }

  bool known() const { return usual_.size() >= kFewestUsual; }
  bool slow() const { return slow_.size() >= kSlowRounds; }
  bool begins_to_be_slow() const { return !slow_.empty(); }
  double usual_ns() const;
  // Rounds that have ended.
  std::size_t rounds() const { return rounds_; }

  // The part of its rate that is missing: in the slow rounds; in the first two that began after
  // measure(), once they have ended.
  double slowdown() const;
  void measure(Time from);
  std::optional<double> measured() const;
  // What of that may be missing by accident.
  double accident() const;

 private:
  void end_round(double period_ns, Time began, double guard, bool learn);
  void learn(double period_ns);

  struct Round {
    Time at{0};
    unsigned iterations = 0;
  };
  std::optional<Round> begun_;
  std::deque<double> usual_;
  std::vector<double> slow_;  // in a row
  std::size_t rounds_ = 0;
  Time measured_from_{0};
  std::vector<double> measured_;
};

}  // namespace switchyard::monitor::guard
