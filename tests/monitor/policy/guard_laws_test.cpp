// Laws of the guard, for random scenes.
#include <gtest/gtest.h>

#include "tests/monitor/policy/guard_scene.h"
#include "tests/support/seeds.h"

namespace switchyard::monitor::guard {
namespace {

class GuardLaws : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  double in(double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(random);
  }
  bool chance(double part) { return in(0, 1) < part; }
  MadeUp someone() {
    Measures helpful;
    for (const Measure each : kMeasures) {
      if (chance(0.4)) helpful = helpful.with(each);
    }
    MadeUp out = hog(chance(0.7) ? in(0, 0.7) : 0, helpful, in(0, 0.05));
    out.works = in(0, 1);
    out.kernels = chance(0.7) ? in(0, 1000) : 0;
    out.copies = chance(0.4) ? in(0, 1000) : 0;
    out.moving = out.copies > 0 && chance(0.5) ? in(0, 1) : 0;
    out.answerable = chance(0.7);
    return out;
  }
  // Somebody comes, goes or changes, or the guarded job does.
  void disturb(Scene& scene) {
    const auto job = static_cast<std::uint64_t>(in(10, 14));
    if (chance(0.3)) {
      scene.others.erase(job);
    } else if (chance(0.6)) {
      scene.others[job] = someone();
    } else if (chance(0.5)) {
      scene.own = in(0.5, 3);
    } else {
      scene.iterates = chance(0.8);
      scene.held = chance(0.1);
    }
  }
  Scene scene() {
    Scene out(1 + static_cast<std::size_t>(in(0, 4)), GetParam());
    out.period_s = std::exp(in(std::log(0.005), std::log(1)));
    out.jitter = in(0, 0.1);
    out.guard = in(0.01, 0.3);
    return out;
  }
  std::mt19937_64 random{GetParam()};
};

TEST_P(GuardLaws, NobodyIsAnsweredWhoMayNotBeAndAHoldIsUndoneInTime) {
  Scene all = scene();
  // A judgement takes two rounds beside what still disturbs, and begins with a third.
  const double round_s = std::max(all.period_s, 0.05);
  const Time most = kLongestStay + Time(static_cast<Time::rep>(1e9 * (10 + 200 * round_s)));
  std::map<std::uint64_t, Time> held_since;
  for (int i = 0; i < 60; ++i) {
    disturb(all);
    const Time end = all.now() + Time(static_cast<Time::rep>(1e9 * in(0.1, 20)));
    while (all.now() < end) {
      all.look();
      for (const auto& [job, answer] : all.state.answers) {
        ASSERT_TRUE(all.others.contains(job));
        EXPECT_TRUE(all.others[job].answerable);
        for (const Measure each : kMeasures) {
          EXPECT_TRUE(!answer.on.has(each) || all.others[job].possible.has(each));
        }
      }
      for (const std::uint64_t job : {10u, 11u, 12u, 13u}) {
        if (!all.on(job).has(Measure::kHold)) {
          held_since.erase(job);
        } else if (const auto [since, first] = held_since.emplace(job, all.now()); !first) {
          EXPECT_LT(all.now() - since->second, most) << "job " << job << ", step " << i;
        }
      }
    }
  }
}

TEST_P(GuardLaws, InAQuietSceneNothingIsDone) {
  Scene all = scene();
  all.pass(10);
  for (std::uint64_t job = 10; job < 13; ++job) {
    all.others[job] = someone();
    all.others[job].takes = [](Measures) { return 0.0; };
  }
  all.pass(60);
  all.events.clear();
  all.pass(180);
  EXPECT_TRUE(all.events.empty()) << all.events.size();
}

TEST_P(GuardLaws, WhateverStaysAsItIsIsChangedSeldom) {
  Scene all = scene();
  all.pass(20);
  for (std::uint64_t job = 10; job < 13; ++job) all.others[job] = someone();
  all.pass(300);
  all.events.clear();
  all.pass(600);
  // Each of three may be eased once in a stay, or be tried again when it is not cleared any more.
  EXPECT_LE(all.events.size(), 3 * 2 * 10 + 3 * 6 * 10u);
  std::size_t tried = 0;
  for (const Event& each : all.events) tried += each.what == What::kDisturbed ? 1 : 0;
  EXPECT_LE(tried, 6u) << "who was judged is not tried again and again";
}

TEST_P(GuardLaws, AllIsUndoneOnceTheGuardedJobIsGone) {
  Scene all = scene();
  all.pass(20);
  for (std::uint64_t job = 10; job < 13; ++job) all.others[job] = someone();
  all.pass(in(0, 60));
  if (chance(0.5)) {
    all.guard = 0;
    all.look();
  } else {
    all.iterates = false;
    all.pass(3 + 4 * all.period_s * all.own * 4);
  }
  EXPECT_TRUE(all.state.answers.empty());
}

TEST_P(GuardLaws, AnInterfererIsAnsweredWithinFourIterations) {
  Scene all = scene();
  all.jitter = 0;
  all.guard = 0.05;
  all.period_s = in(0.06, 2);
  all.pass(20 * all.period_s + 10);
  const double part = in(0.15, 0.6);
  all.others[10] = hog(part, {Measure::kSlices});
  const std::uint64_t before = all.iterations();
  ASSERT_TRUE(all.until([&] { return !all.on(10).none(); }, 60));
  EXPECT_LE(all.iterations() - before, 4u);
  ASSERT_TRUE(all.until([&] { return all.last(What::kAnswered) != nullptr; }, 60));
  EXPECT_EQ(all.on(10), Measures{Measure::kSlices});
}

INSTANTIATE_TEST_SUITE_P(Seeds, GuardLaws,
                         ::testing::Range<std::uint64_t>(1, 1 + test_support::seeds(20)));

}  // namespace
}  // namespace switchyard::monitor::guard
