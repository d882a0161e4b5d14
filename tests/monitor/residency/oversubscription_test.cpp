// Jobs that don't fit together and take turns, over the whole monitor.
#include "monitor/residency/oversubscription.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/monitor/log_lines.h"
#include "tests/monitor/policy/crowd.h"

namespace switchyard::monitor {
namespace {

using namespace test;
using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Oversubscription, WhoAsksForWhatAnotherHoldsWaitsAndGetsIt) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  rig.live(seconds(1), {&a});
  EXPECT_STREQ(a.shim.page().card.swappable, "yes");
  const Joined b = rig.oversubscriber("b");
  EXPECT_FALSE(a.shim.told_to_leave()) << "nobody leaves without need";
  EXPECT_EQ(rig.charge(b, 2 * kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  EXPECT_TRUE(a.shim.told_to_leave());
  EXPECT_EQ(rig.job(1)["waits_for"], "a");
  EXPECT_EQ(rig.job(1)["state"], "waiting");
  EXPECT_EQ(rig.job(1)["state_reason"], "memory of a");
  a.shim.residency().held_threads = 1;
  rig.is_absent(a);
  EXPECT_TRUE(a.shim.told_to_leave()) << "the room is b's, who asks again soon";
  rig.pass(milliseconds(100));
  EXPECT_TRUE(a.shim.told_to_leave());
  EXPECT_TRUE(rig.gets(b, 2 * kGiB));
  EXPECT_EQ(rig.job(0)["residency"], "waiting");
  EXPECT_EQ(rig.job(0)["waits_for"], "b");
}

TEST(Oversubscription, TheyTakeTurnsForAsLongAsTheyWork) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  const Joined b = rig.oversubscriber("b");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  rig.live(seconds(1), {&a});
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  rig.live(milliseconds(50), {&a});
  rig.is_absent(a);
  ASSERT_TRUE(rig.gets(b, 3 * kGiB));
  const Joined* in = &b;
  const Joined* out = &a;
  for (int turn = 0; turn < 6; ++turn) {
    out->shim.residency().held_threads = 1;
    rig.live(milliseconds(100), {in});
    EXPECT_FALSE(in->shim.told_to_leave()) << "its stay has only begun";
    EXPECT_LE(rig.works_until_told(*in), seconds(5)) << "moving took 100 ms: " << turn;
    EXPECT_TRUE(out->shim.told_to_leave()) << "not before it has left";
    in->shim.residency().held_threads = 1;
    rig.is_absent(*in);
    EXPECT_EQ(out->shim.residency().limited, 0u) << "in the same look";
    rig.is_back(*out);
    std::swap(in, out);
  }
}

TEST(Oversubscription, OnlyWhatIsLackingLeaves) {
  TwoOfThree rig;
  ASSERT_TRUE(rig.a.shim.told_to_leave());
  EXPECT_EQ(rig.may_have(rig.a), kGiB);
  rig.b_works();
  EXPECT_EQ(rig.job(0)["residency"], "waiting");
  rig.b_leaves_in_its_turn();
  EXPECT_EQ(rig.may_have(rig.b), kGiB);
}

// One more process of the same job.
Joined process_of_a(Crowd& rig) {
  Ask same_job;
  same_job.job = "j";
  return rig.oversubscriber("a", same_job);
}

TEST(Oversubscription, OfSeveralProcessesOnlyWhatIsLackingLeavesInAll) {
  Crowd rig;
  const Joined one = process_of_a(rig);
  const Joined two = process_of_a(rig);
  ASSERT_TRUE(rig.gets(one, kGiB + kGiB / 2));
  ASSERT_TRUE(rig.gets(two, kGiB + kGiB / 2));
  const Joined b = rig.oversubscriber("b");
  rig.live(seconds(1), {&one, &two});
  for (int i = 0; i < 600 && !one.shim.told_to_leave(); ++i) {
    EXPECT_EQ(rig.charge(b, 2 * kGiB).verdict, wire::kWait);
    rig.live(milliseconds(50), {&one, &two});
  }
  EXPECT_TRUE(one.shim.told_to_leave());
  EXPECT_TRUE(two.shim.told_to_leave());
  EXPECT_EQ(rig.may_have(one) + rig.may_have(two), 2 * kGiB) << "one GiB is lacking";
}

TEST(Oversubscription, OfSeveralProcessesNoMoreComesInAllThanThereIsRoom) {
  Crowd rig;
  const Joined one = process_of_a(rig);
  const Joined two = process_of_a(rig);
  ASSERT_TRUE(rig.gets(one, kGiB + kGiB / 2));
  ASSERT_TRUE(rig.gets(two, kGiB + kGiB / 2));
  const Joined b = rig.oversubscriber("b");
  rig.live(seconds(10));
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  for (const Joined* each : {&one, &two}) {
    rig.is_absent(*each);
    each->shim.residency().held_threads = 1;
  }
  ASSERT_TRUE(rig.gets(b, 3 * kGiB));
  rig.gpus.uses[0][b.client->peer.pid] = 3 * kGiB;
  rig.works_until_told(b);
  b.shim.residency().held_threads = 1;
  b.shim.leave(2 * kGiB);
  rig.gpus.uses[0][b.client->peer.pid] = 2 * kGiB;
  rig.monitor.look(rig.now);
  EXPECT_EQ(rig.may_have(one) + rig.may_have(two), 2 * kGiB) << "one GiB has become free";
}

TEST(Oversubscription, WhomAPersonSwapsOutKeepsNothing) {
  TwoOfThree rig;
  rig.b_works();
  ASSERT_EQ(rig.may_have(rig.a), kGiB);
  EXPECT_EQ(rig.ask({{"op", "swap-out"}, {"target", "a"}})["ok"], true);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.may_have(rig.a), 0u);
  EXPECT_TRUE(rig.a.shim.told_to_leave());
}

TEST(Oversubscription, ItsMemoryComesWhileTheOthersLeaves) {
  TwoOfThree rig;
  rig.b_works();
  rig.live(milliseconds(100), {&rig.b});
  EXPECT_EQ(rig.may_have(rig.a), kGiB) << "nothing comes while b works";
  rig.b_leaves_in_its_turn();
  EXPECT_EQ(rig.may_have(rig.a), kGiB);
  for (const std::uint64_t gone : {kGiB / 4, kGiB, 3 * kGiB / 2}) {
    rig.b.shim.leave(3 * kGiB - gone);
    rig.shows(rig.b);
    EXPECT_EQ(rig.may_have(rig.a), kGiB + gone);
    EXPECT_EQ(rig.a.shim.residency().limited, 1u) << "its work is held until all is there";
    rig.comes_to(rig.a, kGiB + gone);
  }
  rig.is_absent(rig.b);
  EXPECT_EQ(rig.a.shim.residency().limited, 0u);
  rig.is_back(rig.a);
  EXPECT_EQ(rig.job(0)["residency"], "resident");
  EXPECT_EQ(rig.may_have(rig.b), kGiB);
}

TEST(Oversubscription, WhoGaveRoomAndStaysAfterAllGetsItBack) {
  TwoOfThree rig;
  rig.b_works();
  rig.b_leaves_in_its_turn();
  rig.b.shim.leave(2 * kGiB);
  rig.shows(rig.b);
  rig.comes_to(rig.a, 2 * kGiB);
  rig.b.shim.residency().error = abi::kSwapFailed;
  rig.b.shim.residency().phase = abi::kReturning;
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.b.shim.residency().limited, 0u);
  rig.pass(milliseconds(50));
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.may_have(rig.a), kGiB) << "once, however long it takes";
  rig.comes_to(rig.a, kGiB);
  rig.is_back(rig.b);
  EXPECT_EQ(rig.job(1)["residency"], "resident");
}

TEST(Oversubscription, GrowthWithinAStayTakesWhatTheOtherHasKept) {
  TwoOfThree rig;
  rig.b_works();
  rig.live(milliseconds(50), {&rig.b});
  EXPECT_EQ(rig.charge(rig.b, kGiB / 2).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.may_have(rig.a), kGiB / 2);
  EXPECT_FALSE(rig.b.shim.told_to_leave());
  rig.is_absent(rig.a);
  EXPECT_TRUE(rig.gets(rig.b, kGiB / 2));
}

TEST(Oversubscription, WhoGivesOfWhatItHasKeptStillWaitsForItsTurn) {
  TwoOfThree rig;
  rig.b_works();
  rig.live(milliseconds(50), {&rig.b});
  ASSERT_EQ(rig.job(0)["residency"], "waiting");
  rig.a.shim.residency().held_threads = 0;  // it has said once that it wants to work
  EXPECT_EQ(rig.charge(rig.b, kGiB / 2).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.may_have(rig.a), kGiB / 2);
  rig.is_absent(rig.a);
  EXPECT_EQ(rig.job(0)["residency"], "waiting");
}

TEST(Oversubscription, WhatIsKeptIsAnybodysWhoNeedsIt) {
  TwoOfThree rig;
  rig.b_works();
  const Joined plain = rig.runs({});
  EXPECT_EQ(rig.charge(plain, kGiB / 2).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.may_have(rig.a), kGiB / 2);
  rig.is_absent(rig.a);
  EXPECT_TRUE(rig.allocate(plain, kGiB / 2));
  EXPECT_EQ(rig.charge(plain, kGiB / 2).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  rig.is_absent(rig.a);
  EXPECT_TRUE(rig.allocate(plain, kGiB / 2));
  EXPECT_EQ(rig.charge(plain, 1).verdict, wire::kGpuFull) << "the rest is b's, who works";
  EXPECT_FALSE(rig.b.shim.told_to_leave());
}

TEST(Oversubscription, WhatWasKeptAndCannotLeaveIsLeftAlone) {
  TwoOfThree rig;
  rig.b_works();
  const Joined plain = rig.runs({});
  EXPECT_EQ(rig.charge(plain, kGiB / 2).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  rig.a.shim.say(abi::kAbsent, abi::kSwapNoHostRoom);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.may_have(rig.a), kGiB);
  EXPECT_EQ(rig.charge(plain, kGiB / 2).verdict, wire::kGpuFull);
}

TEST(Oversubscription, WhoCannotBeServedKeepsNobodyFromTheGpu) {
  TwoOfThree rig;
  rig.b_works();
  const Joined plain = rig.runs({});
  EXPECT_EQ(rig.charge(plain, kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  rig.is_absent(rig.a);
  ASSERT_TRUE(rig.allocate(plain, kGiB));
  // a wants 3 GiB of the 4, of which plain has one: it fits in nobody's absence but plain's.
  rig.gpus.uses[0][plain.client->peer.pid] += kGiB / 4;  // its context
  rig.live(seconds(60), {&rig.b});
  EXPECT_FALSE(rig.b.shim.told_to_leave());
  rig.gpus.uses[0].erase(plain.client->peer.pid);
  rig.monitor.died(plain.id);
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
  TwoOfThree rig;
  rig.b_works();
  const Joined plain = rig.runs({});
  EXPECT_EQ(rig.charge(plain, 2 * kGiB).verdict, wire::kGpuFull);
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.may_have(rig.a), kGiB);
}

TEST(Oversubscription, WhoDoesNotGiveWhatItKeptIsNotWaitedForForEver) {
  TwoOfThree rig;
  rig.b_works();
  const Joined plain = rig.runs({});
  std::uint32_t said = wire::kWait;
  for (int ask = 0; ask < 700 && said == wire::kWait; ++ask) {
    said = rig.charge(plain, kGiB / 2).verdict;
    rig.pass(milliseconds(100));
  }
  EXPECT_EQ(said, wire::kGpuFull);
  EXPECT_EQ(rig.may_have(rig.a), kGiB);
}

TEST(Oversubscription, OneThatIsWantedBackWhileItLeavesStillStandsInLine) {
  Crowd rig;
  Ask idles;
  idles.idle_release = "1s";
  const Joined a = rig.oversubscriber("a", idles);
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  while (!a.shim.told_to_leave() && rig.now < seconds(1 << 20)) rig.live(milliseconds(200));
  const Joined b = rig.oversubscriber("b");
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  a.shim.leave(2 * kGiB);
  a.shim.residency().held_threads = 1;
  rig.shows(a);
  rig.is_absent(a);
  ASSERT_TRUE(rig.gets(b, 3 * kGiB));
  rig.gpus.uses[0][b.client->peer.pid] = 3 * kGiB;
  const Time end = rig.now + seconds(30);
  while (!b.shim.told_to_leave() && rig.now < end) rig.live(milliseconds(50), {&b});
  EXPECT_TRUE(b.shim.told_to_leave());
  rig.is_absent(b);
  EXPECT_EQ(a.shim.residency().limited, 0u);
}

// Slow because the host's memory for it had to be pinned first, which happens once.
TEST(Oversubscription, AMoveThatPinnedMemoryIsNoMeasureOfTheNext) {
  TwoOfThree rig;
  rig.b_works();
  rig.b_leaves_in_its_turn();
  rig.b.shim.leave(2 * kGiB);
  rig.shows(rig.b);
  rig.b.shim.residency().host_bytes += 2 * kGiB;
  rig.live(seconds(3));
  rig.is_absent(rig.b);
  rig.is_back(rig.a);
  rig.b.shim.residency().held_threads = 1;
  EXPECT_LE(rig.works_until_told(rig.a), seconds(6));
}

TEST(Oversubscription, OfOneClassWhoHasWaitedLongestComesFirst) {
  TwoOfThree rig;
  rig.b_works();
  rig.live(milliseconds(500), {&rig.b});  // a waits already
  const Joined c = rig.oversubscriber("c");
  for (int i = 0; i < 600 && !rig.b.shim.told_to_leave(); ++i) {
    EXPECT_EQ(rig.charge(c, 3 * kGiB).verdict, wire::kWait);
    rig.live(milliseconds(50), {&rig.b});
  }
  ASSERT_TRUE(rig.b.shim.told_to_leave());
  rig.b.shim.residency().held_threads = 1;
  rig.is_absent(rig.b);
  EXPECT_EQ(rig.a.shim.residency().limited, 0u);
  EXPECT_EQ(rig.charge(c, 3 * kGiB).verdict, wire::kWait);
}

TEST(Oversubscription, OfTwoThatAreOutTheOneThatHasWaitedLongerComesFirst) {
  TwoOfThree rig;
  rig.b_works();
  rig.b_leaves_in_its_turn();
  rig.is_absent(rig.b);
  rig.is_back(rig.a);
  rig.live(milliseconds(500), {&rig.a});  // b waits
  const Joined c = rig.oversubscriber("c", {.priority = "high"});
  EXPECT_EQ(rig.charge(c, 3 * kGiB).verdict, wire::kWait);
  rig.live(milliseconds(50), {&rig.a});
  rig.is_absent(rig.b);  // what it has kept goes first
  EXPECT_EQ(rig.charge(c, 3 * kGiB).verdict, wire::kWait);
  rig.live(milliseconds(50), {&rig.a});
  ASSERT_TRUE(rig.a.shim.told_to_leave());
  rig.a.shim.residency().held_threads = 1;
  rig.is_absent(rig.a);
  ASSERT_TRUE(rig.gets(c, 3 * kGiB));
  rig.live(milliseconds(500), {&c});  // a waits, too
  rig.gpus.uses[0].erase(c.client->peer.pid);
  rig.monitor.died(c.id);
  rig.pass(milliseconds(50));
  EXPECT_FALSE(rig.b.shim.told_to_leave());
  EXPECT_TRUE(rig.a.shim.told_to_leave());
}

TEST(Oversubscription, AStayIsAsLongAsItsLastWayInWasSlow) {
  TwoOfThree rig;
  rig.b_works();
  rig.b_leaves_in_its_turn();
  rig.is_absent(rig.b);
  rig.b.shim.residency().held_threads = 1;
  ASSERT_EQ(rig.a.shim.residency().limited, 0u);
  rig.a.shim.residency().phase = abi::kReturning;
  rig.live(seconds(1));
  rig.is_back(rig.a);
  const Time stay = rig.works_until_told(rig.a);
  EXPECT_GE(stay, seconds(15)) << "twenty times as long";
  EXPECT_LE(stay, seconds(30));
}

TEST(Oversubscription, AStayIsAsLongAsItsLastWayOutWasSlow) {
  TwoOfThree rig;
  rig.b_works();
  rig.b_leaves_in_its_turn();
  rig.b.shim.leave(2 * kGiB);
  rig.shows(rig.b);
  rig.live(seconds(1));
  rig.is_absent(rig.b);
  rig.b.shim.residency().held_threads = 1;
  rig.is_back(rig.a);
  rig.works_until_told(rig.a);
  ASSERT_TRUE(rig.a.shim.told_to_leave());
  rig.a.shim.residency().held_threads = 1;
  rig.is_absent(rig.a);
  ASSERT_EQ(rig.b.shim.residency().limited, 0u);
  rig.is_back(rig.b);
  EXPECT_GE(rig.works_until_told(rig.b), seconds(15)) << "twenty times as long";
}

// The first in line may begin to come, and then has to wait for another's turn to end.
TEST(Oversubscription, WaitingBetweenPartsIsNoCostOfMoving) {
  TwoOfThree rig;
  rig.b_works();
  rig.b_leaves_in_its_turn();
  EXPECT_TRUE(rig.may_have(rig.a) >= kGiB);
  rig.b.shim.leave(2 * kGiB);
  rig.shows(rig.b);  // a has begun to come
  rig.b.shim.residency().error = abi::kSwapFailed;
  rig.b.shim.residency().phase = abi::kReturning;
  rig.pass(milliseconds(50));
  rig.comes_to(rig.a, kGiB);
  rig.is_back(rig.b);
  rig.live(seconds(8), {&rig.b});  // it could not leave, so it is left alone
  rig.b_leaves_in_its_turn();
  rig.is_absent(rig.b);
  rig.is_back(rig.a);
  EXPECT_LE(rig.works_until_told(rig.a), seconds(5)) << "its own move took 100 ms";
}

TEST(Oversubscription, OneThatIdlesGivesAtOnceAndStaysOutUntilItWantsIn) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  const Joined b = rig.oversubscriber("b");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  rig.live(seconds(10));
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  ASSERT_TRUE(a.shim.told_to_leave());
  rig.is_absent(a);
  ASSERT_TRUE(rig.gets(b, 3 * kGiB));
  rig.live(seconds(30), {&b});
  EXPECT_FALSE(b.shim.told_to_leave());
  EXPECT_EQ(rig.job(0)["residency"], "swapped");
  rig.gpus.uses[0].erase(b.client->peer.pid);
  rig.monitor.died(b.id);
  rig.live(seconds(3));
  EXPECT_TRUE(a.shim.told_to_leave()) << "not moved without need";
  a.shim.residency().held_threads = 1;
  rig.pass(milliseconds(50));
  EXPECT_EQ(a.shim.residency().limited, 0u);
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
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  const Joined b = rig.oversubscriber("b");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  rig.live(seconds(10));
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  a.shim.leave(3 * kGiB);
  rig.pass(milliseconds(50));
  a.shim.be_resident(abi::kSwapNoHostRoom);
  rig.pass(milliseconds(50));
  EXPECT_FALSE(a.shim.told_to_leave());
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kGpuFull);
  rig.live(seconds(11));
  EXPECT_FALSE(a.shim.told_to_leave()) << "nobody asks any more";
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
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
  Crowd rig(2 * kGiB);
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  rig.live(seconds(10));
  const Joined b = rig.oversubscriber("b");
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kGpuFull);
  rig.pass(milliseconds(50));
  EXPECT_FALSE(a.shim.told_to_leave());
}

TEST(Oversubscription, ARefusalSaysWhetherTheHostPoolLacks) {
  Crowd rig(2 * kGiB);
  const LogLines log;
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  rig.live(seconds(10));
  const Joined b = rig.oversubscriber("b");
  const wire::Charged past_gpu = rig.charge(b, 5 * kGiB);
  EXPECT_EQ(past_gpu.verdict, wire::kGpuFull);
  EXPECT_EQ(past_gpu.lacks, wire::kDeviceLacks);
  EXPECT_EQ(log.count("--host-pool"), 0u);
  const wire::Charged past_pool = rig.charge(b, 3 * kGiB);
  EXPECT_EQ(past_pool.verdict, wire::kGpuFull);
  EXPECT_EQ(past_pool.lacks, wire::kHostPoolLacks);
  EXPECT_EQ(log.count("job 'b' does not get 3.00 GiB: the host pool of 2.00 GiB is too small"), 1u);
  const wire::Charged fits = rig.charge(b, 2 * kGiB);
  EXPECT_EQ(fits.verdict, wire::kWait);
  EXPECT_EQ(fits.lacks, wire::kDeviceLacks);
}

TEST(Oversubscription, AJobThatWaitsHearsOfTheHostPoolOnceAtTheEnd) {
  Crowd rig(2 * kGiB);
  const LogLines log;
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  rig.live(seconds(10));
  const Joined b = rig.oversubscriber("b", {.on_oom = "wait", .oom_timeout = "5s"});
  wire::Charged said = rig.charge(b, 3 * kGiB);
  ASSERT_EQ(said.verdict, wire::kWait) << "a may end";
  for (int i = 0; i < 100 && said.verdict == wire::kWait; ++i) {
    EXPECT_EQ(log.count("host pool"), 0u);
    rig.pass(milliseconds(100));
    said = rig.charge(b, 3 * kGiB);
  }
  EXPECT_EQ(said.verdict, wire::kWaitsInVain);
  EXPECT_EQ(said.lacks, wire::kHostPoolLacks);
  EXPECT_EQ(log.count("host pool"), 1u);
}

// What both lack together is 2 GiB, whoever of them is there.
TEST(Oversubscription, AHostPoolThatHoldsWhatIsLackingLetsThemTakeTurns) {
  Crowd rig(3 * kGiB);
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  rig.live(seconds(1), {&a});
  const Joined b = rig.oversubscriber("b");
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  rig.live(milliseconds(50), {&a});
  EXPECT_EQ(rig.may_have(a), kGiB);
  a.shim.residency().held_threads = 1;
  rig.is_absent(a);
  EXPECT_TRUE(rig.gets(b, 3 * kGiB));
  EXPECT_EQ(rig.charge(b, kGiB / 2).verdict, wire::kGpuFull) << "a would have no way back";
}

// An idle job may begin to work at any time, and would wait for b's end.
TEST(Oversubscription, AnIdleJobIsNoReasonToLeaveItNoWayBack) {
  Crowd rig(2 * kGiB);
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  rig.live(seconds(10));
  const Joined b = rig.oversubscriber("b");
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kGpuFull);
  EXPECT_EQ(rig.charge(b, 2 * kGiB).verdict, wire::kWait);
}

// Credit comes in chunks of 256 MiB, and may be used unasked.
TEST(Oversubscription, NoMoreIsGrantedUnaskedThanLeavesAWayBack) {
  Crowd rig(3 * kGiB);
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  rig.live(seconds(10));
  const Joined b = rig.oversubscriber("b");
  const std::uint64_t all = 3 * kGiB + 184 * kMiB;
  EXPECT_EQ(rig.charge(b, all).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  rig.is_absent(a);
  ASSERT_TRUE(rig.gets(b, all));
  EXPECT_EQ(rig.charge(b, 8 * kMiB).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  rig.is_absent(a);
  EXPECT_GT(rig.account().free(), 16 * kMiB) << "what is only kept goes in larger parts";
  EXPECT_EQ(rig.charge(b, 8 * kMiB).granted_bytes, 8 * kMiB);
}

TEST(Oversubscription, WhatOnlyTheOthersOverheadMakesImpossibleIsRefused) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 2 * kGiB));
  rig.gpus.uses[0][a.client->peer.pid] += kGiB / 2;  // contexts, modules
  rig.live(seconds(3));
  ASSERT_GE(rig.account().holding(a.id)->overhead, kGiB / 4);
  const Joined b = rig.oversubscriber("b");
  EXPECT_EQ(rig.charge(b, 4 * kGiB - kGiB / 4).verdict, wire::kGpuFull);
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
}

TEST(Oversubscription, AHigherClassGetsItAtOnceAndKeepsItWhileItWorks) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a", {.priority = "low"});
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  const Joined b = rig.oversubscriber("b", {.priority = "high"});
  rig.live(milliseconds(50), {&a});
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  rig.live(milliseconds(50), {&a});
  EXPECT_TRUE(a.shim.told_to_leave());
  a.shim.residency().held_threads = 1;
  rig.is_absent(a);
  ASSERT_TRUE(rig.gets(b, 3 * kGiB));
  rig.live(seconds(20), {&b});
  EXPECT_FALSE(b.shim.told_to_leave());
  EXPECT_EQ(rig.job(0)["residency"], "waiting");
  rig.live(seconds(5));
  EXPECT_TRUE(b.shim.told_to_leave()) << "it idles";
}

TEST(Oversubscription, OneThatIsOutGetsNoCreditAndComesBackForIt) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  const Joined b = rig.oversubscriber("b");
  ASSERT_TRUE(rig.gets(a, 2 * kGiB));
  rig.live(seconds(10));
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  rig.is_absent(a);
  ASSERT_TRUE(rig.gets(b, 3 * kGiB));
  EXPECT_EQ(rig.charge(a, kGiB / 2).verdict, wire::kWait) << "it would hold what it can't use";
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.job(0)["residency"], "waiting");
}

TEST(Oversubscription, WhatAPersonWantsHolds) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  rig.ask({{"op", "swap-out"}, {"target", "a"}});
  rig.is_absent(a);
  a.shim.residency().held_threads = 1;
  rig.live(seconds(10));
  EXPECT_TRUE(a.shim.told_to_leave());
  EXPECT_EQ(rig.job(0)["residency"], "swapped");
}

}  // namespace
}  // namespace switchyard::monitor
