// A guarded job beside made-up others, looked at as the monitor does, with a made-up clock.
//
// Threading: one test, one thread.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "monitor/policy/guard.h"

namespace switchyard::monitor::guard {

// What another job does and takes.
struct MadeUp {
  double works = 0;    // for such a part of the time it has work
  double kernels = 0;  // per second
  double copies = 0;
  double moving = 0;  // for such a part of the time its copies move
  // The part of the guarded job's rate that is missing for its sake, by what is done to it.
  std::function<double(Measures)> takes = [](Measures) { return 0.0; };
  bool answerable = true;
  Measures possible = {Measure::kSlices, Measure::kCopies, Measure::kCeiling, Measure::kHold};
};

// Takes `part`, and no more than `rest` once one of `helpful` is done to it.
inline MadeUp hog(double part, Measures helpful, double rest = 0) {
  MadeUp out{.works = 1, .kernels = 1000};
  out.takes = [=](Measures on) {
    for (const Measure each : kMeasures) {
      if (on.has(each) && helpful.has(each)) return rest;
    }
    return part;
  };
  return out;
}

inline MadeUp copy_hog(double part, Measures helpful, double rest = 0) {
  MadeUp out = hog(part, helpful, rest);
  out.kernels = 0;
  out.copies = 1000;
  return out;
}

// Few copies, and large ones.
inline MadeUp byte_hog(double part, Measures helpful, double rest = 0) {
  MadeUp out = copy_hog(part, helpful, rest);
  out.works = out.moving = 0.4;
  out.copies = 10;
  return out;
}

class Scene {
 public:
  static constexpr Time kLookEvery = std::chrono::milliseconds(50);

  double guard = 0.05;
  bool held = false;
  bool iterates = true;
  double period_s = 0.1;
  double jitter = 0;  // of the period
  double own = 1;     // times the period, for reasons of its own
  double lag_s = 0;   // its CPU is so far ahead of its GPU
  std::map<std::uint64_t, MadeUp> others;
  State state;
  std::vector<Event> events;  // all of them

  explicit Scene(std::size_t ranks = 1, std::uint64_t seed = 1) : random_(seed), ranks_(ranks) {}

  Time now() const { return now_; }
  std::uint64_t iterations() const { return iterations_; }

  Measures on(std::uint64_t job) const {
    const auto found = state.answers.find(job);
    return found != state.answers.end() ? found->second.on : Measures{};
  }

  void look() {
    now_ += kLookEvery;
    past_[now_] = missing();
    Look look{.guard = guard, .held = held, .ranks = {}, .others = {}};
    for (std::size_t i = 0; i < ranks_.size(); ++i) look.ranks.push_back(run(i));
    for (const auto& [job, each] : others) {
      Activity& sums = sums_[job];
      const double span = seconds(kLookEvery);
      sums.worked_s += each.works * span;
      sums.kernels += each.kernels * span;
      sums.copies += each.copies * span;
      sums.moving_s += each.moving * span;
      const bool wants = each.works > 0 || on(job).has(Measure::kHold);
      look.others[job] = {sums, wants && each.works > 0, each.answerable, each.possible};
    }
    std::erase_if(sums_, [&](const auto& each) { return !others.contains(each.first); });
    for (Event& event : next(state, look, now_)) events.push_back(event);
  }
  void pass(double seconds) {
    for (const Time end = now_ + from_seconds(seconds); now_ < end;) look();
  }
  // At most so long, until it holds.
  template <typename Holds>
  bool until(Holds holds, double seconds = 30) {
    for (const Time end = now_ + from_seconds(seconds); now_ < end;) {
      look();
      if (holds()) return true;
    }
    return false;
  }
  // The last event of that kind; nothing: there was none.
  const Event* last(What what) const {
    for (auto at = events.rbegin(); at != events.rend(); ++at) {
      if (at->what == what) return &*at;
    }
    return nullptr;
  }
  std::size_t count(What what) const {
    return static_cast<std::size_t>(std::count_if(events.begin(), events.end(),
                                                  [&](const Event& e) { return e.what == what; }));
  }
  // For so long what it does is lost.
  void lose(double seconds) {
    now_ += from_seconds(seconds);
    for (Time& next : ranks_) next = now_;
    lost_ = true;
  }
  // The ranks from this one on do not see the others.
  void unaffected_from(std::size_t rank) { affected_ = rank; }
  void marker(std::uint32_t marker) { marker_ = marker; }

 private:
  static Time from_seconds(double s) { return Time(static_cast<Time::rep>(s * 1e9)); }

  double missing() const {
    double left = 1;
    for (const auto& [job, each] : others) {
      if (each.works > 0) left *= 1 - each.takes(on(job));
    }
    return 1 - left;
  }

  // What the CPU sees of it.
  double seen_missing() const {
    const auto after = past_.upper_bound(now_ - from_seconds(lag_s));
    return after == past_.begin() ? 0 : std::prev(after)->second;
  }

  Rank run(std::size_t at) {
    Rank out{.id = at + 1, .marker = marker_, .broken = std::exchange(lost_, false)};
    Time& next = ranks_[at];
    if (next == Time{0} || !iterates) {
      next = now_;
      return out;
    }
    for (;;) {
      std::uniform_real_distribution<double> off(-jitter, jitter);
      const double slower = at < affected_ ? 1 / (1 - seen_missing()) : 1;
      const Time then = next + from_seconds(period_s * own * slower * (1 + off(random_)));
      if (then > now_) return out;
      next = then;
      out.began.push_back(then);
      iterations_ += at == 0 ? 1 : 0;
    }
  }

  std::mt19937_64 random_;
  std::vector<Time> ranks_;
  std::size_t affected_ = SIZE_MAX;
  std::uint32_t marker_ = 1;
  bool lost_ = false;
  std::map<Time, double> past_;  // what was missing when
  Time now_ = std::chrono::seconds(1000);
  std::uint64_t iterations_ = 0;
  std::map<std::uint64_t, Activity> sums_;
};

inline constexpr std::uint64_t kHog = 7;
inline constexpr Measures kAll{Measure::kSlices, Measure::kCopies, Measure::kCeiling,
                               Measure::kHold};

// The guarded job works by itself for a while, and then beside one that disturbs it.
class BesideAHog : public ::testing::Test {
 protected:
  void begins(const MadeUp& hog) {
    scene.pass(10);
    scene.others[kHog] = hog;
  }
  bool answered() {
    return scene.until([&] { return scene.last(What::kAnswered) != nullptr; });
  }
  Scene scene;
};

}  // namespace switchyard::monitor::guard
