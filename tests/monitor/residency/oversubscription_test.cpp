// Jobs that don't fit together and take turns, over the whole monitor.
#include "monitor/residency/oversubscription.h"

#include <gtest/gtest.h>

#include <utility>

#include "monitor/control/commands.h"
#include "tests/monitor/residency/crowd.h"

namespace switchyard::monitor::test {
namespace {

TEST(Oversubscription, WhoAsksForWhatAnotherHoldsWaitsAndGetsIt) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  ASSERT_TRUE(rig.gets(a, 3 * kGiB));
  rig.live(seconds(1), {&a});
  EXPECT_STREQ(a.shim.card().swappable, "yes");
  const Joined b = rig.oversubscriber("b");
  EXPECT_FALSE(a.shim.told_to_leave()) << "nobody leaves without need";
  EXPECT_EQ(rig.charge(b, 2 * kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  EXPECT_TRUE(a.shim.told_to_leave());
  EXPECT_EQ(rig.job(1)["waits_for"], "a");
  EXPECT_EQ(rig.job(1)["state"], "waiting");
  EXPECT_EQ(rig.job(1)["state_reason"], "memory of a");
  rig.is_absent_and_waits(a);
  EXPECT_TRUE(a.shim.told_to_leave()) << "the room is b's, who asks again soon";
  rig.pass(milliseconds(100));
  EXPECT_TRUE(a.shim.told_to_leave());
  EXPECT_TRUE(rig.gets(b, 2 * kGiB));
  EXPECT_EQ(rig.job(0)["residency"], "waiting");
  EXPECT_EQ(rig.job(0)["waits_for"], "b");
}

TEST(Oversubscription, TheyTakeTurnsForAsLongAsTheyWork) {
  TwoOfThree rig;
  rig.is_absent(rig.a);
  ASSERT_TRUE(rig.gets(rig.b, 3 * kGiB));
  const Joined* in = &rig.b;
  const Joined* out = &rig.a;
  for (int turn = 0; turn < 6; ++turn) {
    out->shim.residency().held_threads = 1;
    rig.live(milliseconds(100), {in});
    EXPECT_FALSE(in->shim.told_to_leave()) << "its stay has only begun";
    EXPECT_LE(rig.works_until_told(*in), seconds(5)) << "moving took 100 ms: " << turn;
    EXPECT_TRUE(out->shim.told_to_leave()) << "not before it has left";
    rig.is_absent_and_waits(*in);
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

// Two processes of a have 3 GiB of 4. b has none yet.
struct TwoProcesses : Crowd {
  Joined one = oversubscriber("a", {.job = "j"});
  Joined two = oversubscriber("a", {.job = "j"});
  Joined b = oversubscriber("b");
  TwoProcesses() {
    EXPECT_TRUE(gets(one, kGiB + kGiB / 2));
    EXPECT_TRUE(gets(two, kGiB + kGiB / 2));
  }
};

TEST(Oversubscription, OfSeveralProcessesOnlyWhatIsLackingLeavesInAll) {
  TwoProcesses rig;
  rig.live(seconds(1), {&rig.one, &rig.two});
  for (int i = 0; i < 600 && !rig.one.shim.told_to_leave(); ++i) {
    EXPECT_EQ(rig.charge(rig.b, 2 * kGiB).verdict, wire::kWait);
    rig.live(milliseconds(50), {&rig.one, &rig.two});
  }
  EXPECT_TRUE(rig.one.shim.told_to_leave());
  EXPECT_TRUE(rig.two.shim.told_to_leave());
  EXPECT_EQ(rig.may_have(rig.one) + rig.may_have(rig.two), 2 * kGiB) << "one GiB is lacking";
}

TEST(Oversubscription, OfSeveralProcessesNoMoreComesInAllThanThereIsRoom) {
  TwoProcesses rig;
  rig.live(seconds(10));
  EXPECT_EQ(rig.charge(rig.b, 3 * kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  for (const Joined* each : {&rig.one, &rig.two}) {
    rig.is_absent(*each);
    each->shim.residency().held_threads = 1;
  }
  ASSERT_TRUE(rig.gets(rig.b, 3 * kGiB));
  rig.works_until_told(rig.b);
  rig.b.shim.residency().held_threads = 1;
  rig.b.shim.leave(2 * kGiB);
  rig.listed(rig.b) = 2 * kGiB;
  rig.monitor.look(rig.now);
  EXPECT_EQ(rig.may_have(rig.one) + rig.may_have(rig.two), 2 * kGiB) << "one GiB has become free";
}

// Two jobs ask in one look, one on each of a's GPUs.
TEST(Oversubscription, OnEachOfItsGpusOnlyWhatIsLackingLeaves) {
  Crowd rig(64 * kGiB, 2);
  const Joined a = rig.join({.name = "a", .oversubscribe = "yes"}, 1000, 2);
  for (const unsigned gpu : {0u, 1u}) {
    a.shim.open_context(gpu);
    a.shim.launch(gpu);
    rig.charge(a, 3 * kGiB, gpu);
    ASSERT_TRUE(a.shim.allocate(3 * kGiB, gpu));
    rig.gpus.uses[gpu][a.client->peer.pid] = 3 * kGiB;
    a.shim.swappable(3 * kGiB, gpu);
  }
  const Joined b = rig.join({.name = "b", .oversubscribe = "yes"}, 1000, 2);
  const Joined c = rig.join({.name = "c", .oversubscribe = "yes"}, 1000, 2);
  rig.live(seconds(10));
  EXPECT_EQ(rig.charge(b, 2 * kGiB, 0).verdict, wire::kWait);
  EXPECT_EQ(rig.charge(c, 2 * kGiB, 1).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  for (const unsigned gpu : {0u, 1u}) {
    EXPECT_TRUE(a.shim.told_to_leave(gpu));
    EXPECT_EQ(a.shim.residency(gpu).limit_bytes, 2 * kGiB) << "one GiB is lacking on GPU " << gpu;
  }
}

TEST(Oversubscription, WhomAPersonSwapsOutKeepsNothing) {
  TurnOfB rig;
  ASSERT_EQ(rig.may_have(rig.a), kGiB);
  EXPECT_EQ(rig.ask({{"op", "swap-out"}, {"target", "a"}})["ok"], true);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.may_have(rig.a), 0u);
  EXPECT_TRUE(rig.a.shim.told_to_leave());
}

TEST(Oversubscription, ItsMemoryComesWhileTheOthersLeaves) {
  TurnOfB rig;
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
  TurnOfB rig;
  rig.b_leaves_in_part();
  rig.comes_to(rig.a, 2 * kGiB);
  rig.b_stays_after_all();
  EXPECT_EQ(rig.b.shim.residency().limited, 0u);
  rig.pass(milliseconds(50));
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.may_have(rig.a), kGiB) << "once, however long it takes";
  rig.comes_to(rig.a, kGiB);
  rig.is_back(rig.b);
  EXPECT_EQ(rig.job(1)["residency"], "resident");
}

TEST(Oversubscription, GrowthWithinAStayTakesWhatTheOtherHasKept) {
  TurnOfB rig;
  rig.live(milliseconds(50), {&rig.b});
  EXPECT_EQ(rig.charge(rig.b, kGiB / 2).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.may_have(rig.a), kGiB / 2);
  EXPECT_FALSE(rig.b.shim.told_to_leave());
  rig.is_absent(rig.a);
  EXPECT_TRUE(rig.gets(rig.b, kGiB / 2));
}

TEST(Oversubscription, WhoGivesOfWhatItHasKeptStillWaitsForItsTurn) {
  TurnOfB rig;
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
  BesidePlain rig;
  EXPECT_EQ(rig.charge(rig.plain, kGiB / 2).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.may_have(rig.a), kGiB / 2);
  rig.is_absent(rig.a);
  EXPECT_TRUE(rig.allocate(rig.plain, kGiB / 2));
  EXPECT_EQ(rig.charge(rig.plain, kGiB / 2).verdict, wire::kWait);
  rig.pass(milliseconds(1));
  rig.is_absent(rig.a);
  EXPECT_TRUE(rig.allocate(rig.plain, kGiB / 2));
  EXPECT_EQ(rig.charge(rig.plain, 1).verdict, wire::kGpuFull) << "the rest is b's, who works";
  EXPECT_FALSE(rig.b.shim.told_to_leave());
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
  const Time end = rig.now + seconds(30);
  while (!b.shim.told_to_leave() && rig.now < end) rig.live(milliseconds(50), {&b});
  EXPECT_TRUE(b.shim.told_to_leave());
  rig.is_absent(b);
  EXPECT_EQ(a.shim.residency().limited, 0u);
}

// Slow because the host's memory for it had to be pinned first, which happens once.
TEST(Oversubscription, AMoveThatPinnedMemoryIsNoMeasureOfTheNext) {
  TurnOfB rig;
  rig.b_leaves_in_part();
  rig.b.shim.residency().host_bytes += 2 * kGiB;
  rig.live(seconds(3));
  rig.is_absent(rig.b);
  rig.is_back(rig.a);
  rig.b.shim.residency().held_threads = 1;
  EXPECT_LE(rig.works_until_told(rig.a), seconds(6));
}

TEST(Oversubscription, OfOneClassWhoHasWaitedLongestComesFirst) {
  TurnOfB rig;
  rig.live(milliseconds(500), {&rig.b});  // a waits already
  const Joined c = rig.oversubscriber("c");
  for (int i = 0; i < 600 && !rig.b.shim.told_to_leave(); ++i) {
    EXPECT_EQ(rig.charge(c, 3 * kGiB).verdict, wire::kWait);
    rig.live(milliseconds(50), {&rig.b});
  }
  ASSERT_TRUE(rig.b.shim.told_to_leave());
  rig.is_absent_and_waits(rig.b);
  EXPECT_EQ(rig.a.shim.residency().limited, 0u);
  EXPECT_EQ(rig.charge(c, 3 * kGiB).verdict, wire::kWait);
}

TEST(Oversubscription, OfTwoThatAreOutTheOneThatHasWaitedLongerComesFirst) {
  TurnOfB rig;
  rig.b_has_left_in_its_turn();
  rig.live(milliseconds(500), {&rig.a});  // b waits
  const Joined c = rig.oversubscriber("c", {.priority = "high"});
  EXPECT_EQ(rig.charge(c, 3 * kGiB).verdict, wire::kWait);
  rig.live(milliseconds(50), {&rig.a});
  rig.is_absent(rig.b);  // what it has kept goes first
  EXPECT_EQ(rig.charge(c, 3 * kGiB).verdict, wire::kWait);
  rig.live(milliseconds(50), {&rig.a});
  ASSERT_TRUE(rig.a.shim.told_to_leave());
  rig.is_absent_and_waits(rig.a);
  ASSERT_TRUE(rig.gets(c, 3 * kGiB));
  rig.live(milliseconds(500), {&c});  // a waits, too
  rig.dies(c);
  rig.pass(milliseconds(50));
  EXPECT_FALSE(rig.b.shim.told_to_leave());
  EXPECT_TRUE(rig.a.shim.told_to_leave());
}

TEST(Oversubscription, AStayIsAsLongAsItsLastWayInWasSlow) {
  TurnOfB rig;
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
  TurnOfB rig;
  rig.b_leaves_in_part();
  rig.live(seconds(1));
  rig.is_absent(rig.b);
  rig.b.shim.residency().held_threads = 1;
  rig.is_back(rig.a);
  rig.works_until_told(rig.a);
  ASSERT_TRUE(rig.a.shim.told_to_leave());
  rig.is_absent_and_waits(rig.a);
  ASSERT_EQ(rig.b.shim.residency().limited, 0u);
  rig.is_back(rig.b);
  EXPECT_GE(rig.works_until_told(rig.b), seconds(15)) << "twenty times as long";
}

// The first in line may begin to come, and then has to wait for another's turn to end.
TEST(Oversubscription, WaitingBetweenPartsIsNoCostOfMoving) {
  TurnOfB rig;
  rig.b_leaves_in_its_turn();
  EXPECT_TRUE(rig.may_have(rig.a) >= kGiB);
  rig.b.shim.leave(2 * kGiB);
  rig.shows(rig.b);  // a has begun to come
  rig.b_stays_after_all();
  rig.comes_to(rig.a, kGiB);
  rig.is_back(rig.b);
  rig.live(seconds(8), {&rig.b});  // it could not leave, so it is left alone
  rig.b_has_left_in_its_turn();
  EXPECT_LE(rig.works_until_told(rig.a), seconds(5)) << "its own move took 100 ms";
}

TEST(Oversubscription, OneThatIdlesGivesAtOnceAndStaysOutUntilItWantsIn) {
  BesideAnIdleJob rig;
  EXPECT_EQ(rig.charge(rig.b, 3 * kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(50));
  ASSERT_TRUE(rig.a.shim.told_to_leave());
  rig.is_absent(rig.a);
  ASSERT_TRUE(rig.gets(rig.b, 3 * kGiB));
  rig.live(seconds(30), {&rig.b});
  EXPECT_FALSE(rig.b.shim.told_to_leave());
  EXPECT_EQ(rig.job(0)["residency"], "swapped");
  rig.dies(rig.b);
  rig.live(seconds(3));
  EXPECT_TRUE(rig.a.shim.told_to_leave()) << "not moved without need";
  rig.a.shim.residency().held_threads = 1;
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.a.shim.residency().limited, 0u);
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
  rig.is_absent_and_waits(a);
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

// A quota below the use refuses new memory alone.
TEST(Oversubscription, WhoIsAboveItsQuotaKeepsItsTurns) {
  TurnOfB rig;
  ASSERT_EQ(rig.ask({{"op", "set"}, {"target", "a"}, {"memory", "1GiB"}})["ok"], true);
  rig.b_has_left_in_its_turn();
  EXPECT_FALSE(rig.a.shim.told_to_leave());
}

TEST(Oversubscription, NobodyLeavesForOneThatIsPaused) {
  TurnOfB rig;
  rig.tell("pause", "a");
  EXPECT_GE(rig.works_until_told(rig.b), seconds(60));
  rig.tell("resume", "a");
  rig.b_has_left_in_its_turn();
  EXPECT_FALSE(rig.a.shim.told_to_leave());
}

// a has kept a part, which a person wants out, too.
TEST(Oversubscription, WhoIsOutAndCannotLeaveFartherSaysSo) {
  TurnOfB rig;
  rig.a.shim.residency().resident_bytes = kGiB;
  rig.shows(rig.a);
  const auto answer = [&] {
    const auto text = answer_awaited(rig.monitor, Awaits::kOut, rig.a.client->job, rig.now, false);
    return text ? json::parse(*text) : json();
  };
  rig.tell("swap-out", "a");
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.may_have(rig.a), 0u);
  EXPECT_TRUE(answer().is_null());
  rig.a.shim.say(abi::kAbsent, abi::kSwapNoHostRoom);
  rig.pass(milliseconds(1));
  const json said = answer();
  EXPECT_EQ(said["ok"], false);
  EXPECT_NE(said.dump().find("the host has no room"), std::string::npos) << said;
}

}  // namespace
}  // namespace switchyard::monitor::test
