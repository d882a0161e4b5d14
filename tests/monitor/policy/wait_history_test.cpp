// Which launches the next wait comes after, by those that waits came after before.
#include "monitor/policy/wait_history.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <random>

#include "monitor/policy/policy.h"

namespace switchyard::monitor::policy {
namespace {

constexpr std::uint32_t kMargin = 30;

// A client whose bursts are read as they end, or some later.
struct Seen {
  WaitHistory history;
  Bursts bursts;

  void end(unsigned launches) {
    ++bursts.count;
    bursts.number(bursts.count) = {static_cast<std::uint16_t>(launches), 1000, 50};
  }
  void look() { learn(history, bursts, kMargin); }
  void go(unsigned rounds, std::initializer_list<unsigned> launches) {
    for (unsigned i = 0; i < rounds; ++i) {
      for (const unsigned each : launches) {
        end(each);
        look();
      }
    }
  }
  Span next(std::uint32_t launched = 0) const {
    return next_span(history, launched, kMargin).value_or(Span{});
  }
};

TEST(WaitHistory, NothingIsForeseenOfOneThatIsNotKnown) {
  Seen seen;
  seen.look();
  EXPECT_FALSE(next_span(seen.history, 0, kMargin).has_value());
  EXPECT_EQ(trust(seen.history), 0);
}

TEST(WaitHistory, ANumberThatRecursIsForeseenAMarginBefore) {
  Seen seen;
  seen.go(30, {400});
  EXPECT_EQ(seen.next().from, 400 - kMargin);
  EXPECT_GT(seen.next().to, 400u);
  EXPECT_LT(seen.next().to, 420u);
  EXPECT_GT(trust(seen.history), 0.95);
}

TEST(WaitHistory, AnOrderThatRecursIsFollowed) {
  Seen seen;
  seen.go(20, {400, 6, 200});
  EXPECT_EQ(seen.next().from, 400 - kMargin);
  seen.go(1, {400});
  EXPECT_EQ(seen.next().from, 0u);
  EXPECT_LT(seen.next().to, 20u);
  seen.go(1, {6});
  EXPECT_EQ(seen.next().from, 200 - kMargin);
  EXPECT_GT(trust(seen.history), 0.9);
}

TEST(WaitHistory, WithoutAnOrderEachNumberThatRecursIsACandidate) {
  Seen seen;
  std::mt19937_64 random(3);
  for (int i = 0; i < 40; ++i) seen.go(1, {random() % 2 == 0 ? 200u : 500u});
  EXPECT_EQ(seen.next().from, 200 - kMargin);
  EXPECT_EQ(seen.next(250).from, 500 - kMargin);
  EXPECT_FALSE(next_span(seen.history, 600, kMargin).has_value());
  EXPECT_GT(trust(seen.history), 0.9);
}

TEST(WaitHistory, NumbersThatNeverRecurAreNotTrusted) {
  Seen seen;
  std::mt19937_64 random(4);
  for (int i = 0; i < 200; ++i) {
    seen.go(1, {static_cast<unsigned>(100 + random() % 5000)});
    EXPECT_LT(trust(seen.history), 0.7);
  }
}

// The low job would never be let in.
TEST(WaitHistory, BurstsThatAreShorterThanTheMarginAreNotTrusted) {
  Seen seen;
  seen.go(30, {20});
  EXPECT_LT(trust(seen.history), 0.1);
}

TEST(WaitHistory, AnotherNumberIsTrustedSoon) {
  Seen seen;
  seen.go(40, {400});
  const double before = trust(seen.history);
  seen.go(2, {250});
  EXPECT_LT(trust(seen.history), before - 0.05);
  seen.go(20, {250});
  EXPECT_GT(trust(seen.history), 0.9);
  EXPECT_EQ(seen.next().from, 250 - kMargin);
}

// The first step of a request, once in a while: its launches came in other parts.
TEST(WaitHistory, OneStepOfOtherNumbersDoesNotEndTrust) {
  Seen seen;
  seen.go(10, {950, 2, 5});
  const double before = trust(seen.history);
  seen.go(1, {1, 1, 1, 1, 5, 6, 550, 40, 320});
  EXPECT_LT(trust(seen.history), before);
  EXPECT_GT(trust(seen.history), 0.6);
}

TEST(WaitHistory, BurstsThatWereMissedBreakTheOrderAndNotWhatIsKnown) {
  Seen seen;
  seen.go(4, {400, 6, 200});
  for (const unsigned each : {400, 6, 200, 400, 6, 200, 400, 6, 200, 400}) seen.end(each);
  seen.look();  // the first two of these are gone
  EXPECT_LT(seen.next().to, 20u);
  seen.go(9, {6, 200, 400});
  EXPECT_GT(trust(seen.history), 0.9);
}

TEST(WaitHistory, AnOlderLibraryThatCountsNothingTellsNothing) {
  Seen seen;
  for (int i = 0; i < 50; ++i) seen.go(1, {0});
  EXPECT_FALSE(next_span(seen.history, 0, kMargin).has_value());
  EXPECT_EQ(trust(seen.history), 0);
}

TEST(WaitHistory, WhateverAClientSaysASpanEndsAboveItsLaunches) {
  Seen seen;
  std::mt19937_64 random(5);
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 10 == 0) seen.bursts.count = static_cast<std::uint32_t>(random());
    seen.end(static_cast<unsigned>(random()));
    if (random() % 3 != 0) seen.end(static_cast<unsigned>(random() % 8));
    seen.look();
    const auto launched = static_cast<std::uint32_t>(random());
    const auto span = next_span(seen.history, launched, static_cast<std::uint32_t>(random()));
    ASSERT_TRUE(!span || (span->to > launched && span->from < span->to));
    ASSERT_GE(trust(seen.history), 0);
    ASSERT_LE(trust(seen.history), 1);
  }
}

}  // namespace
}  // namespace switchyard::monitor::policy
