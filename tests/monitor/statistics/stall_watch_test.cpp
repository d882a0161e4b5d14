// Ranks that others wait for, from the words of pages to the listing and the log.
#include "monitor/statistics/stall_watch.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "monitor/platform/processes.h"
#include "tests/monitor/log_lines.h"
#include "tests/monitor/statistics/statistics_scene.h"

namespace switchyard::monitor::test {
namespace {

using StallWatching = Statistics;

TEST_F(StallWatching, ARankThatOthersWaitForIsListedAndLogged) {
  const LogLines log;
  place(first, 0);
  place(second, 1);
  collective(first);
  collective(second);
  pass(seconds(1));
  collective(first, kGather, 64);
  collective(first, kReduce, 8);
  pass(seconds(4));
  ASSERT_EQ(stalls().size(), 1u);
  const json stall = stalls()[0];
  EXPECT_EQ(stall["rank"], 1);
  EXPECT_EQ(stall["pid"], second.client->peer.pid);
  EXPECT_EQ(stall["operation"], 2);
  EXPECT_EQ(stall["kind"], "all_gather") << "of the one that it lacks, not of the last";
  EXPECT_EQ(stall["bytes"], 64);
  EXPECT_EQ(stall["waiting_ranks"], 1);
  EXPECT_EQ(stall["does"], "unknown") << "nobody has this pid";
  EXPECT_TRUE(stall["held_by"].is_null());
  EXPECT_EQ(log.count("rank 1 (pid " + std::to_string(second.client->peer.pid)), 1u);
  EXPECT_EQ(log.count("has not launched all_gather number 2 (64 B), as 1 other rank did, for 3 s"),
            1u)
      << "once";
  collective(second, kGather, 64);
  collective(second, kReduce, 8);
  pass(seconds(1));
  EXPECT_EQ(stalls().size(), 0u);
  EXPECT_EQ(log.count("is not waited for any more"), 1u);
}

TEST_F(StallWatching, WhatALateRankDoesIsWhatItsLaunchingThreadDoes) {
  place(first, 0);
  place(second, 1);
  second.client->peer.pid = ::getpid();  // whose first thread runs
  collective(first);
  collective(second);
  std::atomic<std::uint32_t> thread{0};
  std::promise<void> over;
  std::thread sleeper([&] {
    thread = static_cast<std::uint32_t>(::syscall(SYS_gettid));
    over.get_future().wait();
  });
  const auto does = [&] {
    pass(seconds(4));
    return stalls().empty() ? json() : stalls()[0]["does"];
  };
  while (thread == 0 || thread_state(::getpid(), thread) != 'S') std::this_thread::yield();
  second.shim.page().process.launching_thread = thread.load();
  collective(first);
  EXPECT_EQ(does(), "sleeping");
  second.shim.page().process.launching_thread = 0x7fffffff;
  EXPECT_EQ(does(), "running") << "the first thread's, where that one is not to be found";
  over.set_value();
  sleeper.join();
}

// /proc is asked for so many of a user's processes in each look.
TEST_F(StallWatching, WhatARankDoesIsSeenHoweverLongItIsLate) {
  place(first, 0);
  place(second, 1);
  second.client->peer.pid = ::getpid();  // which runs
  collective(first);
  pass(seconds(20));
  ASSERT_EQ(stalls().size(), 1u);
  ASSERT_EQ(stalls()[0]["does"], "running");
  second.shim.page().process.entered = 1;  // and is not back
  pass(seconds(1));
  EXPECT_EQ(stalls()[0]["does"], "launching");
}

TEST_F(StallWatching, SendsOfMoreThanTwoRanksAreNotAnotherOperation) {
  place(first, 0, 3);
  place(second, 1, 3);
  for (const Joined* each : {&first, &second}) collective(*each);
  // A send has no number there: it is the last of its rank alone.
  first.shim.page().communicators[0].last_kind = kSend;
  first.shim.page().communicators[0].last_bytes = 99;
  first.shim.record(abi::collective_record(0, kSend, 1), rig.now, 99);
  pass(seconds(10));
  EXPECT_EQ(stalls().size(), 0u);
}

TEST_F(StallWatching, TwoRanksExchangeInAnyOrder) {
  place(first, 0);
  place(second, 1);
  collective(first, kSend, 16);
  collective(second, kReceive, 32);
  pass(seconds(10));
  EXPECT_EQ(stalls().size(), 0u);
}

TEST_F(StallWatching, APauseIsToldAsOne) {
  const LogLines log;
  place(first, 0, 3);  // a rank is elsewhere, so no cut is possible
  place(second, 1, 3);
  collective(first);
  pass(seconds(2));
  rig.tell("pause");
  pass(seconds(2));
  ASSERT_EQ(stalls().size(), 1u);
  EXPECT_EQ(log.count("is held"), 0u) << "most holds are over soon";
  pass(seconds(38));
  ASSERT_EQ(stalls().size(), 1u);
  EXPECT_EQ(stalls()[0]["held_by"], "pause");
  EXPECT_EQ(stalls()[0]["does"], "held");
  EXPECT_NEAR(stalls()[0]["held_seconds"].get<double>(), 40, 0.5);
  EXPECT_EQ(log.count("has not launched"), 0u);
  EXPECT_EQ(log.count("is held by us (pause), for 3 s; 1 other rank launched all_reduce number 1 "
                      "(4 B) 5 s ago"),
            1u)
      << "once";
}

TEST_F(StallWatching, TheEndOfALateRankIsLoggedAlsoWhereAShortHoldCameBetween) {
  const LogLines log;
  place(first, 0);
  place(second, 1);
  collective(first);
  pass(seconds(4));
  ASSERT_EQ(log.count("has not launched"), 1u);
  rig.tell("pause");
  pass(seconds(1));
  ASSERT_EQ(stalls().size(), 1u);
  ASSERT_EQ(stalls()[0]["does"], "held");
  rig.tell("resume");
  collective(second);
  pass(seconds(1));
  EXPECT_EQ(stalls().size(), 0u);
  EXPECT_EQ(log.count("is not waited for any more"), 1u);
}

TEST_F(StallWatching, ARankWhoseProcessHasEndedIsGone) {
  place(first, 0);
  place(second, 1);
  pass(seconds(1));
  rig.dies(second);
  collective(first);
  pass(seconds(4));
  ASSERT_EQ(stalls().size(), 1u);
  EXPECT_EQ(stalls()[0]["does"], "gone");
}

}  // namespace
}  // namespace switchyard::monitor::test
