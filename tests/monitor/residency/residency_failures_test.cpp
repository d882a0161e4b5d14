// Memory that does not leave, or does not come back, and clients that lie about it (swaps_scene.h).
#include <gtest/gtest.h>

#include "monitor/control/commands.h"
#include "switchyard/status.h"
#include "tests/monitor/residency/swaps_scene.h"

namespace switchyard::monitor::test {
namespace {

TEST(ResidencyFailures, AJobWhoseMemoryCannotLeaveIsRefusedAndIsNotSwapped) {
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

TEST(ResidencyFailures, OneThatIsNotSwappableIsRefusedWithTheRemedy) {
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

TEST(ResidencyFailures, OneThatFailsStaysAndTheReasonIsTold) {
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

TEST(ResidencyFailures, OneThatIsOnItsWayBackAfterAFailureHasFailed) {
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

TEST(ResidencyFailures, AnErrorOfBeforeIsNoneOfThisTime) {
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

TEST(ResidencyFailures, TheSameErrorAnswersEachAttemptAtOnce) {
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

TEST(ResidencyFailures, OfALibraryWithoutNumbersAnErrorCountsThatStands) {
  Swaps rig;
  const Joined a = rig.with({.name = "x"}, kGiB);
  a.shim.be_resident(abi::kSwapNoHostRoom);
  a.shim.residency().answered = 0;
  rig.tell("swap-out");
  EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null());
  rig.pass(seconds(3));
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["code"], kRefusedByPolicy);
}

TEST(ResidencyFailures, WhoWasAwayUnderAnEarlierOrderHasNotLeftAgain) {
  Swaps rig;
  const Joined a = rig.swapped_out({.name = "x"}, kGiB);
  rig.tell("swap-in");
  rig.tell("swap-out");  // it may be coming back already
  EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null());
  EXPECT_EQ(rig.job()["residency"], "moving");
  rig.is_absent(a);
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["residency"], "swapped");
}

TEST(ResidencyFailures, AnErrorThatComesWithTheNewsOfLeavingDoesNotEndTheAttempt) {
  Swaps rig;
  const Joined a = rig.leaving({.name = "x"}, kGiB);
  a.shim.say(abi::kLeaving, abi::kSwapBusy);
  EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null());
  EXPECT_TRUE(a.shim.told_to_leave());
  rig.is_absent(a);
  EXPECT_EQ(rig.awaited(Awaits::kOut, a)["residency"], "swapped");
}

TEST(ResidencyFailures, OneThatNeverLeavesIsGivenUpAndItsGateObeysAgain) {
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

TEST(ResidencyFailures, AMoveOf100GiBIsAnsweredWhenItHasEndedHoweverLongItTakes) {
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

TEST(ResidencyFailures, AMoveThatStopsIsGivenUpAMinuteLater) {
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

TEST(ResidencyFailures, WhoOnlySaysThatItsMemoryMovesHoldsNobodyUpForLong) {
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

TEST(ResidencyFailures, AClientThatLiesAboutWhatIsResidentGainsNothing) {
  Swaps rig;
  const Joined a = rig.leaving({.name = "x"}, 3 * kGiB);
  a.shim.be_absent();  // NVML sees all of it still
  rig.pass(seconds(1));
  rig.pass(seconds(1));
  EXPECT_LE(rig.account().free(), kGiB);
  const Joined other = rig.runs({.name = "y"});
  EXPECT_FALSE(rig.allocate(other, 2 * kGiB));
}

TEST(ResidencyFailures, WordsThatMakeNoSenseAreClamped) {
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

TEST(ResidencyFailures, TheWordsOfAJobThatIsNotSwappableCountForNothing) {
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

}  // namespace
}  // namespace switchyard::monitor::test
