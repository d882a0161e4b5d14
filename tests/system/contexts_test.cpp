// A job leaves the GPU with its contexts, end to end: nothing of it is left there, and all of it
// comes back.
#include <signal.h>

#include <optional>
#include <string>

#include "tests/system/release_scene.h"

namespace switchyard::system_tests {
namespace {

class Contexts : public Release {
 protected:
  std::uint64_t used_bytes() {
    return listing("status")["gpus"][0].value("memory_used_bytes", ~0ull);
  }
  bool nothing_is_left() {
    return eventually([&] { return used_bytes() == 0; });
  }
  static Words away() { return {"pause", "--release", "--contexts", "lender"}; }
};

TEST_F(Contexts, NothingIsLeftOfAReleasedJobAndAllComesBack) {
  begin();
  ask("begin");
  for (int round = 0; round < 2; ++round) {
    const Child::End paused = cli(away());
    ASSERT_EQ(paused.status, 0) << paused.err;
    EXPECT_EQ(gpu().value("residency", ""), "swapped");
    EXPECT_TRUE(nothing_is_left()) << used_bytes();
    const std::string held = ask("count");
    ASSERT_EQ(cli({"resume", "lender"}).status, 0);
    ASSERT_TRUE(residency("resident"));
    EXPECT_TRUE(eventually([&] { return ask("count") != held; }));
    EXPECT_TRUE(eventually([&] { return used_bytes() > 40 * kMiB; }));
  }
  EXPECT_EQ(ask("end"), "did end");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Contexts, TheFirstCallBringsAnIdleJobBack) {
  begin({"--idle-release", "0.3s,contexts"});
  EXPECT_EQ(job_named("lender").value("idle_release_contexts", false), true);
  for (const char* call : {"check", "launch 1", "sync", "alloc 4194304", "check"}) {
    ASSERT_TRUE(residency("swapped")) << call;
    EXPECT_TRUE(nothing_is_left()) << call;
    EXPECT_NE(ask(call), "") << call;
  }
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Contexts, SmallAllocationsAndGraphsSurvive) {
  begin();
  EXPECT_EQ(ask("alloc " + std::to_string(kMiB / 2)), "did alloc 1");
  EXPECT_EQ(ask("graph"), "did graph");
  ASSERT_EQ(cli(away()).status, 0);
  EXPECT_TRUE(nothing_is_left());
  ASSERT_EQ(cli({"resume", "lender"}).status, 0);
  EXPECT_EQ(ask("replay 3"), "did replay");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Contexts, AnotherJobCanHaveAllOfTheGpuMeanwhile) {
  const Child owner = monitor({}, {{"FAKECUDA_MEMORY", "500MiB"}});
  begin({}, 40);
  ASSERT_EQ(cli(away()).status, 0);
  Child borrower =
      job({"--name", "borrower"}, {built("tests/jobs/job_alloc"), "alloc:480", "wait"});
  std::string said;
  ASSERT_TRUE(borrower.read_line(said, kLimit));
  EXPECT_EQ(said, "alloc 0");
  ASSERT_EQ(cli({"resume", "lender"}).status, 0);
  ASSERT_TRUE(residency("waiting"));
  ASSERT_TRUE(child_->write_line("check"));
  EXPECT_EQ(borrower.finish(kLimit).status, 0);
  EXPECT_EQ(line(), "right");
}

TEST_F(Contexts, WhatTheDriverRefusesComesBackWithTheReason) {
  begin({}, 40, {{"FAKECUDA_FAIL", "cuCheckpointProcessCheckpoint:1+=801"}});
  const Child::End refused = cli(away());
  EXPECT_EQ(refused.status, 6) << refused.out;
  EXPECT_NE(refused.err.find("CUDA error 801"), std::string::npos) << refused.err;
  ASSERT_TRUE(residency("resident"));
  ASSERT_EQ(cli({"resume", "lender"}).status, 0);
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Contexts, AJobThatSharesMemoryIsRefusedBeforeAnythingIsTouched) {
  begin();
  ASSERT_EQ(ask("alloc " + std::to_string(4 * kMiB) + "/" + std::to_string(2 * kMiB) + "x"),
            "did alloc 1");
  ASSERT_EQ(ask("export 1").rfind("failed", 0), std::string::npos);
  const auto moves = gpu().value("swap_times_out", 0);
  const Child::End refused = cli(away());
  EXPECT_EQ(refused.status, 6);
  EXPECT_NE(refused.err.find("shares memory"), std::string::npos) << refused.err;
  EXPECT_EQ(gpu().value("swap_times_out", 0), moves);
  EXPECT_NE(job_named("lender").value("state", ""), "paused");
}

TEST_F(Contexts, AJobKilledMeanwhileLeavesNothing) {
  const Child owner = monitor();
  begin();
  ASSERT_EQ(cli(away()).status, 0);
  ::kill(child_->pid(), SIGKILL);
  child_.reset();
  EXPECT_TRUE(eventually([&] { return job_named("lender").is_null(); }));
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(Contexts, AJobKilledOnItsWayLeavesNothing) {
  const Child owner = monitor();
  for (int round = 0; round < 4; ++round) {
    begin();
    ask("begin");
    Child command = start({built("switchyard"), "pause", "--release", "--contexts", "lender"});
    EXPECT_TRUE(eventually([&] { return gpu().value("residency", "") != "resident"; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * round));
    ::kill(child_->pid(), SIGKILL);
    child_.reset();
    command.finish(kLimit);
    EXPECT_TRUE(eventually([&] { return job_named("lender").is_null(); }));
    EXPECT_TRUE(nothing_is_left());
  }
}

TEST_F(Contexts, ACommandKilledOnItsWayChangesNothing) {
  const Child owner = monitor();
  begin();
  ask("begin");
  {
    Child command = start({built("switchyard"), "pause", "--release", "--contexts", "lender"});
    EXPECT_TRUE(eventually([&] { return gpu().value("residency", "") != "resident"; }));
    ::kill(command.pid(), SIGKILL);
  }
  EXPECT_TRUE(nothing_is_left());
  ASSERT_EQ(cli({"resume", "lender"}).status, 0);
  ASSERT_TRUE(residency("resident"));
  EXPECT_EQ(ask("end"), "did end");
  EXPECT_EQ(ask("check"), "right");
}

// Where the process is, is asked when it comes back, when it is restored, and when it is unlocked.
TEST_F(Contexts, AQuestionThatTheDriverDoesNotAnswerLosesNothing) {
  const Child owner = monitor();
  for (const char* which : {"1", "2", "3"}) {
    const std::string failure = std::string("cuCheckpointProcessGetState:") + which + "=999";
    begin({}, 40, {{"FAKECUDA_FAIL", failure}});
    ASSERT_EQ(cli(away()).status, 0);
    ASSERT_EQ(cli({"resume", "lender"}).status, 0);
    EXPECT_EQ(ask("check"), "right") << failure;
    child_.reset();
    EXPECT_TRUE(eventually([&] { return job_named("lender").is_null(); }));
  }
}

TEST_F(Contexts, APauseWithContextsOutlivesTheMonitor) {
  std::optional<Child> owner(monitor());
  begin();
  ASSERT_EQ(cli(away()).status, 0);
  ::kill(owner->pid(), SIGKILL);
  owner.reset();
  owner.emplace(monitor());
  ASSERT_TRUE(residency("swapped"));
  EXPECT_TRUE(nothing_is_left());
  ASSERT_EQ(cli({"resume", "lender"}).status, 0);
  EXPECT_EQ(ask("check"), "right");
}

// Its allocation is too small to be moved by itself: it leaves with the contexts alone.
TEST_F(Contexts, SoDoesOneOfAJobWithoutSwappableMemory) {
  std::optional<Child> owner(monitor());
  begin({}, 1);
  ASSERT_EQ(cli(away()).status, 0);
  ::kill(owner->pid(), SIGKILL);
  owner.reset();
  owner.emplace(monitor());
  ASSERT_TRUE(eventually([&] {
    const json lender = job_named("lender");
    return !lender.is_null() && lender.value("residency", "") == "swapped";
  }));
  EXPECT_TRUE(nothing_is_left());
  ASSERT_EQ(cli({"resume", "lender"}).status, 0);
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Contexts, AnIdleJobComesBackByItselfWhenTheMonitorIsKilled) {
  std::optional<Child> owner(monitor());
  begin({"--idle-release", "0.3s,contexts"});
  ASSERT_TRUE(residency("swapped"));
  EXPECT_TRUE(nothing_is_left());
  ::kill(owner->pid(), SIGKILL);
  owner.reset();
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Contexts, AMonitorKilledOnTheWayLosesNothing) {
  for (int round = 0; round < 3; ++round) {
    std::optional<Child> owner(monitor());
    if (round == 0) begin();
    if (round == 0) ask("begin");
    ASSERT_TRUE(residency("resident"));
    Child command = start({built("switchyard"), "pause", "--release", "--contexts", "lender"});
    EXPECT_TRUE(eventually([&] { return gpu().value("residency", "") != "resident"; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(4 * round));
    ::kill(owner->pid(), SIGKILL);
    command.finish(kLimit);
    owner.reset();
    owner.emplace(monitor());
    EXPECT_TRUE(eventually([&] { return !job_named("lender").is_null(); }));
    EXPECT_TRUE(eventually([&] { return cli({"resume", "lender"}).status == 0; }));
    ASSERT_TRUE(residency("resident"));
    const std::string before = ask("count");
    EXPECT_TRUE(eventually([&] { return ask("count") != before; }));
  }
  EXPECT_EQ(ask("end"), "did end");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Contexts, ForTheContextsTheJobHasToBeSwappable) {
  Child plain = loop({"--name", "plain"});
  const Child::End refused = cli({"pause", "--release", "--contexts", "plain"});
  EXPECT_EQ(refused.status, 6);
  EXPECT_NE(refused.err.find("--swappable"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace switchyard::system_tests
