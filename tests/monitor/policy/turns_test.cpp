// Turns, limits, pauses, the minimum and gates alone, look by look.
#include <gtest/gtest.h>

#include <array>

#include "tests/monitor/policy/policy_rig.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A busy high job and two busy lows; the first low has the short slice.
Yard busy_yard(std::size_t lows) {
  Yard yard{{{client(1, Priority::kHigh)}}, {}};
  for (std::size_t i = 0; i < lows; ++i) {
    yard.snapshot.clients.push_back(client(2 + i, Priority::kLow));
  }
  yard.decide();
  for (ClientView& view : yard.snapshot.clients) {
    ++view.work;
    view.busy = view.numbered = true;
  }
  return yard;
}

Plan later(Yard& yard, Time span) {
  yard.now += span;
  return yard.decide();
}

TEST(PolicyTurns, OneOfSeveralYieldersIsOpenAndShortTheOthersWaitWithTheDefaultSlice) {
  Yard yard = busy_yard(3);
  const Plan plan = yard.decide();
  EXPECT_EQ(plan.clients[0].closed, 0u);
  EXPECT_EQ(plan.clients[1].closed, 0u);
  EXPECT_EQ(plan.clients[1].slices, kYieldShort);
  for (std::size_t i : {2, 3}) {
    EXPECT_EQ(plan.clients[i].closed, abi::kClosedByTurn);
    EXPECT_TRUE(plan.clients[i].armed);
    EXPECT_EQ(plan.clients[i].slices, kYieldShared);
  }
}

TEST(PolicyTurns, AHandOverClosesThenRaisesAndLowersThenOpens) {
  Yard yard = busy_yard(2);
  yard.decide();
  Plan plan = later(yard, milliseconds(50));
  EXPECT_EQ(plan.clients[1].closed, abi::kClosedByTurn) << "the turn is over";
  EXPECT_EQ(plan.clients[2].closed, abi::kClosedByTurn) << "and the next waits until it is drained";
  EXPECT_EQ(plan.clients[1].slices, kYieldShort);
  yard[1].busy = false;
  yard[2].slices_in_force = false;
  plan = later(yard, microseconds(200));
  EXPECT_EQ(plan.clients[1].slices, kYieldShared);
  EXPECT_EQ(plan.clients[2].slices, kYieldShort);
  EXPECT_EQ(plan.clients[2].closed, abi::kClosedByTurn) << "its slice is not in force";
  plan = later(yard, microseconds(200));
  EXPECT_EQ(plan.clients[2].closed, abi::kClosedByTurn);
  yard[2].slices_in_force = true;
  plan = later(yard, microseconds(200));
  EXPECT_EQ(plan.clients[2].closed, 0u);
  EXPECT_EQ(plan.clients[1].closed, abi::kClosedByTurn);
}

TEST(PolicyTurns, WhatIsQueuedBehindTheGateDoesNotHoldUpTheHandOver) {
  Yard yard = busy_yard(2);
  yard.decide();
  later(yard, milliseconds(50));
  ++yard[1].progress;  // and still submitted != done
  Plan plan = later(yard, microseconds(200));
  EXPECT_EQ(plan.clients[1].slices, kYieldShort) << "it got on just now";
  plan = later(yard, microseconds(2 * kHighSpacingUs));
  EXPECT_EQ(plan.clients[2].slices, kYieldShort) << "it stands still";
}

TEST(PolicyTurns, AHolderThatStillMakesProgressIsNotDrained) {
  Yard yard = busy_yard(2);
  yard.decide();
  later(yard, milliseconds(50));
  // More than two spacings since the gate closed, but never since the last progress.
  for (int i = 0; i < 3; ++i) {
    ++yard[1].progress;
    EXPECT_EQ(later(yard, microseconds(kHighSpacingUs + 200)).clients[1].slices, kYieldShort) << i;
  }
  EXPECT_EQ(later(yard, microseconds(2 * kHighSpacingUs)).clients[2].slices, kYieldShort)
      << "it stands still";
}

TEST(PolicyTurns, AHolderInOneLongKernelIsDrainedTwoSpacingsAfterItsGateClosed) {
  Yard yard = busy_yard(2);
  yard.decide();
  later(yard, milliseconds(50));  // without progress all the while
  EXPECT_EQ(later(yard, microseconds(200)).clients[1].slices, kYieldShort);
  EXPECT_EQ(later(yard, microseconds(2 * kHighSpacingUs)).clients[2].slices, kYieldShort);
}

TEST(PolicyTurns, AProcessThatNeverConfirmsDoesNotStopTheOthers) {
  Yard yard = busy_yard(2);
  yard.decide();
  later(yard, milliseconds(50));
  yard[1].busy = false;
  yard[2].slices_in_force = false;
  later(yard, microseconds(200));
  EXPECT_EQ(later(yard, milliseconds(51)).clients[2].closed, 0u);
}

TEST(PolicyTurns, AHolderWithoutWorkHandsOnEarly) {
  Yard yard = busy_yard(2);
  yard.decide();
  yard[1].busy = false;
  later(yard, milliseconds(1));
  later(yard, milliseconds(2));
  later(yard, microseconds(200));
  EXPECT_EQ(later(yard, microseconds(200)).clients[2].closed, 0u);
}

TEST(PolicyTurns, WhenNobodyElseWantsTheHolderKeepsTheTurn) {
  Yard yard = busy_yard(2);
  yard.decide();
  yard[2].busy = false;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(later(yard, milliseconds(60)).clients[1].closed, 0u);
  yard[2].held = true;
  EXPECT_EQ(later(yard, milliseconds(60)).clients[1].closed, abi::kClosedByTurn);
}

TEST(PolicyTurns, AJobOfTwoProcessesOpensBothAndNeitherIsShort) {
  Yard yard = busy_yard(3);
  yard[2].job = yard[1].job;
  const Plan plan = yard.decide();
  EXPECT_EQ(plan.clients[1].closed, 0u);
  EXPECT_EQ(plan.clients[2].closed, 0u);
  EXPECT_EQ(plan.clients[3].closed, abi::kClosedByTurn);
  EXPECT_EQ(shorts(plan), 0u);
}

TEST(PolicyTurns, OneThatCanNotBeHeldBackLeavesAllWithSharedSlices) {
  Yard yard = busy_yard(2);
  yard[1].gateable = false;
  const Plan plan = yard.decide();
  for (const std::size_t i : {1, 2}) {
    EXPECT_EQ(plan.clients[i].closed, 0u);
    EXPECT_EQ(plan.clients[i].slices, kYieldShared);
  }
}

TEST(PolicyTurns, OneThatCanNotBeHeldBackTakesNoTurnsAndTheOthersDo) {
  Yard yard = busy_yard(3);
  yard[3].gateable = false;
  const Plan plan = yard.decide();
  EXPECT_EQ(plan.clients[1].closed, 0u);
  EXPECT_EQ(plan.clients[2].closed, abi::kClosedByTurn);
  EXPECT_EQ(plan.clients[3].closed, 0u);
  EXPECT_FALSE(plan.clients[3].armed);
  EXPECT_EQ(shorts(plan), 0u) << "it would have nearly all that the yielders have";
}

TEST(PolicyTurns, WhatOutlivesTheDrainIsTakenOffTheNextTurn) {
  Yard yard = busy_yard(2);
  yard.decide();
  later(yard, milliseconds(50));
  later(yard, milliseconds(5));  // one long kernel goes on, and the other's turn begins
  later(yard, milliseconds(1));
  EXPECT_EQ(later(yard, milliseconds(20)).clients[2].closed, 0u);
  EXPECT_NEAR(yard.state.jobs[2].credit_ns, 0, 1e6);
  ++yard[1].progress;
  yard[1].busy = false;
  yard[0].busy = false;
  later(yard, milliseconds(1));
  EXPECT_LT(yard.state.jobs[2].credit_ns, -2e6) << "it shared the GPU for those milliseconds";
}

TEST(PolicyTurns, WhoOwesATurnPaysWithIt) {
  Yard yard = busy_yard(3);
  yard.decide();
  yard.state.jobs[3].credit_ns = -120e6;
  later(yard, milliseconds(50));
  yard[1].busy = false;
  later(yard, microseconds(200));
  const Plan plan = later(yard, microseconds(200));
  EXPECT_EQ(plan.clients[2].closed, abi::kClosedByTurn);
  EXPECT_EQ(plan.clients[3].closed, 0u);
  EXPECT_EQ(yard.state.jobs[3].credit_ns, -70e6);
}

TEST(PolicyTurns, APauseThatIsShorterThanAHandOverDoesNotEndTheTurn) {
  Yard yard = busy_yard(2);
  yard.decide();
  yard.state.turns.handover_ns = 4e6;
  yard[1].busy = false;
  later(yard, milliseconds(1));
  EXPECT_EQ(later(yard, milliseconds(2)).clients[1].closed, 0u);
  EXPECT_EQ(later(yard, milliseconds(2)).clients[1].closed, abi::kClosedByTurn);
}

TEST(PolicyTurns, ABriefPauseIsMadeUpForAndALongOneIsNot) {
  for (const auto& [away, owed_ns] : {std::pair(milliseconds(1), 40e6), {milliseconds(30), 0.0}}) {
    Yard yard = busy_yard(2);
    yard.decide();
    later(yard, milliseconds(5));
    yard[1].busy = false;
    later(yard, milliseconds(1));
    ASSERT_EQ(later(yard, milliseconds(2)).clients[1].closed, abi::kClosedByTurn);
    later(yard, away);
    yard[1].held = true;
    later(yard, microseconds(200));
    EXPECT_NEAR(yard.state.jobs[2].credit_ns, owed_ns, 3e6);
  }
}

TEST(PolicyTurns, WhoDidNotConfirmASliceIsNotWaitedForUntilItDoes) {
  Yard yard = busy_yard(2);
  yard.decide();
  const auto hand_over = [&yard](std::size_t from) {
    later(yard, milliseconds(60));
    yard[from].busy = false;
    const Plan plan = later(yard, microseconds(200));
    yard[from].busy = true;
    return plan;
  };
  yard[2].slices_in_force = false;
  EXPECT_EQ(hand_over(1).clients[2].closed, abi::kClosedByTurn);
  EXPECT_EQ(later(yard, milliseconds(51)).clients[2].closed, 0u) << "waited for once";
  hand_over(2);
  later(yard, microseconds(200));
  EXPECT_EQ(hand_over(1).clients[2].closed, 0u) << "and never again";
  hand_over(2);
  yard[2].slices_in_force = true;
  later(yard, microseconds(200));
  yard[2].slices_in_force = false;
  EXPECT_EQ(hand_over(1).clients[2].closed, abi::kClosedByTurn) << "but once it has confirmed";
}

TEST(PolicyTurns, ANewcomerIsArmedBeforeItComesInEveryKindOfTurns) {
  for (const int kind : {0, 1, 2}) {
    Yard yard{
        {{client(1, Priority::kNormal), client(2, Priority::kLow), client(3, Priority::kHigh)}},
        {}};
    if (kind == 0) yard.snapshot.rules.kind = Kind::kExclusive;
    if (kind == 1) yard.snapshot.rules.slices = false;
    if (kind == 1) yard.snapshot.clients.pop_back();  // nobody is high
    const Plan plan = kind == 2 ? yard.work({0, 2}) : yard.work({0});
    EXPECT_TRUE(plan.clients[1].armed) << kind;
  }
}

TEST(PolicyExclusive, TheHigherClassGoesFirst) {
  Yard yard{{{client(1, Priority::kLow), client(2, Priority::kHigh)}}, {}};
  yard.snapshot.rules.kind = Kind::kExclusive;
  yard.decide();
  yard[0].busy = yard[0].numbered = yard[1].numbered = true;
  yard.work({0});
  yard[1].busy = true;
  EXPECT_EQ(yard.decide().clients[1].closed, 0u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(later(yard, milliseconds(20)).clients[1].closed, 0u);
}

TEST(PolicyExclusive, TheRestOfATurnThatAHigherClassCutsShortIsMadeUpNextTime) {
  Yard yard{{{client(1, Priority::kLow), client(2, Priority::kLow), client(3, Priority::kHigh)}},
            {}};
  yard.snapshot.rules.kind = Kind::kExclusive;
  yard.snapshot.rules.minimum = 0;
  for (ClientView& view : yard.snapshot.clients) view.numbered = true;
  yard.decide();
  yard[0].busy = yard[1].held = true;
  Plan plan = yard.work({0, 1});
  // Both lows always want the GPU; nothing of them runs on behind a closed gate.
  const auto step = [&] {
    for (const std::size_t i : {0, 1}) {
      yard[i].busy = plan.clients[i].closed == 0;
      yard[i].held = !yard[i].busy;
    }
    plan = later(yard, milliseconds(1));
  };
  for (int ms = 0; ms < 10; ++ms) step();
  ASSERT_EQ(plan.clients[0].closed, 0u);
  yard[2].busy = true;  // 40 ms of the first low's turn are left
  ++yard[2].work;
  for (int ms = 0; ms < 5; ++ms) step();
  ASSERT_EQ(plan.clients[0].closed, abi::kClosedByTurn);
  ASSERT_EQ(plan.clients[2].closed, 0u);
  yard[2].busy = false;
  std::array<int, 2> longest{}, open{};
  for (int ms = 0; ms < 400; ++ms) {
    step();
    for (const std::size_t i : {0, 1}) {
      open[i] = plan.clients[i].closed == 0 ? open[i] + 1 : 0;
      longest[i] = std::max(longest[i], open[i]);
    }
  }
  EXPECT_NEAR(longest[1], 50, 8);
  EXPECT_NEAR(longest[0], 90, 8);
}

TEST(PolicyMinimum, AHighThatNeverRestsLeavesATwoPercentSlice) {
  Yard yard = busy_yard(1);
  Plan plan = yard.decide();
  EXPECT_EQ(plan.clients[1].slices, kYieldShort);
  EXPECT_TRUE(plan.clients[0].watch);
  for (int i = 0; i < 200; ++i) plan = later(yard, milliseconds(20));
  EXPECT_EQ(plan.clients[0].slices.compute_us, 50'000u);
  EXPECT_EQ(plan.clients[1].slices.compute_us, 1'020u);
  yard[0].busy = false;
  for (int i = 0; i < 5; ++i) plan = later(yard, milliseconds(20));
  EXPECT_EQ(plan.clients[1].slices.compute_us, 1'020u) << "not for a moment's rest";
  for (int i = 0; i < 20; ++i) plan = later(yard, milliseconds(20));
  EXPECT_EQ(plan.clients[1].slices, kYieldShort);
}

// A lesser turn could pass without a slice, for ever if it goes badly.
TEST(PolicyMinimum, BesideHighsThatNeverRestTheLightestTurnOutlastsTheirRound) {
  constexpr unsigned kHighs = 6;
  Yard yard;
  for (unsigned i = 0; i < kHighs; ++i) {
    yard.snapshot.clients.push_back(client(1 + i, Priority::kHigh));
  }
  yard.snapshot.clients.push_back(client(8, Priority::kNormal));
  yard.snapshot.clients.push_back(client(9, Priority::kLow));
  yard.decide();
  for (ClientView& view : yard.snapshot.clients) {
    view.busy = view.numbered = view.slices_in_force = true;
  }
  Time open{0}, longest{0};
  for (int i = 0; i < 2000; ++i) {
    for (ClientView& view : yard.snapshot.clients) ++view.work;
    const Plan plan = later(yard, milliseconds(10));
    if (i < 500) continue;
    open = plan.clients[kHighs + 1].closed == 0 ? open + milliseconds(10) : Time{0};
    longest = std::max(longest, open);
    ASSERT_EQ(plan.clients[0].slices.compute_us, 25'000u);
  }
  EXPECT_GE(longest, milliseconds(290));
  EXPECT_LE(longest, milliseconds(400));
}

TEST(PolicyGates, WithoutSlicesAHighThatWorksShutsTheGatesOfTheLower) {
  Yard yard = busy_yard(1);
  yard.snapshot.rules.slices = false;
  Plan plan = yard.decide();
  EXPECT_EQ(plan.clients[0].closed, 0u);
  EXPECT_EQ(plan.clients[1].closed, abi::kClosedByTurn);
  EXPECT_EQ(plan.clients[1].spacing_us, kHighSpacingUs);
  EXPECT_EQ(plan.clients[1].slices, kNothing);
  EXPECT_LE(plan.look_again, yard.now + microseconds(100));
  yard[0].busy = false;
  later(yard, microseconds(100));
  plan = later(yard, microseconds(200));
  EXPECT_EQ(plan.clients[1].closed, 0u);
  EXPECT_TRUE(plan.clients[1].armed);
  EXPECT_TRUE(plan.clients[0].wake) << "its next launch closes the gates again";
}

TEST(PolicyGates, OneThatCanNotBeHeldBackLeavesTheHighsProtectionFromTheOthers) {
  Yard yard = busy_yard(2);
  yard.snapshot.rules.slices = false;
  yard[2].gateable = false;
  const Plan plan = yard.decide();
  EXPECT_EQ(plan.clients[1].closed, abi::kClosedByTurn);
  EXPECT_EQ(plan.clients[2].closed, 0u);
}

TEST(PolicyGates, WithoutAnyMeansEverythingIsTheDriversOwn) {
  Yard yard = busy_yard(3);
  yard.snapshot.rules.slices = yard.snapshot.rules.gates = false;
  for (const ClientPlan& each : yard.decide().clients) {
    EXPECT_EQ(each.slices, kNothing);
    EXPECT_EQ(each.closed, 0u);
    EXPECT_FALSE(each.armed);
  }
}

TEST(PolicyPause, AJobAloneIsHeldToo) {
  Yard yard{{{client(1, Priority::kNormal)}}, {}};
  yard.work({0});
  yard[0].paused = true;
  Plan plan = yard.decide();
  EXPECT_EQ(plan.clients[0].closed, abi::kClosedByPause);
  EXPECT_TRUE(plan.clients[0].armed);
  EXPECT_FALSE(plan.clients[0].active);
  yard[0].paused = false;
  plan = yard.decide();
  EXPECT_EQ(plan.clients[0].closed, 0u);
  EXPECT_FALSE(plan.clients[0].armed);
}

TEST(PolicyPause, ThePausedDoesNotCountForTheOthers) {
  Yard yard{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  yard.work({0, 1});
  yard[1].paused = true;
  EXPECT_EQ(yard.decide().clients[0].slices, kNothing);
}

TEST(PolicyLimit, ProcessesOfAJobShareOneBudget) {
  Yard yard{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  for (std::size_t i : {0, 1}) {
    yard[i].job = 1;
    yard[i].limit = 0.3;
    yard[i].busy = true;
  }
  Plan plan = yard.work({0, 1});
  EXPECT_EQ(plan.clients[0].closed, 0u);
  plan = later(yard, milliseconds(16));
  EXPECT_EQ(plan.clients[0].closed, abi::kClosedByLimit);
  EXPECT_EQ(plan.clients[1].closed, abi::kClosedByLimit);
  yard[0].busy = yard[1].busy = false;
  later(yard, microseconds(500));  // that much it may still have run
  plan = later(yard, milliseconds(40));
  EXPECT_EQ(plan.clients[0].closed, 0u);
}

TEST(PolicyDeadline, TheEarliestActiveDeadlineIsHigh) {
  Yard yard{{{client(1, Priority::kHigh), client(2, Priority::kLow), client(3, Priority::kLow)}},
            {}};
  yard.snapshot.rules.kind = Kind::kDeadline;
  yard[1].deadline = seconds(500);
  yard[2].deadline = seconds(400);
  EXPECT_EQ(yard.work({0, 1, 2}).clients[2].slices.compute_us, kHighSliceUs);
  yard.now += seconds(3);
  EXPECT_EQ(yard.work({0, 1}).clients[1].slices.compute_us, kHighSliceUs);
}

TEST(PolicyFair, ClassesAreIgnored) {
  Yard yard{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  yard.snapshot.rules.kind = Kind::kFair;
  const Plan plan = yard.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices, plan.clients[1].slices);
}

}  // namespace
}  // namespace switchyard::monitor::policy
