// A job that does not work gives its memory back by itself, over the whole monitor.
#include "monitor/residency/idle_release.h"

#include <gtest/gtest.h>

#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

struct Idles : Rig {
  Idles() : Rig(1, 4 * kGiB) {}

  // A notebook with a GiB that has just worked.
  Joined notebook(std::uint64_t bytes = kGiB) {
    Joined joined = runs({.name = "x", .idle_release = "60s"});
    EXPECT_TRUE(allocate(joined, bytes));
    joined.shim.swappable(bytes);
    pass(milliseconds(250));
    return joined;
  }
  void is_absent(const Joined& who) {
    who.shim.be_absent();
    listed(who) = 0;
    pass(milliseconds(250));
  }
  void is_back(const Joined& who) {
    who.shim.be_resident();
    listed(who) = who.shim.residency().total_bytes;
    pass(milliseconds(250));
  }
  // Idle for long enough, and gone.
  void goes_away(const Joined& who) {
    pass(seconds(60));
    EXPECT_TRUE(who.shim.told_to_leave());
    is_absent(who);
  }
  static void stand(const Joined& who, std::uint32_t threads) {
    who.shim.residency().held_threads = threads;
  }
};

TEST(Idling, TheContextsLeaveAsWellWhereThatWasAsked) {
  for (const bool can : {true, false}) {
    Idles rig;
    const Joined a = rig.runs({.name = "x", .idle_release = "60s,contexts"});
    EXPECT_TRUE(rig.allocate(a, kGiB));
    a.shim.swappable(kGiB);
    a.shim.open_context();
    a.shim.memory().contexts = can ? abi::kContextsMayLeave : abi::kContextsNoCalls;
    rig.pass(milliseconds(250));
    EXPECT_EQ(rig.job()["idle_release_contexts"], true);
    rig.goes_away(a);
    EXPECT_EQ(a.shim.residency().limited, can ? abi::kContextsToo : abi::kLimited)
        << "its memory leaves all the same";
    if (!can) continue;
    a.shim.be_detached();
    rig.pass(milliseconds(250));
    EXPECT_EQ(rig.job()["residency"], "swapped");
    rig.stand(a, 1);
    rig.pass(milliseconds(250));
    EXPECT_EQ(a.shim.residency().limited, abi::kUnlimited);
  }
}

TEST(Idling, AJobThatDoesNotWorkLeavesWhenItsTimeIsOver) {
  Idles rig;
  const Joined a = rig.notebook();
  EXPECT_STREQ(a.shim.card().swappable, "yes") << "the library moves nothing else";
  rig.pass(seconds(60) - milliseconds(1));
  EXPECT_FALSE(a.shim.told_to_leave());
  rig.pass(milliseconds(1));
  EXPECT_TRUE(a.shim.told_to_leave());
  rig.is_absent(a);
  const json out = rig.job();
  EXPECT_EQ(out["residency"], "swapped");
  EXPECT_EQ(out["state"], "swapped");
  EXPECT_EQ(out["swappable"], true);
  EXPECT_EQ(out["idle_release_seconds"], 60.0);
  rig.pass(seconds(600));
  EXPECT_TRUE(a.shim.told_to_leave());
}

TEST(Idling, WhateverCountsAsWorkRestartsTheClock) {
  Idles rig;
  const Joined a = rig.notebook();
  const auto still_in = [&] {
    rig.pass(seconds(59));
    EXPECT_FALSE(a.shim.told_to_leave());
  };
  still_in();
  a.shim.launch();
  still_in();
  a.lane().copies += 1;
  still_in();
  a.lane().graph_launches += 1;
  still_in();
  a.shim.gate().held_threads = 1;
  still_in();
  still_in();
  a.shim.gate().held_threads = 0;
  rig.gpus.load = {{a.client->peer.pid, 0.9}};
  still_in();
  still_in();
  rig.gpus.load = std::vector<ProcessLoad>{};
  still_in();
  rig.pass(seconds(1));
  EXPECT_TRUE(a.shim.told_to_leave());
}

TEST(Idling, WorkThatTheGpuIsKnownToHaveIsWork) {
  Idles rig;
  const Joined a = rig.notebook();
  rig.ask({{"op", "means"}, {"means", "gate"}});
  const Joined other = rig.runs({.name = "y", .priority = "high"});
  a.shim.ready_gate();
  rig.settle({&other, &a});
  ASSERT_TRUE(a.shim.armed() || a.shim.watched());
  a.shim.submit();
  for (int i = 0; i < 100; ++i) {
    rig.settle({&other});
    rig.pass(seconds(1));
  }
  EXPECT_FALSE(a.shim.told_to_leave());
  a.shim.complete();
  for (int i = 0; i < 61; ++i) {
    rig.settle({&other});
    rig.pass(seconds(1));
  }
  EXPECT_TRUE(a.shim.told_to_leave());
}

TEST(Idling, NothingLeavesThatIsNotThereOrThatNobodyAskedFor) {
  Idles rig;
  const Joined a = rig.runs({.name = "x", .idle_release = "60s"});
  const Joined plain = rig.runs({.name = "y", .swappable = "yes"});
  ASSERT_TRUE(rig.allocate(plain, kGiB));
  plain.shim.swappable(kGiB);
  rig.pass(seconds(600));
  EXPECT_FALSE(a.shim.told_to_leave());
  EXPECT_FALSE(plain.shim.told_to_leave());
  EXPECT_EQ(rig.ask({{"op", "ps"}})["jobs"][1]["idle_release_seconds"], nullptr);
  ASSERT_TRUE(rig.allocate(a, kGiB));
  a.shim.swappable(kGiB);
  rig.pass(seconds(59));
  EXPECT_FALSE(a.shim.told_to_leave()) << "the clock began when there was something";
}

TEST(Idling, AThreadThatStandsBeforeTheAdmissionBringsItBack) {
  Idles rig;
  const Joined a = rig.notebook();
  rig.goes_away(a);
  Idles::stand(a, 1);
  rig.monitor.look_at_those_of(a.id, rig.now);
  EXPECT_EQ(a.shim.residency().limited, 0u) << "it rang";
  EXPECT_EQ(rig.job()["residency"], "moving");
  Idles::stand(a, 0);
  rig.is_back(a);
  EXPECT_EQ(rig.job()["residency"], "resident");
  rig.pass(seconds(59));
  EXPECT_FALSE(a.shim.told_to_leave());
  rig.goes_away(a);
}

TEST(Idling, OneThatWakesUpOnItsWayOutTurnsBack) {
  Idles rig;
  const Joined a = rig.notebook();
  rig.pass(seconds(60));
  a.shim.leave(kGiB / 2);
  Idles::stand(a, 1);
  rig.monitor.look_at_those_of(a.id, rig.now);
  EXPECT_EQ(a.shim.residency().limited, 0u);
  rig.is_back(a);
  EXPECT_EQ(rig.job()["residency"], "resident");
}

TEST(Idling, ItWaitsUntilThereIsRoomAndIsNotForgottenMeanwhile) {
  Idles rig;
  const Joined a = rig.notebook(3 * kGiB);
  rig.goes_away(a);
  const Joined other = rig.runs({.name = "y"});
  ASSERT_TRUE(rig.allocate(other, 2 * kGiB));
  Idles::stand(a, 1);
  rig.pass(milliseconds(250));
  EXPECT_EQ(rig.job()["residency"], "waiting");
  EXPECT_TRUE(a.shim.told_to_leave());
  Idles::stand(a, 0);  // between two naps
  rig.pass(seconds(600));
  EXPECT_EQ(rig.job()["residency"], "waiting") << "it does not idle, it waits";
  rig.release(other, 2 * kGiB);
  rig.pass(seconds(1));
  EXPECT_EQ(a.shim.residency().limited, 0u);
}

TEST(Idling, WhatCannotLeaveIsNotTriedAgainBeforeItsTimeIsOverOnceMore) {
  Idles rig;
  const Joined a = rig.notebook();
  rig.pass(seconds(60));
  a.shim.leave(kGiB);
  rig.pass(milliseconds(250));
  a.shim.be_resident(abi::kSwapNoHostRoom);
  rig.pass(milliseconds(250));
  EXPECT_FALSE(a.shim.told_to_leave());
  EXPECT_NE(rig.job()["gpus"][0]["swap_error"], nullptr);
  rig.pass(seconds(59));
  EXPECT_FALSE(a.shim.told_to_leave());
  rig.pass(seconds(1));
  EXPECT_TRUE(a.shim.told_to_leave());
}

TEST(Idling, SwapInBringsItBackAndRestartsTheClock) {
  for (const char* op : {"swap-in", "resume"}) {
    Idles rig;
    const Joined a = rig.notebook();
    rig.goes_away(a);
    EXPECT_EQ(rig.tell(op)["ok"], true);
    EXPECT_EQ(a.shim.residency().limited, 0u) << op;
    rig.is_back(a);
    rig.pass(seconds(59));
    EXPECT_FALSE(a.shim.told_to_leave()) << op;
    rig.pass(seconds(1));
    EXPECT_TRUE(a.shim.told_to_leave()) << op;
  }
}

TEST(Idling, WhatAPersonSwappedOutStaysOutWhoeverWaits) {
  Idles rig;
  const Joined a = rig.notebook();
  rig.goes_away(a);
  EXPECT_EQ(rig.tell("swap-out")["residency"], "swapped");
  Idles::stand(a, 1);
  rig.pass(seconds(1));
  EXPECT_TRUE(a.shim.told_to_leave());
  EXPECT_EQ(rig.job()["residency"], "swapped");
}

TEST(Idling, APauseHoldsTheClockAndWhoIsAwayComesBackAfterIt) {
  Idles rig;
  const Joined a = rig.notebook();
  rig.tell("pause");
  rig.pass(seconds(600));
  EXPECT_FALSE(a.shim.told_to_leave()) << "who paused it kept its memory";
  rig.tell("resume");
  rig.goes_away(a);
  rig.ask({{"op", "pause"}, {"target", "x"}, {"timeout_seconds", 10}});
  Idles::stand(a, 1);
  rig.pass(seconds(5));
  EXPECT_TRUE(a.shim.told_to_leave()) << "it has no use for it yet";
  rig.pass(seconds(5));
  EXPECT_EQ(a.shim.residency().limited, 0u);
  rig.is_back(a);
  EXPECT_NE(rig.job()["state"], "paused");
}

TEST(Idling, AFreshProcessOfTheJobBringsItBack) {
  Idles rig;
  const Joined a = rig.notebook();
  rig.goes_away(a);
  Ask same;
  same.job = rig.job()["job"].get<std::string>();
  const Joined b = rig.join(same);
  rig.pass(milliseconds(250));
  EXPECT_EQ(a.shim.residency().limited, 0u);
  EXPECT_EQ(b.shim.residency().limited, 0u);
}

TEST(Idling, ItIsFixedAtTheStart) {
  Idles rig;
  const Joined plain = rig.runs({.name = "x"});
  const json reply = rig.ask({{"op", "set"}, {"target", "x"}, {"idle_release", "1s"}});
  EXPECT_EQ(reply["ok"], false) << reply;
  EXPECT_EQ(rig.monitor.registry().jobs().begin()->second.knobs.idle_release.after, Time{0});
}

}  // namespace
}  // namespace switchyard::monitor::test
