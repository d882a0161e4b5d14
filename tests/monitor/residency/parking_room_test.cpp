// How much may be parked, where others wait for the room or some of it is there already.
#include <gtest/gtest.h>

#include "tests/monitor/residency/parking_scene.h"

namespace switchyard::monitor::test {
namespace {

TEST(ParkingRoom, WhoWaitsBeyondItsQuotaTakesNoMoreOfTheRoomThanThat) {
  Parkable rig;
  const Joined b = rig.on_second({.name = "b", .on_oom = "wait"});
  const Joined c = rig.on_second({.name = "c"});  // that may still free
  ASSERT_EQ(rig.charge(c, kGiB / 4).verdict, wire::kGranted);
  ASSERT_TRUE(c.shim.allocate(kGiB / 4));
  rig.account(1).set_quota(b.client->job, {.bytes = kGiB, .reserved = false, .ceiling = true});
  ASSERT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  rig.tell("swap-out", "a");
  EXPECT_EQ(rig.words().park_bytes, 2 * kGiB);
}

TEST(ParkingRoom, WithoutAQuotaItTakesAllThatItWaitsFor) {
  Parkable rig("auto");
  const Joined b = rig.on_second({.name = "b", .on_oom = "wait"});
  const Joined c = rig.on_second({.name = "c"});
  ASSERT_EQ(rig.charge(c, 2 * kGiB).verdict, wire::kGranted);
  ASSERT_TRUE(c.shim.allocate(c.lane().credit_bytes));
  ASSERT_EQ(rig.charge(b, 5 * kGiB / 2).verdict, wire::kWait);
  rig.tell("swap-out", "a");
  EXPECT_EQ(rig.words().park_bytes, 0u);
}

TEST(ParkingRoom, WhyItWasNotParkedIsForgottenOnceItIs) {
  Parkable rig("auto");
  const Joined b = rig.on_second({.name = "b", .memory = "3GiB"});
  rig.tell("swap-out", "a");
  ASSERT_NE(rig.gpu(0)["not_parked_reason"], nullptr);
  rig.a.shim.be_absent();
  rig.pass(milliseconds(50));
  rig.monitor.died(b.id);
  rig.tell("swap-in", "a");
  rig.a.shim.be_resident();
  rig.pass(seconds(2));
  rig.tell("swap-out", "a");
  EXPECT_EQ(rig.words().park_bytes, 2 * kGiB);
  EXPECT_EQ(rig.gpu(0)["not_parked_reason"], nullptr);
}

// Of a job that comes back, what is there already needs no more room.
TEST(ParkingRoom, WhatAReturningJobHasThereNeedsNoWay) {
  Parkable rig;
  const Joined b = rig.on_second({.name = "b", .swappable = "yes"});
  b.shim.open_context();
  ASSERT_EQ(rig.charge(b, 2 * kGiB).verdict, wire::kGranted);
  ASSERT_TRUE(b.shim.allocate(2 * kGiB));
  b.shim.swappable(2 * kGiB);
  const auto has = [&](std::uint64_t bytes) {
    rig.gpus.uses[1][b.client->peer.pid] = bytes;
    for (int i = 0; i < 3; ++i) rig.pass(seconds(1));
  };
  has(3 * kGiB);
  rig.tell("swap-out", "b");
  b.shim.be_absent();
  has(kGiB);
  ASSERT_EQ(rig.account(1).held(b.client->job), kGiB) << "its context";
  ASSERT_EQ(rig.account(1).in_full(b.client->job), 3 * kGiB);
  rig.parks(kGiB);
  ASSERT_EQ(rig.words().park_bytes, kGiB);
  rig.tell("swap-in", "b");
  EXPECT_FALSE(b.shim.told_to_leave());
  EXPECT_EQ(rig.words().park_bytes, kGiB);
}

}  // namespace
}  // namespace switchyard::monitor::test
