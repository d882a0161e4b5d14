// Shares of communication, and waits for peers, from timings whose overlaps are known.
#include "monitor/policy/communication.h"

#include <gtest/gtest.h>

#include <set>

namespace switchyard::monitor::communication {
namespace {

using What = Timing::What;
using std::chrono::milliseconds;
using std::chrono::seconds;

Timing timing(What what, int began_ms, int took_ms, unsigned lane = 0) {
  return {.what = what,
          .lane = lane,
          .communicator = 7,
          .meets = what == What::kCollective,
          .began = milliseconds(began_ms),
          .took = milliseconds(took_ms)};
}
Timing collective(int began_ms, int took_ms, unsigned lane = 0) {
  return timing(What::kCollective, began_ms, took_ms, lane);
}
Timing stall(int began_ms, int took_ms, unsigned lane = 0) {
  return timing(What::kStalled, began_ms, took_ms, lane);
}
Timing gap(unsigned lane = 0) { return timing(What::kUntimed, 0, 0, lane); }

History history(const std::vector<Timing>& all) {
  History out;
  for (const Timing& each : all) out.add(each);
  return out;
}
Shares shares(const std::vector<Timing>& all) { return shares_of(history(all)); }

TEST(Communication, AShareIsThatOfTheSpanFromTheFirstToTheLastBeginning) {
  const Shares out = shares({collective(0, 30), collective(100, 30), collective(200, 90)});
  EXPECT_EQ(out.span, milliseconds(200));
  EXPECT_EQ(out.communicating, milliseconds(60));
}

TEST(Communication, OneCollectiveAloneIsNoSpan) {
  EXPECT_EQ(shares({collective(0, 30)}).span, Time{0});
  EXPECT_EQ(shares({}).span, Time{0});
}

TEST(Communication, CollectivesAtTheSameTimeCountOnce) {
  const Shares out =
      shares({collective(0, 30), collective(10, 30), collective(20, 5), collective(100, 1)});
  EXPECT_EQ(out.communicating, milliseconds(40));
}

TEST(Communication, TheyMayBeginInAnotherOrderThanTheyWereLaunched) {
  const Shares out = shares({collective(50, 10), collective(0, 10), collective(100, 10)});
  EXPECT_EQ(out.span, milliseconds(100));
  EXPECT_EQ(out.communicating, milliseconds(20));
}

TEST(Communication, BetweenStretchesNothingIsKnown) {
  const Shares out = shares(
      {collective(0, 30), collective(100, 30), gap(), collective(5000, 10), collective(5100, 10)});
  EXPECT_EQ(out.span, milliseconds(200));
  EXPECT_EQ(out.communicating, milliseconds(40));
}

TEST(Communication, LostTimingsEndAStretchOnEachLane) {
  const Shares out = shares({collective(0, 10), collective(0, 10, 1), gap(kAllLanes),
                             collective(900, 10), collective(900, 10, 1)});
  EXPECT_EQ(out.span, Time{0});
}

TEST(Communication, EachGpuHasItsOwnClockAndStretches) {
  const Shares out =
      shares({collective(0, 30), collective(7000, 10, 1), gap(1), collective(100, 30),
              collective(9000, 10, 1), collective(9100, 10, 1)});
  EXPECT_EQ(out.span, milliseconds(200));
  EXPECT_EQ(out.communicating, milliseconds(40));
}

// Half of each collective is behind the computing, which ends in the middle of it.
TEST(Communication, WhatTheBusiestStreamWaitsForIsExposed) {
  std::vector<Timing> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back(collective(100 * i, 40));
    all.push_back(stall(100 * i + 20, 20));
  }
  const Shares out = shares(all);
  EXPECT_EQ(out.span, milliseconds(400));
  EXPECT_EQ(out.communicating, milliseconds(160));
  // From the first wait to the last beginning: half of a collective, and three whole ones.
  EXPECT_EQ(out.known, milliseconds(140));
  EXPECT_EQ(out.exposed, milliseconds(80));
}

TEST(Communication, AWaitWithoutACollectiveIsNotExposed) {
  const Shares out = shares({collective(0, 10), stall(0, 0), stall(50, 40), collective(100, 10)});
  EXPECT_EQ(out.known, milliseconds(10));
  EXPECT_EQ(out.exposed, Time{0});
}

TEST(Communication, ThoseAtTheSameTimeAreExposedOnce) {
  const Shares out = shares(
      {collective(0, 30), collective(10, 30), stall(0, 20), stall(10, 30), collective(100, 1)});
  EXPECT_EQ(out.exposed, milliseconds(40));
}

TEST(Communication, WhereNobodyWaitsAllIsHidden) {
  const Shares out = shares({collective(0, 30), collective(100, 30)});
  EXPECT_EQ(out.known, milliseconds(30));
  EXPECT_EQ(out.exposed, Time{0});
}

// The waits for its collectives were launched behind it, and not timed.
TEST(Communication, AStretchThatEndsBeforeItsWaitsTellsNothingOfThem) {
  const Shares out = shares({collective(0, 30), collective(100, 30), gap(), collective(0, 30),
                             stall(0, 30), collective(100, 30)});
  EXPECT_EQ(out.communicating, milliseconds(60));
  EXPECT_EQ(out.known, milliseconds(30));
  EXPECT_EQ(out.exposed, milliseconds(30));
}

TEST(Communication, OnlyTheLastSecondsCount) {
  History all;
  Timing old = collective(0, 1);
  old.seen = seconds(1);
  Timing recent = collective(0, 1);
  recent.seen = seconds(5);
  all.add(old);
  all.add(recent);
  all.forget(seconds(1) + kShareOf);
  EXPECT_EQ(all.timings().size(), 2u);
  all.forget(seconds(2) + kShareOf);
  EXPECT_EQ(all.timings().size(), 1u);
}

TEST(Communication, AHistoryHasRoomForSoMany) {
  History all;
  for (std::size_t i = 0; i < kMostTimings + 5; ++i) all.add(collective(0, 1));
  EXPECT_EQ(all.timings().size(), kMostTimings);
}

TEST(Communication, WhatIsAmongThemIsTold) {
  EXPECT_TRUE(history({gap()}).has(What::kUntimed));
  EXPECT_FALSE(history({gap()}).has(What::kGraph));
}

// --- waits for peers ---

Timing number(std::uint64_t at, int took_ms, std::uint64_t communicator = 7) {
  Timing out = collective(0, took_ms);
  out.number = at;
  out.communicator = communicator;
  return out;
}

TEST(Communication, TheShortestTimeOfARankIsTheTransferAndTheRestAreWaits) {
  const History first = history({number(1, 10), number(2, 30)});
  const History second = history({number(1, 25), number(2, 10)});
  const auto out = meetings_of({{&first, {{7, 2}}}, {&second, {{7, 2}}}});
  EXPECT_EQ(out[0].took, milliseconds(40));
  EXPECT_EQ(out[0].waited, milliseconds(20));
  EXPECT_EQ(out[1].waited, milliseconds(15));
}

TEST(Communication, ACollectiveThatNotAllRanksTimedTellsNothing) {
  const History first = history({number(1, 10), number(2, 10)});
  const History second = history({number(2, 30), number(3, 90)});
  const auto two = meetings_of({{&first, {{7, 2}}}, {&second, {{7, 2}}}});
  EXPECT_EQ(two[1].took, milliseconds(30));
  EXPECT_EQ(two[1].waited, milliseconds(20));
  const auto three = meetings_of({{&first, {{7, 3}}}, {&second, {{7, 3}}}});
  EXPECT_EQ(three[0].took, Time{0});
}

TEST(Communication, CommunicatorsAndSendsAreToldApart) {
  Timing send = number(1, 5);
  send.meets = false;
  const History first = history({number(1, 10), send});
  const History second = history({number(1, 30, 8)});
  const auto out = meetings_of({{&first, {{7, 2}}}, {&second, {{8, 2}}}});
  EXPECT_EQ(out[0].took, Time{0});
  EXPECT_EQ(out[1].took, Time{0});
}

TEST(Communication, ARankAloneMeetsNobody) {
  const History first = history({number(1, 10)});
  EXPECT_EQ(meetings_of({{&first, {{7, 1}}}})[0].took, Time{0});
}

// --- how much is timed ---

// How many a program that wants `rate` between two looks may time in `looks`.
std::uint32_t timed_in(std::uint32_t rate, std::uint32_t looks, std::set<std::uint32_t>* phases) {
  Allowance allowance;
  std::uint32_t timed = 0;
  std::uint32_t until = 0;
  bool pausing = true;
  for (std::uint32_t look = 1; look <= looks; ++look) {
    until = allowance.next(timed, look);
    if (pausing && until != timed && phases != nullptr) phases->insert(look % 7);
    pausing = until - timed < rate;
    timed += std::min(rate, until - timed);
  }
  return timed;
}

TEST(Communication, WhoHasLittleTimesAllOfIt) {
  Allowance allowance;
  std::uint32_t timed = 0;
  std::uint32_t look = 1;
  while (allowance.next(timed, look) == timed) ++look;
  for (int i = 0; i < 1000; ++i) {
    timed += 70;
    EXPECT_GE(allowance.next(timed, ++look) - timed, 70u);
  }
}

TEST(Communication, WhoHasMuchTimesABoundedNumber) {
  for (const std::uint32_t rate : {150u, 1000u, 100'000u}) {
    const std::uint32_t timed = timed_in(rate, 3000, nullptr);
    EXPECT_LE(timed, 3000 * Allowance::kPerLook);
    EXPECT_GE(timed, 3000 * Allowance::kPerLook / 3);
  }
}

TEST(Communication, StretchesBeginAtDifferentTimes) {
  std::set<std::uint32_t> phases;
  timed_in(1000, 300, &phases);
  EXPECT_EQ(phases.size(), 7u);
}

TEST(Communication, AClientThatCountsBackwardsGetsNoMore) {
  Allowance allowance;
  for (std::uint32_t look = 1; look < 50; ++look) {
    const std::uint32_t timed = look * 0x9E3779B9u;
    EXPECT_LE(allowance.next(timed, look) - timed, Allowance::kPerStretch);
  }
}

}  // namespace
}  // namespace switchyard::monitor::communication
