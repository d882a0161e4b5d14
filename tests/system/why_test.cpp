// `why`, `inspect` and the selectors, with the real monitor and jobs on the simulated GPU.
#include <signal.h>

#include <algorithm>

#include "harness.h"

namespace switchyard::system_tests {
namespace {

class Why : public Scene {
 protected:
  std::string why(const std::string& job) { return cli({"why", job}).out; }
  // In the end it says that; what it waits for may change with each turn.
  void expect_says(const std::string& job, const Words& texts) {
    std::string said;
    EXPECT_TRUE(eventually([&] {
      said = why(job);
      return std::all_of(texts.begin(), texts.end(), [&](const std::string& text) {
        return said.find(text) != std::string::npos;
      });
    })) << said;
  }
  // A job with 40 MiB that can leave, whose one kernel lasts until the test has ended.
  void begin_busy(const Words& options = {}, const Changes& changes = {}) {
    Words all = {"--name", "train", "--swappable"};
    all.insert(all.end(), options.begin(), options.end());
    child_.emplace(job(all, {built("tests/jobs/job_swap"), std::to_string(40 * kMiB)}, changes));
    ASSERT_EQ(line_of(*child_), "ready");
    ASSERT_EQ(ask(*child_, "busy 120000000"), "did busy");
  }
  void TearDown() override {
    child_.reset();
    Scene::TearDown();
  }

 private:
  std::optional<Child> child_;
};

TEST_F(Why, AJobAtItsLimit) {
  auto child = loop({"--name", "train", "--limit", "20%"});
  // The gate opens and closes: a look sees one of both.
  expect_says("train", {"--limit PART"});
}

TEST_F(Why, AJobThatWaitsForItsTurn) {
  auto daemon = monitor({"--policy", "exclusive"});
  auto first = loop({"--name", "first"});
  auto second = loop({"--name", "second"});
  expect_says("first", {"turn", "--share WEIGHT"});
}

TEST_F(Why, AnAllocationThatWaitsForMemory) {
  play_allocation_that_waits([this] {
    expect_says("waiter", {"in an allocation", "GiB", "switchyard ps --memory"});
  });
}

TEST_F(Why, APauseNamesWhoeverAskedForIt) {
  auto child = loop({"--name", "train"});
  ASSERT_EQ(cli({"pause", "train", "--timeout", "10m"}).status, 0);
  const std::string user = job_named("train")["state_by"]["user"];
  const std::string said = why("train");
  EXPECT_NE(said.find(", by " + user + ": no new work"), std::string::npos) << said;
  EXPECT_NE(said.find("The pause ends by itself in 9 min"), std::string::npos) << said;
  EXPECT_NE(said.find("`switchyard resume train`"), std::string::npos) << said;
}

TEST_F(Why, AProcessThatASignalStopped) {
  auto child = loop({"--name", "train"});
  ASSERT_EQ(::kill(child.pid(), SIGSTOP), 0);
  expect_says("train", {"a signal, as of Ctrl-Z, stops process " + std::to_string(child.pid()),
                        "`kill -CONT " + std::to_string(child.pid()) + "`"});
  EXPECT_NE(cli({"ps"}).out.find("stopped: signal"), std::string::npos);
  ::kill(child.pid(), SIGCONT);
}

TEST_F(Why, AJobThatRunsAndIsSlow) {
  // Kernels so long that the GPU has work of both, however slow the CPU is. Because of its limit,
  // what it waits for is measured, and not taken from NVML, whose figure here has no waits in it.
  auto serve = loop({"--name", "serve", "--priority", "high"}, {"--us", "3000"});
  auto train = loop({"--name", "train", "--priority", "low", "--limit", "90%"}, {"--us", "3000"});
  expect_says("train", {"it had", "serve", "--priority high"});
  auto alone = cli({"why", "serve"});
  EXPECT_NE(alone.out.find("it had"), std::string::npos) << alone.out;
}

// The move waits for the kernel, and so can be looked at.
TEST_F(Why, MemoryOnItsWayOut) {
  begin_busy();
  auto order = start({built("switchyard"), "swap-out", "train"});
  expect_says("train", {"on its way out", "`switchyard swap-in train`"});
  EXPECT_NE(cli({"ps"}).out.find("moving out 0%"), std::string::npos) << cli({"ps"}).out;
}

TEST_F(Why, AJobOnItsWayToAnotherGpu) {
  auto daemon = monitor({}, kTwoGpus);
  begin_busy({"--gpus", "0"}, kTwoGpus);
  auto order = start({built("switchyard"), "migrate", "train", "--to", "1"}, kTwoGpus);
  expect_says("train", {"on its way to GPU 1"});
}

TEST_F(Why, IdleAndWithoutCuda) {
  auto daemon = monitor();
  auto sleeper = job({"--name", "sleeper"}, {"sleep", "1000"});
  expect_says("sleeper", {"no CUDA context yet", "Nothing of Switchyard's holds it."});
}

TEST_F(Why, InspectHasTheJobItsProcessesAndWhatHappenedToIt) {
  auto child = loop({"--name", "train", "--limit", "90%"});
  ASSERT_EQ(cli({"pause", "train"}).status, 0);
  const json said = json::parse(cli({"inspect", "train"}).out);
  EXPECT_EQ(said["job"]["name"], "train");
  EXPECT_EQ(said["job"]["limit_ratio"], 0.9);
  EXPECT_EQ(said["job"]["reason"], "pause");
  EXPECT_NE(said["why"].get<std::string>().find("train has been paused"), std::string::npos);
  ASSERT_EQ(said["processes"].size(), 1u);
  EXPECT_EQ(said["processes"][0]["pid"], child.pid());
  EXPECT_NE(said["processes"][0]["command"].get<std::string>().find("job_loop"), std::string::npos);
  EXPECT_TRUE(said["processes"][0]["directory"].is_string());
  std::vector<std::string> kinds;
  for (const json& event : said["events"]) kinds.push_back(event["kind"]);
  EXPECT_EQ(kinds.front(), "job begins");
  EXPECT_NE(std::find(kinds.begin(), kinds.end(), "paused"), kinds.end()) << said["events"];
  EXPECT_EQ(said["monitor"]["pid"], monitor_pid());
  EXPECT_TRUE(said["bill"].is_null()) << "it lives";
}

TEST_F(Why, JobsAreFoundByPidPatternStateAndTheBeginningOfAnId) {
  auto one = loop({"--name", "train-1"});
  auto two = loop({"--name", "train-2"});
  EXPECT_EQ(cli({"pause", std::to_string(one.pid())}).status, 0);
  EXPECT_EQ(job_named("train-1")["state"], "paused");
  EXPECT_NE(job_named("train-2")["state"], "paused");
  EXPECT_EQ(cli({"pause", "train-*"}).status, 0);
  EXPECT_EQ(job_named("train-2")["state"], "paused");
  const std::string id = job_named("train-1")["job"];
  EXPECT_EQ(cli({"resume", id.substr(0, 9)}).status, 0) << "of two random ids";
  EXPECT_EQ(cli({"ps", "-q", "--state", "paused"}).out,
            job_named("train-2")["job"].get<std::string>() + "\n");
  EXPECT_EQ(cli({"resume", "--state", "paused"}).status, 0);
  EXPECT_EQ(cli({"ps", "-q", "--state", "paused"}).out, "");
  EXPECT_EQ(cli({"set", "--gpu", "0", "--share", "2"}).status, 0);
  EXPECT_EQ(job_named("train-1")["share_weight"], 2.0);
  EXPECT_EQ(cli({"set", "--gpu", "7", "--share", "3"}).status, 4);
  EXPECT_EQ(cli({"stats", "train-*", "--interval", "0.1s", "--json"}).status, 0);
  EXPECT_EQ(cli({"why", "nobody"}).status, 4);
  EXPECT_EQ(cli({"pause", "--state", "slow"}).status, 2);
}

}  // namespace
}  // namespace switchyard::system_tests
