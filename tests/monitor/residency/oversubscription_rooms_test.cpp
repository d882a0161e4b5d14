// The job whose memory is asked for, and how much of it, where several lacks and moves meet.
#include <gtest/gtest.h>

#include "tests/monitor/residency/crowd.h"

namespace switchyard::monitor::test {
namespace {

// Memory on its way out of another GPU makes no room on this one.
TEST(Oversubscription, WhoStaysAfterAllGetsItsRoomBackWhateverLeavesAnotherGpu) {
  TurnOfB rig(1000, 2);
  const Joined c = rig.join({.name = "c", .swappable = "yes"}, 1000, 2);
  c.shim.open_context(1);
  EXPECT_EQ(rig.charge(c, 3 * kGiB, 1).verdict, wire::kGranted);
  ASSERT_TRUE(c.shim.allocate(3 * kGiB, 1));
  rig.gpus.uses[1][c.client->peer.pid] = 3 * kGiB;
  c.shim.swappable(3 * kGiB, 1);
  rig.live(milliseconds(50), {&rig.b});
  rig.tell("swap-out", "c");
  c.shim.leave(3 * kGiB, 1);
  rig.b_leaves_in_part();
  rig.comes_to(rig.a, 2 * kGiB);
  rig.b_stays_after_all();
  ASSERT_TRUE(c.shim.told_to_leave(1));
  ASSERT_EQ(c.shim.residency(1).phase, abi::kLeaving);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.may_have(rig.a), kGiB);
}

// Of a job of several processes the first that asked gives it its place in the line.
TEST(Oversubscription, AJobStandsInLineSinceTheFirstOfItsProcessesAsked) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  const Joined first = rig.oversubscriber("j", {.job = "j"});
  const Joined second = rig.oversubscriber("j", {.job = "j"});
  const Joined c = rig.oversubscriber("c");
  rig.live(seconds(10));
  const auto asks = [&](const Joined& who, std::uint64_t bytes) {
    rig.now += milliseconds(1);
    EXPECT_EQ(rig.charge(who, bytes).verdict, wire::kWait);
  };
  asks(first, 3 * kGiB / 2);
  asks(c, 3 * kGiB);
  asks(second, 3 * kGiB / 2);
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.may_have(a), 2 * kGiB) << "half a GiB for each of its processes";
}

TEST(Oversubscription, WhoMakesRoomIsAskedForNoMoreUntilItHas) {
  TurnOfB rig;
  rig.live(milliseconds(50), {&rig.b});
  EXPECT_EQ(rig.charge(rig.b, kGiB / 2).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  ASSERT_EQ(rig.may_have(rig.a), kGiB / 2);
  const Joined c = rig.oversubscriber("c", {.priority = "high"});
  EXPECT_EQ(rig.charge(c, kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.may_have(rig.a), kGiB / 2);
  rig.is_absent(rig.a);
  EXPECT_EQ(rig.charge(c, kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  EXPECT_LT(rig.may_have(rig.a), kGiB / 2);
}

// The kept memory is enough for each of its processes, and not for both.
TEST(Oversubscription, ForAJobThatItWouldNotServeNothingThatIsKeptLeaves) {
  TurnOfB rig;
  const Joined first = rig.runs({.job = "p", .name = "p"});
  const Joined second = rig.runs({.job = "p", .name = "p"});
  ASSERT_EQ(rig.may_have(rig.a), kGiB);
  EXPECT_EQ(rig.charge(first, 3 * kGiB / 4).verdict, wire::kWait);
  EXPECT_EQ(rig.charge(second, 3 * kGiB / 4).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.may_have(rig.a), kGiB);
}

// Its contexts are away with its memory: they come with the first of it.
TEST(Oversubscription, ContextsThatAreAwayComeWithTheFirstMemory) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a", {.idle_release = "1s,contexts"});
  a.shim.memory().contexts = abi::kContextsMayLeave;
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  rig.works_until_told(a);
  for (int i = 0; i < 100 && !a.shim.told_to_leave(); ++i) rig.live(milliseconds(100));
  rig.is_absent(a);
  ASSERT_EQ(a.shim.residency().limited, abi::kContextsToo);
  a.shim.be_detached();
  rig.shows(a);
  const Joined b = rig.oversubscriber("b");
  ASSERT_TRUE(rig.gets(b, 3 * kGiB));
  EXPECT_EQ(a.shim.residency().limited, abi::kContextsToo);
  a.shim.residency().held_threads = 1;
  rig.works_until_told(b);
  ASSERT_TRUE(b.shim.told_to_leave());
  b.shim.leave(2 * kGiB);
  rig.shows(b);
  ASSERT_NE(rig.may_have(a), 0u);
  EXPECT_EQ(a.shim.residency().limited, abi::kLimited);
}

}  // namespace
}  // namespace switchyard::monitor::test
