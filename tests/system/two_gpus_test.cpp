// Processes that see two GPUs. The memory of each leaves and comes back by itself, and the process
// works with all of it or not at all. With the real monitor and the command line.
#include <signal.h>

#include <string>

#include "tests/system/release_scene.h"

namespace switchyard::system_tests {
namespace {

class TwoGpus : public Release {
 protected:
  // A job with memory on each GPU, in MiB, whose kernels reach that of both.
  void begin_on_both(const Words& options = {}, std::uint64_t first = 40,
                     std::uint64_t second = 60) {
    Words all = {"--name", "both"};
    all.insert(all.end(), options.begin(), options.end());
    Changes changes = kTwoGpus;
    changes.emplace_back("FAKECUDA_PATTERN", "1");
    child_.emplace(job(all,
                       {built("tests/jobs/job_swap"), std::to_string(first * kMiB),
                        std::to_string(second * kMiB) + ":1"},
                       changes));
    ASSERT_EQ(line(), "ready");
  }
  json on_gpu(std::size_t gpu) {
    const json found = job_named("both");
    return found.is_null() || found["gpus"].size() <= gpu ? json() : found["gpus"][gpu];
  }
  bool becomes(std::size_t gpu, const std::string& wanted) {
    return eventually([&] {
      const json found = on_gpu(gpu);
      return !found.is_null() && found.value("residency", "") == wanted;
    });
  }
  std::uint64_t swapped(std::size_t gpu) {
    return on_gpu(gpu).value("memory_swapped_bytes", std::uint64_t{0});
  }
  bool goes_on() {
    const std::string before = ask("count");
    return eventually([&] { return ask("count") != before; });
  }
  void expect_right_in_the_end() {
    EXPECT_TRUE(goes_on());
    EXPECT_EQ(ask("end"), "did end");
    EXPECT_EQ(ask("check"), "right");
  }
};

TEST_F(TwoGpus, AllMemoryLeavesAndComesBackAsItWas) {
  begin_on_both({"--swappable"});
  ask("begin");
  for (int round = 0; round < 3; ++round) {
    const Child::End out = cli({"swap-out", "both"});
    ASSERT_EQ(out.status, 0) << out.err;
    EXPECT_EQ(swapped(0), 40 * kMiB);
    EXPECT_EQ(swapped(1), 60 * kMiB);
    EXPECT_EQ(job_named("both").value("state", ""), "swapped");
    const std::string held = ask("count");
    EXPECT_EQ(ask("count"), held);
    ASSERT_EQ(cli({"swap-in", "both"}).status, 0);
    ASSERT_TRUE(becomes(0, "resident"));
    ASSERT_TRUE(becomes(1, "resident"));
    EXPECT_TRUE(eventually([&] { return ask("count") != held; }));
  }
  expect_right_in_the_end();
}

TEST_F(TwoGpus, OnlyTheMemoryOfTheGpuThatAnotherJobNeedsLeaves) {
  // With a context each, one of the two fits.
  const Child owner = monitor({"--capacity", "50MiB"}, kTwoGpus);
  begin_on_both({"--oversubscribe"}, 24, 24);
  ask("begin");
  Child other = job({"--name", "other", "--oversubscribe", "--gpus", "0"},
                    {built("tests/jobs/job_swap"), std::to_string(24 * kMiB)}, kTwoGpus);
  ASSERT_EQ(line_of(other), "ready") << "the first gave it room";
  EXPECT_EQ(swapped(1), 0u);
  EXPECT_EQ(on_gpu(1).value("residency", ""), "resident");
  EXPECT_EQ(on_gpu(1).value("memory_resident_bytes", std::uint64_t{0}) / kMiB, 32u);
  // Both take turns, and the memory of the second GPU is never touched.
  EXPECT_EQ(system_tests::ask(other, "begin"), "did begin");
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_TRUE(goes_on());
    const std::string before = system_tests::ask(other, "count");
    EXPECT_TRUE(eventually([&] { return system_tests::ask(other, "count") != before; }));
  }
  EXPECT_EQ(system_tests::ask(other, "end"), "did end");
  EXPECT_EQ(system_tests::ask(other, "check"), "right");
  EXPECT_EQ(other.finish(kLimit).status, 0);
  expect_right_in_the_end();
  EXPECT_EQ(on_gpu(1).value("swap_moved_out_bytes", std::uint64_t{1}), 0u);
  EXPECT_GT(on_gpu(0).value("swap_moved_out_bytes", std::uint64_t{0}), 0u);
}

TEST_F(TwoGpus, PsTellsOnWhichGpuMemoryIsAway) {
  const Child owner = monitor({"--capacity", "50MiB"}, kTwoGpus);
  begin_on_both({"--oversubscribe"}, 24, 24);
  Child other = job({"--name", "other", "--oversubscribe", "--gpus", "1"},
                    {built("tests/jobs/job_swap"), std::to_string(24 * kMiB)}, kTwoGpus);
  ASSERT_EQ(line_of(other), "ready");
  ASSERT_TRUE(becomes(1, "swapped"));
  const json listed = job_named("both");
  EXPECT_EQ(listed.value("state", ""), "swapped");
  EXPECT_EQ(listed.value("state_reason", ""), "GPU 1: another job needs the memory");
  EXPECT_EQ(on_gpu(0).value("residency", ""), "resident");
  const std::string table = cli({"ps"}).out;
  EXPECT_NE(table.find("swapped: GPU 1: another job needs the memory"), std::string::npos) << table;
  const std::string of_gpus =
      cli({"ps", "both", "--per-gpu", "--format", "{gpu} {memory} {resident}"}).out;
  EXPECT_EQ(of_gpus.substr(0, of_gpus.find('\n')), "0 32M/- 32M") << of_gpus;
}

TEST_F(TwoGpus, AnIdleJobGivesTheMemoryOfBothBackAndTakesItAgain) {
  begin_on_both({"--idle-release", "0.3s"});
  ASSERT_TRUE(becomes(0, "swapped"));
  ASSERT_TRUE(becomes(1, "swapped"));
  ask("begin");  // from now on it is never idle
  EXPECT_TRUE(goes_on());
  EXPECT_EQ(swapped(0) + swapped(1), 0u);
  expect_right_in_the_end();
}

TEST_F(TwoGpus, AQuotaIsReservedOnTheGpusThatWereChosen) {
  const Child owner = monitor({"--capacity", "500MiB"}, kTwoGpus);
  Child one =
      job({"--name", "one", "--memory", "300MiB", "--gpus", "1"}, {loop_program()}, kTwoGpus);
  ASSERT_EQ(line_of(one), "ready");
  const json gpus = listing("status")["gpus"];
  EXPECT_EQ(gpus[0].value("memory_reserved_bytes", std::uint64_t{1}), 0u);
  EXPECT_EQ(gpus[1].value("memory_reserved_bytes", std::uint64_t{0}), 300 * kMiB);
}

TEST_F(TwoGpus, WhoseGpusDoNotReachEachOtherKeepsItsMemoryAndSaysWhy) {
  Changes changes = kTwoGpus;
  changes.emplace_back("FAKECUDA_PEERS", "no");
  child_.emplace(job({"--name", "both", "--swappable"},
                     {built("tests/jobs/job_swap"), std::to_string(40 * kMiB)}, changes));
  ASSERT_EQ(line(), "ready");
  const Child::End out = cli({"swap-out", "both"});
  EXPECT_EQ(out.status, 6);
  EXPECT_NE(out.err.find("cannot all access each other's memory"), std::string::npos) << out.err;
  EXPECT_EQ(job_named("both").value("residency", ""), "resident");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(TwoGpus, WhoIsKilledWhileItsMemoryMovesLeavesNothingBehind) {
  const Child owner = monitor({"--capacity", "500MiB"}, kTwoGpus);
  for (int round = 0; round < 3; ++round) {
    begin_on_both({"--swappable"}, 200, 200);
    ask("begin");
    Child out = start({built("switchyard"), "swap-out", "both"});
    eventually([&] {
      const std::string state = job_named("both").value("state", "");
      return state == "moving" || state == "swapped";
    });
    kill_and_wait(child_->pid());
    child_.reset();
    out.finish(kLimit);
    EXPECT_TRUE(eventually([&] { return job_named("both").is_null(); }));
  }
  Child next = job(
      {"--name", "next", "--memory", "450MiB"},
      {built("tests/jobs/job_swap"), std::to_string(400 * kMiB), std::to_string(400 * kMiB) + ":1"},
      kTwoGpus);
  EXPECT_EQ(line_of(next), "ready");
}

TEST_F(TwoGpus, WhenTheMonitorIsKilledAllMemoryComesBackAsItWas) {
  for (const bool away : {true, false}) {
    Child owner = monitor({"--capacity", "500MiB"}, kTwoGpus);
    begin_on_both({"--swappable"}, 200, 200);
    ask("begin");
    Child out = start({built("switchyard"), "swap-out", "both"});
    const auto is = [&](const char* state) {
      return job_named("both").value("state", "") == state;
    };
    EXPECT_TRUE(eventually([&] { return is("swapped") || (!away && is("moving")); }));
    kill_and_wait(owner.pid());
    out.finish(kLimit);
    EXPECT_TRUE(goes_on()) << "without a monitor it has all of its memory";
    const Child again = monitor({"--capacity", "500MiB"}, kTwoGpus);
    ASSERT_TRUE(eventually([&] { return !job_named("both").is_null(); }));
    expect_right_in_the_end();
    EXPECT_EQ(swapped(0) + swapped(1), 0u);
    kill_and_wait(child_->pid());
    child_.reset();
  }
}

// Each has all that it needs of one GPU and lacks the other's, when the monitor is gone.
TEST_F(TwoGpus, WithoutAMonitorTwoJobsDoNotBlockEachOther) {
  const Changes small = {{"FAKECUDA_DEVICES", "2"}, {"FAKECUDA_MEMORY", "100MiB"}};
  Child owner = monitor({}, small);
  const Words memory = {built("tests/jobs/job_swap"), std::to_string(60 * kMiB),
                        std::to_string(60 * kMiB) + ":1"};
  std::vector<Child> jobs;
  for (const char* name : {"a", "b"}) {
    jobs.push_back(job({"--name", name, "--oversubscribe"}, memory, small));
    ASSERT_EQ(line_of(jobs.back()), "ready");
    ASSERT_EQ(system_tests::ask(jobs.back(), "begin"), "did begin");
  }
  kill_and_wait(owner.pid());
  const auto count = [&](std::size_t i) { return system_tests::ask(jobs[i], "count"); };
  const std::string before[] = {count(0), count(1)};
  EXPECT_TRUE(eventually([&] { return count(0) != before[0] || count(1) != before[1]; }));
  const Child again = monitor({}, small);
  for (std::size_t i : {0u, 1u}) {
    const std::string now = count(i);
    EXPECT_TRUE(eventually([&] { return count(i) != now; })) << i;
    EXPECT_EQ(system_tests::ask(jobs[i], "end"), "did end");
    EXPECT_EQ(system_tests::ask(jobs[i], "check"), "right");
  }
}

}  // namespace
}  // namespace switchyard::system_tests
