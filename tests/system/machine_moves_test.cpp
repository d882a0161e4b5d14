// Memory on machines of several GPUs: moved from each GPU to each, and parked on the emptiest one
// that can be reached.
#include <algorithm>
#include <string>

#include "tests/support/seeds.h"
#include "tests/system/release_scene.h"

namespace switchyard::system_tests {
namespace {

constexpr std::size_t kGpus = 4;

class MachineMoves : public Release {
 protected:
  // `links`: the pairs of GPUs that reach each other; empty: all of them.
  void of_four_gpus(const std::string& links = "") {
    machine_ = {{"FAKECUDA_DEVICES", std::to_string(kGpus)}, {"FAKECUDA_MEMORY", "8GiB"}};
    if (!links.empty()) machine_.emplace_back("FAKECUDA_PEERS", links);
    owner_.emplace(monitor({"--capacity", "7GiB"}, machine_));
  }
  void begin_on(const std::string& gpus, const Words& options = {}) {
    Words all = {"--name", "mover", "--swappable", "--gpus", gpus};
    all.insert(all.end(), options.begin(), options.end());
    Changes changes = machine_;
    changes.emplace_back("FAKECUDA_PATTERN", "1");
    child_.emplace(job(all, {built("tests/jobs/job_swap"), std::to_string(40 * kMiB)}, changes));
    ASSERT_EQ(line(), "ready");
    ask("begin");
  }
  // Another job's memory on a GPU, much more than the 256 MiB that a job is granted in advance.
  void fill(std::size_t gpu, int gibibytes) {
    const std::string name = "beside-" + std::to_string(neighbours_.size());
    neighbours_.push_back(
        job({"--name", name, "--gpus", std::to_string(gpu)},
            {built("tests/jobs/job_alloc"), "alloc:" + std::to_string(1024 * gibibytes), "wait"},
            machine_));
    ASSERT_EQ(line_of(neighbours_.back()), "alloc 0");
  }
  json status_of(std::size_t gpu) { return listing("status")["gpus"][gpu]; }
  std::string uuid_of(std::size_t gpu) { return status_of(gpu).value("uuid", ""); }
  bool goes_on() {
    const std::string before = ask("count");
    return eventually([&] { return ask("count") != before; });
  }
  void move_to(std::size_t gpu) {
    const Child::End moved = cli({"migrate", "mover", "--to", std::to_string(gpu)});
    ASSERT_EQ(moved.status, 0) << moved.err;
    EXPECT_EQ(gpu_of("mover").value("uuid", ""), uuid_of(gpu));
    EXPECT_TRUE(goes_on());
  }
  // So that it comes to each of the first ones from each other.
  void move_from_each_to_each(std::size_t gpus) {
    for (std::size_t low = 0; low + 1 < gpus; ++low) {
      if (low > 0) move_to(low);
      for (std::size_t high = low + 1; high < gpus; ++high) {
        move_to(high);
        move_to(low);
        if (HasFailure()) return;
      }
    }
  }
  void expect_parked_on(std::size_t gpu) {
    const Child::End out = cli({"swap-out", "mover"});
    ASSERT_EQ(out.status, 0) << out.err;
    for (std::size_t each = 0; each < kGpus; ++each) {
      EXPECT_EQ(status_of(each).value("memory_parked_bytes", 1ull), each == gpu ? 40 * kMiB : 0)
          << "GPU " << each;
    }
    ASSERT_EQ(cli({"swap-in", "mover"}).status, 0);
    EXPECT_TRUE(goes_on());
    EXPECT_TRUE(eventually([&] { return status_of(gpu)["memory_parked_bytes"] == 0; }));
  }
  void expect_right_in_the_end() {
    EXPECT_EQ(ask("end"), "did end");
    EXPECT_EQ(ask("check"), "right");
  }

  Changes machine_;
  std::optional<Child> owner_;
  std::vector<Child> neighbours_;
};

TEST_F(MachineMoves, AJobAtWorkGoesFromEachGpuToEach) {
  of_four_gpus();
  begin_on("0");
  move_from_each_to_each(std::min<std::size_t>(kGpus, 2 + test_support::seeds(1)));
  expect_right_in_the_end();
}

TEST_F(MachineMoves, AlsoWhereNoGpuReachesAnother) {
  of_four_gpus("no");
  begin_on("0");
  for (const std::size_t gpu : {1, 3, 2, 0}) move_to(gpu);
  expect_right_in_the_end();
}

TEST_F(MachineMoves, MemoryIsParkedOnTheEmptiestGpu) {
  of_four_gpus();
  fill(1, 3);
  fill(2, 2);
  fill(3, 1);
  begin_on("0,1,2,3", {"--park", "peer"});
  expect_parked_on(3);
  fill(3, 2);
  expect_parked_on(2);
  expect_right_in_the_end();
}

// The fourth is the emptiest, and by itself.
TEST_F(MachineMoves, WhereNotAllAreLinkedMemoryIsParkedWithinTheIsland) {
  of_four_gpus("0-1,0-2,1-2");
  fill(1, 2);
  fill(2, 1);
  begin_on("0,1,2", {"--park", "peer"});
  expect_parked_on(2);
  expect_right_in_the_end();
}

TEST_F(MachineMoves, AProcessOfTwoIslandsKeepsItsMemoryAndSaysWhy) {
  of_four_gpus("0-1,0-2,1-2");
  begin_on("0,1,2,3", {"--park", "peer"});
  const Child::End out = cli({"swap-out", "mover"});
  EXPECT_EQ(out.status, 6);
  EXPECT_NE(out.err.find("sees 4 GPUs that cannot all access each other's memory"),
            std::string::npos)
      << out.err;
  EXPECT_TRUE(goes_on());
  expect_right_in_the_end();
}

// The library has room for 16.
class MoreGpusThanLanes : public Release {
 protected:
  static inline const Changes kTwenty = {{"FAKECUDA_DEVICES", "20"}, {"FAKECUDA_PATTERN", "1"}};
};

TEST_F(MoreGpusThanLanes, AProcessThatSeesThemAllIsToldAndKeepsItsMemory) {
  const Child owner = monitor({}, kTwenty);
  Child all = job({"--name", "all", "--swappable"},
                  {built("tests/jobs/job_swap"), std::to_string(40 * kMiB)}, kTwenty);
  ASSERT_EQ(line_of(all), "ready");
  const Child::End out = cli({"swap-out", "all"});
  EXPECT_EQ(out.status, 6);
  EXPECT_NE(out.err.find("may see more than 16 GPUs"), std::string::npos) << out.err;
  EXPECT_EQ(system_tests::ask(all, "check"), "right");
  const Child::End end = all.finish(kLimit);
  EXPECT_NE(end.err.find("sees 20 GPUs, and the first 16 of them are shared"), std::string::npos)
      << end.err;
}

TEST_F(MoreGpusThanLanes, AJobOnTheLastGpuIsAJobLikeOthers) {
  const Child owner = monitor({}, kTwenty);
  EXPECT_EQ(listing("status")["gpus"].size(), 20u);
  child_.emplace(job({"--name", "last", "--swappable", "--gpus", "19"},
                     {built("tests/jobs/job_swap"), std::to_string(40 * kMiB)}, kTwenty));
  ASSERT_EQ(line(), "ready");
  EXPECT_EQ(gpu_of("last")["index"], 19);
  ASSERT_EQ(cli({"swap-out", "last"}).status, 0);
  ASSERT_EQ(cli({"swap-in", "last"}).status, 0);
  const Child::End moved = cli({"migrate", "last", "--to", "0"});
  EXPECT_EQ(moved.status, 6);
  EXPECT_NE(moved.err.find("this machine has more than 16 GPUs"), std::string::npos) << moved.err;
  EXPECT_EQ(ask("check"), "right");
}

}  // namespace
}  // namespace switchyard::system_tests
