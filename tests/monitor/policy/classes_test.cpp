// Classes, weights and slices, with made-up clients and a made-up clock.
#include <gtest/gtest.h>

#include "tests/monitor/policy/policy_rig.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Policy, NobodyIsThere) { EXPECT_TRUE(EventLoop{}.decide().clients.empty()); }

TEST(Policy, AClientAloneIsLeftAlone) {
  for (const Priority priority : {Priority::kHigh, Priority::kNormal, Priority::kLow}) {
    EventLoop event_loop{{{client(1, priority)}}, {}};
    const Plan plan = event_loop.work({0});
    EXPECT_EQ(plan.clients[0].slices, kNothing);
    EXPECT_FALSE(plan.clients[0].wake) << "a client alone never rings";
    EXPECT_TRUE(plan.clients[0].active);
  }
}

TEST(Policy, AClientWithoutAContextDoesNotCount) {
  EventLoop event_loop{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  event_loop[1].contexts = 0;
  event_loop[1].compute_groups = 0;
  const Plan plan = event_loop.work({0});
  EXPECT_EQ(plan.clients[0].slices, kNothing);
  EXPECT_EQ(plan.clients[1].slices, kNothing);
}

TEST(Policy, LowBesideHighGetsTheShortSlice) {
  EventLoop event_loop{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  const Plan plan = event_loop.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices, (Slices{10'000, 10'000}));
  EXPECT_EQ(plan.clients[1].slices, (Slices{20, 50}));
}

TEST(Policy, HighLingersOnlyWhileAYielderWorksBesideIt) {
  EventLoop event_loop{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  EXPECT_FALSE(event_loop.work({0}).clients[0].linger);
  const Plan plan = event_loop.work({0, 1});
  EXPECT_TRUE(plan.clients[0].linger);
  EXPECT_FALSE(plan.clients[1].linger);
  event_loop.now += seconds(3);
  EXPECT_FALSE(event_loop.work({0}).clients[0].linger);
}

TEST(Policy, AHighThatNeverRestsLeavesTheMinimum) {
  EventLoop event_loop{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  event_loop[0].numbered = event_loop[0].busy = true;
  Plan plan = event_loop.work({0, 1});
  for (int i = 0; i < 500; ++i) {
    event_loop.now += milliseconds(20);
    plan = event_loop.work({0, 1});
  }
  EXPECT_EQ(plan.clients[0].slices.compute_us, kGreedyRoundUs);
  EXPECT_EQ(plan.clients[1].slices.compute_us, 1020u);
}

// Each of the others has one slice in a round, however much it needs one.
TEST(Policy, SeveralHighsThatNeverRestHaveAShortRoundByWeight) {
  EventLoop event_loop{{{client(1, Priority::kHigh), client(2, Priority::kHigh, 4),
                         client(3, Priority::kHigh), client(4, Priority::kLow)}},
                       {}};
  for (std::size_t i = 0; i < 3; ++i) event_loop[i].numbered = event_loop[i].busy = true;
  Plan plan;
  for (int i = 0; i < 500; ++i) {
    event_loop.now += milliseconds(20);
    plan = event_loop.work({0, 1, 2, 3});
  }
  EXPECT_EQ(plan.clients[0].slices.compute_us, 12'500u);
  EXPECT_EQ(plan.clients[1].slices.compute_us, 50'000u);
  EXPECT_EQ(plan.clients[2].slices.compute_us, 12'500u);
  EXPECT_EQ(plan.clients[3].slices.compute_us, 1'531u) << "2 % of it all";
}

TEST(Policy, AHighThatLaunchesAtEveryLookAndRestsBetweenIsNotGreedy) {
  for (const bool numbered : {true, false}) {
    EventLoop event_loop{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
    event_loop[0].numbered = numbered;
    event_loop[0].busy = !numbered;  // a guess from launches
    Plan plan = event_loop.work({0, 1});
    for (int i = 0; i < 500; ++i) {
      event_loop.now += milliseconds(20);
      plan = event_loop.work({0, 1});
    }
    EXPECT_EQ(plan.clients[1].slices, kYieldShort) << numbered;
  }
}

TEST(Policy, NormalBesideHighGetsTheShortSlice) {
  EventLoop event_loop{{{client(1, Priority::kNormal), client(2, Priority::kHigh)}}, {}};
  const Plan plan = event_loop.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices, kYieldShort);
}

TEST(Policy, WithoutGatesSeveralActiveYieldersShareEqualSlicesOfTheDefaultLength) {
  EventLoop event_loop{{{client(1, Priority::kHigh), client(2, Priority::kLow),
                         client(3, Priority::kNormal), client(4, Priority::kLow)}},
                       {}};
  event_loop.snapshot.rules.gates = false;
  const Plan plan = event_loop.work({0, 1, 2, 3});
  EXPECT_EQ(shorts(plan), 0u);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(plan.clients[i].slices, kYieldShared);
}

EventLoop a_high_and_two_lows() {
  return {{{client(1, Priority::kHigh), client(2, Priority::kLow), client(3, Priority::kLow)}}, {}};
}

// Two processes may not be short at once.
TEST(Policy, WhereNobodyIsShortNoShortSliceIsTold) {
  EventLoop event_loop = a_high_and_two_lows();
  event_loop[2].job = 2;
  const Plan plan = event_loop.work({0, 1, 2});
  EXPECT_EQ(plan.clients[1].slices, kYieldShared);
  EXPECT_EQ(yielding(event_loop.state.high).slice_us, kYieldShared.compute_us);
}

TEST(Policy, AnIdleYielderDoesNotKeepTheActiveOneFromTheShortSlice) {
  EventLoop event_loop = a_high_and_two_lows();
  const Plan plan = event_loop.work({0, 2});
  EXPECT_EQ(plan.clients[1].slices, kYieldShared);
  EXPECT_TRUE(plan.clients[1].wake);
  EXPECT_EQ(plan.clients[2].slices, kYieldShort);
}

TEST(Policy, TheShortSliceMovesToTheYielderThatBecomesTheOnlyActiveOne) {
  EventLoop event_loop = a_high_and_two_lows();
  event_loop.work({0, 1});
  event_loop.now += seconds(3);
  const Plan plan = event_loop.work({0, 2});
  EXPECT_EQ(plan.clients[1].slices, kYieldShared);
  EXPECT_EQ(plan.clients[2].slices, kYieldShort);
}

TEST(Policy, APauseOfTheOnlyYielderChangesNothing) {
  EventLoop event_loop = a_high_and_two_lows();
  event_loop.work({0, 2});
  event_loop.now += seconds(5);
  const Plan plan = event_loop.work({0});
  EXPECT_EQ(plan.clients[2].slices, kYieldShort);
  EXPECT_TRUE(plan.clients[2].wake);
}

TEST(Policy, AProcessWithTwoComputeGroupsIsNeverShort) {
  EventLoop event_loop{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  event_loop[1].compute_groups = 2;
  EXPECT_EQ(event_loop.work({0, 1}).clients[1].slices, kYieldShared);
}

TEST(Policy, AClientWhoseSlicesAreRefusedGetsNone) {
  EventLoop event_loop{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  event_loop[1].sliceable = false;
  const Plan plan = event_loop.work({0, 1});
  EXPECT_EQ(plan.clients[1].slices, kNothing);
  EXPECT_EQ(plan.clients[0].slices.compute_us, kHighSliceUs);
}

TEST(Policy, HighsShareByWeightWithTenMillisecondsForTheSmallest) {
  EventLoop event_loop{{{client(1, Priority::kHigh, 1), client(2, Priority::kHigh, 3),
                         client(3, Priority::kNormal)}},
                       {}};
  const Plan plan = event_loop.work({0, 1, 2});
  EXPECT_EQ(plan.clients[0].slices.compute_us, 10'000u);
  EXPECT_EQ(plan.clients[1].slices.compute_us, 30'000u);
  EXPECT_EQ(plan.clients[2].slices, kYieldShort);
}

TEST(Policy, ASleepingHighKeepsItsLongSliceAndItsProtection) {
  EventLoop event_loop{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  event_loop.work({0, 1});
  event_loop.now += seconds(10);
  const Plan plan = event_loop.work({1});
  EXPECT_EQ(plan.clients[0].slices.compute_us, kHighSliceUs);
  EXPECT_TRUE(plan.clients[0].wake);
  EXPECT_EQ(plan.clients[1].slices, kYieldShort);
}

TEST(Policy, BesideASleepingHighTwoActiveNormalsShareByWeight) {
  EventLoop event_loop{{{client(1, Priority::kHigh), client(2, Priority::kNormal, 3),
                         client(3, Priority::kNormal, 1)}},
                       {}};
  event_loop.work({0, 1, 2});
  event_loop.now += seconds(10);
  const Plan plan = event_loop.work({1, 2});
  EXPECT_EQ(plan.clients[1].slices.compute_us, 3 * plan.clients[2].slices.compute_us);
  EXPECT_EQ(plan.clients[1].slices.compute_us + plan.clients[2].slices.compute_us, 50'000u);
}

TEST(Policy, TwoEqualNormalsGetLongEqualSlices) {
  EventLoop event_loop{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  const Plan plan = event_loop.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices, (Slices{25'000, 25'000}));
  EXPECT_EQ(plan.clients[1].slices, (Slices{25'000, 25'000}));
}

TEST(Policy, TheSliceOfEqualsIsChosenAndWeightsHoldBesideIt) {
  EventLoop event_loop{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  event_loop.snapshot.rules.slice_us = 4'000;
  EXPECT_EQ(event_loop.work({0, 1}).clients[0].slices, (Slices{4'000, 4'000}));
  event_loop[0].weight = 3;
  const Plan plan = event_loop.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices.compute_us, 6'000u);
  EXPECT_EQ(plan.clients[1].slices.compute_us, 2'000u);
}

TEST(Policy, AroundAGangThatNeedsItSlicesAreAsShortAsTheDefaults) {
  EventLoop event_loop{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  event_loop[0].gang = event_loop[0].short_slices = true;
  Plan plan = event_loop.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices, (Slices{kShortCycleUs, kShortCycleUs}));
  EXPECT_EQ(plan.clients[1].slices, (Slices{kShortCycleUs, kShortCycleUs}));
  EXPECT_EQ(shorts(plan), 0u);
  event_loop[0].weight = 3;
  plan = event_loop.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices.compute_us, 3 * plan.clients[1].slices.compute_us);
  EXPECT_EQ(plan.clients[1].slices.compute_us, kSmallestSliceUs);
}

TEST(Policy, TwoHighGangsThatNeedItHaveShortSlicesAndALoneOneHasNot) {
  EventLoop event_loop{{{client(1, Priority::kHigh), client(2, Priority::kHigh)}}, {}};
  event_loop[0].gang = event_loop[0].short_slices = true;
  EXPECT_EQ(event_loop.work({0, 1}).clients[0].slices.compute_us, kSmallestSliceUs);
  event_loop.now += seconds(10);
  EXPECT_EQ(event_loop.work({0}).clients[0].slices.compute_us, kHighSliceUs);
}

TEST(Policy, OneWhoseMemoryMovesHasTheShortestCopySliceThatOthersMayHaveToo) {
  EventLoop event_loop{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  const Slices before = event_loop.work({0, 1}).clients[0].slices;
  event_loop[0].moves = true;
  const Plan plan = event_loop.work({1});
  EXPECT_EQ(plan.clients[0].slices, (Slices{before.compute_us, kMovingCopySliceUs}));
  EXPECT_EQ(plan.clients[1].slices, before);
  EXPECT_EQ(shorts(plan), 0u);
  event_loop[0].moves = false;
  EXPECT_EQ(event_loop.work({0, 1}).clients[0].slices, before);
}

TEST(Policy, OneWhoseMemoryLeavesHasShortCopySlicesUnlessAnotherHas) {
  EventLoop event_loop{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  for (std::size_t i = 0; i < 2; ++i) event_loop[i].moves = event_loop[i].leaves = true;
  Plan plan = event_loop.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices.copy_us, kLeavingCopySliceUs);
  EXPECT_EQ(plan.clients[1].slices.copy_us, kMovingCopySliceUs);
  EXPECT_EQ(shorts(plan), 1u);
  EventLoop mixed{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  mixed[0].moves = mixed[0].leaves = true;
  plan = mixed.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices.copy_us, kMovingCopySliceUs);
  EXPECT_EQ(shorts(plan), 1u);
}

TEST(Policy, WeightsFourToOne) {
  EventLoop event_loop{{{client(1, Priority::kNormal, 4), client(2, Priority::kNormal, 1)}}, {}};
  const Plan plan = event_loop.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices.compute_us, 40'000u);
  EXPECT_EQ(plan.clients[1].slices.compute_us, 10'000u);
  EXPECT_DOUBLE_EQ(plan.clients[0].share_asked, 0.8);
  EXPECT_DOUBLE_EQ(plan.clients[1].share_asked, 0.2);
}

TEST(Policy, SeventyTwentyTen) {
  EventLoop event_loop{{{client(1, Priority::kNormal, 70), client(2, Priority::kNormal, 20),
                         client(3, Priority::kNormal, 10)}},
                       {}};
  const Plan plan = event_loop.work({0, 1, 2});
  EXPECT_EQ(plan.clients[0].slices.compute_us, 52'500u);
  EXPECT_EQ(plan.clients[1].slices.compute_us, 15'000u);
  EXPECT_EQ(plan.clients[2].slices.compute_us, 7'500u);
}

TEST(Policy, LowCountsATenthBesideAnActiveNormal) {
  EventLoop event_loop{{{client(1, Priority::kNormal), client(2, Priority::kLow)}}, {}};
  const Plan plan = event_loop.work({0, 1});
  EXPECT_NEAR(plan.clients[0].slices.compute_us, 10.0 * plan.clients[1].slices.compute_us, 10);
  EXPECT_NEAR(plan.clients[1].share_asked, 1.0 / 11, 1e-9);
}

TEST(Policy, LowsAmongThemselvesShareByWeight) {
  EventLoop event_loop{{{client(1, Priority::kLow, 1), client(2, Priority::kLow, 2)}}, {}};
  const Plan plan = event_loop.work({0, 1});
  EXPECT_EQ(2 * plan.clients[0].slices.compute_us, plan.clients[1].slices.compute_us + 1);
  EXPECT_EQ(shorts(plan), 0u);
}

TEST(Policy, AJobWithTenProcessesGetsNoMoreThanOne) {
  EventLoop event_loop;
  event_loop.snapshot.clients.push_back(client(1, Priority::kNormal));
  for (std::uint64_t i = 2; i < 12; ++i) {
    event_loop.snapshot.clients.push_back(client(i, Priority::kNormal));
    event_loop.snapshot.clients.back().job = 99;
  }
  const Plan plan = event_loop.work({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  std::uint64_t ten = 0;
  for (std::size_t i = 1; i < 11; ++i) ten += plan.clients[i].slices.compute_us;
  EXPECT_NEAR(static_cast<double>(ten), plan.clients[0].slices.compute_us, 10);
  EXPECT_DOUBLE_EQ(plan.clients[0].share_asked, 0.5);
  EXPECT_DOUBLE_EQ(plan.clients[1].share_asked, 0.5);
}

TEST(Policy, IdleProcessesOfAJobLeaveItsWeightToTheActiveOnes) {
  EventLoop event_loop{
      {{client(1, Priority::kNormal), client(2, Priority::kNormal), client(3, Priority::kNormal)}},
      {}};
  event_loop[2].job = 2;
  const Plan plan = event_loop.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices, plan.clients[1].slices);
}

TEST(Policy, ActivityEndsTwoSecondsAfterTheLastWork) {
  EventLoop event_loop{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  event_loop.snapshot.rules.gates = false;  // no windows of sampling.cpp
  const Plan first = event_loop.work({0, 1});
  EXPECT_EQ(first.look_again, event_loop.now + kActiveFor);
  event_loop.now += milliseconds(1999);
  EXPECT_TRUE(event_loop.decide().clients[0].active);
  event_loop.now += milliseconds(1);
  const Plan after = event_loop.decide();
  EXPECT_FALSE(after.clients[0].active);
  EXPECT_TRUE(after.clients[0].wake);
  EXPECT_EQ(after.look_again, Time{0});
}

TEST(Policy, AClientThatHasNeverWorkedIsIdle) {
  EventLoop event_loop{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  EXPECT_FALSE(event_loop.decide().clients[0].active);
}

TEST(Policy, ForgetsClientsThatAreGone) {
  EventLoop event_loop{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  event_loop.work({0, 1});
  EXPECT_EQ(event_loop.state.short_holder, 2u);
  event_loop.snapshot.clients.pop_back();
  event_loop.decide();
  EXPECT_EQ(event_loop.state.short_holder, 0u);
  EXPECT_EQ(event_loop.state.clients.size(), 1u);
}

}  // namespace
}  // namespace switchyard::monitor::policy
