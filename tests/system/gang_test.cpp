// Gangs: jobs of several ranks, held and swapped at a cut of their collectives.
#include <signal.h>

#include "switchyard/status.h"
#include "tests/system/gang_scene.h"

namespace switchyard::system_tests {
namespace {

class GangHeld : public Gang {
 protected:
  std::vector<long> steps() { return steps_of(ranks_); }
  bool moves() {
    const auto before = steps();
    return eventually([&] {
      const auto now = steps();
      for (std::size_t i = 0; i < now.size(); ++i) {
        if (now[i] <= before[i]) return false;
      }
      return true;
    });
  }
  bool stands_still() {
    auto before = steps();
    return eventually([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto now = steps();
      return std::exchange(before, now) == now;
    });
  }
  // Rank 1 sleeps between its steps, and its peer has gone on.
  bool falls_behind(int pace_ms) {
    EXPECT_EQ(ask(rank(1), "pace " + std::to_string(pace_ms)), "did pace");
    return eventually([this] {
      const auto before = launched();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto counts = launched();
      return counts.size() == 2 && counts[1] < counts[0] && counts == before;
    });
  }
  void expect_right_in_the_end() { system_tests::expect_right_in_the_end(ranks_); }
};

TEST_F(GangHeld, PausedAndResumedTwentyTimesItComputesTheSame) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("begin");
  for (int i = 0; i < 20; ++i) {
    const auto said = cli({"pause", "gang"});
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.err, "") << "it is no best effort";
    const auto counts = launched();
    ASSERT_EQ(counts.size(), 2u);
    EXPECT_EQ(counts[0], counts[1]);
    if (i == 0) {
      EXPECT_NE(said.out.find("safe for 8 min"), std::string::npos) << said.out;
      const auto longer = cli({"pause", "gang", "--timeout", "1h"});
      EXPECT_EQ(longer.status, 0);
      EXPECT_NE(longer.err.find("--timeout 1h is longer"), std::string::npos) << longer.err;
      const json watchdog = json::parse(cli({"pause", "gang", "--json"}).out)["watchdog"];
      EXPECT_EQ(watchdog["safe_seconds"], 480);
      EXPECT_EQ(watchdog["environment_read"], true);
      EXPECT_TRUE(stands_still());
      EXPECT_EQ(launched(), counts);
      EXPECT_EQ(job_named("gang")["state"], "paused");
    }
    ASSERT_EQ(cli({"resume", "gang"}).status, 0);
    ASSERT_TRUE(moves()) << "after pause " << i;
  }
  expect_right_in_the_end();
}

TEST_F(GangHeld, FourRanksOnTwoGpus) {
  auto daemon = monitor({}, two_gpus());
  begin(4);
  do_all("begin");
  for (int i = 0; i < 3; ++i) {
    const auto said = cli({"pause", "gang"});
    ASSERT_EQ(said.status, 0) << said.err;
    const auto counts = launched();
    EXPECT_EQ(counts, std::vector<long>(4, counts[0]));
    ASSERT_EQ(cli({"resume", "gang"}).status, 0);
    ASSERT_TRUE(moves());
  }
  expect_right_in_the_end();
}

TEST_F(GangHeld, SwappedOutAndInItComputesTheSame) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, {{"SWITCHYARD_SWAPPABLE", "yes"}});
  do_all("begin");
  for (int i = 0; i < 10; ++i) {
    const auto said = cli({"swap-out", "gang"});
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(job_named("gang")["residency"], "swapped");
    ASSERT_EQ(cli({"swap-in", "gang"}).status, 0);
    ASSERT_TRUE(moves()) << "after swap-out " << i;
  }
  expect_right_in_the_end();
}

// As a training has that is parallel in several dimensions.
TEST_F(GangHeld, InAHundredCommunicatorsItIsPausedAndSwapped) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, {{"SWITCHYARD_SWAPPABLE", "yes"}});
  for (int i = 1; i < 100; ++i) do_all("split 0");
  do_all("child 3");
  const json listed = job_named("gang");
  EXPECT_EQ(listed["communicators"].size(), 100u);
  EXPECT_EQ(listed["communicators_unwatched"], 0);
  do_all("begin");
  const auto paused = cli({"pause", "gang"});
  ASSERT_EQ(paused.status, 0) << paused.err;
  EXPECT_EQ(paused.err, "") << "it is no best effort";
  const auto counts = launched();
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_EQ(counts[0], counts[1]);
  EXPECT_TRUE(stands_still());
  ASSERT_EQ(cli({"resume", "gang"}).status, 0);
  ASSERT_TRUE(moves());
  const auto out = cli({"swap-out", "gang"});
  ASSERT_EQ(out.status, 0) << out.err;
  EXPECT_EQ(job_named("gang")["residency"], "swapped");
  ASSERT_EQ(cli({"swap-in", "gang"}).status, 0);
  ASSERT_TRUE(moves());
  expect_right_in_the_end();
}

// The driver takes what ranks share through NCCL to no other GPU, so this one shares nothing.
TEST_F(GangHeld, InAHundredCommunicatorsOfItsOwnAProcessIsMoved) {
  auto daemon = monitor({}, two_gpus());
  begin(1, 2, {{"SWITCHYARD_SWAPPABLE", "yes"}});
  for (int i = 1; i < 100; ++i) do_all("split 0");
  EXPECT_EQ(job_named("gang")["communicators"].size(), 100u);
  do_all("begin");
  for (const char* to : {"1", "0"}) {
    const auto moved = cli({"migrate", "gang", "--to", to});
    ASSERT_EQ(moved.status, 0) << moved.err;
    EXPECT_NE(moved.out.find(std::string("moved to GPU ") + to), std::string::npos) << moved.out;
    ASSERT_TRUE(moves());
  }
  expect_right_in_the_end();
}

TEST_F(GangHeld, PausedAndReleasedItComputesTheSame) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, {{"SWITCHYARD_SWAPPABLE", "yes"}});
  do_all("begin");
  ASSERT_EQ(cli({"pause", "gang"}).status, 0);
  const auto said = cli({"pause", "gang", "--release"});
  ASSERT_EQ(said.status, 0) << said.err;
  EXPECT_EQ(job_named("gang")["residency"], "swapped");
  EXPECT_TRUE(stands_still());
  ASSERT_EQ(cli({"resume", "gang"}).status, 0);
  ASSERT_TRUE(moves());
  expect_right_in_the_end();
}

TEST_F(GangHeld, ARankThatIsStoppedEndsTheAttemptByName) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("begin");
  ASSERT_TRUE(moves());
  // Else it is where it should be, and the pause succeeds.
  ASSERT_TRUE(stop_behind());
  const auto said = cli({"pause", "gang"});
  EXPECT_EQ(said.status, kRefusedByPolicy) << "nobody waits for it";
  EXPECT_NE(said.err.find("it is stopped by a signal"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("rank 1 "), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("pid " + std::to_string(rank(1).pid())), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("did not launch 1 collective"), std::string::npos) << said.err;
  EXPECT_NE(job_named("gang")["state"], "paused");
  ::kill(rank(1).pid(), SIGCONT);
  EXPECT_TRUE(moves());
  expect_right_in_the_end();
}

TEST_F(GangHeld, AKilledRankEndsTheAttemptByName) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, {{"SWITCHYARD_SWAPPABLE", "yes"}});
  do_all("begin");
  ASSERT_TRUE(moves());
  const pid_t victim = rank(1).pid();
  ASSERT_TRUE(falls_behind(60'000));
  Child waiting = start({built("switchyard"), "swap-out", "gang"});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ::kill(victim, SIGKILL);
  const auto said = waiting.finish(kLimit);
  EXPECT_EQ(said.status, kRefusedByPolicy);
  EXPECT_NE(said.err.find("rank 1 "), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("pid " + std::to_string(victim)), std::string::npos) << said.err;
  const auto again = cli({"swap-out", "gang"});
  EXPECT_EQ(again.status, kRefusedByPolicy) << "a part of it can't be swapped out";
  EXPECT_NE(again.err.find("rank 1 "), std::string::npos) << again.err;
}

TEST_F(GangHeld, AKilledMonitorLetsItGoOn) {
  auto first = monitor({}, two_gpus());
  begin(2);
  do_all("begin");
  ASSERT_TRUE(moves());
  ASSERT_TRUE(falls_behind(3000));
  // In the middle of an attempt: rank 0 is asked to stop and does.
  Child waiting = start({built("switchyard"), "pause", "gang"});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill_and_wait(first.pid());
  EXPECT_EQ(ask(rank(1), "pace 0"), "did pace");
  EXPECT_TRUE(moves());
  waiting.finish(kLimit);
  auto second = monitor({}, two_gpus());
  ASSERT_TRUE(eventually([this] { return launched().size() == 2; }));
  EXPECT_EQ(cli({"pause", "gang"}).status, 0);
  EXPECT_EQ(cli({"resume", "gang"}).status, 0);
  EXPECT_TRUE(moves());
  expect_right_in_the_end();
}

TEST_F(GangHeld, GraphsStopAtTheCut) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("capture 3");
  for (int i = 0; i < 3; ++i) {
    // One rank is ahead by a launch of the graph.
    EXPECT_EQ(ask(rank(0), "replay 1"), "did replay");
    Child waiting = start({built("switchyard"), "pause", "gang"});
    EXPECT_EQ(ask(rank(1), "replay 1"), "did replay");
    EXPECT_EQ(waiting.finish(kLimit).status, 0);
    EXPECT_EQ(launched(), std::vector<long>(2, 3 * (i + 1)));
    EXPECT_TRUE(rank(0).write_line("replay 1"));
    std::string said;
    EXPECT_FALSE(rank(0).read_line(said, std::chrono::milliseconds(200))) << said;
    EXPECT_EQ(launched(), std::vector<long>(2, 3 * (i + 1))) << "what is held isn't launched";
    EXPECT_EQ(cli({"resume", "gang"}).status, 0);
    EXPECT_EQ(line_of(rank(0)), "did replay");
    EXPECT_EQ(ask(rank(1), "replay 1"), "did replay");
    do_all("sync");
    ++i;
    EXPECT_EQ(launched(), std::vector<long>(2, 3 * (i + 1)));
  }
}

}  // namespace
}  // namespace switchyard::system_tests
