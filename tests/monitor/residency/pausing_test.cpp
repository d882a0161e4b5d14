// pause and resume over the whole monitor: jobs of several processes, time-outs, rejoining.
#include "monitor/residency/pausing.h"

#include <gtest/gtest.h>

#include "monitor/control/commands.h"
#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

struct Pausing : testing::Test {
  Rig rig;

  json pause(const std::string& name) { return rig.ask({{"op", "pause"}, {"target", name}}); }
  json pause(const std::string& name, const json& timeout) {
    return rig.ask({{"op", "pause"}, {"target", name}, {"timeout_seconds", timeout}});
  }
  json resume(const std::string& name) { return rig.ask({{"op", "resume"}, {"target", name}}); }
  static bool held(const Joined& who, unsigned lane = 0) {
    return who.shim.gate(lane).closed == abi::kClosedByPause && who.shim.armed(lane);
  }
  static bool open(const Joined& who, unsigned lane = 0) { return who.shim.gate(lane).closed == 0; }
};

TEST_F(Pausing, AJobAloneIsHeldAndGoesOn) {
  const Joined a = rig.runs({.name = "x"});
  const json paused = pause("x");
  EXPECT_EQ(paused["ok"], true) << paused;
  EXPECT_EQ(paused["state"], "paused");
  EXPECT_EQ(paused["pause_seconds"], nullptr);
  EXPECT_EQ(paused["pause_best_effort"], false);
  EXPECT_TRUE(held(a));
  rig.pass(seconds(100));
  EXPECT_TRUE(held(a));
  EXPECT_EQ(rig.job()["state"], "paused");
  EXPECT_EQ(rig.job()["gpus"][0]["gate"], "pause");
  EXPECT_NE(resume("x")["state"], "paused");
  EXPECT_TRUE(open(a));
  rig.pass(seconds(3));
  EXPECT_FALSE(a.shim.armed()) << "alone again, it is left alone";
}

TEST_F(Pausing, AllProcessesOnAllGpusAndNobodyElse) {
  Rig two(2);
  const Joined a = two.join({.job = "j", .name = "x"}, 1000, 2);
  const Joined b = two.join({.job = "j"}, 1000, 2);
  const Joined other = two.join({.name = "y"}, 1000, 2);
  const json reply = two.ask({{"op", "pause"}, {"target", "x"}});
  EXPECT_EQ(reply["pause_best_effort"], true) << "two processes stop each by itself";
  for (const unsigned lane : {0u, 1u}) {
    EXPECT_TRUE(held(a, lane));
    EXPECT_TRUE(held(b, lane));
    EXPECT_TRUE(open(other, lane));
  }
}

TEST_F(Pausing, WhoJoinsAPausedJobIsHeldFromTheStart) {
  const Joined a = rig.runs({.job = "j", .name = "x"});
  pause("x", 60);
  const Joined b = rig.join({.job = "j"});
  EXPECT_TRUE(held(b)) << "before anybody looks again";
  EXPECT_EQ(b.shim.gate().pause_until_ns, a.shim.gate().pause_until_ns);
  EXPECT_NE(b.shim.gate().pause_until_ns, 0u);
  resume("x");
  EXPECT_TRUE(open(b));
}

TEST_F(Pausing, PausingTwiceIsOnePauseAndTheLastTimeCounts) {
  const Joined a = rig.runs({.name = "x"});
  pause("x", 10);
  EXPECT_EQ(pause("x", "60s")["pause_seconds"], 60);
  rig.pass(seconds(11));
  EXPECT_TRUE(held(a));
  EXPECT_EQ(pause("x")["pause_seconds"], nullptr);
  rig.pass(seconds(1000));
  EXPECT_TRUE(held(a));
  EXPECT_TRUE(resume("x")["ok"]);
  EXPECT_TRUE(resume("x")["ok"]) << "resuming what runs is no error";
}

TEST_F(Pausing, ATimeOutEndsItOnTime) {
  const Joined a = rig.runs({.name = "x"});
  const Time start = rig.now;
  pause("x", 60);
  EXPECT_EQ(a.shim.gate().pause_until_ns,
            static_cast<std::uint64_t>((start + seconds(60)).count()));
  const Time again = rig.monitor.look(rig.now);
  EXPECT_NE(again, Time{0});
  EXPECT_LE(again, start + seconds(60)) << "the loop is told when to come";
  rig.now = start + seconds(60) - milliseconds(1);
  rig.monitor.look_at_due(rig.now);
  EXPECT_TRUE(held(a));
  rig.now = start + seconds(60);
  rig.monitor.look_at_due(rig.now);
  EXPECT_TRUE(open(a));
  EXPECT_EQ(a.shim.gate().pause_until_ns, 0u);
  EXPECT_NE(rig.job()["state"], "paused");
}

TEST_F(Pausing, NonsenseStrangersAndStrayNames) {
  const Joined a = rig.runs({.name = "x"});
  for (const json& timeout :
       {json(0), json(-1), json("never"), json("0s"), json("25h"), json::array(), json(1e300)}) {
    EXPECT_EQ(pause("x", timeout)["code"], kUsage) << timeout;
  }
  EXPECT_EQ(pause("nobody")["code"], kNoSuchJobOrGpu);
  EXPECT_EQ(resume("nobody")["code"], kNoSuchJobOrGpu);
  for (const char* op : {"pause", "resume"}) {
    EXPECT_EQ(rig.ask({{"op", op}, {"target", "x"}}, 1001)["code"], kNoPermission);
    EXPECT_EQ(rig.ask({{"op", op}, {"target", "x"}}, 1000)["ok"], true);
  }
  EXPECT_TRUE(open(a));
}

TEST_F(Pausing, ItHoldsUnderEveryMeans) {
  const Joined a = rig.runs({.name = "x"});
  pause("x");
  for (const char* means : {"none", "slice", "gate", "auto"}) {
    EXPECT_EQ(rig.ask({{"op", "means"}, {"means", means}})["ok"], true);
    EXPECT_TRUE(held(a)) << means;
  }
}

TEST_F(Pausing, APausedJobsMemoryStaysItsOwn) {
  const Joined a = rig.join({.name = "x", .memory = "1GiB"});
  ASSERT_TRUE(rig.allocate(a, 600 * kMiB));
  pause("x");
  rig.pass(seconds(2));
  EXPECT_EQ(rig.account().reserved(), kGiB);
  EXPECT_EQ(rig.job()["gpus"][0]["memory_used_bytes"], 600 * kMiB);
}

TEST_F(Pausing, TheEndOfAPausedJobLeavesNothing) {
  const Joined a = rig.runs({.job = "j", .name = "x"});
  pause("x");
  rig.monitor.died(a.id);
  EXPECT_TRUE(rig.monitor.registry().jobs().empty());
  EXPECT_EQ(next_pause_end(rig.monitor.registry()), Time{0});
  EXPECT_TRUE(open(rig.runs({.job = "j", .name = "x"}))) << "a new job of the same name";
}

// Drained: what `pause` may say about the work that was queued before.
struct PausingDrained : Pausing {
  Joined numbered(const Ask& ask) {
    Joined joined = rig.runs(ask);
    joined.shim.ready_gate();
    return joined;
  }
  Job& job(const Joined& who) { return *rig.monitor.registry().find(who.client->job); }
  Drained now(const Joined& who) { return drained(rig.monitor.registry(), job(who), rig.now); }
  // Its gate was armed long before the pause.
  void arm(const Joined& who) {
    who.client->lanes.at(0).numbered_since = rig.now - seconds(10);
    who.client->lanes.at(0).order.armed = true;
  }
};

TEST_F(PausingDrained, AJobWithoutAContextHasNothingToDrain) {
  rig.join({.name = "x"});
  EXPECT_EQ(pause("x")["drained"], true);
}

TEST_F(PausingDrained, OfAJobThatWroteNoNumbersItIsNotKnown) {
  const Joined a = numbered({.name = "x"});
  EXPECT_EQ(rig.job()["drained"], nullptr) << "it is not paused";
  const json paused = pause("x");
  ASSERT_TRUE(paused.contains("drained"));
  EXPECT_EQ(paused["drained"], nullptr);
  // It is armed from now on, but shut: no number comes that would stand behind its work.
  rig.pass(seconds(100));
  EXPECT_TRUE(a.shim.armed());
  EXPECT_EQ(rig.job()["drained"], nullptr);
}

TEST_F(PausingDrained, PausedTwiceItIsStillNotKnown) {
  const Joined a = numbered({.name = "x"});
  pause("x");
  rig.pass(seconds(100));
  EXPECT_EQ(pause("x")["drained"], nullptr) << "its gate was armed when it was shut";
}

// Launches have no number while its gate is not armed.
TEST_F(PausingDrained, OfAJobThatNumbersItsWorkNoLongerItIsNotKnown) {
  const Joined a = numbered({.name = "x", .limit = "50%"});
  const auto works = [&] {
    for (int i = 0; i < 30; ++i) {
      a.shim.launch();
      rig.pass(milliseconds(100));
    }
  };
  works();
  ASSERT_TRUE(a.shim.armed()) << "its ceiling needs numbers";
  EXPECT_EQ(pause("x")["drained"], true);
  resume("x");
  rig.ask({{"op", "set"}, {"target", "x"}, {"limit", "none"}});
  works();
  ASSERT_FALSE(a.shim.armed() || a.shim.watched());
  EXPECT_EQ(pause("x")["drained"], nullptr);
}

TEST_F(PausingDrained, ThePausedOnesListingSaysItToo) {
  const Joined a = numbered({.name = "x"});
  a.shim.submit();
  arm(a);
  EXPECT_EQ(pause("x")["drained"], false);
  EXPECT_EQ(rig.job()["drained"], false);
  a.shim.complete();
  EXPECT_EQ(rig.job()["drained"], true);
  resume("x");
  EXPECT_EQ(rig.job()["drained"], nullptr);
}

TEST_F(PausingDrained, NumbersThatAreAllDoneSayYes) {
  const Joined a = numbered({.name = "x"});
  a.shim.submit();
  a.shim.complete();
  arm(a);
  EXPECT_EQ(pause("x")["drained"], true);
}

TEST_F(PausingDrained, NumbersThatMoveSayNotYetAndThoseThatStandStillYes) {
  const Joined a = numbered({.name = "x"});
  for (int i = 0; i < 3; ++i) a.shim.submit();
  arm(a);
  const Answer first =
      answer_command(rig.monitor, {1, 0}, R"({"op":"pause","target":"x"})", rig.now);
  EXPECT_EQ(first.job, job(a).key);
  EXPECT_EQ(json::parse(first.json)["drained"], false);
  rig.now += milliseconds(40);
  a.shim.gate().done[0] = 1;
  EXPECT_EQ(answer_awaited(rig.monitor, Awaits::kDrained, first.job, rig.now, false), std::nullopt);
  rig.now += milliseconds(40);
  EXPECT_EQ(answer_awaited(rig.monitor, Awaits::kDrained, first.job, rig.now, false), std::nullopt);
  const auto last = answer_awaited(rig.monitor, Awaits::kDrained, first.job, rig.now, true);
  ASSERT_TRUE(last);
  EXPECT_EQ(json::parse(*last)["drained"], false) << "no patience left";
  rig.now += milliseconds(20);
  const auto stands = answer_awaited(rig.monitor, Awaits::kDrained, first.job, rig.now, false);
  ASSERT_TRUE(stands);
  EXPECT_EQ(json::parse(*stands)["drained"], true) << "two batches wait behind the gate";
}

TEST_F(PausingDrained, AJobThatEndsMeanwhileIsNoJob) {
  const Joined a = numbered({.name = "x"});
  a.shim.submit();
  arm(a);
  const Answer first =
      answer_command(rig.monitor, {1, 0}, R"({"op":"pause","target":"x"})", rig.now);
  rig.monitor.died(a.id);
  const auto gone = answer_awaited(rig.monitor, Awaits::kDrained, first.job, rig.now, false);
  ASSERT_TRUE(gone);
  EXPECT_EQ(json::parse(*gone)["code"], kNoSuchJobOrGpu);
}

// What clients of a monitor that went away say to the next one.
struct PausingRejoin : Pausing {
  Joined rejoin(const std::string& job, std::uint32_t paused, Time until = Time{0},
                std::uint32_t flags = wire::kRejoin) {
    wire::Hello hello = hello_of({.job = job, .name = job}, 1, flags);
    hello.paused = paused;
    hello.pause_until_ns = static_cast<std::uint64_t>(until.count());
    Joined joined = rig.join_as({rig.next_pid++, 1000}, hello);
    joined.shim.open_context();
    return joined;
  }
};

TEST_F(PausingRejoin, APauseOutlivesTheMonitor) {
  const Joined a = rejoin("j", 1);
  EXPECT_TRUE(held(a));
  EXPECT_EQ(rig.job()["state"], "paused");
  resume("j");
  EXPECT_TRUE(open(a));
}

TEST_F(PausingRejoin, AnyClientOfTheJobSaysIt) {
  const Joined a = rejoin("j", 0);
  EXPECT_TRUE(open(a));
  const Joined b = rejoin("j", 1);
  EXPECT_TRUE(held(b));
  rig.pass(milliseconds(1));
  EXPECT_TRUE(held(a));
}

TEST_F(PausingRejoin, ItsTimeOutIsKept) {
  const Joined a = rejoin("j", 1, rig.now + seconds(20));
  EXPECT_EQ(rig.job()["pause_seconds"], 20);
  rig.pass(seconds(20));
  EXPECT_TRUE(open(a));
}

TEST_F(PausingRejoin, OfSeveralProcessesTheLongestPauseCounts) {
  const Time soon = rig.now + seconds(20);
  const Time late = rig.now + seconds(60);
  const Time never{0};
  const struct {
    Time first, second;
    json seconds;
  } cases[] = {{soon, late, 60}, {late, soon, 60}, {soon, never, nullptr}, {never, soon, nullptr}};
  for (const auto& each : cases) {
    const Joined a = rejoin("j", 1, each.first);
    const Joined b = rejoin("j", 1, each.second);
    EXPECT_EQ(rig.job()["pause_seconds"], each.seconds);
    rig.monitor.died(a.id);
    rig.monitor.died(b.id);
  }
}

TEST_F(PausingRejoin, AnOverduePauseIsNone) {
  EXPECT_TRUE(open(rejoin("j", 1, rig.now - seconds(1))));
}

TEST_F(PausingRejoin, WhatAPersonToldThisMonitorCounts) {
  const Joined a = rejoin("j", 1);
  resume("j");
  EXPECT_TRUE(open(rejoin("j", 1))) << "a late one does not bring the pause back";
  EXPECT_TRUE(open(a));
}

TEST_F(PausingRejoin, OnlyOneThatRejoinsIsBelieved) {
  EXPECT_TRUE(open(rejoin("j", 1, Time{0}, 0)));
}

TEST_F(PausingRejoin, OddTimesAreNoHarm) {
  for (const std::uint64_t ns : {~0ull, 1ull << 63, (1ull << 63) - 1, 1ull}) {
    wire::Hello hello = hello_of({.job = "j"}, 1, wire::kRejoin);
    hello.paused = 7;
    hello.pause_until_ns = ns;
    const Joined a = rig.join_as({rig.next_pid++, 1000}, hello);
    rig.pass(seconds(1));
    rig.ask({{"op", "ps"}});
    rig.ask({{"op", "resume"}, {"target", "j"}});
    EXPECT_TRUE(open(a)) << ns;
    rig.monitor.died(a.id);
  }
}

}  // namespace
}  // namespace switchyard::monitor::test
