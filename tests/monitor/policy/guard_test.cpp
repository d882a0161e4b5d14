// Each row of the guard's table, with a made-up clock.
#include "monitor/policy/guard.h"

#include <gtest/gtest.h>

#include "tests/monitor/policy/guard_scene.h"

namespace switchyard::monitor::guard {
namespace {

constexpr std::uint64_t kOther = 8;

class Guard : public BesideAHog {};

TEST_F(Guard, AnInterfererGetsShorterSlices) {
  begins(hog(0.5, kAll));
  const std::uint64_t before = scene.iterations();
  ASSERT_TRUE(scene.until([&] { return !scene.events.empty(); }));
  EXPECT_LE(scene.iterations() - before, 4u);
  const Event& first = scene.events[0];
  EXPECT_EQ(first.what, What::kDisturbed);
  EXPECT_EQ(first.job, kHog);
  EXPECT_EQ(first.measure, Measure::kSlices);
  EXPECT_NEAR(first.missing, 0.5, 0.1);
  EXPECT_GT(first.growth.now.worked_s, 0.5);
  EXPECT_LT(first.growth.before.worked_s, 0.05);
  ASSERT_TRUE(answered());
  EXPECT_EQ(scene.on(kHog), Measures{Measure::kSlices});
}

TEST_F(Guard, AnotherMarkerWhileAnAnswerIsTriedLeavesItJudged) {
  begins(hog(0.5, kAll));
  ASSERT_TRUE(scene.until([&] { return scene.last(What::kDisturbed) != nullptr; }));
  scene.marker(2);
  EXPECT_TRUE(scene.until([&] { return scene.state.phase == Phase::kQuiet; }, 300));
}

TEST_F(Guard, OneThatCopiesGetsShorterSlicesForItsCopies) {
  begins(copy_hog(0.3, kAll));
  ASSERT_TRUE(answered());
  EXPECT_EQ(scene.on(kHog), Measures{Measure::kCopies});
}

TEST_F(Guard, AHogOfFewLargeCopiesIsFoundBesideAnInnocentOfManyTinyOnes) {
  for (const std::uint64_t innocent : {kHog - 1, kHog + 1}) {
    scene = Scene();
    MadeUp tiny = copy_hog(0, {});
    tiny.kernels = 20;
    tiny.copies = 5000;
    scene.pass(10);
    scene.others[kHog] = byte_hog(0.3, {Measure::kCopies});
    scene.others[innocent] = tiny;
    ASSERT_TRUE(answered());
    EXPECT_EQ(scene.on(kHog), Measures{Measure::kCopies});
    scene.pass(60);
    for (const Event& event : scene.events) EXPECT_EQ(event.job, kHog);
    EXPECT_EQ(scene.on(innocent), Measures{});
  }
}

TEST_F(Guard, OneThatAlwaysHasWorkAndBeginsToCopyMuchIsFound) {
  MadeUp trains = hog(0, {});
  trains.copies = 10;
  scene.others[kHog] = trains;
  scene.pass(40);
  ASSERT_TRUE(scene.events.empty());
  MadeUp copies_too = copy_hog(0.3, {Measure::kCopies});
  copies_too.kernels = trains.kernels;
  copies_too.copies = trains.copies;
  copies_too.moving = 0.8;
  scene.others[kHog] = copies_too;
  ASSERT_TRUE(answered());
  EXPECT_EQ(scene.events[0].measure, Measure::kCopies);
  EXPECT_GT(scene.events[0].growth.now.moving_s, 0.4);
}

TEST_F(Guard, WhatDidNotHelpIsReplacedByTheNext) {
  begins(hog(0.3, {Measure::kCeiling}));
  ASSERT_TRUE(answered());
  EXPECT_EQ(scene.on(kHog), Measures{Measure::kCeiling});
  EXPECT_EQ(scene.last(What::kInstead)->measure, Measure::kCeiling);
}

TEST_F(Guard, WhatHelpedInPartStaysBelowTheNext) {
  MadeUp other = hog(0.5, {});
  other.takes = [](Measures on) {
    return on.has(Measure::kCeiling) ? 0.0 : on.has(Measure::kSlices) ? 0.2 : 0.5;
  };
  begins(other);
  ASSERT_TRUE(answered());
  EXPECT_EQ(scene.on(kHog), (Measures{Measure::kSlices, Measure::kCeiling}));
  EXPECT_EQ(scene.count(What::kNext), 1u);
}

TEST_F(Guard, AHoldIsTheLast) {
  begins(hog(0.5, {Measure::kHold}));
  ASSERT_TRUE(answered());
  EXPECT_EQ(scene.on(kHog), Measures{Measure::kHold});
}

TEST_F(Guard, AHoldIsNotTriedWithinTheGuard) {
  begins(hog(0.5, {Measure::kCeiling}, 0.04));
  ASSERT_TRUE(answered());
  EXPECT_EQ(scene.on(kHog), Measures{Measure::kCeiling});
  scene.pass(5);
  for (const Event& event : scene.events) EXPECT_NE(event.measure, Measure::kHold);
}

TEST_F(Guard, WhereNothingHelpsAllIsUndone) {
  begins(hog(0.3, {}));
  ASSERT_TRUE(scene.until([&] { return scene.last(What::kCleared) != nullptr; }));
  EXPECT_TRUE(scene.state.answers.empty());
  // It has become the usual.
  scene.pass(50);
  EXPECT_EQ(scene.count(What::kDisturbed), 1u);
}

TEST_F(Guard, OnlyWhatIsPossibleIsTried) {
  MadeUp other = hog(0.5, kAll);
  other.possible = {Measure::kHold};
  begins(other);
  ASSERT_TRUE(answered());
  EXPECT_EQ(scene.on(kHog), Measures{Measure::kHold});
}

TEST_F(Guard, WhoMayNotBeAnsweredIsNot) {
  MadeUp other = hog(0.5, kAll);
  other.answerable = false;
  begins(other);
  scene.pass(30);
  EXPECT_TRUE(scene.events.empty());
}

TEST_F(Guard, WhoMayNotBeAnsweredAnyMoreIsLetGo) {
  begins(hog(0.5, kAll));
  ASSERT_TRUE(answered());
  scene.others[kHog].answerable = false;
  scene.look();
  EXPECT_TRUE(scene.state.answers.empty());
  EXPECT_EQ(scene.events.back().what, What::kGone);
}

TEST_F(Guard, ALossWithinTheGuardIsNoInterference) {
  begins(hog(0.04, kAll));
  scene.pass(30);
  EXPECT_TRUE(scene.events.empty());
}

TEST_F(Guard, OneSlowRoundIsNoInterference) {
  begins(hog(0.5, kAll));
  scene.pass(0.15);
  scene.others.clear();
  scene.pass(10);
  EXPECT_TRUE(scene.events.empty());
}

TEST_F(Guard, ItsOwnEvaluationIsNoInterference) {
  scene.others[kOther] = hog(0, {});
  scene.pass(20);
  for (int i = 0; i < 3; ++i) {
    scene.own = 3;
    scene.pass(5);
    scene.own = 1;
    scene.pass(10);
  }
  EXPECT_TRUE(scene.events.empty());
}

TEST_F(Guard, ALongerIterationThatLastsBecomesTheUsual) {
  scene.pass(10);
  scene.own = 2;
  scene.pass(20);
  EXPECT_NEAR(*usual_seconds(scene.state), 0.2, 0.01);
}

TEST_F(Guard, WhoGetsOnFasterInAnEvaluationIsNoInterferer) {
  scene.others[kOther] = hog(0, {});
  scene.pass(20);
  scene.own = 3;
  scene.others[kOther].kernels = 2000;
  scene.pass(5);
  EXPECT_TRUE(scene.events.empty());
}

TEST_F(Guard, MostRanksMustSeeIt) {
  scene = Scene(4);
  scene.unaffected_from(2);
  begins(hog(0.5, kAll));
  scene.pass(10);
  EXPECT_TRUE(scene.events.empty());
  scene.unaffected_from(3);
  scene.others.erase(kHog);
  scene.pass(60);
  scene.others[kHog] = hog(0.5, kAll);
  EXPECT_TRUE(answered());
}

TEST_F(Guard, TheOneThatGrewMoreIsAnswered) {
  scene.pass(10);
  scene.others[kOther] = {.works = 0.2, .kernels = 10};
  scene.others[kHog] = hog(0.5, kAll);
  ASSERT_TRUE(answered());
  EXPECT_EQ(scene.events[0].job, kHog);
  EXPECT_TRUE(scene.on(kOther).none());
}

TEST_F(Guard, TwoInterferersAreAnsweredOneAfterTheOther) {
  scene.pass(10);
  scene.others[kOther] = hog(0.5, kAll);
  scene.others[kHog] = hog(0.5, kAll);
  EXPECT_TRUE(scene.until([&] { return !scene.on(kHog).none() && !scene.on(kOther).none(); }));
  EXPECT_TRUE(answered());
}

TEST_F(Guard, SoTheyAreWhereItsCpuIsAheadOfItsGpu) {
  scene.lag_s = 0.25;
  scene.pass(10);
  scene.others[kOther] = hog(0.5, kAll);
  scene.others[kHog] = hog(0.5, kAll);
  EXPECT_TRUE(scene.until([&] { return !scene.on(kHog).none() && !scene.on(kOther).none(); }));
}

TEST_F(Guard, WhereRecordsAreLostNothingIsSlow) {
  scene.pass(10);
  scene.others[kHog] = hog(0, {});
  for (int i = 0; i < 5; ++i) {
    scene.lose(0.5);
    scene.pass(0.15);
  }
  EXPECT_TRUE(scene.events.empty());
}

TEST_F(Guard, AnAnswerIsEasedAndPutBackWhereItIsNeeded) {
  begins(hog(0.5, kAll));
  ASSERT_TRUE(answered());
  ASSERT_TRUE(scene.until([&] { return scene.last(What::kNeeded) != nullptr; }));
  EXPECT_EQ(scene.on(kHog), Measures{Measure::kSlices});
  EXPECT_EQ(scene.state.answers[kHog].stay, 2 * kStay);
  const Time since = scene.now();
  ASSERT_TRUE(scene.until([&] { return scene.count(What::kNeeded) == 2; }));
  EXPECT_GE(scene.now() - since, 2 * kStay);
}

TEST_F(Guard, AHoldIsEasedToACeiling) {
  begins(hog(0.5, {Measure::kHold}));
  ASSERT_TRUE(answered());
  ASSERT_TRUE(scene.until([&] { return scene.last(What::kEases) != nullptr; }));
  EXPECT_EQ(scene.on(kHog), Measures{Measure::kCeiling});
}

TEST_F(Guard, WhatIsNotNeededAnyMoreIsUndoneStepByStep) {
  begins(hog(0.5, {Measure::kHold}));
  ASSERT_TRUE(answered());
  scene.others[kHog].takes = [](Measures) { return 0.0; };
  ASSERT_TRUE(scene.until([&] { return scene.last(What::kOver) != nullptr; }, 60));
  EXPECT_TRUE(scene.state.answers.empty());
  EXPECT_EQ(scene.count(What::kEases), 2u);
}

TEST_F(Guard, AnInterfererThatEndsIsForgotten) {
  begins(hog(0.5, kAll));
  ASSERT_TRUE(answered());
  scene.others.erase(kHog);
  scene.look();
  EXPECT_TRUE(scene.state.answers.empty());
  EXPECT_EQ(scene.events.back().what, What::kGone);
}

TEST_F(Guard, AnInterfererWithoutWorkIsLetGo) {
  begins(hog(0.5, kAll));
  ASSERT_TRUE(answered());
  scene.others[kHog].works = 0;
  EXPECT_TRUE(scene.until([&] { return scene.state.answers.empty(); }, 4));
  EXPECT_EQ(scene.events.back().what, What::kGone);
  // It is found again when it comes back.
  scene.others[kHog] = hog(0.5, kAll);
  EXPECT_TRUE(scene.until([&] { return scene.count(What::kDisturbed) == 2; }));
}

TEST_F(Guard, ShortRestsBetweenItsBurstsDoNotAddUp) {
  begins(hog(0.5, kAll));
  ASSERT_TRUE(answered());
  for (int i = 0; i < 3; ++i) {
    scene.others[kHog].works = 0;
    scene.pass(2);
    EXPECT_FALSE(scene.state.answers.empty()) << i;
    scene.others[kHog].works = 1;
    scene.pass(0.1);
  }
  scene.others[kHog].works = 0;
  EXPECT_TRUE(scene.until([&] { return scene.state.answers.empty(); }, 4));
}

TEST_F(Guard, AnInterfererThatEndsInATrialEndsIt) {
  begins(hog(0.5, {Measure::kHold}));
  ASSERT_TRUE(scene.until([&] { return scene.state.phase == Phase::kTrying; }));
  scene.others.erase(kHog);
  scene.look();
  EXPECT_EQ(scene.state.phase, Phase::kQuiet);
  EXPECT_TRUE(scene.state.answers.empty());
}

TEST_F(Guard, AnAnsweredInterfererThatEndsLeavesTheTrialOfAnother) {
  begins(hog(0.5, kAll));
  ASSERT_TRUE(answered());
  scene.others[kOther] = hog(0.5, {Measure::kHold});
  ASSERT_TRUE(scene.until([&] { return scene.state.phase == Phase::kTrying; }));
  ASSERT_EQ(scene.state.about, kOther);
  scene.others.erase(kHog);
  scene.look();
  EXPECT_EQ(scene.state.phase, Phase::kTrying);
  EXPECT_TRUE(scene.on(kHog).none());
  EXPECT_TRUE(scene.until([&] { return scene.on(kOther).has(Measure::kHold); }));
}

TEST_F(Guard, AJobThatDoesNotIterateGuardsNothing) {
  begins(hog(0.5, {Measure::kHold}));
  ASSERT_TRUE(answered());
  scene.iterates = false;
  EXPECT_TRUE(scene.until([&] { return scene.state.answers.empty(); }, 5));
  EXPECT_EQ(scene.events.back().what, What::kStopped);
}

TEST_F(Guard, AJobThatIsHeldGuardsNothing) {
  begins(hog(0.5, kAll));
  ASSERT_TRUE(answered());
  scene.held = true;
  scene.look();
  EXPECT_TRUE(scene.state.answers.empty());
}

TEST_F(Guard, APauseOfItsOwnIsNoSlowRound) {
  scene.pass(10);
  scene.others[kHog] = hog(0, {});
  for (int i = 0; i < 5; ++i) {
    scene.held = true;
    scene.iterates = false;
    scene.pass(1);
    scene.held = false;
    scene.iterates = true;
    scene.pass(0.3);
  }
  EXPECT_TRUE(scene.events.empty());
}

TEST_F(Guard, WithoutAGuardNothingIsDone) {
  begins(hog(0.5, kAll));
  ASSERT_TRUE(answered());
  scene.guard = 0;
  scene.look();
  EXPECT_TRUE(scene.state.answers.empty());
  EXPECT_EQ(scene.events.back().what, What::kStopped);
}

TEST_F(Guard, AnotherMarkerIsAnotherPace) {
  scene.pass(10);
  scene.marker(2);
  scene.period_s = 0.3;
  scene.look();
  EXPECT_FALSE(usual_seconds(scene.state));
  scene.pass(10);
  EXPECT_NEAR(*usual_seconds(scene.state), 0.3, 0.01);
  EXPECT_TRUE(scene.events.empty());
}

TEST_F(Guard, ShortIterationsAreJudgedTogether) {
  scene.period_s = 0.002;
  scene.jitter = 0.5;
  begins(hog(0.5, kAll));
  ASSERT_TRUE(answered());
  EXPECT_EQ(scene.on(kHog), Measures{Measure::kSlices});
}

TEST_F(Guard, WhatAnInterfererMayHaveFollowsFromTheGuard) {
  EXPECT_DOUBLE_EQ(part_of(0.05), 0.005);
  EXPECT_DOUBLE_EQ(part_of(0.5), 0.05);
  EXPECT_DOUBLE_EQ(part_of(0.01), 0.005);
}

}  // namespace
}  // namespace switchyard::monitor::guard
