// Memory that leaves the device and comes back, over the whole monitor. The fake shim plays the
// client: one that obeys, that fails, that lies.
#include "monitor/residency/residency.h"

#include <gtest/gtest.h>

#include "monitor/control/commands.h"
#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

// A rig whose GPU has 4 GiB and whose jobs are moved by hand.
struct Swaps : Rig {
  explicit Swaps(unsigned count = 1, std::uint64_t bytes = 4 * kGiB)
      : Rig(count, bytes, with_host_pool(2 * bytes)) {}

  // A swappable job that works on `bytes`, all of them swappable.
  Joined with(Ask wanted, std::uint64_t bytes) {
    wanted.swappable = "yes";
    Joined joined = runs(wanted);
    EXPECT_TRUE(allocate(joined, bytes));
    joined.shim.swappable(bytes);
    pass(seconds(1));
    return joined;
  }
  // The same, told to swap out, and out.
  Joined leaving(const Ask& wanted, std::uint64_t bytes) {
    Joined joined = with(wanted, bytes);
    tell("swap-out");
    return joined;
  }
  Joined swapped_out(const Ask& wanted, std::uint64_t bytes) {
    Joined joined = leaving(wanted, bytes);
    is_absent(joined);
    return joined;
  }
  // One whose memory never leaves.
  Joined other_with(std::uint64_t bytes) {
    Joined joined = runs({.name = "y"});
    EXPECT_TRUE(allocate(joined, bytes));
    return joined;
  }
  using Rig::release;
  json release(const char* name = "x") {
    return ask({{"op", "pause"}, {"target", name}, {"release", true}});
  }
  // The answer that waits; null: it does still.
  json awaited(Awaits awaits, const Joined& who, bool last = false) {
    const auto text = answer_awaited(monitor, awaits, who.client->job, now, last);
    return text ? json::parse(*text) : json();
  }
  // Its mover has taken `bytes` off the device, or brought them back.
  void on_device(const Joined& who, std::uint64_t bytes) { listed(who) = bytes; }
  void leaves(const Joined& who, std::uint64_t rest) {
    who.shim.leave(rest);
    on_device(who, rest);
  }
  void is_absent(const Joined& who) {
    who.shim.be_absent();
    on_device(who, 0);
    pass(milliseconds(250));
  }
  void is_back(const Joined& who) {
    who.shim.be_resident();
    on_device(who, who.shim.residency().total_bytes);
    pass(milliseconds(250));
  }
  std::uint64_t free() {
    pass(seconds(1));
    pass(seconds(1));  // a fall of the overhead counts when two readings agree
    return account().free();
  }
};

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

TEST(Residency, AJobWhoseMemoryCannotLeaveIsRefusedAndIsNotSwapped) {
  Swaps rig(2);
  const Joined a = rig.join({.name = "x", .swappable = "yes"}, 1000, 2);
  a.lane().used_bytes = kGiB;  // of a process that sees two GPUs nothing is swappable
  for (const json& reply : {rig.tell("swap-out"), rig.release()}) {
    EXPECT_EQ(reply["code"], kRefusedByPolicy) << reply;
    EXPECT_NE(reply["error"].get<std::string>().find("sees 2 GPUs"), std::string::npos) << reply;
  }
  EXPECT_EQ(rig.job()["residency"], "resident");
  EXPECT_NE(rig.job()["state"], "paused");
  const Joined b = rig.join({.job = "j", .name = "y", .swappable = "yes"});
  EXPECT_EQ(rig.tell("swap-out", "y")["residency"], "swapped") << "it has no memory yet";
  b.lane().used_bytes = kGiB;
  rig.pass(milliseconds(250));
  EXPECT_EQ(rig.job(1)["residency"], "resident") << "what it has made since can't leave";
  const json reply = rig.tell("swap-out", "y");
  EXPECT_NE(reply["error"].get<std::string>().find("ps --memory"), std::string::npos) << reply;
}

TEST(Residency, OneThatIsNotSwappableIsRefusedWithTheRemedy) {
  Swaps rig;
  const Joined a = rig.runs({.name = "x"});
  ASSERT_TRUE(rig.allocate(a, kGiB));
  a.shim.swappable(kGiB);
  for (const json& reply : {rig.tell("swap-out"), rig.tell("swap-in"), rig.release()}) {
    EXPECT_EQ(reply["code"], kRefusedByPolicy);
    EXPECT_NE(reply["error"].get<std::string>().find("--swappable"), std::string::npos);
  }
  EXPECT_NE(rig.job()["state"], "paused") << "a pause that can't release does not pause";
  EXPECT_EQ(rig.job()["swappable"], false);
  EXPECT_EQ(a.shim.residency().limited, 0u);
}

TEST(Residency, OneThatFailsStaysAndTheReasonIsTold) {
  const struct {
    std::uint32_t error;
    std::uint32_t result;
    const char* text;
  } cases[] = {{abi::kSwapBusy, 0, "accepted work"},
               {abi::kSwapNoHostRoom, 2, "--host-pool"},
               {abi::kSwapFailed, 719, "error 719"},
               {abi::kSwapFailed, 201, "it ends"},
               {99, 719, "error 719"}};
  for (const auto& each : cases) {
    Swaps rig;
    const Joined a = rig.with({.name = "x", .memory = "2GiB"}, kGiB);
    rig.release();
    rig.leaves(a, kGiB / 2);
    rig.pass(milliseconds(250));
    a.shim.residency().swap_result = each.result;
    a.shim.be_resident(each.error);
    rig.on_device(a, kGiB);
    const json reply = rig.awaited(Awaits::kOut, a);
    EXPECT_EQ(reply["code"], kRefusedByPolicy) << reply;
    EXPECT_NE(reply["error"].get<std::string>().find(each.text), std::string::npos) << reply;
    EXPECT_EQ(a.shim.residency().limited, 0u);
    EXPECT_EQ(a.shim.gate().closed, abi::kClosedByPause) << "it stays paused";
    EXPECT_EQ(rig.account().held(a.client->job), 2 * kGiB);
    EXPECT_EQ(rig.job()["residency"], "resident");
    EXPECT_NE(rig.job()["gpus"][0]["swap_error"], nullptr);
  }
}

TEST(Residency, OneThatIsOnItsWayBackAfterAFailureHasFailed) {
  Swaps rig;
  const Joined a = rig.leaving({.name = "x"}, kGiB);
  a.shim.leave(kGiB / 2);
  a.shim.residency().error = abi::kSwapFailed;
  a.shim.residency().phase = abi::kReturning;
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["code"], kRefusedByPolicy);
  EXPECT_EQ(rig.job()["residency"], "moving") << "back to where it was";
  rig.is_back(a);
  EXPECT_EQ(rig.job()["residency"], "resident");
}

TEST(Residency, AnErrorOfBeforeIsNoneOfThisTime) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  a.shim.be_resident(abi::kSwapBusy);
  rig.tell("swap-out");
  EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null());
  rig.pass(seconds(1));
  EXPECT_TRUE(a.shim.told_to_leave());
  rig.leaves(a, 0);
  rig.is_absent(a);
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["residency"], "swapped");
}

TEST(Residency, TheSameErrorAnswersEachAttemptAtOnce) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  for (int attempt = 0; attempt < 3; ++attempt) {
    rig.tell("swap-out");
    rig.pass(milliseconds(10));
    EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null()) << "the error is of the attempt before";
    a.shim.be_resident(abi::kSwapNoHostRoom);
    EXPECT_EQ(rig.awaited(Awaits::kOut, a)["code"], kRefusedByPolicy);
    EXPECT_EQ(a.shim.residency().limited, 0u);
  }
}

TEST(Residency, OfALibraryWithoutNumbersAnErrorCountsThatStands) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  a.shim.be_resident(abi::kSwapNoHostRoom);
  a.shim.residency().answered = 0;
  rig.tell("swap-out");
  EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null());
  rig.pass(seconds(3));
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["code"], kRefusedByPolicy);
}

TEST(Residency, WhoWasAwayUnderAnEarlierOrderHasNotLeftAgain) {
  Swaps rig;
  const Joined a = rig.swapped_out({.name = "x"}, kGiB);
  rig.tell("swap-in");
  rig.tell("swap-out");  // it may be coming back already
  EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null());
  EXPECT_EQ(rig.job()["residency"], "moving");
  rig.is_absent(a);
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["residency"], "swapped");
}

TEST(Residency, AnErrorThatComesWithTheNewsOfLeavingDoesNotEndTheAttempt) {
  Swaps rig;
  const Joined a = rig.leaving({.name = "x"}, kGiB);
  a.shim.say(abi::kLeaving, abi::kSwapBusy);
  EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null());
  EXPECT_TRUE(a.shim.told_to_leave());
  rig.is_absent(a);
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["residency"], "swapped");
}

TEST(Residency, OneThatNeverLeavesIsGivenUpAndItsGateObeysAgain) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  rig.release();
  a.shim.leave(kGiB);
  rig.pass(kLeavesWithin - milliseconds(1));
  EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null());
  EXPECT_EQ(a.shim.gate().closed, 0u);
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["code"], kTimedOut);
  EXPECT_EQ(a.shim.gate().closed, abi::kClosedByPause);
  EXPECT_EQ(a.shim.residency().limited, 0u);
  EXPECT_GT(patience(Awaits::kOut), kLeavesWithin) << "whoever waits hears the reason";
}

TEST(Residency, AMoveOf100GiBIsAnsweredWhenItHasEndedHoweverLongItTakes) {
  Swaps rig(1, 128 * kGiB);
  const Joined a = rig.leaving({.name = "x"}, 100 * kGiB);
  for (unsigned rest = 98; rest > 0; rest -= 2) {  // ten minutes
    rig.leaves(a, rest * kGiB);
    rig.pass(seconds(12));
    const json early = rig.awaited(Awaits::kOut, a);
    ASSERT_TRUE(early.is_null()) << early;
  }
  EXPECT_GE(patience(Awaits::kOut), seconds(600));
  rig.is_absent(a);
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["residency"], "swapped");
}

TEST(Residency, AMoveThatStopsIsGivenUpAMinuteLater) {
  Swaps rig;
  const Joined a = rig.leaving({.name = "x"}, 2 * kGiB);
  rig.leaves(a, 2 * kGiB);
  rig.pass(seconds(50));
  rig.leaves(a, kGiB);
  rig.pass(seconds(1));
  rig.pass(kLeavesWithin - milliseconds(1));
  EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null());
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["code"], kTimedOut);
}

TEST(Residency, WhoOnlySaysThatItsMemoryMovesHoldsNobodyUpForLong) {
  Swaps rig;
  const Joined a = rig.leaving({.name = "x"}, 2 * kGiB);
  Time took{0};
  for (; rig.awaited(Awaits::kOut, a).is_null() && took < seconds(300); took += seconds(2)) {
    rig.leaves(a, kGiB);
    rig.pass(seconds(1));
    rig.leaves(a, 2 * kGiB);
    rig.pass(seconds(1));
  }
  EXPECT_LE(took, seconds(140));
  EXPECT_FALSE(a.shim.told_to_leave());
}

TEST(Residency, AClientThatLiesAboutWhatIsResidentGainsNothing) {
  Swaps rig;
  const Joined a = rig.leaving({.name = "x"}, 3 * kGiB);
  a.shim.be_absent();  // NVML sees all of it still
  rig.pass(seconds(1));
  rig.pass(seconds(1));
  EXPECT_LE(rig.account().free(), kGiB);
  const Joined other = rig.runs({.name = "y"});
  EXPECT_FALSE(rig.allocate(other, 2 * kGiB));
}

TEST(Residency, WordsThatMakeNoSenseAreClamped) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  abi::Residency& words = a.shim.residency();
  rig.tell("swap-out");
  for (const std::uint64_t odd : {~0ull, 1ull << 63, 0ull}) {
    for (const std::uint32_t phase : {0u, 1u, 2u, 3u, 4u, ~0u}) {
      words.total_bytes = odd;
      words.resident_bytes = ~odd;
      words.host_bytes = odd;
      words.phase = phase;
      words.error = phase;
      rig.pass(seconds(1));
      rig.tell("swap-in");
      rig.tell("swap-out");
      const json listed = rig.job();
      EXPECT_LE(listed["gpus"][0]["memory_swapped_bytes"], kGiB);
      EXPECT_LE(rig.account().held(a.client->job), 5 * kGiB);
    }
  }
  const Joined other = rig.join({.name = "y", .swappable = "yes"});
  EXPECT_LE(other.shim.residency().host_limit_bytes, 8 * kGiB);
}

TEST(Residency, TheWordsOfAJobThatIsNotSwappableCountForNothing) {
  Swaps rig;
  const Joined a = rig.runs({.name = "x"});
  ASSERT_TRUE(rig.allocate(a, 3 * kGiB));
  a.shim.swappable(3 * kGiB);
  a.shim.be_absent();
  rig.pass(seconds(2));
  EXPECT_LE(rig.account().free(), kGiB);
  EXPECT_EQ(rig.job()["residency"], "resident");
  EXPECT_EQ(rig.job()["gpus"][0]["memory_swapped_bytes"], 0);
  EXPECT_EQ(a.shim.residency().host_limit_bytes, 0u);
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

TEST(Residency, ResumeBringsItBackBeforeItsPauseEnds) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  rig.release();
  rig.is_absent(a);
  EXPECT_TRUE(rig.awaited(Awaits::kIn, a).is_null());
  rig.tell("resume");
  EXPECT_EQ(a.shim.residency().limited, 0u);
  EXPECT_EQ(a.shim.gate().closed, abi::kClosedByPause);
  rig.is_back(a);
  EXPECT_EQ(a.shim.gate().closed, 0u);
  EXPECT_NE(rig.job()["state"], "paused");
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

// Clients of a monitor that went away.
struct Rejoins : Swaps {
  using Swaps::Swaps;
  Joined rejoin(std::uint64_t bytes, bool paused = false, Time until = Time{0}) {
    wire::Hello hello = hello_of({.job = "j", .name = "x", .swappable = "yes"}, 1, wire::kRejoin);
    hello.used_bytes[0] = bytes;
    hello.paused = paused ? 1 : 0;
    hello.pause_until_ns = static_cast<std::uint64_t>(until.count());
    Joined joined = join_as({next_pid++, 1000}, hello);
    joined.shim.open_context();
    joined.shim.swappable(bytes);
    // The library carries the words of the old page over.
    joined.shim.residency().limited = 1;
    return joined;
  }
};

TEST(Residency, OneThatWasOutBeforeThisMonitorIsBroughtInWhenItFits) {
  Rejoins rig;
  const Joined other = rig.other_with(3 * kGiB);
  const Joined a = rig.rejoin(2 * kGiB);
  a.shim.be_absent();
  rig.pass(milliseconds(250));
  EXPECT_TRUE(a.shim.told_to_leave()) << "the account has no room for it";
  EXPECT_EQ(rig.ask({{"op", "ps"}})["jobs"][1]["residency"], "waiting");
  rig.release(other, 3 * kGiB);
  rig.pass(seconds(1));
  EXPECT_EQ(a.shim.residency().limited, 0u);
}

TEST(Residency, WhatAnotherMonitorHadToldIsTakenBack) {
  for (const std::uint32_t phase : {abi::kResident, abi::kLeaving, abi::kReturning}) {
    Rejoins rig;
    const Joined a = rig.rejoin(2 * kGiB);
    a.shim.residency().phase = phase;
    rig.pass(milliseconds(250));
    EXPECT_EQ(a.shim.residency().limited, 0u) << phase;
    EXPECT_GE(a.shim.residency().host_limit_bytes, 2 * kGiB);
    rig.is_back(a);
    EXPECT_EQ(rig.job()["residency"], "resident");
  }
}

TEST(Residency, WhoRejoinsPartlyOutKeepsWhatIsThereWhoeverElseRejoins) {
  Rejoins rig;
  const Joined other = rig.other_with(3 * kGiB);
  const auto partly_out = [&] {
    Joined joined = rig.rejoin(2 * kGiB);
    joined.shim.residency().limit_bytes = kGiB / 2;
    joined.shim.be_absent();
    rig.on_device(joined, kGiB / 2);
    rig.pass(milliseconds(250));
    EXPECT_TRUE(joined.shim.told_to_leave()) << "its job has no room for all of it";
    EXPECT_EQ(joined.shim.residency().limit_bytes, kGiB / 2);
    return joined;
  };
  const Joined a = partly_out();
  a.shim.residency().resident_bytes = kGiB / 4;  // it may bring that back
  rig.on_device(a, kGiB / 4);
  partly_out();
  EXPECT_EQ(a.shim.residency().limit_bytes, kGiB / 2);
}

TEST(Residency, AReleasedPauseOutlivesTheMonitor) {
  Rejoins rig;
  const Joined a = rig.rejoin(2 * kGiB, true);
  a.shim.be_absent();
  rig.pass(seconds(1));
  EXPECT_TRUE(a.shim.told_to_leave());
  EXPECT_EQ(a.shim.gate().closed, abi::kClosedByPause);
  EXPECT_EQ(rig.job()["residency"], "swapped");
  EXPECT_EQ(rig.free(), 4 * kGiB);
  rig.tell("resume");
  EXPECT_EQ(a.shim.residency().limited, 0u);
  rig.is_back(a);
  EXPECT_EQ(a.shim.gate().closed, 0u);
}

TEST(Residency, WhatLeftWhenTheMonitorDiedForAPauseWithReleaseGoesOnLeaving) {
  // It may have looked for room in the host until then.
  for (const std::uint32_t phase : {abi::kResident, abi::kLeaving}) {
    Rejoins rig;
    const Joined a = rig.rejoin(2 * kGiB, true);
    a.shim.residency().phase = phase;
    a.shim.residency().answered = abi::kAnswersNone;
    rig.pass(milliseconds(250));
    rig.pass(milliseconds(250));
    EXPECT_TRUE(a.shim.told_to_leave()) << phase;
    EXPECT_EQ(a.shim.gate().closed, 0u) << "accepted work has to end";
    EXPECT_EQ(rig.job()["residency"], "moving");
    rig.is_absent(a);
    rig.pass(seconds(1));
    EXPECT_EQ(rig.job()["residency"], "swapped");
    EXPECT_EQ(a.shim.gate().closed, abi::kClosedByPause);
    EXPECT_EQ(rig.free(), 4 * kGiB);
  }
}

TEST(Residency, AGpuThatItDoesNotUseBringsNoContextsBack) {
  Rejoins rig(2);
  wire::Hello hello = hello_of({.job = "j", .name = "x", .swappable = "yes"}, 2, wire::kRejoin);
  hello.used_bytes[0] = kGiB;
  hello.paused = 1;
  const Joined a = rig.join_as({rig.next_pid++, 1000}, hello);
  a.shim.open_context();
  a.shim.swappable(kGiB);
  a.shim.residency().resident_bytes = 0;
  a.shim.residency().phase = abi::kDetached;
  a.shim.residency().limited = abi::kContextsToo;
  a.shim.residency(1).limited = abi::kLimited;
  for (const unsigned lane : {0u, 1u}) a.shim.residency(lane).answered = abi::kAnswersNone;
  rig.pass(milliseconds(250));
  rig.pass(milliseconds(250));
  EXPECT_EQ(a.shim.residency().limited, abi::kContextsToo);
  EXPECT_EQ(rig.job()["residency"], "swapped");
}

TEST(Residency, WhoIsHeardAfterThePausesEndDoesNotBringItBack) {
  for (const char* ends : {"resume", "swap-in", "in time"}) {
    Rejoins rig;
    const bool timed = std::string(ends) == "in time";
    const Time until = timed ? rig.now + seconds(10) : Time{0};
    const Joined a = rig.rejoin(kGiB, true, until);
    a.shim.be_absent();
    rig.pass(seconds(1));
    EXPECT_EQ(rig.job()["residency"], "swapped") << ends;
    const Joined b = rig.rejoin(kGiB, true, until);
    b.shim.swappable(0);  // it has not spoken yet
    if (timed) {
      rig.pass(seconds(10));
    } else {
      rig.tell(ends);
    }
    b.shim.swappable(kGiB);
    b.shim.residency().limited = abi::kLimited;
    b.shim.be_absent();
    b.shim.residency().answered = abi::kAnswersNone;
    rig.pass(seconds(1));
    for (const Joined* each : {&a, &b}) {
      EXPECT_FALSE(each->shim.told_to_leave()) << ends;
      rig.is_back(*each);
    }
    EXPECT_EQ(rig.job()["residency"], "resident") << ends;
  }
}

TEST(Residency, WhatADetachedJobHadBesideItsSwappableMemoryIsStillItsOwn) {
  Rejoins rig;
  const Joined a = rig.rejoin(kGiB, true);
  a.shim.swappable(0);
  a.shim.residency().limited = abi::kContextsToo;
  a.shim.residency().phase = abi::kDetached;
  a.shim.residency().answered = abi::kAnswersNone;
  for (int i = 0; i < 8; ++i) rig.pass(seconds(1));
  EXPECT_GE(rig.account().in_full(a.client->job), kGiB) << "NVML sees nothing of it";
}

TEST(Residency, OneThatWasOutAndFitsComesByItself) {
  Rejoins rig;
  const Joined a = rig.rejoin(2 * kGiB);
  a.shim.be_absent();
  rig.pass(milliseconds(250));
  EXPECT_EQ(a.shim.residency().limited, 0u);
  EXPECT_EQ(rig.job()["residency"], "moving");
  rig.is_back(a);
  EXPECT_EQ(rig.job()["residency"], "resident");
  a.shim.be_absent();
  rig.pass(seconds(1));
  EXPECT_FALSE(rig.account().released(a.client->job)) << "believed once, at the start";
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
  EXPECT_EQ(rig.ask({{"op", "set"}, {"target", "x"}, {"swappable", "no"}})["swappable"], true);
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
