// Memory that leaves the device and comes back (swaps_scene.h).
#include "monitor/residency/residency.h"

#include <gtest/gtest.h>

#include "monitor/control/commands.h"
#include "switchyard/status.h"
#include "tests/monitor/residency/swaps_scene.h"

namespace switchyard::monitor::test {
namespace {

TEST(Residency, AJobLeavesAndWhatItHadIsFree) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, 3 * kGiB);
  const json first = rig.tell("swap-out");
  EXPECT_EQ(first["ok"], true) << first;
  EXPECT_TRUE(a.shim.told_to_leave());
  EXPECT_EQ(rig.job()["residency"], "moving");
  EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null());
  EXPECT_EQ(rig.account().free(), kGiB) << "nothing has left yet";
  rig.leaves(a, kGiB);
  EXPECT_EQ(rig.free(), 3 * kGiB) << "what has left is free at once";
  rig.is_absent(a);
  const json out = rig.awaited(Awaits::kOut, a);
  EXPECT_EQ(out["residency"], "swapped");
  EXPECT_EQ(out["state"], "swapped");
  EXPECT_EQ(out["gpus"][0]["residency"], "swapped");
  EXPECT_EQ(out["gpus"][0]["memory_swapped_bytes"], 3 * kGiB);
  EXPECT_EQ(out["gpus"][0]["memory_resident_bytes"], 0);
  EXPECT_EQ(out["gpus"][0]["memory_used_bytes"], 3 * kGiB);
  EXPECT_EQ(out["gpus"][0]["swap_error"], nullptr);
  EXPECT_EQ(rig.free(), 4 * kGiB);
}

TEST(Residency, OneThatFreesOnItsWayAllThatLeavesHasLeft) {
  Swaps rig;
  const Joined a = rig.leaving({.name = "x"}, 3 * kGiB);
  rig.leaves(a, kGiB);
  EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null());
  a.shim.swappable(0);
  a.lane().used_bytes = kMiB;  // too small to leave
  rig.is_absent(a);
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["ok"], true);
  EXPECT_EQ(rig.job()["residency"], "resident");
}

TEST(Residency, ContextsLeaveAfterTheMemoryAndTheAnswerWaitsForThem) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, 3 * kGiB);
  a.shim.open_context();
  a.shim.memory().contexts = abi::kContextsMayLeave;
  rig.ask({{"op", "pause"}, {"target", "x"}, {"release", true}, {"contexts", true}});
  EXPECT_EQ(a.shim.residency().limited, abi::kLimited);
  rig.is_absent(a);
  EXPECT_EQ(a.shim.residency().limited, abi::kContextsToo);
  EXPECT_EQ(rig.job()["residency"], "moving");
  EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null());
  a.shim.be_detached();
  rig.pass(milliseconds(250));
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["residency"], "swapped");
  EXPECT_EQ(rig.tell("resume")["residency"], "moving");
  EXPECT_EQ(a.shim.residency().limited, abi::kUnlimited);
  rig.is_back(a);
  EXPECT_EQ(rig.job()["residency"], "resident");
}

TEST(Residency, ContextsThatCannotLeaveAreRefusedBeforeAnythingIsTouched) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  a.shim.open_context();
  const auto refused = [&] {
    const json out =
        rig.ask({{"op", "pause"}, {"target", "x"}, {"release", true}, {"contexts", true}});
    EXPECT_EQ(out["code"], kRefusedByPolicy) << out;
    EXPECT_FALSE(a.shim.told_to_leave());
    EXPECT_NE(rig.job()["state"], "paused");
    return out.dump();
  };
  EXPECT_NE(refused().find("library is older"), std::string::npos);
  a.shim.memory().contexts = abi::kContextsNoCalls;
  EXPECT_NE(refused().find("no checkpoint"), std::string::npos);
  a.shim.memory().contexts = abi::kContextsMayLeave;
  for (const Stays why : kKeepsContexts) {
    abi::Word64& bytes = a.shim.memory().stays_bytes[static_cast<unsigned>(why)];
    bytes = 1;
    EXPECT_NE(refused().find("ps --memory"), std::string::npos);
    bytes = 0;
  }
}

TEST(Residency, ContextsOfOneProcessThatCannotLeaveKeepThoseOfTheOthers) {
  Swaps rig;
  const Joined older = rig.with({.job = "j", .name = "x"}, kGiB);
  const Joined other = rig.with({.job = "j"}, kGiB);
  other.shim.memory().contexts = abi::kContextsMayLeave;
  const json out =
      rig.ask({{"op", "pause"}, {"target", "x"}, {"release", true}, {"contexts", true}});
  EXPECT_EQ(out["code"], kRefusedByPolicy) << out;
  EXPECT_NE(out.dump().find(std::to_string(older.client->peer.pid)), std::string::npos) << out;
}

TEST(Residency, ContextsThatTheDriverDoesNotTakeBringTheJobBack) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  a.shim.open_context();
  a.shim.memory().contexts = abi::kContextsMayLeave;
  rig.ask({{"op", "pause"}, {"target", "x"}, {"release", true}, {"contexts", true}});
  rig.is_absent(a);
  a.shim.residency().swap_result = 801;
  a.shim.say(abi::kAbsent, abi::kSwapContextsStay);
  rig.pass(milliseconds(250));
  const json out = rig.awaited(Awaits::kOut, a);
  EXPECT_NE(out.dump().find("CUDA error 801"), std::string::npos) << out;
  rig.pass(milliseconds(250));
  EXPECT_EQ(a.shim.residency().limited, abi::kUnlimited);
}

TEST(Residency, AJobComesBackOnlyWhenItFits) {
  Swaps rig;
  const Joined a = rig.swapped_out({.name = "x"}, 3 * kGiB);
  const Joined other = rig.other_with(2 * kGiB);
  EXPECT_EQ(rig.tell("swap-in")["residency"], "waiting");
  EXPECT_EQ(rig.job()["state"], "waiting");
  EXPECT_TRUE(a.shim.told_to_leave());
  EXPECT_TRUE(rig.awaited(Awaits::kIn, a).is_null());
  EXPECT_EQ(rig.awaited(Awaits::kIn, a, true)["residency"], "waiting") << "no patience left";
  rig.pass(seconds(10));
  EXPECT_TRUE(a.shim.told_to_leave());

  rig.release(other, 2 * kGiB);
  rig.pass(milliseconds(250));
  EXPECT_EQ(a.shim.residency().limited, 0u) << "tried again at each tick";
  EXPECT_EQ(rig.job()["residency"], "moving");
  EXPECT_FALSE(rig.allocate(other, 2 * kGiB)) << "the room is taken before it comes";
  rig.is_back(a);
  EXPECT_EQ(rig.awaited(Awaits::kIn, a)["residency"], "resident");
}

TEST(Residency, AnEventSaysWhoWantedItBack) {
  Swaps rig;
  const Joined a = rig.swapped_out({.name = "x"}, kGiB);
  rig.ask({{"op", "swap-in"}, {"target", "x"}}, 1000, 55);
  rig.is_back(a);
  const std::string said = rig.ask({{"op", "events"}, {"target", "x"}}).dump();
  const std::string by = " by " + user_name(1000) + " (pid 55)";
  EXPECT_NE(said.find("its memory returns" + by), std::string::npos) << said;
}

TEST(Residency, TheEndOfAnotherLetsItInAtOnce) {
  Swaps rig;
  const Joined a = rig.swapped_out({.name = "x"}, 3 * kGiB);
  const Joined other = rig.other_with(2 * kGiB);
  rig.tell("swap-in");
  rig.now += milliseconds(60);
  rig.dies(other);
  rig.monitor.look(rig.now);
  EXPECT_EQ(a.shim.residency().limited, 0u);
}

TEST(Residency, AReservationIsNobodysWhileItIsOutAndIsPromisedAgain) {
  Swaps rig;
  const Joined a = rig.leaving({.name = "x", .memory = "3GiB"}, kGiB);
  EXPECT_EQ(rig.account().reserved(), 3 * kGiB) << "until it has left";
  rig.is_absent(a);
  EXPECT_EQ(rig.account().reserved(), 0u);
  EXPECT_EQ(rig.job()["gpus"][0]["memory_reserved"], false);
  EXPECT_EQ(rig.free(), 4 * kGiB);
  Joined other = rig.join({.name = "y", .memory = "2GiB"});
  rig.tell("swap-in");
  rig.pass(seconds(1));
  EXPECT_TRUE(a.shim.told_to_leave()) << "1 GiB would fit, its reservation doesn't";
  rig.monitor.died(other.id);
  rig.pass(seconds(1));
  EXPECT_EQ(a.shim.residency().limited, 0u);
  EXPECT_EQ(rig.account().reserved(), 3 * kGiB);
}

TEST(Residency, AQuotaThatChangesWhileItIsOutIsNoPromiseYet) {
  Swaps rig;
  const Joined a = rig.swapped_out({.name = "x", .memory = "3GiB"}, kGiB);
  EXPECT_EQ(rig.ask({{"op", "set"}, {"target", "x"}, {"memory", "2GiB"}})["ok"], true);
  EXPECT_EQ(rig.account().reserved(), 0u);
  rig.tell("swap-in");
  EXPECT_EQ(rig.account().reserved(), 2 * kGiB);
}

TEST(Residency, TheGateIsOpenWhileItLeaves) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  rig.tell("pause");
  EXPECT_EQ(a.shim.gate().closed, abi::kClosedByPause);
  rig.release();
  EXPECT_EQ(a.shim.gate().closed, 0u) << "what was accepted must finish";
  rig.leaves(a, kGiB / 2);
  rig.pass(milliseconds(250));
  EXPECT_EQ(a.shim.gate().closed, 0u);
  rig.is_absent(a);
  EXPECT_EQ(a.shim.gate().closed, abi::kClosedByPause) << "it has left, the pause stands";
  EXPECT_EQ(rig.job()["state"], "paused");
  EXPECT_EQ(rig.job()["residency"], "swapped");
  EXPECT_EQ(rig.job()["drained"], true) << "nothing leaves before the GPU has done its work";
}

TEST(Residency, AClientThatHasNothingToMoveIsOutAtOnceAndHeldByItsPause) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  a.shim.swappable(0);
  const json out = rig.release();
  EXPECT_EQ(out["residency"], "swapped") << out;
  EXPECT_EQ(a.shim.gate().closed, abi::kClosedByPause);
  EXPECT_LE(rig.free(), 3 * kGiB) << "what can't move stays";
}

TEST(Residency, WhoJoinsLaterIsOutFromTheStart) {
  Swaps rig;
  const Joined a = rig.swapped_out({.job = "j", .name = "x"}, kGiB);
  const Joined b = rig.join({.job = "j", .swappable = "yes"});
  EXPECT_TRUE(b.shim.told_to_leave()) << "before anybody looks again";
  EXPECT_EQ(rig.job()["residency"], "swapped");
  b.shim.swappable(kGiB / 2);
  rig.pass(seconds(100));
  EXPECT_EQ(rig.job()["residency"], "moving") << "it has as long as everybody";
  rig.is_absent(b);
  EXPECT_EQ(rig.job()["residency"], "swapped");
  rig.tell("swap-in");
  EXPECT_EQ(a.shim.residency().limited, 0u);
  EXPECT_EQ(b.shim.residency().limited, 0u);
}

TEST(Residency, OneThatCannotLeaveWhileTheOthersAreOutWaitsForRoom) {
  Swaps rig;
  const Joined a = rig.swapped_out({.job = "j", .name = "x"}, 3 * kGiB);
  const Joined other = rig.other_with(3 * kGiB);
  const Joined b = rig.join({.job = "j", .swappable = "yes"});
  b.shim.swappable(kGiB / 2);
  rig.pass(milliseconds(250));
  b.shim.leave(kGiB / 2);
  rig.pass(milliseconds(250));
  b.shim.residency().error = abi::kSwapFailed;
  b.shim.residency().phase = abi::kReturning;
  rig.pass(milliseconds(250));
  EXPECT_NE(rig.job()["gpus"][0]["swap_error"], nullptr);
  EXPECT_EQ(rig.job()["residency"], "waiting");
  EXPECT_TRUE(a.shim.told_to_leave()) << "what it had is another's";
}

TEST(Residency, AllProcessesOnAllGpus) {
  Swaps rig(2);
  const Joined a = rig.join({.job = "j", .name = "x", .swappable = "yes"}, 1000, 2);
  const Joined b = rig.join({.job = "j", .swappable = "yes"}, 1000, 2);
  const Joined other = rig.join({.name = "y", .swappable = "yes"}, 1000, 2);
  a.shim.residency(1).total_bytes = kGiB;
  rig.tell("swap-out");
  for (const unsigned lane : {0u, 1u}) {
    EXPECT_TRUE(a.shim.told_to_leave(lane));
    EXPECT_TRUE(b.shim.told_to_leave(lane));
    EXPECT_EQ(other.shim.residency(lane).limited, 0u);
  }
  EXPECT_EQ(rig.job()["residency"], "moving");
  a.shim.be_absent(1);
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["residency"], "swapped");
}

TEST(Residency, TheEndOfAJobThatIsOutLeavesNothing) {
  Swaps rig;
  const Joined a = rig.with({.job = "j", .name = "x", .memory = "2GiB"}, kGiB);
  const JobKey key = a.client->job;
  rig.tell("swap-out");
  rig.is_absent(a);
  const auto waits = [&] { return answer_awaited(rig.monitor, Awaits::kIn, key, rig.now, false); };
  rig.monitor.died(a.id);
  EXPECT_EQ(json::parse(waits().value())["code"], kNoSuchJobOrGpu);
  EXPECT_FALSE(rig.account().released(key));
  EXPECT_TRUE(rig.account().holdings().empty());
  EXPECT_EQ(rig.free(), 4 * kGiB);
}

TEST(Residency, ResumeEndsItsPauseAtOnceAndBringsItBack) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  rig.release();
  rig.is_absent(a);
  EXPECT_TRUE(rig.awaited(Awaits::kIn, a).is_null());
  rig.tell("resume");
  EXPECT_EQ(a.shim.residency().limited, 0u);
  EXPECT_EQ(a.shim.gate().closed, 0u) << "its library holds it until its memory is back";
  EXPECT_EQ(rig.job()["state"], "moving");
  rig.is_back(a);
  EXPECT_EQ(a.shim.gate().closed, 0u);
  EXPECT_NE(rig.job()["state"], "moving");
  rig.tell("pause");
  EXPECT_EQ(a.shim.residency().limited, 0u) << "the next pause keeps its memory";
}

TEST(Residency, APauseThatEndsInTimeBringsItBackAndSwapInLeavesItPaused) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  rig.ask({{"op", "pause"}, {"target", "x"}, {"release", true}, {"timeout_seconds", 60}});
  rig.is_absent(a);
  rig.pass(seconds(60));
  EXPECT_EQ(a.shim.residency().limited, 0u);
  rig.is_back(a);
  EXPECT_EQ(a.shim.gate().closed, 0u);

  rig.release();
  rig.is_absent(a);
  rig.tell("swap-in");
  rig.is_back(a);
  EXPECT_EQ(rig.job()["residency"], "resident");
  EXPECT_EQ(rig.job()["state"], "paused");
  EXPECT_EQ(a.shim.gate().closed, abi::kClosedByPause);
}

TEST(Residency, ASwapOutOutlastsAPause) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  rig.tell("swap-out");
  rig.ask({{"op", "pause"}, {"target", "x"}, {"release", true}, {"timeout_seconds", 10}});
  rig.is_absent(a);
  rig.pass(seconds(20));
  EXPECT_TRUE(a.shim.told_to_leave());
  EXPECT_EQ(rig.job()["residency"], "swapped");
}

TEST(Residency, WhoAsksItBackMeanwhileEndsTheOthersWait) {
  Swaps rig;
  const Joined a = rig.leaving({.name = "x"}, kGiB);
  rig.leaves(a, kGiB / 2);
  rig.tell("swap-in");
  const json reply = rig.awaited(Awaits::kOut, a);
  EXPECT_EQ(reply["code"], kRefusedByPolicy);
  EXPECT_NE(reply["error"].get<std::string>().find("swapped in meanwhile"), std::string::npos);
}

TEST(Residency, OneThatIsOutWaitsForMemoryAndDoesNotFail) {
  Swaps rig;
  const Joined a = rig.swapped_out({.name = "x"}, kGiB);
  const Joined other = rig.other_with(4 * kGiB);
  EXPECT_EQ(rig.charge(a, kGiB).verdict, wire::kWait);
}

TEST(Residency, AGpuWithoutRoomShowsAsWaiting) {
  Swaps rig;
  const Joined a = rig.swapped_out({.name = "x"}, kGiB);
  rig.tell("swap-in");
  a.shim.residency().phase = abi::kReturning;
  a.shim.residency().error = abi::kSwapNoDeviceRoom;
  EXPECT_EQ(rig.job()["residency"], "moving") << "the error of an earlier try";
  a.shim.say(abi::kReturning, abi::kSwapNoDeviceRoom);
  EXPECT_EQ(rig.job()["residency"], "waiting");
  EXPECT_NE(rig.job()["gpus"][0]["swap_error"], nullptr);
}

TEST(Residency, NonsenseStrangersAndStrayNames) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  for (const json& release : {json("maybe"), json(1), json::array()}) {
    EXPECT_EQ(rig.ask({{"op", "pause"}, {"target", "x"}, {"release", release}})["code"], kUsage);
  }
  for (const char* op : {"swap-out", "swap-in"}) {
    EXPECT_EQ(rig.tell(op, "nobody")["code"], kNoSuchJobOrGpu);
    EXPECT_EQ(rig.ask({{"op", op}, {"target", "x"}}, 1001)["code"], kNoPermission);
  }
  EXPECT_EQ(rig.tell("swap-in")["residency"], "resident") << "what is in is no error";
  EXPECT_EQ(rig.ask({{"op", "set"}, {"target", "x"}, {"swappable", "no"}})["code"], kUsage);
  EXPECT_EQ(rig.job()["swappable"], true);
  EXPECT_EQ(a.shim.residency().limited, 0u);
}

TEST(Residency, AJobWithoutAProcessIsOutAtOnceAndItsRoomIsPromisedAgain) {
  Swaps rig;
  const json card = {{"name", "x"}, {"memory", "3GiB"}, {"swappable", "yes"}};
  ASSERT_EQ(rig.ask({{"op", "create"}, {"card", card}})["ok"], true);
  EXPECT_EQ(rig.tell("swap-out")["residency"], "swapped");
  EXPECT_EQ(rig.account().reserved(), 0u);
  EXPECT_EQ(rig.tell("swap-in")["residency"], "resident");
  EXPECT_EQ(rig.account().reserved(), 3 * kGiB);
}

}  // namespace
}  // namespace switchyard::monitor::test
