// Memory of one GPU that is parked on another: who may, how it counts there, and how it makes way.
#include "monitor/residency/parking.h"

#include <gtest/gtest.h>

#include "switchyard/status.h"
#include "tests/monitor/residency/parking_scene.h"

namespace switchyard::monitor::test {
namespace {

TEST(Parking, WhatLeavesMayBeParkedAndCountsThereBeforeTheClientSeesIt) {
  Parkable rig;
  rig.tell("swap-out", "a");
  EXPECT_EQ(rig.words().park_lane, 2u);
  EXPECT_EQ(rig.words().park_bytes, 2 * kGiB);
  EXPECT_EQ(rig.words().park_only, 1u);
  EXPECT_EQ(rig.account(1).free(), 2 * kGiB);
}

TEST(Parking, WhatIsParkedIsShownAndIsNobodysUse) {
  Parkable rig;
  rig.parks(2 * kGiB);
  EXPECT_EQ(rig.gpu(0)["memory_parked_bytes"], 2 * kGiB);
  EXPECT_EQ(rig.gpu(0)["memory_swapped_bytes"], 2 * kGiB);
  EXPECT_EQ(rig.gpu(0)["parked_on"], json::array({rig.monitor.gpus().all()[1].info.uuid_text}));
  EXPECT_EQ(rig.gpu(1)["memory_used_bytes"], 0u) << "NVML says that the process has it there";
  EXPECT_EQ(rig.status_of(1)["memory_parked_bytes"], 2 * kGiB);
  EXPECT_EQ(rig.status_of(0)["memory_parked_bytes"], 0u);
  EXPECT_EQ(rig.job()["state_reason"], "swap-out, parked on GPU 1");
  EXPECT_EQ(rig.job()["park"], "peer");
}

TEST(Parking, WhoseMemoryGoesToTheHostParksNothing) {
  Parkable rig("host");
  rig.tell("swap-out", "a");
  EXPECT_EQ(rig.words().park_bytes, 0u);
  EXPECT_EQ(rig.words().park_only, 0u);
  EXPECT_EQ(rig.gpu(0)["not_parked_reason"], nullptr);
}

TEST(Parking, NothingIsParkedInWhatIsReservedOrKeptForContexts) {
  Parkable rig("auto");
  const Joined b = rig.on_second({.name = "b", .memory = "3GiB"});
  rig.tell("swap-out", "a");
  EXPECT_EQ(rig.words().park_bytes, kGiB - kSpare);
  EXPECT_EQ(rig.words().park_only, 0u) << "the rest goes to the host";
  EXPECT_EQ(rig.gpu(0)["not_parked_reason"], "no other GPU that it sees has unreserved room");
}

TEST(Parking, WhoSeesOneGpuIsToldWhy) {
  Parkable rig("peer", 1);
  rig.tell("swap-out", "a");
  EXPECT_EQ(rig.words().park_bytes, 0u);
  EXPECT_EQ(rig.words().park_only, 1u);
  EXPECT_EQ(rig.gpu(0)["not_parked_reason"], "its process sees no other GPU");
  rig.a.shim.say(abi::kResident, abi::kSwapNoPeerRoom);
  rig.pass(milliseconds(50));
  EXPECT_FALSE(rig.a.shim.told_to_leave());
  EXPECT_NE(rig.gpu(0)["swap_error"].get<std::string>().find("--park auto"), std::string::npos);
}

TEST(Parking, WhatIsNotParkedIsNotHeldThere) {
  Parkable rig("auto");
  rig.parks(kGiB);
  EXPECT_EQ(rig.words().park_bytes, kGiB);
  EXPECT_EQ(rig.account(1).free(), 3 * kGiB);
}

TEST(Parking, WhoAsksForTheRoomWaitsUntilItHasMovedOn) {
  Parkable rig;
  rig.parks(2 * kGiB);
  const Joined b = rig.on_second({.name = "b"});
  const wire::Charged waits = rig.charge(b, 3 * kGiB);
  EXPECT_EQ(waits.verdict, wire::kWait);
  EXPECT_EQ(waits.lacks, wire::kParkedMakesWay) << "it asks again soon";
  EXPECT_EQ(rig.words().park_bytes, 0u) << "it will allocate more";
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  rig.says_parked(kGiB);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kGranted);
}

TEST(Parking, WhatWouldNotFitAllTheSameDisturbsNobody) {
  Parkable rig;
  rig.parks(2 * kGiB);
  const Joined b = rig.on_second({.name = "b"});
  EXPECT_EQ(rig.charge(b, 5 * kGiB).verdict, wire::kGpuFull);
  EXPECT_EQ(rig.words().park_bytes, 2 * kGiB);
}

TEST(Parking, AReservationIsGivenAndItsFirstAllocationWaits) {
  Parkable rig;
  rig.parks(2 * kGiB);
  const Joined b = rig.on_second({.name = "b", .memory = "3GiB"});
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.words().park_bytes, kGiB);
  EXPECT_EQ(rig.charge(b, kMiB).verdict, wire::kWait) << "the device may be full";
  rig.says_parked(kGiB);
  EXPECT_EQ(rig.charge(b, kMiB).verdict, wire::kGranted);
}

TEST(Parking, WhoCannotMoveOnKeepsNobodyWaiting) {
  Parkable rig;
  rig.parks(2 * kGiB);
  const Joined b = rig.on_second({.name = "b"});
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  rig.a.shim.say(abi::kAbsent, abi::kSwapNoHostRoom);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kGpuFull);
}

TEST(Parking, WhereNothingMovesOnTheWaitEnds) {
  Parkable rig;
  rig.parks(2 * kGiB);
  const Joined b = rig.on_second({.name = "b"});
  for (int i = 0; i < 99; ++i) {
    ASSERT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait) << i;
    rig.pass(milliseconds(100));
  }
  rig.pass(milliseconds(100));
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kGpuFull);
}

TEST(Parking, WhoGaveUpWaitingAndAsksAnewWaitsAnew) {
  Parkable rig;
  rig.parks(2 * kGiB);
  const Joined b = rig.on_second({.name = "b"});
  ASSERT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  for (Time passed{0}; passed < kLeavesWithin; passed += seconds(1)) {
    rig.says_parked(rig.a.lane().parked_bytes - kMiB);
    rig.pass(seconds(1));
  }
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
}

TEST(Parking, AJobThatComesBackToThatGpuWaitsForItToo) {
  Parkable rig;
  const Joined b = rig.on_second({.name = "b", .swappable = "yes"});
  b.shim.open_context();
  ASSERT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kGranted);
  ASSERT_TRUE(b.shim.allocate(3 * kGiB));
  b.shim.swappable(3 * kGiB);
  rig.gpus.uses[1][b.client->peer.pid] = 3 * kGiB;
  rig.tell("swap-out", "b");
  b.shim.be_absent();
  rig.gpus.uses[1][b.client->peer.pid] = 0;
  rig.pass(seconds(1));
  rig.parks(2 * kGiB);
  ASSERT_EQ(rig.words().park_bytes, 2 * kGiB);
  rig.tell("swap-in", "b");
  EXPECT_TRUE(b.shim.told_to_leave()) << "the device has no room yet";
  EXPECT_EQ(rig.words().park_bytes, kGiB);
  rig.says_parked(kGiB);
  rig.pass(milliseconds(50));
  EXPECT_FALSE(b.shim.told_to_leave());
}

TEST(Parking, WhenItComesBackNothingMayBeThereAnyMore) {
  Parkable rig;
  rig.parks(2 * kGiB);
  rig.tell("swap-in", "a");
  EXPECT_EQ(rig.words().park_bytes, 0u);
  EXPECT_EQ(rig.account(1).free(), 2 * kGiB) << "until it has left";
  rig.says_parked(0);
  rig.a.shim.be_resident();
  rig.listed(rig.a) = 2 * kGiB;
  rig.pass(milliseconds(50));
  rig.gpus.uses[1].clear();
  rig.pass(seconds(2));
  EXPECT_EQ(rig.account(1).free(), 4 * kGiB);
}

TEST(Parking, TheRestGoesWhereSomeIsStillParked) {
  Rig rig(3, 4 * kGiB, with_host_pool(64 * kGiB));
  const Joined a = rig.runs({.name = "x", .swappable = "yes", .park = "peer"}, 3);
  ASSERT_TRUE(rig.allocate(a, 2 * kGiB));
  a.shim.swappable(2 * kGiB);
  const abi::Residency& words = a.shim.residency();
  const auto is_there = [&](std::uint64_t parked, std::uint32_t phase) {
    a.lane().parked_lane = 2;
    a.lane().parked_bytes = parked;
    a.shim.residency().resident_bytes = 2 * kGiB - parked;
    a.shim.say(phase);
    rig.listed(a) = 2 * kGiB - parked;
    rig.gpus.uses[1][a.client->peer.pid] = parked;
    rig.pass(milliseconds(50));
  };
  rig.tell("swap-out");
  ASSERT_EQ(words.park_lane, 2u);
  is_there(2 * kGiB, abi::kAbsent);
  rig.gpus.uses[1][77] = 2 * kGiB;
  rig.pass(seconds(2));
  rig.tell("swap-in");
  is_there(kGiB, abi::kReturning);
  rig.tell("swap-out");
  EXPECT_EQ(words.park_lane, 2u) << "the third GPU has more room";
  EXPECT_EQ(words.park_bytes, 2 * kGiB - kSpare) << "what it has there counts as room";
}

TEST(Parking, WhoseContextsLeaveParksNothing) {
  Parkable rig("auto");
  rig.parks(2 * kGiB);
  rig.a.shim.memory().contexts = abi::kContextsMayLeave;
  rig.ask({{"op", "pause"}, {"target", "a"}, {"release", true}, {"contexts", true}});
  EXPECT_EQ(rig.words().park_bytes, 0u);
  EXPECT_EQ(rig.words().park_only, 0u);
}

TEST(Parking, WhoCameBackAndWhoseContextsLeaveThenUsesTheHost) {
  Parkable rig;
  rig.parks(2 * kGiB);
  ASSERT_EQ(rig.words().park_only, 1u);
  rig.tell("swap-in", "a");
  rig.says_parked(0);
  rig.a.shim.be_resident();
  rig.listed(rig.a) = 2 * kGiB;
  rig.pass(milliseconds(50));
  rig.a.shim.memory().contexts = abi::kContextsMayLeave;
  rig.ask({{"op", "pause"}, {"target", "a"}, {"release", true}, {"contexts", true}});
  ASSERT_TRUE(rig.a.shim.told_to_leave());
  EXPECT_EQ(rig.words().park_bytes, 0u);
  EXPECT_EQ(rig.words().park_only, 0u) << "or it could go nowhere";
}

TEST(Parking, ADeadClientHasNothingThere) {
  Parkable rig;
  rig.parks(2 * kGiB);
  rig.gpus.uses[1].clear();
  rig.dies(rig.a);
  EXPECT_EQ(rig.account(1).free(), 4 * kGiB);
  EXPECT_EQ(rig.status_of(1)["memory_parked_bytes"], 0u);
}

TEST(Parking, ANewMonitorCountsWhatItFinds) {
  Parkable rig;
  wire::Hello hello = hello_of({.name = "z", .swappable = "yes", .park = "peer"}, 2, wire::kRejoin);
  hello.used_bytes[0] = kGiB;
  hello.paused = 1;  // by a person, with its memory away
  const Joined z = rig.join_as({rig.next_pid++, 1000}, hello);
  z.shim.swappable(kGiB);
  z.shim.residency().resident_bytes = 0;
  z.shim.residency().phase = abi::kAbsent;
  z.lane(0).parked_lane = 2;
  z.lane(0).parked_bytes = kGiB;
  rig.pass(milliseconds(50));
  EXPECT_EQ(z.shim.residency().park_bytes, kGiB);
  EXPECT_EQ(z.shim.residency().park_lane, 2u);
  EXPECT_EQ(rig.account(1).parked(), kGiB);
}

TEST(Parking, ANewMonitorCountsWhatItFindsOfEachProcess) {
  Parkable rig;
  wire::Hello hello =
      hello_of({.job = "j", .name = "z", .swappable = "yes", .park = "peer"}, 2, wire::kRejoin);
  hello.used_bytes[0] = kGiB;
  hello.paused = 1;
  // As its library does while the monitor has yet to send the page, and after that.
  const auto carries = [&](const Joined& who) {
    who.shim.swappable(kGiB);
    who.shim.residency().resident_bytes = 0;
    who.shim.residency().phase = abi::kAbsent;
    who.shim.residency().limited = abi::kLimited;
    who.shim.residency().park_lane = 2;
    who.shim.residency().park_bytes = kGiB;
    who.lane(0).parked_lane = 2;
    who.lane(0).parked_bytes = kGiB;
    who.shim.residency().answered = abi::kAnswersNone;
  };
  const Joined first = rig.join_as({rig.next_pid++, 1000}, hello);
  carries(first);
  rig.pass(milliseconds(50));
  const Joined second = rig.join_as({rig.next_pid++, 1000}, hello);
  rig.monitor.look(rig.now);
  carries(second);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.account(1).parked(), 2 * kGiB);
  for (const Joined* each : {&first, &second}) {
    EXPECT_EQ(each->shim.residency().park_bytes, kGiB);
    EXPECT_EQ(each->shim.residency().park_lane, 2u);
  }
}

TEST(Parking, OfWhatIsNotInUseNothingIsFoundParked) {
  Parkable rig;
  const Joined z = rig.join_as({rig.next_pid++, 1000},
                               hello_of({.name = "z", .swappable = "yes"}, 2, wire::kRejoin));
  z.shim.swappable(kGiB);
  z.lane(0).parked_lane = 2;
  z.lane(0).parked_bytes = kGiB;
  rig.pass(seconds(6));
  EXPECT_EQ(rig.account(1).parked(), 0u);
  EXPECT_EQ(rig.account(1).free(), 4 * kGiB);
}

TEST(Parking, WhatAClientMakesUpTakesNothingFromOthers) {
  Parkable rig("host");
  for (const std::uint32_t lane : {1u, 2u, 3u, ~0u}) {
    rig.a.lane(0).parked_lane = lane;
    rig.a.lane(0).parked_bytes = ~0ull;
    rig.pass(milliseconds(50));
    EXPECT_EQ(rig.account(1).parked(), 0u) << lane;
    EXPECT_EQ(rig.account(1).free(), 4 * kGiB);
  }
}

TEST(Parking, WhoTakesTurnsUsesTheHostForTheRest) {
  Parkable rig("peer", 2, {.oversubscribe = "yes"});
  const Joined b = rig.on_second({.name = "b", .memory = "3GiB"});
  rig.tell("swap-out", "a");
  EXPECT_EQ(rig.words().park_only, 0u) << "others wait for its memory";
}

TEST(Parking, WhoAsksWithinItsReservationTakesNothingOfTheRest) {
  Parkable rig("auto");
  const Joined c = rig.runs({.name = "c", .swappable = "yes", .park = "auto"}, 2);
  ASSERT_TRUE(rig.allocate(c, kGiB));
  c.shim.swappable(kGiB);
  rig.pass(seconds(1));
  rig.parks(2 * kGiB);
  const Joined b = rig.on_second({.name = "b", .memory = "3GiB"});
  rig.pass(milliseconds(50));
  rig.tell("swap-in", "a");
  rig.a.shim.be_resident();
  rig.listed(rig.a) = 2 * kGiB;
  ASSERT_EQ(rig.charge(b, kGiB).verdict, wire::kWait) << "what was parked there is still there";
  rig.a.lane(0).parked_lane = 0;
  rig.a.lane(0).parked_bytes = 0;
  rig.gpus.uses[1].clear();
  rig.pass(milliseconds(1));
  rig.tell("swap-out", "c");
  EXPECT_EQ(c.shim.residency(0).park_bytes, kGiB - kSpare);
}

}  // namespace
}  // namespace switchyard::monitor::test
