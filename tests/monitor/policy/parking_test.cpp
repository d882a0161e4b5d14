// The table at the head of policy/parking.h: each row is a case here; and laws over random plays.
#include "monitor/policy/parking.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace switchyard::monitor::policy {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;
constexpr Time kNow = std::chrono::seconds(1000);

Parker parks(std::uint64_t bytes, std::uint64_t there) {
  return reported(allowed({}, 1, bytes, kNow), there, false, kNow);
}
// It has 4 GiB there and may have less.
Parker makes_way(std::uint64_t allowed_bytes = kGiB) {
  return allowed(parks(4 * kGiB, 4 * kGiB), 1, allowed_bytes, kNow);
}
Time later(Time span) { return kNow + span; }

TEST(ParkingTable, WhoMayParkParksAndHoldsAllOfThat) {
  EXPECT_EQ(state_of({}, kNow), Parking::kNothing);
  const Parker parker = allowed({}, 1, 4 * kGiB, kNow);
  EXPECT_EQ(state_of(parker, kNow), Parking::kParks);
  EXPECT_EQ(parker.held(), 4 * kGiB) << "before the client has seen it";
  EXPECT_EQ(parker.on, 1u);
}

TEST(ParkingTable, WhereMostRoomIsAndAsMuchAsFits) {
  const std::vector<Spot> spots = {{1, kGiB}, {2, 3 * kGiB}, {3, 2 * kGiB}};
  const auto fits = choose(spots, 2 * kGiB);
  ASSERT_TRUE(fits);
  EXPECT_EQ(fits->gpu, 2u);
  EXPECT_EQ(fits->room, 2 * kGiB);
  EXPECT_EQ(choose(spots, 9 * kGiB)->room, 3 * kGiB);
}

TEST(ParkingTable, WithoutAGpuOrRoomOrNeedNothingIsParked) {
  const std::vector<Spot> full = {{1, 0}, {2, 0}};
  EXPECT_FALSE(choose({}, kGiB));
  EXPECT_FALSE(choose(full, kGiB));
  EXPECT_FALSE(choose(std::vector<Spot>{{1, kGiB}}, 0));
}

TEST(ParkingTable, OnceAllHasLeftItHoldsWhatIsThere) {
  const Parker parker = allowed(parks(4 * kGiB, kGiB), 1, kGiB, kNow);
  EXPECT_EQ(parker.held(), kGiB);
  EXPECT_EQ(state_of(parker, kNow), Parking::kParks);
}

TEST(ParkingTable, WhenAJobLacksTheRoomItMakesWay) {
  Parker parker = parks(4 * kGiB, 4 * kGiB);
  Parker* const all[] = {&parker};
  EXPECT_TRUE(make_way(all, {kGiB}, kNow));
  EXPECT_EQ(parker.allowed, 3 * kGiB);
  EXPECT_EQ(parker.held(), 4 * kGiB) << "until it has left";
  EXPECT_EQ(state_of(parker, kNow), Parking::kMakesWay);
  EXPECT_TRUE(make_way(all, {kGiB}, kNow));
  EXPECT_EQ(parker.allowed, 3 * kGiB) << "it is on its way already";
}

TEST(ParkingTable, WhatIsAllowedAndNotThereIsFreeAtOnce) {
  Parker parker = parks(4 * kGiB, kGiB);
  Parker* const all[] = {&parker};
  EXPECT_TRUE(make_way(all, {3 * kGiB}, kNow));
  EXPECT_EQ(parker.held(), kGiB);
  EXPECT_EQ(state_of(parker, kNow), Parking::kParks);
}

TEST(ParkingTable, WhenNoMoreIsThereItParksAgain) {
  const Parker parker = reported(makes_way(), kGiB, false, later(kMakesWayWithin * 2));
  EXPECT_EQ(state_of(parker, later(kMakesWayWithin * 2)), Parking::kParks);
}

TEST(ParkingTable, WhoSaysThatItCannotIsStuck) {
  const Parker parker = reported(makes_way(), 4 * kGiB, true, kNow);
  EXPECT_EQ(state_of(parker, kNow), Parking::kStuck);
}

TEST(ParkingTable, WhereNothingMovesItIsStuck) {
  const Parker parker = makes_way();
  EXPECT_EQ(state_of(parker, later(kMakesWayWithin - Time{1})), Parking::kMakesWay);
  EXPECT_EQ(state_of(parker, later(kMakesWayWithin)), Parking::kStuck);
}

TEST(ParkingTable, ToBeAskedForMoreGivesItNoMoreTime) {
  const Parker parker = allowed(makes_way(2 * kGiB), 1, kGiB, later(kMakesWayWithin / 2));
  EXPECT_EQ(state_of(parker, later(kMakesWayWithin)), Parking::kStuck);
}

TEST(ParkingTable, OnceSomeHasLeftItIsStuckNoLonger) {
  const Time then = later(kMakesWayWithin * 3);
  const Parker parker = reported(makes_way(), 3 * kGiB, false, then);
  EXPECT_EQ(state_of(parker, then), Parking::kMakesWay);
}

TEST(ParkingTable, TheStuckAreAskedAndNotCountedOn) {
  Parker stuck = reported(makes_way(2 * kGiB), 4 * kGiB, true, kNow);
  Parker* const alone[] = {&stuck};
  EXPECT_FALSE(make_way(alone, {kGiB}, kNow));
  Parker other = parks(kGiB, kGiB);
  Parker* const both[] = {&stuck, &other};
  EXPECT_TRUE(make_way(both, {kGiB}, kNow));
  EXPECT_EQ(other.allowed, 0u);
}

TEST(ParkingTable, WhoHoldsMostComesFirst) {
  Parker small = parks(kGiB, kGiB);
  Parker large = parks(4 * kGiB, 4 * kGiB);
  Parker* const all[] = {&small, &large};
  EXPECT_TRUE(make_way(all, {3 * kGiB}, kNow));
  EXPECT_EQ(small.allowed, kGiB);
  EXPECT_EQ(large.allowed, kGiB);
}

TEST(ParkingTable, MoreThanTheyHaveTheyCannotGive) {
  Parker parker = parks(kGiB, kGiB);
  Parker* const all[] = {&parker};
  EXPECT_FALSE(make_way(all, {2 * kGiB}, kNow));
}

TEST(ParkingTable, AStepIsLargerThanWhatAJobThatAllocatesLacksNow) {
  constexpr std::uint64_t kGpu = 140 * kGiB;
  EXPECT_EQ(step_for({kGiB / 2, kGpu}, 0), kLeastStep);
  EXPECT_EQ(step_for({9 * kGiB, kGpu}, 0), 9 * kGiB);
  EXPECT_EQ(step_for({kGiB / 2, kGpu}, 6 * kGiB), 12 * kGiB) << "it goes on allocating";
  EXPECT_EQ(step_for({kGiB, 2 * kGiB}, 6 * kGiB), 3 * kGiB) << "no more than its quota";
  EXPECT_EQ(step_for({kGiB, 0}, 6 * kGiB), kGiB) << "what was promised is known";
}

// 17 GiB in pieces of 512 MiB: few of them find nothing on its way.
TEST(ParkingTable, AJobThatAllocatesPieceByPieceIsMadeWayForInFewSteps) {
  Parker parker = parks(20 * kGiB, 20 * kGiB);
  Parker* const all[] = {&parker};
  unsigned steps = 0;
  for (std::uint64_t taken = 0; taken < 17 * kGiB; taken += kGiB / 2) {
    const std::uint64_t before = parker.allowed;
    const std::uint64_t left = 20 * kGiB - parker.there;
    if (left < taken + kGiB / 2) {
      EXPECT_TRUE(make_way(all, {taken + kGiB / 2 - left, 100 * kGiB}, kNow));
      parker = reported(parker, parker.allowed, false, kNow);
    }
    if (parker.allowed != before) ++steps;
  }
  EXPECT_EQ(steps, 3u) << "4 GiB, 8 GiB and the rest";
}

TEST(ParkingTable, NoStepIsAddedToOneOnItsWay) {
  Parker parker = parks(20 * kGiB, 20 * kGiB);
  Parker* const all[] = {&parker};
  EXPECT_TRUE(make_way(all, {kGiB, 100 * kGiB}, kNow));
  EXPECT_TRUE(make_way(all, {kGiB, 100 * kGiB}, kNow)) << "who waits asks again";
  EXPECT_EQ(parker.allowed, 20 * kGiB - kLeastStep);
}

TEST(ParkingTable, ALongTimeAfterAStepTheNextIsTheLeast) {
  Parker parker = parks(20 * kGiB, 20 * kGiB);
  Parker* const all[] = {&parker};
  EXPECT_TRUE(make_way(all, {kGiB, 100 * kGiB}, kNow));
  parker = reported(parker, parker.allowed, false, kNow);
  EXPECT_TRUE(make_way(all, {kGiB, 100 * kGiB}, later(kMakesWayWithin)));
  EXPECT_EQ(parker.allowed, 20 * kGiB - 2 * kLeastStep);
}

TEST(ParkingTable, AStepIsTwiceWhatAllOfThemGaveLast) {
  std::vector<Parker> parkers(4, parks(16 * kGiB, 16 * kGiB));
  std::vector<Parker*> all;
  for (Parker& each : parkers) all.push_back(&each);
  EXPECT_TRUE(make_way(all, {20 * kGiB, 0}, kNow));
  for (Parker& each : parkers) each = reported(each, each.allowed, false, kNow);
  EXPECT_TRUE(make_way(all, {kGiB, 100 * kGiB}, kNow));
  std::uint64_t left = 0;
  for (const Parker& each : parkers) left += each.allowed;
  EXPECT_EQ(left, 4 * kGiB);
}

TEST(ParkingTable, WithNothingThereAndNothingAllowedThereIsNothing) {
  const Parker parker = reported(allowed(parks(kGiB, kGiB), 1, 0, kNow), 0, false, kNow);
  EXPECT_EQ(state_of(parker, kNow), Parking::kNothing);
  EXPECT_EQ(parker.bounded(kGiB), 0u) << "what it says from here on takes nothing from others";
}

TEST(ParkingTable, WhatItSaysBeyondWhatItWasAllowedDoesNotCount) {
  EXPECT_EQ(parks(kGiB, 9 * kGiB).there, kGiB);
  EXPECT_EQ(reported({}, 9 * kGiB, false, kNow).held(), 0u);
}

TEST(ParkingTable, ANewMonitorAllowsWhatItFinds) {
  const Parker parker = found(2, kGiB);
  EXPECT_EQ(parker.on, 2u);
  EXPECT_EQ(parker.allowed, kGiB);
  EXPECT_EQ(state_of(parker, kNow), Parking::kParks);
}

// Clients that say what they like never hold more than was allowed at some time. The room that
// make_way() promises is free once those that it counted on do as they are told.
TEST(ParkingLaws, WhatWasPromisedIsFreeOnceTheOthersDoAsTheyAreTold) {
  std::mt19937 random(7);
  const auto roll = [&](std::uint64_t most) { return random() % (most + 1); };
  for (int play = 0; play < 2'000; ++play) {
    std::vector<Parker> parkers(1 + roll(3));
    std::uint64_t granted = 0;
    for (Parker& each : parkers) {
      const std::uint64_t bytes = roll(8) * kGiB;
      granted += bytes;
      each = reported(allowed({}, 1, bytes, kNow), roll(9) * kGiB, roll(4) == 0, kNow);
      if (roll(1) == 0) each = allowed(each, 1, roll(each.allowed), kNow);
    }
    std::vector<Parker*> all;
    std::uint64_t before = 0;
    for (Parker& each : parkers) {
      all.push_back(&each);
      before += each.held();
    }
    ASSERT_LE(before, granted);
    const std::uint64_t way = roll(20) * kGiB;
    const bool can = make_way(all, {way, roll(20) * kGiB}, kNow);
    std::uint64_t after = 0;
    for (Parker& each : parkers) {
      if (state_of(each, kNow) != Parking::kStuck) {
        each = reported(each, std::min(each.there, each.allowed), false, kNow);
      }
      after += each.held();
    }
    EXPECT_LE(after, before);
    EXPECT_TRUE(!can || after + way <= before);
  }
}

}  // namespace
}  // namespace switchyard::monitor::policy
