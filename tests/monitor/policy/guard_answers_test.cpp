// How an answer of the guard is tried, eased and given up: what is kept from one step to the next.
#include <gtest/gtest.h>

#include "monitor/policy/guard.h"
#include "tests/monitor/policy/guard_scene.h"

namespace switchyard::monitor::guard {
namespace {

class GuardAnswers : public BesideAHog {
 protected:
  const Pace& pace() { return scene.state.ranks.at(1).pace; }
};

// Two measures, of which one is not needed any more when it is asked the second time.
TEST_F(GuardAnswers, WhatCouldBeEasedInPartIsEasedOnAsSoonAsAtFirst) {
  MadeUp other = hog(0.5, {});
  other.takes = [](Measures on) {
    return on.has(Measure::kCeiling) ? 0.0 : on.has(Measure::kSlices) ? 0.2 : 0.5;
  };
  begins(other);
  ASSERT_TRUE(answered());
  ASSERT_TRUE(scene.until([&] { return scene.last(What::kNeeded) != nullptr; }));
  ASSERT_EQ(scene.state.answers[kHog].stay, 2 * kStay);
  other.takes = [](Measures on) { return on.has(Measure::kSlices) ? 0.0 : 0.5; };
  scene.others[kHog] = other;
  ASSERT_TRUE(scene.until([&] { return scene.on(kHog) == Measures{Measure::kSlices}; }, 60));
  ASSERT_TRUE(scene.until([&] { return scene.state.phase == Phase::kQuiet; }));
  EXPECT_EQ(scene.state.answers[kHog].stay, kStay);
}

// A measure that did not help the first time may help beside those that are on.
TEST_F(GuardAnswers, WhoDisturbsAgainIsTriedWithAllThatIsNotOn) {
  begins(hog(0.5, {Measure::kHold}));
  ASSERT_TRUE(answered());
  scene.pass(3);
  ASSERT_EQ(scene.on(kHog), Measures{Measure::kHold});
  scene.events.clear();
  scene.others[kHog].kernels = 4000;
  scene.others[kHog].takes = [](Measures on) { return on.has(Measure::kCeiling) ? 0.0 : 0.5; };
  ASSERT_TRUE(answered());
  EXPECT_EQ(scene.events[0].measure, Measure::kSlices);
  EXPECT_EQ(scene.on(kHog), (Measures{Measure::kCeiling, Measure::kHold}));
}

// Each measure is judged by what the one before it left.
TEST_F(GuardAnswers, WhatHelpsNoMoreThanTheOneBeforeItIsTakenBack) {
  MadeUp other = hog(0.5, {});
  other.takes = [](Measures on) {
    return on.has(Measure::kHold) ? 0.0 : on.has(Measure::kSlices) ? 0.25 : 0.5;
  };
  begins(other);
  ASSERT_TRUE(answered());
  EXPECT_EQ(scene.on(kHog), (Measures{Measure::kSlices, Measure::kHold}))
      << "the ceiling brought nothing beyond the slices";
}

// Half as often each time.
TEST_F(GuardAnswers, WhoWasClearedInVainIsLeftAloneForTwiceAsLong) {
  begins(hog(0.3, {}));
  for (const Time span : {kCleared, 2 * kCleared, 4 * kCleared}) {
    const std::size_t before = scene.count(What::kCleared);
    ASSERT_TRUE(scene.until([&] { return scene.count(What::kCleared) > before; }, 60));
    EXPECT_EQ(scene.state.cleared[kHog].span, span);
    EXPECT_EQ(scene.state.cleared[kHog].until, scene.now() + span);
    scene.others[kHog].works = 0;
    scene.pass(seconds(span));
    scene.others[kHog].works = 1;
  }
}

// A rank whose records came late is not the one that tells whether the job still iterates.
TEST_F(GuardAnswers, TheLatestIterationOfAnyRankTellsThatItIterates) {
  scene = Scene(2);
  begins(hog(0.5, kAll));
  ASSERT_TRUE(answered());
  const Time now = scene.now() + Scene::kLookEvery;
  Look look{.guard = scene.guard, .held = false, .ranks = {}, .others = {}};
  look.ranks.push_back({.id = 1, .marker = 1, .began = {now}});
  look.ranks.push_back({.id = 2, .marker = 1, .began = {now - std::chrono::minutes(1)}});
  look.others[kHog] = {{}, true, true, kAll};
  for (const Event& event : next(scene.state, look, now)) EXPECT_NE(event.what, What::kStopped);
  EXPECT_FALSE(scene.state.answers.empty());
}

// So a hold is undone within that and a judgement, however often it was needed.
TEST_F(GuardAnswers, AStayIsAMinuteAtMost) {
  begins(hog(0.5, kAll));
  ASSERT_TRUE(answered());
  ASSERT_TRUE(scene.until([&] { return scene.count(What::kNeeded) == 5; }, 400));
  EXPECT_EQ(scene.state.answers[kHog].stay, kLongestStay);
}

TEST_F(GuardAnswers, AJobOfLongIterationsCeasesAfterFourOfThem) {
  scene.period_s = 1.5;
  scene.pass(60);
  scene.others[kHog] = hog(0.5, kAll);
  ASSERT_TRUE(scene.until([&] { return scene.last(What::kAnswered) != nullptr; }, 120));
  const std::uint64_t before = scene.iterations();
  ASSERT_TRUE(scene.until([&] { return scene.iterations() != before; }));
  scene.iterates = false;
  scene.pass(5.8);
  EXPECT_EQ(scene.count(What::kStopped), 0u);
  scene.pass(0.5);
  EXPECT_EQ(scene.count(What::kStopped), 1u);
}

TEST_F(GuardAnswers, BesideAnAnswerASlowStretchOfItsOwnDoesNotBecomeTheUsual) {
  begins(hog(0.5, kAll));
  ASSERT_TRUE(answered());
  scene.own = 2;
  scene.pass(5);
  EXPECT_NEAR(*usual_seconds(scene.state), 0.1, 0.01);
}

// --- After a decision the slow rounds before it count no more. ---

TEST_F(GuardAnswers, WhenAMeasureIsTriedTheSlowRoundsBeforeItAreForgiven) {
  begins(hog(0.5, kAll));
  ASSERT_TRUE(scene.until([&] { return scene.last(What::kDisturbed) != nullptr; }));
  EXPECT_FALSE(pace().begins_to_be_slow());
}

TEST_F(GuardAnswers, WhenAnInterfererEndsInATrialTheSlowRoundsAreForgiven) {
  begins(hog(0.5, {}));
  ASSERT_TRUE(scene.until([&] { return scene.state.phase == Phase::kTrying; }));
  ASSERT_TRUE(scene.until([&] { return pace().begins_to_be_slow(); }));
  scene.others.erase(kHog);
  scene.look();
  ASSERT_EQ(scene.events.back().what, What::kGone);
  EXPECT_FALSE(pace().begins_to_be_slow());
}

TEST_F(GuardAnswers, WhatHelpedInPartAndStaysIsNotJudgedAgainByTheSameRounds) {
  begins(hog(0.5, kAll, 0.2));
  ASSERT_TRUE(answered());
  EXPECT_FALSE(pace().begins_to_be_slow());
}

TEST_F(GuardAnswers, AJobThatIsHeldAfterASlowRoundBeginsAnew) {
  begins(hog(0.5, kAll));
  ASSERT_TRUE(scene.until([&] { return pace().begins_to_be_slow(); }));
  ASSERT_TRUE(scene.events.empty());
  scene.held = true;
  scene.look();
  EXPECT_FALSE(pace().begins_to_be_slow());
}

}  // namespace
}  // namespace switchyard::monitor::guard
