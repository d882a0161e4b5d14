// Lending a job's memory to others, end to end: the library, the monitor and the command line.
#include <signal.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/system/harness.h"

namespace switchyard::system_tests {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

class Release : public Scene {
 protected:
  void TearDown() override {
    child_.reset();
    Scene::TearDown();
  }
  void begin(const Words& options = {}, std::uint64_t mebibytes = 40) {
    Words all = {"--name", "lender", "--swappable"};
    all.insert(all.end(), options.begin(), options.end());
    child_.emplace(job(all, {built("tests/jobs/job_swap"), std::to_string(mebibytes * kMiB)},
                       {{"FAKECUDA_PATTERN", "1"}}));
    ASSERT_EQ(line(), "ready");
  }
  std::string line() {
    std::string text;
    if (!child_->read_line(text, kLimit)) return {};
    return text;
  }
  std::string ask(const std::string& command) {
    if (!child_->write_line(command)) return {};
    return line();
  }
  json gpu() { return gpu_of("lender"); }
  bool residency(const std::string& wanted) {
    // A job that looks for a monitor is in no list.
    return eventually([&] {
      const json found = gpu();
      return !found.is_null() && found.value("residency", "") == wanted;
    });
  }

  std::optional<Child> child_;
};

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
    ASSERT_EQ(cli({"resume", "lender"}).status, 0);
    ASSERT_TRUE(residency("resident"));
    EXPECT_TRUE(eventually([&] { return ask("count") != held; }));
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

// Two jobs of 48 MiB in pieces of 6, of which 76 MiB fit.
class ReleaseInParts : public Release {
 protected:
  void two_at_work(const Words& capacity, const Changes& environment = {}) {
    owner_.emplace(monitor(capacity, environment));
    Words command = {built("tests/jobs/job_swap")};
    command.insert(command.end(), 8, std::to_string(6 * kMiB));
    for (const char* name : {"one", "two"}) {
      jobs_.push_back(std::make_unique<Child>(
          job({"--name", name, "--oversubscribe"}, command, {{"FAKECUDA_PATTERN", "1"}})));
      ASSERT_EQ(said_by(jobs_.size() - 1), "ready");
      tell(jobs_.size() - 1, "begin");
    }
  }
  std::string said_by(std::size_t index) {
    std::string text;
    return jobs_[index]->read_line(text, kLimit) ? text : std::string();
  }
  std::string tell(std::size_t index, const std::string& command) {
    return jobs_[index]->write_line(command) ? said_by(index) : std::string();
  }
  bool advances(std::size_t index) {
    const std::string before = tell(index, "count");
    return eventually([&] { return tell(index, "count") != before; });
  }

  std::optional<Child> owner_;
  std::vector<std::unique_ptr<Child>> jobs_;
};

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
  EXPECT_TRUE(advances(0));
  EXPECT_TRUE(advances(1));
  for (const std::size_t each : {0, 1}) {
    EXPECT_EQ(tell(each, "end"), "did end");
    EXPECT_EQ(tell(each, "check"), "right");
  }
}

// Two jobs of 120 MiB in pieces of 10, of which some 150 fit: what is handed over are 64 MiB at
// least.
class HandedOver : public ReleaseInParts {
 protected:
  void large_ones_at_work(const Changes& environment = {}) {
    owner_.emplace(monitor({"--capacity", "176MiB"}, environment));
    Words command = {built("tests/jobs/job_swap")};
    command.insert(command.end(), 12, std::to_string(10 * kMiB));
    Changes changes = {{"FAKECUDA_PATTERN", "1"}};
    changes.insert(changes.end(), environment.begin(), environment.end());
    for (const char* name : {"one", "two"}) {
      jobs_.push_back(
          std::make_unique<Child>(job({"--name", name, "--oversubscribe"}, command, changes)));
      ASSERT_EQ(said_by(jobs_.size() - 1), "ready");
      tell(jobs_.size() - 1, "begin");
    }
  }
  std::uint64_t taken(const char* name) {
    return gpu_of(name).value("swap_taken_over_bytes", 0ull);
  }
  bool moved(const char* name, std::uint64_t times) {
    return eventually([&] { return gpu_of(name).value("swap_times_out", 0ull) >= times; });
  }
  void expect_all_right() {
    EXPECT_TRUE(advances(0));
    EXPECT_TRUE(advances(1));
    for (const std::size_t each : {0, 1}) {
      EXPECT_EQ(tell(each, "end"), "did end");
      EXPECT_EQ(tell(each, "check"), "right");
    }
  }
};

TEST_F(HandedOver, WhatLeavesIsTheOthersAsItIsAndComesBackTheSameWay) {
  large_ones_at_work();
  EXPECT_TRUE(eventually([&] { return taken("one") > 0 && taken("two") > 0; }));
  EXPECT_TRUE(moved("one", 3));
  EXPECT_TRUE(moved("two", 3));
  expect_all_right();
}

TEST_F(HandedOver, WhoeverIsKilledMeanwhileTheOtherGoesOn) {
  for (const std::size_t killed : {0, 1}) {
    jobs_.clear();
    owner_.reset();
    large_ones_at_work();
    ASSERT_TRUE(eventually([&] { return taken("one") > 0 && taken("two") > 0; }));
    const char* name = killed == 0 ? "one" : "two";
    ASSERT_TRUE(eventually([&] { return gpu_of(name).value("residency", "") == "moving"; }));
    ::kill(jobs_[killed]->pid(), SIGKILL);
    const std::size_t left = 1 - killed;
    EXPECT_TRUE(advances(left));
    EXPECT_EQ(tell(left, "end"), "did end");
    EXPECT_EQ(tell(left, "check"), "right");
    EXPECT_TRUE(eventually([&] {
      return listing("status")["gpus"][0].value("memory_used_bytes", 0ull) < 200 * kMiB;
    })) << "the other's memory is nobody's";
  }
}

TEST_F(HandedOver, WhenTheMonitorIsKilledMeanwhileNothingIsLost) {
  large_ones_at_work();
  ASSERT_TRUE(eventually([&] { return taken("one") > 0 && taken("two") > 0; }));
  ASSERT_TRUE(eventually([&] { return gpu_of("one").value("residency", "") == "moving"; }));
  ::kill(owner_->pid(), SIGKILL);
  owner_.reset();
  owner_.emplace(monitor({"--capacity", "176MiB"}));
  expect_all_right();
}

class FailingHandOver : public HandedOver, public ::testing::WithParamInterface<const char*> {};

TEST_P(FailingHandOver, LosesNothing) {
  large_ones_at_work({{"FAKECUDA_FAIL", GetParam()}, {"FAKECUDA_FAILED", in_folder("failed")}});
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(in_folder("failed")); }));
  EXPECT_TRUE(moved("one", 2));
  EXPECT_TRUE(moved("two", 2));
  expect_all_right();
}

INSTANTIATE_TEST_SUITE_P(Driver, FailingHandOver,
                         ::testing::Values("cuMemExportToShareableHandle:4=999",
                                           "cuMemImportFromShareableHandle:4=999",
                                           "cuMemMap:20=999", "cuMemSetAccess:18=999"),
                         [](const auto& info) {
                           const std::string text = info.param;
                           return text.substr(0, text.find(':'));
                         });

TEST_F(ReleaseInParts, WhenTheMonitorIsKilledInAMoveTheyGoOnOneAfterTheOtherAndAnewInTurns) {
  // More than the device has does not fit without a monitor either.
  two_at_work({}, {{"FAKECUDA_MEMORY", "93MiB"}});
  for (int kill = 0; kill < 3; ++kill) {
    ASSERT_TRUE(eventually([&] { return gpu_of("one").value("residency", "") == "moving"; }));
    ::kill(owner_->pid(), SIGKILL);
    owner_.reset();
    const std::string one = tell(0, "count");
    const std::string two = tell(1, "count");
    EXPECT_TRUE(eventually([&] { return tell(0, "count") != one || tell(1, "count") != two; }));
    owner_.emplace(monitor());
    EXPECT_TRUE(advances(0));
    EXPECT_TRUE(advances(1));
  }
  for (const std::size_t each : {0, 1}) {
    EXPECT_EQ(tell(each, "end"), "did end");
    EXPECT_EQ(tell(each, "check"), "right");
  }
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
