// A job of several ranks is held at a cut: the words of its pages, and what people are told.
#include "monitor/residency/gangs.h"

#include <gtest/gtest.h>

#include "monitor/control/commands.h"
#include "switchyard/status.h"
#include "tests/monitor/rig.h"
#include "tests/monitor/stopped_process.h"

namespace switchyard::monitor::test {
namespace {

constexpr std::uint64_t kId = 77;

class Gangs : public ::testing::Test {
 protected:
  Gangs() {
    place(first, 0);
    place(second, 1);
  }
  static void place(const Joined& who, std::uint32_t rank, std::uint32_t ranks = 2) {
    who.shim.joins_communicator(kId, rank, ranks);
  }
  static abi::Communicator& slot(const Joined& who) { return who.shim.page().communicators[0]; }
  static void count(const Joined& who, std::uint64_t launched) { slot(who).launched = launched; }
  static std::uint32_t asked(const Joined& who) { return who.shim.page().process.cut; }
  static std::uint32_t target(const Joined& who) { return slot(who).target; }
  bool closed() const {
    return (first.shim.gate().closed & abi::kClosedByPause) != 0 &&
           (second.shim.gate().closed & abi::kClosedByPause) != 0;
  }
  // The answer to a waiting person now; null: to wait on.
  json answer(Awaits awaits = Awaits::kHeld) {
    const JobKey key = rig.monitor.registry().jobs().begin()->first;
    const auto text = answer_awaited(rig.monitor, awaits, key, rig.now, false);
    return text ? json::parse(*text) : json();
  }

  // Its memory leaves, and not because of a pause.
  void yields() {
    Job& job = rig.monitor.registry().jobs().begin()->second;
    job.memory.take({.event = residency::Event::kWantedOut, .reasons = residency::Reason::kYield},
                    rig.now);
  }

  Rig rig{2};
  Ask x{.job = "x", .name = "x", .swappable = "yes"};
  Joined first = rig.runs(x), second = rig.runs(x);
};

TEST_F(Gangs, APauseAsksForACutFirst) {
  count(first, 5);
  count(second, 6);
  rig.tell("pause");
  EXPECT_NE(asked(first), 0u);
  EXPECT_EQ(target(first), 6u);
  EXPECT_EQ(target(second), 6u);
  EXPECT_FALSE(closed());
  EXPECT_TRUE(answer().is_null());
  rig.pass(milliseconds(2));
  EXPECT_FALSE(closed()) << "rank 0 is behind";
  count(first, 6);
  rig.pass(milliseconds(2));
  rig.pass(milliseconds(2));
  EXPECT_TRUE(closed());
  rig.pass(milliseconds(2));
  EXPECT_EQ(asked(first), 0u) << "it is held by its gates";
  EXPECT_EQ(asked(second), 0u);
  EXPECT_EQ(answer()["state"], "paused");
  EXPECT_EQ(rig.job()["pause_best_effort"], false);
}

TEST_F(Gangs, ARaisedTargetIsAnotherNumber) {
  count(first, 5);
  count(second, 5);
  rig.tell("pause");
  const std::uint32_t before = asked(first);
  count(second, 6);
  rig.pass(milliseconds(2));
  EXPECT_NE(asked(first), before);
  EXPECT_EQ(target(first), 6u);
}

TEST_F(Gangs, WhoIsInALaunchIsAwaited) {
  rig.tell("pause");
  second.shim.page().process.entered = 1;
  rig.pass(milliseconds(2));
  rig.pass(milliseconds(2));
  EXPECT_FALSE(closed());
  second.shim.page().process.left = 1;
  rig.pass(milliseconds(2));
  rig.pass(milliseconds(2));
  EXPECT_TRUE(closed());
}

// Whichever rank it is, and a second at most.
TEST_F(Gangs, WhatAnyRankHasQueuedIsAwaitedAtTheCut) {
  rig.ask({{"op", "set"}, {"target", "x"}, {"limit", "50%"}});  // so that their work is numbered
  for (const Joined* each : {&first, &second}) each->shim.ready_gate();
  const auto pauses = [&](const Joined& busy) {
    rig.pass(milliseconds(5));
    ASSERT_TRUE(busy.shim.armed());
    busy.shim.submit();
    rig.tell("pause");
    for (int i = 0; i < 5; ++i) rig.pass(milliseconds(2));
    EXPECT_FALSE(closed());
  };
  for (const Joined* busy : {&first, &second}) {
    pauses(*busy);
    busy->shim.complete();
    for (int i = 0; i < 2; ++i) rig.pass(milliseconds(2));
    EXPECT_TRUE(closed());
    rig.tell("resume");
  }
  pauses(first);
  rig.pass(seconds(1));
  EXPECT_TRUE(closed());
}

TEST_F(Gangs, ARankThatDoesNotComeIsNamedAndAllGoOn) {
  count(second, 3);
  rig.tell("pause");
  rig.pass(cut::kComesWithin);
  EXPECT_EQ(asked(first), 0u);
  EXPECT_FALSE(closed());
  const json said = answer();
  EXPECT_EQ(said["code"], kTimedOut);
  const std::string text = said["error"];
  EXPECT_NE(text.find("rank 0 "), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(first.client->peer.pid)), std::string::npos) << text;
  EXPECT_NE(text.find("3 collectives"), std::string::npos) << text;
  EXPECT_NE(rig.job()["state"], "paused");
}

// It would not come within any time, so that it took too long is no answer.
TEST_F(Gangs, ARankThatIsStoppedIsNoTimeOut) {
  const StoppedProcess process;
  rig.dies(second);
  rig.next_pid = process.pid();
  const Joined stopped = rig.runs(x);
  place(stopped, 1);
  count(first, 3);
  rig.pass(milliseconds(200));
  rig.tell("pause");
  for (int i = 0; i < 4 && answer().is_null(); ++i) rig.pass(milliseconds(200));
  EXPECT_EQ(answer()["code"], kRefusedByPolicy) << answer();
}

TEST_F(Gangs, ARankThatDiesEndsIt) {
  count(second, 3);
  rig.tell("swap-out");
  rig.dies(first);
  rig.pass(milliseconds(2));
  const json said = answer(Awaits::kOut);
  EXPECT_EQ(said["code"], kRefusedByPolicy);
  EXPECT_NE(said.dump().find("ranks could not be stopped together"), std::string::npos) << said;
  EXPECT_EQ(asked(second), 0u);
}

TEST_F(Gangs, ResumingEndsIt) {
  count(second, 3);
  rig.tell("pause");
  EXPECT_EQ(rig.tell("resume")["was_paused"], true) << "it was on its way into its pause";
  EXPECT_EQ(asked(first), 0u);
  rig.pass(cut::kComesWithin);
  EXPECT_FALSE(closed());
  EXPECT_NE(answer(Awaits::kDrained)["state"], "paused");
}

TEST_F(Gangs, TheEndOfAnEarlierPauseIsNoneOfTheNext) {
  const auto pause = [&](json request) {
    request.update({{"op", "pause"}, {"target", "x"}});
    rig.ask(request);
    for (int i = 0; i < 4; ++i) rig.pass(milliseconds(2));
    ASSERT_TRUE(closed());
  };
  pause({{"timeout_seconds", "2s"}});
  rig.pass(seconds(3));
  ASSERT_FALSE(closed()) << "it is over";
  pause({});
  EXPECT_TRUE(rig.job()["pause_seconds"].is_null());
  rig.pass(seconds(3));
  EXPECT_TRUE(closed());
}

TEST_F(Gangs, APauseThatEndsWhileItsCutIsKeptEndsThat) {
  for (const Joined* each : {&first, &second}) each->shim.swappable(64 * kMiB);
  rig.ask({{"op", "pause"}, {"target", "x"}, {"timeout_seconds", 2}});
  for (int i = 0; i < 5 && !closed(); ++i) rig.pass(milliseconds(2));
  yields();
  rig.pass(seconds(1));
  ASSERT_NE(asked(first), 0u);
  rig.pass(seconds(2));
  EXPECT_EQ(asked(first), 0u);
  EXPECT_EQ(asked(second), 0u);
}

TEST_F(Gangs, MemoryLeavesAtACutThatIsKeptUntilAllHasLeft) {
  first.shim.swappable(64 * kMiB);
  second.shim.swappable(64 * kMiB);
  rig.tell("swap-out");
  EXPECT_NE(asked(first), 0u);
  EXPECT_FALSE(first.shim.told_to_leave());
  rig.pass(milliseconds(2));
  rig.pass(milliseconds(2));
  EXPECT_TRUE(first.shim.told_to_leave());
  EXPECT_TRUE(second.shim.told_to_leave());
  first.shim.be_absent();
  rig.pass(milliseconds(2));
  EXPECT_NE(asked(first), 0u) << "its peer still waits for what was launched";
  second.shim.be_absent();
  rig.pass(milliseconds(2));
  rig.pass(milliseconds(2));
  EXPECT_EQ(asked(first), 0u);
  EXPECT_EQ(answer(Awaits::kOut)["residency"], "swapped");
}

// Its ranks are awaited when the second comes.
TEST_F(Gangs, ASecondCommandAddsToTheFirst) {
  first.shim.swappable(64 * kMiB);
  second.shim.swappable(64 * kMiB);
  for (const auto& [one, other] :
       {std::pair("pause", "swap-out"), std::pair("swap-out", "pause")}) {
    rig.tell(one);
    rig.tell(other);
    for (int i = 0; i < 4; ++i) rig.pass(milliseconds(2));
    EXPECT_TRUE(rig.monitor.registry().jobs().begin()->second.pause->on) << one;
    EXPECT_TRUE(first.shim.told_to_leave()) << one;
    for (const Joined* each : {&first, &second}) each->shim.be_absent();
    for (int i = 0; i < 4; ++i) rig.pass(milliseconds(2));
    rig.tell("swap-in");
    EXPECT_TRUE(closed()) << "it is paused";
    rig.tell("resume");
    for (const Joined* each : {&first, &second}) each->shim.be_resident();
    rig.pass(seconds(1));
    EXPECT_FALSE(closed());
    EXPECT_FALSE(first.shim.told_to_leave());
  }
}

TEST_F(Gangs, APauseThatIsOnItsWayOutlivesASwapIn) {
  for (const char* before : {"pause", "swap-out"}) {
    rig.tell(before);
    rig.tell("pause");
    rig.tell("swap-in");
    for (int i = 0; i < 4; ++i) rig.pass(milliseconds(2));
    EXPECT_TRUE(closed()) << before;
    EXPECT_FALSE(first.shim.told_to_leave()) << before;
    rig.tell("resume");
    rig.pass(seconds(1));
  }
}

// One that knows of no pause by then would go on without a monitor, and the others would not.
TEST_F(Gangs, AllKnowOfThePauseBeforeTheFirstOneLeaves) {
  for (const Joined* each : {&first, &second}) each->shim.swappable(64 * kMiB);
  rig.ask({{"op", "pause"}, {"target", "x"}, {"release", true}});
  bool closed_first = false;
  for (int i = 0; i < 10 && !first.shim.told_to_leave(); ++i) {
    rig.pass(milliseconds(2));
    const bool told = first.shim.told_to_leave() || second.shim.told_to_leave();
    closed_first = closed_first || (closed() && !told);
  }
  EXPECT_TRUE(first.shim.told_to_leave());
  EXPECT_TRUE(second.shim.told_to_leave());
  EXPECT_TRUE(closed_first);
  EXPECT_NE(asked(first), 0u) << "it is open again, because its memory leaves";
  first.shim.be_absent();
  second.shim.be_absent();
  rig.pass(milliseconds(2));
  rig.pass(milliseconds(2));
  EXPECT_EQ(answer(Awaits::kOut)["residency"], "swapped");
  EXPECT_EQ(rig.job()["pause_best_effort"], false);
}

TEST_F(Gangs, OfWhichARankIsElsewhereNoMemoryLeavesAndAPauseIsBestEffort) {
  place(second, 1, 3);
  place(first, 0, 3);
  first.shim.swappable(64 * kMiB);
  const json said = rig.tell("swap-out");
  EXPECT_EQ(said["code"], kRefusedByPolicy);
  EXPECT_NE(std::string(said["error"]).find("rank 2 "), std::string::npos) << said;
  EXPECT_EQ(rig.tell("pause")["state"], "paused");
  EXPECT_TRUE(closed());
  EXPECT_EQ(rig.job()["pause_best_effort"], true);
}

TEST_F(Gangs, OfWhichSomeCommunicatorsAreNotWatchedNoMemoryLeaves) {
  first.shim.page().process.unwatched = 1;
  first.shim.swappable(64 * kMiB);
  const json said = rig.tell("swap-out");
  EXPECT_EQ(said["code"], kRefusedByPolicy);
  EXPECT_NE(std::string(said["error"]).find("more than 1024"), std::string::npos) << said;
}

// The driver can't take what ranks share through NCCL.
TEST_F(Gangs, ContextsOfRanksStay) {
  for (const Joined* each : {&first, &second}) {
    each->shim.swappable(64 * kMiB);
    each->shim.open_context();
    each->shim.memory().contexts = abi::kContextsMayLeave;
  }
  const json said =
      rig.ask({{"op", "pause"}, {"target", "x"}, {"release", true}, {"contexts", true}});
  EXPECT_EQ(said["code"], kRefusedByPolicy);
  EXPECT_NE(std::string(said["error"]).find("NCCL"), std::string::npos) << said;
  EXPECT_FALSE(closed());
}

TEST_F(Gangs, AJobOfRanksThatAreAloneIsHeldAtOnce) {
  place(first, 0, 1);
  slot(second).use = 0;
  EXPECT_EQ(rig.tell("pause")["state"], "paused");
  EXPECT_TRUE(closed());
}

TEST_F(Gangs, GatesAreOpenUntilAllRanksAreThere) {
  place(second, 1, 3);
  place(first, 0, 3);
  rig.tell("pause");
  ASSERT_TRUE(closed()) << "best effort: a rank may be behind";
  place(second, 1);
  place(first, 0);
  count(second, 1);
  first.shim.swappable(64 * kMiB);
  rig.tell("swap-out");
  EXPECT_FALSE(closed());
}

TEST_F(Gangs, ACutIsKeptWhileMemoryLeavesForAnotherReason) {
  for (const Joined* each : {&first, &second}) each->shim.swappable(64 * kMiB);
  rig.tell("pause");
  for (int i = 0; i < 5 && !closed(); ++i) rig.pass(milliseconds(2));
  ASSERT_TRUE(closed());
  ASSERT_NE(asked(first), 0u);
  yields();
  for (int i = 0; i < 5; ++i) rig.pass(milliseconds(2));
  EXPECT_NE(asked(first), 0u) << "what was launched has to end";
  for (const Joined* each : {&first, &second}) each->shim.be_absent();
  for (int i = 0; i < 5; ++i) rig.pass(milliseconds(2));
  EXPECT_TRUE(closed());
  EXPECT_EQ(asked(first), 0u);
}

TEST_F(Gangs, AfterOneThatFailedTheNextPauseHasAnAnswerOfItsOwn) {
  count(second, 3);
  rig.tell("pause");
  rig.dies(first);
  rig.pass(milliseconds(2));
  ASSERT_EQ(answer()["code"], kRefusedByPolicy);
  const json said = rig.tell("pause");
  EXPECT_EQ(said["ok"], true) << said;
  EXPECT_EQ(said["state"], "paused") << said;
}

}  // namespace
}  // namespace switchyard::monitor::test
