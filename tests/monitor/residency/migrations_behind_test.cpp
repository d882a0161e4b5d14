// What a job leaves on its GPU while its contexts go to another one.
#include <gtest/gtest.h>

#include "tests/monitor/residency/migrations_scene.h"

namespace switchyard::monitor::test {
namespace {

TEST(Migrations, WhoSeesBothGpusLeavesItsMemoryBehindAndItCountsOnce) {
  LeavesBehind rig;
  const std::uint64_t free = rig.free(0);
  rig.migrate();
  EXPECT_EQ(rig.words().park_lane, 1u) << "its own: where it is";
  EXPECT_EQ(rig.words().park_bytes, 2 * kGiB);
  EXPECT_EQ(rig.words().park_only, 0u) << "what can't stay goes to the host";
  const std::uint64_t beside = rig.free(1);
  const auto counted = [&] {
    EXPECT_EQ(rig.free(0), free);
    EXPECT_EQ(rig.free(1), beside);
    EXPECT_EQ(rig.words().park_bytes, 2 * kGiB) << "nothing need move on";
  };
  counted();
  rig.leaves_with_contexts();
  counted();
  rig.lands();
  EXPECT_EQ(rig.free(0), free);
  EXPECT_EQ(rig.free(1), beside);
  rig.says_kept(0, 0);
  rig.come({&rig.a}, 1);
  EXPECT_EQ(rig.answer()["ok"], true) << rig.answer();
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.account(0).parked(), 0u);
  EXPECT_EQ(rig.held(0), 0u);
  EXPECT_EQ(rig.words().park_bytes, 0u);
}

TEST(Migrations, WhoHasMovedWaitsForRoomOnTheGpuBehindItAsWell) {
  LeavesBehind rig;
  rig.migrate();
  rig.leaves_with_contexts();
  rig.lands();
  rig.says_kept(0, 0);
  rig.come({&rig.a}, 1);
  rig.pass(milliseconds(50));
  // Its second lane's GPU is the first one now.
  ASSERT_EQ(rig.charge(rig.a, 3 * kGiB, 1).verdict, wire::kGranted);
  ASSERT_TRUE(rig.a.shim.allocate(3 * kGiB, 1));
  rig.a.shim.swappable(3 * kGiB, 1);
  rig.gpus.uses[0][rig.a.client->peer.pid] = 3 * kGiB;
  rig.pass(milliseconds(50));
  rig.tell("swap-out");
  for (const unsigned lane : {0u, 1u}) rig.a.shim.be_absent(lane);
  for (auto& gpu : rig.gpus.uses) gpu.erase(rig.a.client->peer.pid);
  for (int i = 0; i < 3; ++i) rig.pass(seconds(1));
  const Joined b = rig.join({.name = "b"});
  ASSERT_TRUE(rig.allocate(b, 2 * kGiB));
  EXPECT_EQ(rig.tell("swap-in")["residency"], "waiting");
  EXPECT_TRUE(rig.a.shim.told_to_leave(1));
}

TEST(Migrations, WhatIsLeftBehindMakesNoWay) {
  LeavesBehind rig;
  rig.migrate();
  rig.leaves_with_contexts();
  const Joined b = rig.join({.name = "b"});
  EXPECT_NE(rig.charge(b, 3 * kGiB).verdict, wire::kGranted);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.words().park_bytes, 2 * kGiB);
}

TEST(Migrations, WhatOthersHaveParkedThereMakesWayInItsPlace) {
  LeavesBehind rig;
  Ask ask;
  ask.name = "c";
  ask.swappable = "yes";
  const Joined c = rig.runs(ask, 2);
  ASSERT_EQ(rig.charge(c, kGiB, 1).verdict, wire::kGranted);
  c.lane(1).credit_bytes = 0;
  c.shim.residency(1).total_bytes = kGiB;
  c.lane(1).parked_lane = 1;
  c.lane(1).parked_bytes = kGiB;
  c.client->lanes[1].parker = policy::found(0, kGiB);
  rig.migrate();
  rig.leaves_with_contexts();
  const Joined b = rig.join({.name = "b"});
  EXPECT_EQ(rig.charge(b, 2 * kGiB).verdict, wire::kWait);
  EXPECT_EQ(c.client->lanes[1].parker.allowed, 0u);
  EXPECT_EQ(rig.words().park_bytes, 2 * kGiB);
}

TEST(Migrations, WhatIsLeftBehindIsNobodysUseFromOutside) {
  LeavesBehind rig;
  rig.migrate();
  rig.leaves_with_contexts();
  rig.gpus.memories[0].used_bytes = 2 * kGiB;  // NVML names no process
  for (int i = 0; i < 3; ++i) rig.pass(seconds(1));
  EXPECT_EQ(rig.account(0).outside(), 0u);
  rig.lands();
  for (int i = 0; i < 3; ++i) rig.pass(seconds(1));
  EXPECT_EQ(rig.account(0).outside(), 0u);
}

TEST(Migrations, WhatShallStayOutOrTakesTurnsOrSeesOneGpuLeavesNothingBehind) {
  {
    LeavesBehind rig;
    rig.tell("swap-out", "x");
    rig.migrate();
    EXPECT_EQ(rig.words().park_bytes, 0u);
  }
  {
    Ask ask = LeavesBehind::asks();
    ask.oversubscribe = "yes";
    LeavesBehind rig(ask);
    rig.migrate();
    EXPECT_EQ(rig.words().park_bytes, 0u);
  }
  Moves rig;
  const Joined a = rig.process(2 * kGiB);
  rig.migrate();
  EXPECT_EQ(a.shim.residency(0).park_bytes, 0u);
}

TEST(Migrations, WhatCannotBeReachedLeadsBackAndNothingMoreIsLeftBehind) {
  LeavesBehind rig;
  rig.migrate();
  rig.leaves_with_contexts();
  rig.lands();
  EXPECT_EQ(rig.words().limited, abi::kUnlimited);
  rig.words().swap_result = 101;
  rig.a.shim.say(abi::kReturning, abi::kSwapFailed);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.job()["state_reason"], "back to GPU 0");
  EXPECT_EQ(rig.words().limited, abi::kLimited) << "it is told to leave";
  EXPECT_EQ(rig.words().park_bytes, 2 * kGiB) << "what is there waits for the contexts";
  EXPECT_NE(rig.words().park_lane, 1u);
  rig.leave({&rig.a});
  rig.see(0, 1);
  rig.says_kept(2 * kGiB, 0);
  rig.a.shim.say(abi::kAbsent);
  rig.pass(milliseconds(50));
  rig.says_kept(0, 0);
  rig.come({&rig.a}, 0);
  EXPECT_NE(rig.answer().dump().find("CUDA error 101"), std::string::npos) << rig.answer();
}

TEST(Migrations, WhatCannotBeReachedOnTheWayBackEitherKeepsNoRoomForEver) {
  LeavesBehind rig;
  rig.migrate();
  rig.leaves_with_contexts();
  rig.lands();
  rig.words().swap_result = 101;
  rig.a.shim.say(abi::kReturning, abi::kSwapFailed);
  rig.pass(milliseconds(50));
  rig.leave({&rig.a});
  rig.see(0, 1);
  rig.says_kept(2 * kGiB, 0);
  rig.a.shim.say(abi::kAbsent);
  rig.pass(milliseconds(50));
  rig.a.shim.say(abi::kReturning, abi::kSwapFailed);
  rig.pass(milliseconds(50));
  EXPECT_TRUE(rig.answer().is_null()) << "it may still succeed";
  EXPECT_NE(rig.held(1), 0u);
  for (int i = 0; i < 12; ++i) rig.pass(seconds(1));
  EXPECT_NE(rig.answer().dump().find("CUDA error 101"), std::string::npos) << rig.answer();
  EXPECT_EQ(rig.held(1), 0u);
}

}  // namespace
}  // namespace switchyard::monitor::test
