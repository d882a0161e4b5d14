// Jobs that are refused memory, though others could give some, over the whole monitor.
#include <gtest/gtest.h>

#include <vector>

#include "tests/monitor/log_lines.h"
#include "tests/monitor/residency/crowd.h"

namespace switchyard::monitor::test {
namespace {

TEST(Oversubscription, WhatWasKeptAndCannotLeaveIsLeftAlone) {
  BesidePlain rig;
  EXPECT_EQ(rig.charge(rig.plain, kGiB / 2).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  rig.a.shim.say(abi::kAbsent, abi::kSwapNoHostRoom);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.may_have(rig.a), kGiB);
  EXPECT_EQ(rig.charge(rig.plain, kGiB / 2).verdict, wire::kGpuFull);
}

TEST(Oversubscription, WhoCannotBeServedKeepsNobodyFromTheGpu) {
  BesidePlain rig;
  EXPECT_EQ(rig.charge(rig.plain, kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  rig.is_absent(rig.a);
  ASSERT_TRUE(rig.allocate(rig.plain, kGiB));
  // a wants 3 GiB of the 4, of which plain has one: it fits in nobody's absence but plain's.
  rig.listed(rig.plain) += kGiB / 4;  // its context
  rig.live(seconds(60), {&rig.b});
  EXPECT_FALSE(rig.b.shim.told_to_leave());
  rig.dies(rig.plain);
  rig.b_leaves_in_its_turn();
}

TEST(Oversubscription, WhoWaitsForItsQuotaWantsNobodysTurn) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 2 * kGiB));
  Ask wanted;
  wanted.memory = "1GiB";
  wanted.on_oom = "wait";
  const Joined b = rig.oversubscriber("b", wanted);
  ASSERT_TRUE(rig.gets(b, kGiB / 2));
  for (int ask = 0; ask < 50; ++ask) {
    rig.charge(b, kGiB);
    rig.live(milliseconds(100), {&a});
  }
  EXPECT_FALSE(a.shim.told_to_leave());
}

TEST(Oversubscription, WhatNeverFitsIsRefusedAlsoWhenSomethingIsKept) {
  BesidePlain rig;
  EXPECT_EQ(rig.charge(rig.plain, 2 * kGiB).verdict, wire::kGpuFull);
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.may_have(rig.a), kGiB);
}

TEST(Oversubscription, WhoDoesNotGiveWhatItKeptIsNotWaitedForForEver) {
  BesidePlain rig;
  std::uint32_t said = wire::kWait;
  for (int ask = 0; ask < 700 && said == wire::kWait; ++ask) {
    said = rig.charge(rig.plain, kGiB / 2).verdict;
    rig.pass(milliseconds(100));
  }
  EXPECT_EQ(said, wire::kGpuFull);
  EXPECT_EQ(rig.may_have(rig.a), kGiB);
}

TEST(Oversubscription, WhatNeverFitsIsRefusedAsEver) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  const Joined b = rig.oversubscriber("b");
  EXPECT_EQ(rig.charge(b, 5 * kGiB).verdict, wire::kGpuFull);
  ASSERT_TRUE(rig.gets(b, kGiB / 2));
  EXPECT_EQ(rig.charge(b, 4 * kGiB).verdict, wire::kGpuFull) << "with what it has";
  const Joined plain = rig.runs({.name = "p"});
  EXPECT_EQ(rig.charge(plain, kGiB).verdict, wire::kGpuFull) << "it takes no turns";
  ASSERT_TRUE(rig.allocate(plain, kGiB / 4));
  EXPECT_EQ(rig.charge(b, 3 * kGiB + 7 * kGiB / 16).verdict, wire::kGpuFull)
      << "plain's never leaves";
  const Joined c = rig.oversubscriber("c", {.memory = "128MiB"});
  EXPECT_EQ(rig.charge(c, kGiB).verdict, wire::kOverQuota);
  rig.pass(seconds(1));
  EXPECT_FALSE(a.shim.told_to_leave());
}

TEST(Oversubscription, WhatIsStillBeingMadeMayLeaveSoon) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.allocate(a, 3 * kGiB));  // and the driver makes it
  const Joined b = rig.oversubscriber("b");
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  a.shim.swappable(3 * kGiB);
  rig.pass(milliseconds(100));
  for (int ask = 0; ask < 15; ++ask) {
    EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
    rig.pass(milliseconds(100));
  }
}

TEST(Oversubscription, WhatNeverMovesIsNoRoomInTheEnd) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.allocate(a, 3 * kGiB));  // exported, say
  const Joined b = rig.oversubscriber("b");
  wire::Verdict said = wire::kWait;
  for (int ask = 0; ask < 15 && said == wire::kWait; ++ask) {
    said = static_cast<wire::Verdict>(rig.charge(b, 3 * kGiB).verdict);
    rig.pass(milliseconds(100));
  }
  EXPECT_EQ(said, wire::kGpuFull);
}

TEST(Oversubscription, WhatCouldNotLeaveIsNoRoomForAWhile) {
  BesideAnIdleJob rig;
  EXPECT_EQ(rig.charge(rig.b, 3 * kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  rig.a.shim.leave(3 * kGiB);
  rig.pass(milliseconds(50));
  rig.a.shim.be_resident(abi::kSwapNoHostRoom);
  rig.pass(milliseconds(50));
  EXPECT_FALSE(rig.a.shim.told_to_leave());
  EXPECT_EQ(rig.charge(rig.b, 3 * kGiB).verdict, wire::kGpuFull);
  rig.live(seconds(11));
  EXPECT_FALSE(rig.a.shim.told_to_leave()) << "nobody asks any more";
  EXPECT_EQ(rig.charge(rig.b, 3 * kGiB).verdict, wire::kWait);
}

// b has waited since before a could not leave, but a could later.
TEST(Oversubscription, WhatHasLeftSinceIsRoomAgain) {
  BesideAnIdleJob rig;
  ASSERT_TRUE(rig.gets(rig.b, kGiB));
  const auto waits = [&](Time span) {
    for (Time end = rig.now + span; rig.now < end;) {
      EXPECT_EQ(rig.charge(rig.b, 2 * kGiB).verdict, wire::kWait);
      rig.pass(milliseconds(50));
    }
  };
  waits(milliseconds(100));
  ASSERT_TRUE(rig.a.shim.told_to_leave());
  rig.tell("swap-out", "b");
  rig.a.shim.be_resident(abi::kSwapNoHostRoom);
  rig.is_absent(rig.b);
  waits(seconds(11));
  rig.tell("swap-out", "a");
  rig.is_absent(rig.a);
  for (const char* name : {"a", "b"}) rig.tell("swap-in", name);
  rig.is_back(rig.a);
  rig.is_back(rig.b);
  waits(seconds(1));
  EXPECT_TRUE(rig.a.shim.told_to_leave());
}

// Each attempt may take as long as accepted work does: longer than any back-off.
TEST(Oversubscription, WhoWaitsAsksEachOfTheOthersOnce) {
  Crowd rig;
  std::vector<Joined> others;
  for (const char* name : {"a", "b", "c", "d"}) {
    others.push_back(rig.oversubscriber(name));
    ASSERT_TRUE(rig.gets(others.back(), kGiB));
  }
  rig.live(seconds(10));
  const Joined late = rig.oversubscriber("e");
  unsigned asked = 0;
  std::uint32_t said = wire::kWait;
  for (Time end = rig.now + seconds(300); said == wire::kWait && rig.now < end;) {
    said = rig.charge(late, kGiB).verdict;
    rig.pass(milliseconds(50));
    for (const Joined& each : others) {
      if (!each.shim.told_to_leave()) continue;
      ++asked;
      each.shim.leave(kGiB);
      for (Time drains = rig.now + seconds(15); rig.now < drains;) {
        rig.charge(late, kGiB);
        rig.pass(milliseconds(500));
      }
      each.shim.be_resident(abi::kSwapBusy);
      rig.pass(milliseconds(50));
    }
  }
  EXPECT_EQ(said, wire::kGpuFull);
  EXPECT_EQ(asked, 4u);
}

// a could leave, but b could not for it: a would wait until b has ended.
TEST(Oversubscription, NobodyGivesWhatItCouldNotGetBack) {
  BesideAnIdleJob rig(2 * kGiB);
  EXPECT_EQ(rig.charge(rig.b, 3 * kGiB).verdict, wire::kGpuFull);
  rig.pass(milliseconds(50));
  EXPECT_FALSE(rig.a.shim.told_to_leave());
}

TEST(Oversubscription, ARefusalSaysWhetherTheHostPoolLacks) {
  const LogLines log;
  BesideAnIdleJob rig(2 * kGiB);
  const wire::Charged past_gpu = rig.charge(rig.b, 5 * kGiB);
  EXPECT_EQ(past_gpu.verdict, wire::kGpuFull);
  EXPECT_EQ(past_gpu.lacks, wire::kDeviceLacks);
  EXPECT_EQ(log.count("--host-pool"), 0u);
  const wire::Charged past_pool = rig.charge(rig.b, 3 * kGiB);
  EXPECT_EQ(past_pool.verdict, wire::kGpuFull);
  EXPECT_EQ(past_pool.lacks, wire::kHostPoolLacks);
  EXPECT_EQ(log.count("job 'b' does not get 3.00 GiB: the host pool of 2.00 GiB is too small"), 1u);
  const wire::Charged fits = rig.charge(rig.b, 2 * kGiB);
  EXPECT_EQ(fits.verdict, wire::kWait);
  EXPECT_EQ(fits.lacks, wire::kDeviceLacks);
}

TEST(Oversubscription, AJobThatWaitsHearsOfTheHostPoolOnceAtTheEnd) {
  const LogLines log;
  BesideAnIdleJob rig(2 * kGiB, {.on_oom = "wait", .oom_timeout = "5s"});
  wire::Charged said = rig.charge(rig.b, 3 * kGiB);
  ASSERT_EQ(said.verdict, wire::kWait) << "a may end";
  for (int i = 0; i < 100 && said.verdict == wire::kWait; ++i) {
    EXPECT_EQ(log.count("host pool"), 0u);
    rig.pass(milliseconds(100));
    said = rig.charge(rig.b, 3 * kGiB);
  }
  EXPECT_EQ(said.verdict, wire::kWaitsInVain);
  EXPECT_EQ(said.lacks, wire::kHostPoolLacks);
  EXPECT_EQ(log.count("host pool"), 1u);
}

// Together both lack 2 GiB, whichever of them is there.
TEST(Oversubscription, AHostPoolThatHoldsWhatIsLackingLetsThemTakeTurns) {
  TwoOfThree rig(1000, 3 * kGiB);
  EXPECT_EQ(rig.may_have(rig.a), kGiB);
  rig.is_absent_and_waits(rig.a);
  EXPECT_TRUE(rig.gets(rig.b, 3 * kGiB));
  EXPECT_EQ(rig.charge(rig.b, kGiB / 2).verdict, wire::kGpuFull) << "a would have no way back";
}

// An idle job may begin to work at any time, and would wait for b's end.
TEST(Oversubscription, AnIdleJobIsNoReasonToLeaveItNoWayBack) {
  BesideAnIdleJob rig(2 * kGiB);
  EXPECT_EQ(rig.charge(rig.b, 3 * kGiB).verdict, wire::kGpuFull);
  EXPECT_EQ(rig.charge(rig.b, 2 * kGiB).verdict, wire::kWait);
}

// Credit comes in chunks of 256 MiB, and may be used unasked.
TEST(Oversubscription, NoMoreIsGrantedUnaskedThanLeavesAWayBack) {
  BesideAnIdleJob rig(3 * kGiB);
  const std::uint64_t all = 3 * kGiB + 184 * kMiB;
  EXPECT_EQ(rig.charge(rig.b, all).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  rig.is_absent(rig.a);
  ASSERT_TRUE(rig.gets(rig.b, all));
  EXPECT_EQ(rig.charge(rig.b, 8 * kMiB).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  rig.is_absent(rig.a);
  EXPECT_GT(rig.account().free(), 16 * kMiB) << "what is only kept goes in larger parts";
  EXPECT_EQ(rig.charge(rig.b, 8 * kMiB).granted_bytes, 8 * kMiB);
}

TEST(Oversubscription, WhatOnlyTheOthersOverheadMakesImpossibleIsRefused) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 2 * kGiB));
  rig.listed(a) += kGiB / 2;  // contexts, modules
  rig.live(seconds(3));
  ASSERT_GE(rig.account().holding(a.id)->overhead, kGiB / 4);
  const Joined b = rig.oversubscriber("b");
  EXPECT_EQ(rig.charge(b, 4 * kGiB - kGiB / 4).verdict, wire::kGpuFull);
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
}

}  // namespace
}  // namespace switchyard::monitor::test
