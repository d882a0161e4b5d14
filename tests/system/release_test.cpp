// Lending a job's memory to others, end to end: the library, the monitor and the command line.
#include <signal.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "switchyard/status.h"
#include "tests/system/release_scene.h"
#include "tests/system/schema.h"

namespace switchyard::system_tests {
namespace {

TEST_F(Release, OneThatASignalHasStoppedIsNamedAndNobodyWaitsForIt) {
  auto daemon = monitor();
  begin();
  EXPECT_EQ(job_named("lender")["processes"][0]["standstill"], nullptr);
  ::kill(child_->pid(), SIGSTOP);
  EXPECT_TRUE(eventually([this] { return job_named("lender")["state"] == "stopped"; }));
  const json listed = job_named("lender");
  EXPECT_EQ(listed["state_reason"], "signal");
  EXPECT_EQ(listed["processes"][0]["standstill"], "signal");
  EXPECT_EQ(differences(listed, read_schema("job")), Words{});
  EXPECT_NE(cli({"ps"}).out.find("stopped: signal"), std::string::npos);
  for (const Words& words : {Words{"swap-out", "lender"}, Words{"pause", "--release", "lender"}}) {
    const auto said = cli(words);
    EXPECT_EQ(said.status, kRefusedByPolicy) << words[0];
    EXPECT_TRUE(says(said, std::to_string(child_->pid()) + " is stopped by a signal")) << said.err;
  }
  ::kill(child_->pid(), SIGCONT);
  EXPECT_TRUE(eventually([this] { return job_named("lender")["state"] != "stopped"; }));
  EXPECT_EQ(cli({"swap-out", "lender"}).status, 0);
  EXPECT_EQ(cli({"swap-in", "lender"}).status, 0);
}

TEST_F(Release, AReleasedJobsMemoryIsGoneAndComesBackAsItWas) {
  begin();
  ask("begin");
  for (int round = 0; round < 2; ++round) {
    const Child::End paused = cli({"pause", "--release", "lender"});
    ASSERT_EQ(paused.status, 0) << paused.err;
    EXPECT_EQ(gpu().value("residency", ""), "swapped");
    EXPECT_LT(gpu().value("memory_resident_bytes", ~0ull), 20 * kMiB) << "but for its context";
    EXPECT_EQ(gpu().value("memory_swapped_bytes", 0ull), 40 * kMiB);
    const std::string held = ask("count");
    EXPECT_EQ(ask("count"), held);
    resumes_beyond(held);
  }
  EXPECT_EQ(ask("end"), "did end");
  EXPECT_EQ(ask("check"), "right");
  const json listed = gpu();
  EXPECT_EQ(listed.value("swap_times_out", 0), 2);
  EXPECT_EQ(listed.value("memory_swappable_bytes", 0ull), 40 * kMiB);
  EXPECT_EQ(listed.value("swap_moved_in_bytes", 0ull), 2 * 40 * kMiB);
  EXPECT_EQ(listed.value("swap_moved_out_bytes", 0ull) + listed.value("swap_spared_bytes", 0ull),
            2 * 40 * kMiB);
}

TEST_F(Release, ASwapOutIsAnsweredHoweverLongAKernelTakes) {
  begin();
  // Longer than a frame may take, and than a client waits for its own work: 10 s each.
  ASSERT_EQ(ask("busy 13000000"), "did busy");
  const Child::End out = cli({"swap-out", "lender"});
  EXPECT_TRUE(out.status == 0 || out.status == 6 || out.status == 7) << out.status << out.err;
  EXPECT_EQ(out.status == 0, out.err.empty()) << "else the reason: " << out.err;
  ASSERT_EQ(cli({"swap-in", "lender"}).status, 0);
  ASSERT_TRUE(residency("resident"));
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Release, APauseOutlivesAMonitorThatDiesWhileTheMemoryLeaves) {
  begin();
  // It leaves for as long as this runs, and its gate is open.
  ASSERT_EQ(ask("busy 4000000"), "did busy");
  ASSERT_EQ(cli({"pause", "lender"}).status, 0);
  ask("begin");
  auto out = std::async(std::launch::async, [this] { return cli({"swap-out", "lender"}); });
  ASSERT_TRUE(residency("moving"));
  EXPECT_EQ(gpu().value("gate", ""), "open");
  kill_and_wait(monitor_pid());
  EXPECT_NE(out.get().status, 0);
  // Longer than it leaves, and than a silent monitor is believed in.
  std::this_thread::sleep_for(std::chrono::seconds(5));
  const std::string held = ask("count");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(ask("count"), held);
  const Child second = monitor();
  EXPECT_TRUE(eventually([this] {
    const json found = job_named("lender");
    return found.is_object() && found["state"] == "paused";
  }));
  EXPECT_EQ(ask("count"), held);
  resumes_beyond(held);
  EXPECT_EQ(ask("end"), "did end");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Release, TheNextMonitorGoesOnWithAReleasedPauseWhoseMemoryLeaves) {
  begin();
  ASSERT_EQ(ask("busy 4000000"), "did busy");
  auto out = std::async(std::launch::async, [this] {
    return cli({"pause", "--release", "lender"});
  });
  ASSERT_TRUE(residency("moving"));
  kill_and_wait(monitor_pid());
  EXPECT_NE(out.get().status, 0);
  const Child second = monitor();
  EXPECT_TRUE(residency("swapped"));
  EXPECT_EQ(job_named("lender")["state"], "paused");
  ASSERT_EQ(cli({"resume", "lender"}).status, 0);
  ASSERT_TRUE(residency("resident"));
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Release, WithoutAHostPoolEachSwapOutIsRefusedWithTheReason) {
  const Child owner = monitor({"--host-pool", "0"});
  begin();
  for (int attempt = 0; attempt < 4; ++attempt) {
    const Child::End out = cli({"swap-out", "lender"});
    EXPECT_EQ(out.status, 6) << attempt << out.err;
    EXPECT_NE(out.err.find("--host-pool"), std::string::npos) << out.err;
    EXPECT_TRUE(residency("resident"));
    if (attempt % 2 == 1) cli({"swap-in", "lender"});
  }
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Release, AnotherJobUsesTheRoomAndTheFirstComesBackWhenItHasGone) {
  const Child owner = monitor({"--capacity", "500MiB"});
  begin({}, 300);
  const Words borrow{built("tests/jobs/job_alloc"), "alloc:300", "wait"};
  EXPECT_EQ(job({"--name", "early"}, borrow).finish(kLimit).out, "alloc 2\nwaiting\n");
  ASSERT_EQ(cli({"swap-out", "lender"}).status, 0);
  Child borrower = job({"--name", "borrower"}, borrow);
  std::string said;
  ASSERT_TRUE(borrower.read_line(said, kLimit));
  EXPECT_EQ(said, "alloc 0");
  cli({"swap-in", "lender"});
  ASSERT_TRUE(residency("waiting"));
  ASSERT_TRUE(child_->write_line("check"));
  EXPECT_EQ(borrower.finish(kLimit).status, 0);
  EXPECT_EQ(line(), "right");
  EXPECT_TRUE(residency("resident"));
}

TEST_F(Release, AnIdleJobGivesItsMemoryBackAndTakesItAgainAtItsNextCall) {
  const Child owner = monitor({"--capacity", "500MiB"});
  begin({"--idle-release", "0.3s"}, 300);
  ASSERT_TRUE(residency("swapped"));
  EXPECT_EQ(job_named("lender").value("state", ""), "swapped");
  Child borrower =
      job({"--name", "borrower"}, {built("tests/jobs/job_alloc"), "alloc:300", "wait"});
  std::string said;
  ASSERT_TRUE(borrower.read_line(said, kLimit));
  EXPECT_EQ(said, "alloc 0");
  EXPECT_EQ(borrower.finish(kLimit).status, 0);
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Release, JobsThatDoNotFitTogetherTakeTurns) {
  // With a context each, one fits and two don't.
  const Child owner = monitor({"--capacity", "45MiB"});
  begin({"--oversubscribe"}, 20);
  ask("begin");
  Child second =
      job({"--name", "second", "--oversubscribe"},
          {built("tests/jobs/job_swap"), std::to_string(20 * kMiB)}, {{"FAKECUDA_PATTERN", "1"}});
  std::string said;
  ASSERT_TRUE(second.read_line(said, kLimit));
  ASSERT_EQ(said, "ready") << "the first gave it room";
  const auto ask_second = [&](const std::string& command) {
    return second.write_line(command) && second.read_line(said, kLimit) ? said : std::string();
  };
  ask_second("begin");
  // Out and in count one each.
  const auto moved = [&](const char* name) {
    return eventually([&] { return gpu_of(name).value("swap_moves", 0ull) >= 4; });
  };
  EXPECT_TRUE(moved("lender"));
  EXPECT_TRUE(moved("second"));
  const std::string one = ask("count");
  const std::string two = ask_second("count");
  EXPECT_TRUE(eventually([&] { return ask("count") != one; }));
  EXPECT_TRUE(eventually([&] { return ask_second("count") != two; }));
  EXPECT_EQ(ask("end"), "did end");
  EXPECT_EQ(ask_second("end"), "did end");
  EXPECT_EQ(ask("check"), "right");
  EXPECT_EQ(ask_second("check"), "right");
}

TEST_F(Release, ARefusalForWantOfHostMemoryNamesTheHostPool) {
  const Child owner = monitor({"--capacity", "500MiB", "--host-pool", "0"});
  begin({"--oversubscribe"}, 300);
  Child second = job({"--oversubscribe"}, {built("tests/jobs/job_alloc"), "alloc:300"});
  const Child::End end = second.finish(kLimit);
  EXPECT_EQ(end.out, "alloc 2\n");
  EXPECT_NE(end.err.find("'switchyardd --host-pool SIZE'"), std::string::npos) << end.err;
}

// As if the driver still cleared what another has given back.
TEST_F(Release, WhoTakesTurnsWaitsForRoomThatWasGranted) {
  const Child owner = monitor();
  const Words steps{built("tests/jobs/job_alloc"), "alloc:100"};
  const Changes full = {{"FAKECUDA_FAIL", "cuMemCreate:2=2,cuMemCreate:3=2,cuMemCreate:4=2"}};
  EXPECT_EQ(job({"--oversubscribe"}, steps, full).finish(kLimit).out, "alloc 0\n");
  EXPECT_EQ(job({"--swappable"}, steps, full).finish(kLimit).out, "alloc 2\n");
}

TEST_F(ReleaseInParts, OnlyWhatIsLackingLeavesAndEveryWordIsRight) {
  two_at_work({"--capacity", "92MiB"});
  bool whole = false;
  const auto moved = [&](const char* name) {
    return eventually([&] {
      const json gpu = gpu_of(name);
      whole = whole || gpu.value("memory_swapped_bytes", 0ull) > 30 * kMiB;
      return gpu.value("swap_moves", 0ull) >= 4;
    });
  };
  EXPECT_TRUE(moved("one"));
  EXPECT_TRUE(moved("two"));
  EXPECT_FALSE(whole) << "20 MiB would have been enough";
  expect_all_right();
}

TEST_F(ReleaseInParts, WhenTheMonitorIsKilledInAMoveTheyGoOnOneAfterTheOtherAndAnewInTurns) {
  // More than the device has does not fit without a monitor either.
  two_at_work({}, {{"FAKECUDA_MEMORY", "93MiB"}});
  for (int kill = 0; kill < 3; ++kill) {
    ASSERT_TRUE(caught_moving("one"));
    ::kill(owner_->pid(), SIGKILL);
    owner_.reset();
    const std::string one = tell(0, "count");
    const std::string two = tell(1, "count");
    EXPECT_TRUE(eventually([&] { return tell(0, "count") != one || tell(1, "count") != two; }));
    owner_.emplace(monitor());
    EXPECT_TRUE(advances(0));
    EXPECT_TRUE(advances(1));
  }
  expect_all_right();
}

TEST_F(Release, AJobKilledWhileItsMemoryIsAwayLeavesNothing) {
  begin();
  ASSERT_EQ(cli({"swap-out", "lender"}).status, 0);
  child_.reset();
  EXPECT_TRUE(eventually([&] { return job_named("lender").is_null(); }));
}

TEST_F(Release, AJobKilledWhileItsMemoryMovesLeavesNothing) {
  const Child owner = monitor();
  for (int round = 0; round < 3; ++round) {
    begin({}, 100);
    ask("begin");
    Child mover = start({built("switchyard"), "swap-out", "lender"});
    // Somewhere on its way, another place each time.
    EXPECT_TRUE(eventually([&] {
      return gpu().value("memory_swapped_bytes", 0ull) > static_cast<unsigned>(round) * 30 * kMiB ||
             gpu().value("residency", "") == "swapped";
    }));
    ::kill(child_->pid(), SIGKILL);
    child_.reset();
    mover.finish(kLimit);
    EXPECT_TRUE(eventually([&] { return job_named("lender").is_null(); }));
    EXPECT_TRUE(
        eventually([this] { return listing("status")["gpus"][0]["memory_used_bytes"] == 0; }));
  }
}

TEST_F(Release, WhenTheMonitorIsKilledWhileMemoryIsAwayItComesBackAndANextOneFindsIt) {
  std::optional<Child> owner(monitor());
  begin();
  ASSERT_EQ(cli({"swap-out", "lender"}).status, 0);
  ::kill(owner->pid(), SIGKILL);
  owner.reset();
  EXPECT_EQ(ask("check"), "right") << "by itself";
  owner.emplace(monitor());
  ASSERT_TRUE(residency("resident"));
  ASSERT_EQ(cli({"swap-out", "lender"}).status, 0);
  ASSERT_EQ(cli({"swap-in", "lender"}).status, 0);
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Release, AReleasedPauseOutlivesTheMonitor) {
  std::optional<Child> owner(monitor());
  begin();
  ASSERT_EQ(cli({"pause", "--release", "lender"}).status, 0);
  ::kill(owner->pid(), SIGKILL);
  owner.reset();
  owner.emplace(monitor());
  ASSERT_TRUE(residency("swapped"));
  EXPECT_EQ(gpu().value("swap_times_out", 0), 1) << "the job tells the next monitor";
  EXPECT_EQ(gpu().value("swap_moved_out_bytes", 0ull), 40 * kMiB);
  ASSERT_EQ(cli({"resume", "lender"}).status, 0);
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Release, AJobThatIsNotSwappableIsRefusedAndGoesOn) {
  Child plain = loop({"--name", "plain"});
  const Child::End refused = cli({"pause", "--release", "plain"});
  EXPECT_EQ(refused.status, 6);
  EXPECT_NE(refused.err.find("--swappable"), std::string::npos) << refused.err;
  const long before = kernels(plain);
  EXPECT_TRUE(eventually([&] { return kernels(plain) > before; }));
}

}  // namespace
}  // namespace switchyard::system_tests
