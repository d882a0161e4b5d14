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
EventLoop busy_yard(std::size_t lows) {
  EventLoop event_loop{{{client(1, Priority::kHigh)}}, {}};
  for (std::size_t i = 0; i < lows; ++i) {
    event_loop.snapshot.clients.push_back(client(2 + i, Priority::kLow));
  }
  event_loop.decide();
  for (ClientView& view : event_loop.snapshot.clients) {
    ++view.work;
    view.busy = view.numbered = true;
  }
  return event_loop;
}

EventLoop first_turn(std::size_t lows) {
  EventLoop event_loop = busy_yard(lows);
  event_loop.decide();
  return event_loop;
}

Plan later(EventLoop& event_loop, Time span) {
  event_loop.now += span;
  return event_loop.decide();
}

TEST(PolicyTurns, OneOfSeveralYieldersIsOpenAndShortTheOthersWaitWithTheDefaultSlice) {
  EventLoop event_loop = busy_yard(3);
  const Plan plan = event_loop.decide();
  EXPECT_EQ(plan.clients[0].closed, 0u);
  EXPECT_EQ(plan.clients[1].closed, 0u);
  EXPECT_EQ(plan.clients[1].slices, kYieldShort);
  for (std::size_t i : {2, 3}) {
    EXPECT_EQ(plan.clients[i].closed, abi::kClosedByTurn);
    EXPECT_TRUE(plan.clients[i].armed);
    EXPECT_EQ(plan.clients[i].slices, kYieldShared);
  }
}

TEST(PolicyTurns, OneThatCannotActLosesItsTurnAndHasNoClaimToAnother) {
  EventLoop event_loop = first_turn(2);
  event_loop.snapshot.rules.kind = Kind::kExclusive;
  event_loop.snapshot.clients.erase(event_loop.snapshot.clients.begin());
  const auto works_on = [&event_loop](std::size_t at) { return event_loop[at].progress += 1; };
  int open[2] = {};
  const auto play = [&](int looks) {
    open[0] = open[1] = 0;
    for (int i = 0; i < looks; ++i) {
      const Plan plan = later(event_loop, milliseconds(1));
      for (const std::size_t at : {0, 1}) {
        const bool is_open = plan.clients[at].closed == 0;
        open[at] += is_open ? 1 : 0;
        if (is_open && !event_loop[at].stands) works_on(at);
      }
    }
  };
  play(2000);
  EXPECT_GT(open[0], 700);
  EXPECT_GT(open[1], 700);
  event_loop[0].stands = true;
  play(100);
  play(2000);
  EXPECT_GT(open[1], 1900) << "what the other had queued stands as it is";
  event_loop[0].stands = false;
  works_on(0);
  play(2000);
  EXPECT_GT(open[0], 700);
}

TEST(PolicyTurns, AHandOverClosesThenRaisesAndLowersThenOpens) {
  EventLoop event_loop = first_turn(2);
  Plan plan = later(event_loop, milliseconds(50));
  EXPECT_EQ(plan.clients[1].closed, abi::kClosedByTurn) << "the turn is over";
  EXPECT_EQ(plan.clients[2].closed, abi::kClosedByTurn) << "and the next waits until it is drained";
  EXPECT_EQ(plan.clients[1].slices, kYieldShort);
  event_loop[1].busy = false;
  event_loop[2].slices_in_force = false;
  plan = later(event_loop, microseconds(200));
  EXPECT_EQ(plan.clients[1].slices, kYieldShared);
  EXPECT_EQ(plan.clients[2].slices, kYieldShort);
  EXPECT_EQ(plan.clients[2].closed, abi::kClosedByTurn) << "its slice is not in force";
  plan = later(event_loop, microseconds(200));
  EXPECT_EQ(plan.clients[2].closed, abi::kClosedByTurn);
  event_loop[2].slices_in_force = true;
  plan = later(event_loop, microseconds(200));
  EXPECT_EQ(plan.clients[2].closed, 0u);
  EXPECT_EQ(plan.clients[1].closed, abi::kClosedByTurn);
}

TEST(PolicyTurns, WhatIsQueuedBehindTheGateDoesNotHoldUpTheHandOver) {
  EventLoop event_loop = first_turn(2);
  later(event_loop, milliseconds(50));
  ++event_loop[1].progress;  // and still submitted != done
  Plan plan = later(event_loop, microseconds(200));
  EXPECT_EQ(plan.clients[1].slices, kYieldShort) << "it got on just now";
  plan = later(event_loop, microseconds(2 * kHighSpacingUs));
  EXPECT_EQ(plan.clients[2].slices, kYieldShort) << "it stands still";
}

TEST(PolicyTurns, AHolderThatStillMakesProgressIsNotDrained) {
  EventLoop event_loop = first_turn(2);
  later(event_loop, milliseconds(50));
  // More than two spacings since the gate closed, but never since the last progress.
  for (int i = 0; i < 3; ++i) {
    ++event_loop[1].progress;
    EXPECT_EQ(later(event_loop, microseconds(kHighSpacingUs + 200)).clients[1].slices, kYieldShort)
        << i;
  }
  EXPECT_EQ(later(event_loop, microseconds(2 * kHighSpacingUs)).clients[2].slices, kYieldShort)
      << "it stands still";
}

TEST(PolicyTurns, AHolderInOneLongKernelIsDrainedTwoSpacingsAfterItsGateClosed) {
  EventLoop event_loop = first_turn(2);
  later(event_loop, milliseconds(50));  // without progress all the while
  EXPECT_EQ(later(event_loop, microseconds(200)).clients[1].slices, kYieldShort);
  EXPECT_EQ(later(event_loop, microseconds(2 * kHighSpacingUs)).clients[2].slices, kYieldShort);
}

TEST(PolicyTurns, AProcessThatNeverConfirmsDoesNotStopTheOthers) {
  EventLoop event_loop = first_turn(2);
  later(event_loop, milliseconds(50));
  event_loop[1].busy = false;
  event_loop[2].slices_in_force = false;
  later(event_loop, microseconds(200));
  EXPECT_EQ(later(event_loop, milliseconds(51)).clients[2].closed, 0u);
}

TEST(PolicyTurns, AHolderWithoutWorkHandsOnEarly) {
  EventLoop event_loop = first_turn(2);
  event_loop[1].busy = false;
  later(event_loop, milliseconds(1));
  later(event_loop, milliseconds(2));
  later(event_loop, microseconds(200));
  EXPECT_EQ(later(event_loop, microseconds(200)).clients[2].closed, 0u);
}

TEST(PolicyTurns, WhenNobodyElseWantsTheHolderKeepsTheTurn) {
  EventLoop event_loop = first_turn(2);
  event_loop[2].busy = false;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(later(event_loop, milliseconds(60)).clients[1].closed, 0u);
  event_loop[2].held = true;
  EXPECT_EQ(later(event_loop, milliseconds(60)).clients[1].closed, abi::kClosedByTurn);
}

TEST(PolicyTurns, AJobOfTwoProcessesOpensBothAndNeitherIsShort) {
  EventLoop event_loop = busy_yard(3);
  event_loop[2].job = event_loop[1].job;
  const Plan plan = event_loop.decide();
  EXPECT_EQ(plan.clients[1].closed, 0u);
  EXPECT_EQ(plan.clients[2].closed, 0u);
  EXPECT_EQ(plan.clients[3].closed, abi::kClosedByTurn);
  EXPECT_EQ(shorts(plan), 0u);
}

TEST(PolicyTurns, OneThatCanNotBeHeldBackLeavesAllWithSharedSlices) {
  EventLoop event_loop = busy_yard(2);
  event_loop[1].gateable = false;
  const Plan plan = event_loop.decide();
  for (const std::size_t i : {1, 2}) {
    EXPECT_EQ(plan.clients[i].closed, 0u);
    EXPECT_EQ(plan.clients[i].slices, kYieldShared);
  }
}

TEST(PolicyTurns, OneThatCanNotBeHeldBackTakesNoTurnsAndTheOthersDo) {
  EventLoop event_loop = busy_yard(3);
  event_loop[3].gateable = false;
  const Plan plan = event_loop.decide();
  EXPECT_EQ(plan.clients[1].closed, 0u);
  EXPECT_EQ(plan.clients[2].closed, abi::kClosedByTurn);
  EXPECT_EQ(plan.clients[3].closed, 0u);
  EXPECT_FALSE(plan.clients[3].armed);
  EXPECT_EQ(shorts(plan), 0u) << "it would have nearly all that the yielders have";
}

TEST(PolicyTurns, WhatOutlivesTheDrainIsTakenOffTheNextTurn) {
  EventLoop event_loop = first_turn(2);
  later(event_loop, milliseconds(50));
  later(event_loop, milliseconds(5));  // one long kernel goes on, and the other's turn begins
  later(event_loop, milliseconds(1));
  EXPECT_EQ(later(event_loop, milliseconds(20)).clients[2].closed, 0u);
  EXPECT_NEAR(event_loop.state.jobs[2].credit_ns, 0, 1e6);
  ++event_loop[1].progress;
  event_loop[1].busy = false;
  event_loop[0].busy = false;
  later(event_loop, milliseconds(1));
  EXPECT_LT(event_loop.state.jobs[2].credit_ns, -2e6) << "it shared the GPU for those milliseconds";
}

TEST(PolicyTurns, WhoOwesATurnPaysWithIt) {
  EventLoop event_loop = first_turn(3);
  event_loop.state.jobs[3].credit_ns = -120e6;
  later(event_loop, milliseconds(50));
  event_loop[1].busy = false;
  later(event_loop, microseconds(200));
  const Plan plan = later(event_loop, microseconds(200));
  EXPECT_EQ(plan.clients[2].closed, abi::kClosedByTurn);
  EXPECT_EQ(plan.clients[3].closed, 0u);
  EXPECT_EQ(event_loop.state.jobs[3].credit_ns, -70e6);
}

TEST(PolicyTurns, APauseThatIsShorterThanAHandOverDoesNotEndTheTurn) {
  EventLoop event_loop = first_turn(2);
  event_loop.state.turns.handover_ns = 4e6;
  event_loop[1].busy = false;
  later(event_loop, milliseconds(1));
  EXPECT_EQ(later(event_loop, milliseconds(2)).clients[1].closed, 0u);
  EXPECT_EQ(later(event_loop, milliseconds(2)).clients[1].closed, abi::kClosedByTurn);
}

TEST(PolicyTurns, ABriefPauseIsMadeUpForAndALongOneIsNot) {
  for (const auto& [away, owed_ns] : {std::pair(milliseconds(1), 40e6), {milliseconds(30), 0.0}}) {
    EventLoop event_loop = busy_yard(2);
    event_loop.decide();
    later(event_loop, milliseconds(5));
    event_loop[1].busy = false;
    later(event_loop, milliseconds(1));
    ASSERT_EQ(later(event_loop, milliseconds(2)).clients[1].closed, abi::kClosedByTurn);
    later(event_loop, away);
    event_loop[1].held = true;
    later(event_loop, microseconds(200));
    EXPECT_NEAR(event_loop.state.jobs[2].credit_ns, owed_ns, 3e6);
  }
}

TEST(PolicyTurns, WhoDidNotConfirmASliceIsNotWaitedForUntilItDoes) {
  EventLoop event_loop = first_turn(2);
  const auto hand_over = [&event_loop](std::size_t from) {
    later(event_loop, milliseconds(60));
    event_loop[from].busy = false;
    Plan plan = later(event_loop, microseconds(200));
    event_loop[from].busy = true;
    return plan;
  };
  event_loop[2].slices_in_force = false;
  EXPECT_EQ(hand_over(1).clients[2].closed, abi::kClosedByTurn);
  EXPECT_EQ(later(event_loop, milliseconds(51)).clients[2].closed, 0u) << "waited for once";
  hand_over(2);
  later(event_loop, microseconds(200));
  EXPECT_EQ(hand_over(1).clients[2].closed, 0u) << "and never again";
  hand_over(2);
  event_loop[2].slices_in_force = true;
  later(event_loop, microseconds(200));
  event_loop[2].slices_in_force = false;
  EXPECT_EQ(hand_over(1).clients[2].closed, abi::kClosedByTurn) << "but once it has confirmed";
}

TEST(PolicyTurns, TheTimeThatAHighHasIsNoPartOfAHandOver) {
  EventLoop event_loop = busy_yard(2);
  event_loop.snapshot.rules.slices = false;
  event_loop.snapshot.rules.minimum = 0;  // the high may have all
  event_loop[2].weight = 3;
  event_loop[0].busy = false;
  const auto look_on = [&](Time span) {
    for (const std::size_t each : {0, 1, 2}) event_loop[each].progress += 1;  // none is drained
    if (event_loop[0].busy) ++event_loop[0].work;
    return later(event_loop, span);
  };
  const Turns& turns = event_loop.state.turns;
  while (turns.phase != Turns::Phase::kDraining) look_on(milliseconds(1));
  const double usual_ns = turns.handover_ns;
  event_loop[0].busy = true;
  for (int i = 0; i < 300; ++i) look_on(milliseconds(1));
  ASSERT_EQ(turns.phase, Turns::Phase::kDraining);
  event_loop[0].busy = false;
  look_on(milliseconds(1));
  EXPECT_EQ(turns.phase, Turns::Phase::kDraining) << "its work still runs";
  while (turns.phase == Turns::Phase::kDraining) look_on(milliseconds(1));
  EXPECT_LT(turns.handover_ns, usual_ns + 10e6);
}

TEST(PolicyTurns, ANewcomerIsArmedBeforeItComesInEveryKindOfTurns) {
  for (const int kind : {0, 1, 2}) {
    EventLoop event_loop{
        {{client(1, Priority::kNormal), client(2, Priority::kLow), client(3, Priority::kHigh)}},
        {}};
    if (kind == 0) event_loop.snapshot.rules.kind = Kind::kExclusive;
    if (kind == 1) event_loop.snapshot.rules.slices = false;
    if (kind == 1) event_loop.snapshot.clients.pop_back();  // nobody is high
    const Plan plan = kind == 2 ? event_loop.work({0, 2}) : event_loop.work({0});
    EXPECT_TRUE(plan.clients[1].armed) << kind;
  }
}

TEST(PolicyExclusive, TheHigherClassGoesFirst) {
  EventLoop event_loop{{{client(1, Priority::kLow), client(2, Priority::kHigh)}}, {}};
  event_loop.snapshot.rules.kind = Kind::kExclusive;
  event_loop.decide();
  event_loop[0].busy = event_loop[0].numbered = event_loop[1].numbered = true;
  event_loop.work({0});
  event_loop[1].busy = true;
  EXPECT_EQ(event_loop.decide().clients[1].closed, 0u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(later(event_loop, milliseconds(20)).clients[1].closed, 0u);
}

TEST(PolicyExclusive, TheRestOfATurnThatAHigherClassCutsShortIsMadeUpNextTime) {
  EventLoop event_loop{
      {{client(1, Priority::kLow), client(2, Priority::kLow), client(3, Priority::kHigh)}}, {}};
  event_loop.snapshot.rules.kind = Kind::kExclusive;
  event_loop.snapshot.rules.minimum = 0;
  for (ClientView& view : event_loop.snapshot.clients) view.numbered = true;
  event_loop.decide();
  event_loop[0].busy = event_loop[1].held = true;
  Plan plan = event_loop.work({0, 1});
  // Both lows always want the GPU; nothing of them runs on behind a closed gate.
  const auto step = [&] {
    for (const std::size_t i : {0, 1}) {
      event_loop[i].busy = plan.clients[i].closed == 0;
      event_loop[i].held = !event_loop[i].busy;
    }
    plan = later(event_loop, milliseconds(1));
  };
  for (int ms = 0; ms < 10; ++ms) step();
  ASSERT_EQ(plan.clients[0].closed, 0u);
  event_loop[2].busy = true;  // 40 ms of the first low's turn are left
  ++event_loop[2].work;
  for (int ms = 0; ms < 5; ++ms) step();
  ASSERT_EQ(plan.clients[0].closed, abi::kClosedByTurn);
  ASSERT_EQ(plan.clients[2].closed, 0u);
  event_loop[2].busy = false;
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

// Two that always want the GPU, and have nothing on it behind a closed gate: how long each was open
// in `span`. The first may stand still, with work that never ends.
std::array<Time, 2> open_times(EventLoop& event_loop, Time span, bool first_moves = true) {
  std::array<Time, 2> open{};
  constexpr Time kStep = milliseconds(10);
  for (Time passed{0}; passed < span; passed += kStep) {
    const Plan plan = later(event_loop, kStep);
    for (const std::size_t i : {0, 1}) {
      const bool is_open = plan.clients[i].closed == 0;
      if (is_open) open[i] += kStep;
      if (i == 0 && !first_moves) continue;
      event_loop[i].busy = is_open;
      event_loop[i].held = !is_open;
      if (!is_open) continue;
      ++event_loop[i].work;
      ++event_loop[i].progress;
    }
  }
  return open;
}

EventLoop two_by_turns(double weight = 1, double other = 1) {
  EventLoop event_loop{
      {{client(1, Priority::kNormal, weight), client(2, Priority::kNormal, other)}}, {}};
  event_loop.snapshot.rules.kind = Kind::kExclusive;
  event_loop.decide();
  for (ClientView& view : event_loop.snapshot.clients) {
    ++view.work;
    view.busy = view.numbered = true;
  }
  return event_loop;
}

// It is stopped with an open batch, or its context is dead.
TEST(PolicyExclusive, AJobWhoseNumberNeverComesIsNotWaitedForInTheEnd) {
  EventLoop event_loop = two_by_turns();
  open_times(event_loop, seconds(30), false);
  EXPECT_GT(open_times(event_loop, seconds(60), false)[1], seconds(58));
}

TEST(PolicyExclusive, AfterASuspensionNobodyOwesIt) {
  EventLoop event_loop = two_by_turns();
  open_times(event_loop, seconds(5));
  event_loop.now += std::chrono::hours(1);
  const auto open = open_times(event_loop, seconds(10));
  EXPECT_GT(open[0], seconds(3));
  EXPECT_GT(open[1], seconds(3));
}

TEST(PolicyExclusive, WhateverTheWeightsNobodyIsShutOutForLong) {
  EventLoop event_loop = two_by_turns(1000, 0.01);
  Time shut{0}, longest{0};
  for (int i = 0; i < 3000; ++i) {
    open_times(event_loop, milliseconds(10));
    shut = event_loop.state.clients[2].closed ? shut + milliseconds(10) : Time{0};
    longest = std::max(longest, shut);
  }
  EXPECT_GT(longest, seconds(4)) << "the weights count";
  EXPECT_LT(longest, seconds(6));
}

// Work that it has queued behind its own closed gate is no work on the GPU.
TEST(PolicyMinimum, AHighThatItsLimitHoldsBackRests) {
  EventLoop event_loop = busy_yard(1);
  event_loop[0].limit = 0.3;
  Plan plan;
  for (int i = 0; i < 1000; ++i) {
    plan = later(event_loop, milliseconds(10));
    for (const std::size_t at : {0, 1}) {
      if (plan.clients[at].closed == 0) ++event_loop[at].progress;
    }
    EXPECT_FALSE(event_loop.state.high.greedy) << i;
  }
}

TEST(PolicyMinimum, WithoutGatesNobodyIsTakenForOneThatNeverRests) {
  EventLoop event_loop = busy_yard(1);
  for (int i = 0; i < 200; ++i) {
    for (const std::size_t at : {0, 1}) ++event_loop[at].progress;
    later(event_loop, milliseconds(20));
  }
  ASSERT_TRUE(event_loop.state.high.greedy);
  event_loop.snapshot.rules.gates = false;
  EXPECT_EQ(later(event_loop, milliseconds(20)).clients[1].slices, kYieldShort);
}

TEST(PolicyMinimum, AHighThatNeverRestsLeavesATwoPercentSlice) {
  EventLoop event_loop = busy_yard(1);
  Plan plan = event_loop.decide();
  EXPECT_EQ(plan.clients[1].slices, kYieldShort);
  EXPECT_TRUE(plan.clients[0].watch);
  for (int i = 0; i < 200; ++i) plan = later(event_loop, milliseconds(20));
  EXPECT_EQ(plan.clients[0].slices.compute_us, 50'000u);
  EXPECT_EQ(plan.clients[1].slices.compute_us, 1'020u);
  event_loop[0].busy = false;
  for (int i = 0; i < 5; ++i) plan = later(event_loop, milliseconds(20));
  EXPECT_EQ(plan.clients[1].slices.compute_us, 1'020u) << "not for a moment's rest";
  for (int i = 0; i < 20; ++i) plan = later(event_loop, milliseconds(20));
  EXPECT_EQ(plan.clients[1].slices, kYieldShort);
}

// A lesser turn could pass without a slice, for ever if it goes badly.
TEST(PolicyMinimum, BesideHighsThatNeverRestTheLightestTurnOutlastsTheirRound) {
  constexpr unsigned kHighs = 6;
  EventLoop event_loop;
  for (unsigned i = 0; i < kHighs; ++i) {
    event_loop.snapshot.clients.push_back(client(1 + i, Priority::kHigh));
  }
  event_loop.snapshot.clients.push_back(client(8, Priority::kNormal));
  event_loop.snapshot.clients.push_back(client(9, Priority::kLow));
  event_loop.decide();
  for (ClientView& view : event_loop.snapshot.clients) {
    view.busy = view.numbered = view.slices_in_force = true;
  }
  Time open{0}, longest{0};
  for (int i = 0; i < 2000; ++i) {
    for (ClientView& view : event_loop.snapshot.clients) ++view.work;
    const Plan plan = later(event_loop, milliseconds(10));
    if (i < 500) continue;
    open = plan.clients[kHighs + 1].closed == 0 ? open + milliseconds(10) : Time{0};
    longest = std::max(longest, open);
    ASSERT_EQ(plan.clients[0].slices.compute_us, 25'000u);
  }
  EXPECT_GE(longest, milliseconds(290));
  EXPECT_LE(longest, milliseconds(400));
}

TEST(PolicyGates, WithoutSlicesAHighThatWorksShutsTheGatesOfTheLower) {
  EventLoop event_loop = busy_yard(1);
  event_loop.snapshot.rules.slices = false;
  Plan plan = event_loop.decide();
  EXPECT_EQ(plan.clients[0].closed, 0u);
  EXPECT_EQ(plan.clients[1].closed, abi::kClosedByTurn);
  EXPECT_EQ(plan.clients[1].spacing_us, kHighSpacingUs);
  EXPECT_EQ(plan.clients[1].slices, kNothing);
  EXPECT_LE(plan.look_again, event_loop.now + microseconds(100));
  event_loop[0].busy = false;
  later(event_loop, microseconds(100));
  plan = later(event_loop, microseconds(200));
  EXPECT_EQ(plan.clients[1].closed, 0u);
  EXPECT_TRUE(plan.clients[1].armed);
  EXPECT_TRUE(plan.clients[0].wake) << "its next launch closes the gates again";
}

TEST(PolicyGates, OneThatCanNotBeHeldBackLeavesTheHighsProtectionFromTheOthers) {
  EventLoop event_loop = busy_yard(2);
  event_loop.snapshot.rules.slices = false;
  event_loop[2].gateable = false;
  const Plan plan = event_loop.decide();
  EXPECT_EQ(plan.clients[1].closed, abi::kClosedByTurn);
  EXPECT_EQ(plan.clients[2].closed, 0u);
}

TEST(PolicyGates, WithoutAnyMeansEverythingIsTheDriversOwn) {
  EventLoop event_loop = busy_yard(3);
  event_loop.snapshot.rules.slices = event_loop.snapshot.rules.gates = false;
  for (const ClientPlan& each : event_loop.decide().clients) {
    EXPECT_EQ(each.slices, kNothing);
    EXPECT_EQ(each.closed, 0u);
    EXPECT_FALSE(each.armed);
  }
}

TEST(PolicyPause, AJobAloneIsHeldToo) {
  EventLoop event_loop{{{client(1, Priority::kNormal)}}, {}};
  event_loop.work({0});
  event_loop[0].paused = true;
  Plan plan = event_loop.decide();
  EXPECT_EQ(plan.clients[0].closed, abi::kClosedByPause);
  EXPECT_TRUE(plan.clients[0].armed);
  EXPECT_FALSE(plan.clients[0].active);
  event_loop[0].paused = false;
  plan = event_loop.decide();
  EXPECT_EQ(plan.clients[0].closed, 0u);
  EXPECT_FALSE(plan.clients[0].armed);
}

TEST(PolicyPause, ThePausedDoesNotCountForTheOthers) {
  EventLoop event_loop{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  event_loop.work({0, 1});
  event_loop[1].paused = true;
  EXPECT_EQ(event_loop.decide().clients[0].slices, kNothing);
}

TEST(PolicyLimit, ProcessesOfAJobShareOneBudget) {
  EventLoop event_loop{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  for (std::size_t i : {0, 1}) {
    event_loop[i].job = 1;
    event_loop[i].limit = 0.3;
    event_loop[i].busy = true;
  }
  Plan plan = event_loop.work({0, 1});
  EXPECT_EQ(plan.clients[0].closed, 0u);
  plan = later(event_loop, milliseconds(16));
  EXPECT_EQ(plan.clients[0].closed, abi::kClosedByLimit);
  EXPECT_EQ(plan.clients[1].closed, abi::kClosedByLimit);
  event_loop[0].busy = event_loop[1].busy = false;
  later(event_loop, microseconds(500));  // that much it may still have run
  plan = later(event_loop, milliseconds(40));
  EXPECT_EQ(plan.clients[0].closed, 0u);
}

TEST(PolicyDeadline, TheEarliestActiveDeadlineIsHigh) {
  EventLoop event_loop{
      {{client(1, Priority::kHigh), client(2, Priority::kLow), client(3, Priority::kLow)}}, {}};
  event_loop.snapshot.rules.kind = Kind::kDeadline;
  event_loop[1].deadline = seconds(500);
  event_loop[2].deadline = seconds(400);
  EXPECT_EQ(event_loop.work({0, 1, 2}).clients[2].slices.compute_us, kHighSliceUs);
  event_loop.now += seconds(3);
  EXPECT_EQ(event_loop.work({0, 1}).clients[1].slices.compute_us, kHighSliceUs);
}

TEST(PolicyFair, ClassesAreIgnored) {
  EventLoop event_loop{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  event_loop.snapshot.rules.kind = Kind::kFair;
  const Plan plan = event_loop.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices, plan.clients[1].slices);
}

}  // namespace
}  // namespace switchyard::monitor::policy
