// Pause and resume of real processes, ceilings and rules that are set while they run.
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "harness.h"
#include "switchyard/status.h"

namespace switchyard::system_tests {
namespace {

class Pause : public Scene {
 protected:
  // What its CPU sees of its kernels does not move for a while, now that a batch under way has
  // ended. A job that is not held would run hundreds in that time.
  bool stands_still(Child& loop) {
    long before = kernels(loop);
    return eventually([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return std::exchange(before, kernels(loop)) == before;
    });
  }
  bool moves(Child& loop) {
    const long before = kernels(loop);
    return eventually([&] { return kernels(loop) > before; });
  }
  json reply(const Words& words) {
    const auto end = cli(words);
    EXPECT_EQ(end.status, 0) << end.err;
    return json::parse(end.out, nullptr, false);
  }
};

TEST_F(Pause, AJobAloneStopsAndGoesOn) {
  auto job = loop({"--name", "only"});
  EXPECT_EQ(reply({"pause", "only", "--json"})["state"], "paused");
  EXPECT_TRUE(stands_still(job));
  EXPECT_EQ(job_named("only")["state"], "paused");
  EXPECT_EQ(gpu_of("only")["gate"], "pause");
  EXPECT_TRUE(eventually([this] { return gpu_of("only")["held_threads"] == 1; }));
  EXPECT_EQ(cli({"pause", "only"}).status, 0) << "twice is once";
  EXPECT_EQ(cli({"resume", "only"}).out, "only: resumed\n");
  EXPECT_TRUE(moves(job));
  EXPECT_EQ(cli({"resume", "only"}).status, 0);
  EXPECT_EQ(job.finish(kLimit).status, 0);
}

TEST_F(Pause, TwoProcessesOfAJobStopAndTheOtherJobDoesNot) {
  auto daemon = monitor();
  auto first = loop({"--name", "two"});
  const std::string id = job_named("two")["job"];
  // A second process joins the job as a worker that its first one started would.
  const Changes member{{"SWITCHYARD_JOB", id}, {"LD_PRELOAD", built("libswitchyard.so")}};
  auto second = start({built("tests/jobs/job_loop")}, member);
  std::string line;
  ASSERT_TRUE(second.read_line(line, kLimit));
  auto other = loop({"--name", "other"});
  const auto said = cli({"pause", "two"});
  EXPECT_EQ(said.status, 0);
  EXPECT_NE(said.err.find("several processes"), std::string::npos) << said.err;
  EXPECT_TRUE(stands_still(first));
  EXPECT_TRUE(stands_still(second));
  EXPECT_TRUE(moves(other));
  EXPECT_NE(cli({"ps"}).out.find("best effort"), std::string::npos);
  // A process that comes while the job is paused is held as well.
  auto third = start({built("tests/jobs/job_loop"), "--count", "1"}, member);
  EXPECT_TRUE(eventually([this] { return job_named("two")["processes"].size() == 3; }));
  EXPECT_TRUE(eventually([this] { return gpu_of("two")["held_threads"] == 3; }));
  EXPECT_EQ(cli({"resume", "two"}).status, 0);
  EXPECT_TRUE(moves(first));
  EXPECT_TRUE(moves(second));
  EXPECT_EQ(third.finish(kLimit).status, 0);
}

TEST_F(Pause, ATimeOutEndsIt) {
  auto job = loop({"--name", "timed"});
  const json paused = reply({"pause", "timed", "--timeout", "1h", "--json"});
  EXPECT_NEAR(paused["pause_seconds"].get<double>(), 3600, 60);
  EXPECT_TRUE(stands_still(job));
  EXPECT_EQ(cli({"pause", "timed", "--timeout", "500ms"}).status, 0);
  EXPECT_TRUE(moves(job));
  EXPECT_TRUE(eventually([this] { return job_named("timed")["state"] == "running"; }));
}

TEST_F(Pause, ItOutlivesTheMonitorAndTheNextOneKnowsIt) {
  auto job = loop({"--name", "held"});
  ASSERT_EQ(cli({"pause", "held"}).status, 0);
  ASSERT_TRUE(stands_still(job));
  ::kill(monitor_pid(), SIGKILL);
  ASSERT_TRUE(eventually([this] { return monitor_pid() == 0; }));
  // Longer than a silent monitor is believed in.
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_TRUE(stands_still(job));
  auto second = monitor();
  EXPECT_TRUE(eventually([this] {
    const json found = job_named("held");
    return found.is_object() && found["state"] == "paused";
  }));
  EXPECT_TRUE(stands_still(job));
  EXPECT_EQ(cli({"resume", "held"}).status, 0);
  EXPECT_TRUE(moves(job));
}

TEST_F(Pause, WithoutAMonitorItsTimeOutEndsItAllTheSame) {
  auto job = loop({"--name", "left"});
  ASSERT_EQ(cli({"pause", "left", "--timeout", "4s"}).status, 0);
  ::kill(monitor_pid(), SIGKILL);
  EXPECT_TRUE(moves(job));
  EXPECT_EQ(monitor_pid(), 0) << "nobody else did it";
}

TEST_F(Pause, ABadTimeNoJobAndAStrangersJob) {
  auto job = loop({"--name", "mine"});
  EXPECT_EQ(cli({"pause", "mine", "--timeout", "never"}).status, kUsage);
  EXPECT_EQ(cli({"pause", "mine", "--timeout", "0"}).status, kUsage);
  EXPECT_EQ(cli({"pause", "nobody"}).status, kNoSuchJobOrGpu);
  EXPECT_EQ(cli({"resume", "nobody"}).status, kNoSuchJobOrGpu);
  EXPECT_TRUE(moves(job));
}

TEST_F(Pause, AKilledJobThatWasPausedLeavesNothing) {
  auto daemon = monitor();
  auto job = loop({"--name", "victim", "--memory", "1GiB"});
  ASSERT_EQ(cli({"pause", "victim"}).status, 0);
  EXPECT_EQ(listing("status")["gpus"][0]["memory_reserved_bytes"], 1L << 30) << "it keeps its own";
  ::kill(job.pid(), SIGKILL);
  EXPECT_EQ(job.finish(kLimit).status, 128 + SIGKILL);
  EXPECT_TRUE(eventually([this] {
    return job_named("victim").is_null() &&
           listing("status")["gpus"][0]["memory_reserved_bytes"] == 0;
  }));
}

TEST_F(Pause, AnotherUserMayNeitherSetNorPauseNorChooseTheRules) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  auto job = loop({"--name", "roots"});
  for (const Words& words :
       {Words{"set", "roots", "--share", "2"}, Words{"pause", "roots"}, Words{"resume", "roots"},
        Words{"policy", "fair"}, Words{"backend", "none"}}) {
    const auto end = cli_as_nobody(words);
    EXPECT_EQ(end.status, kNoPermission) << words[0] << ": " << end.err;
    // Said by the monitor, not by a socket that can't be reached.
    EXPECT_NE(end.err.find("only its owner or root"), std::string::npos) << end.err;
  }
  EXPECT_EQ(cli_as_nobody({"policy"}).out, "priority, minimum 2%\n") << "looking is free";
  EXPECT_EQ(job_named("roots")["share_weight"], 1);
}

using Limits = Pause;

TEST_F(Limits, ALimitIsSetShownAndTakenAway) {
  auto job = loop({"--name", "capped", "--limit", "30%"});
  EXPECT_EQ(job_named("capped")["limit_ratio"], 0.3);
  EXPECT_NE(cli({"ps", "-o", "wide"}).out.find("30%"), std::string::npos);
  ASSERT_EQ(cli({"set", "capped", "--limit", "0.5"}).status, 0);
  EXPECT_EQ(job_named("capped")["limit_ratio"], 0.5);
  EXPECT_TRUE(moves(job));
  ASSERT_EQ(cli({"set", "capped", "--limit", "100%"}).status, 0);
  EXPECT_EQ(job_named("capped")["limit_ratio"], nullptr);
  EXPECT_TRUE(moves(job));
}

TEST_F(Limits, ADeadlineCountsFromTheStartAndCanBeCleared) {
  auto job = loop({"--name", "due", "--deadline", "10m"});
  const double left = job_named("due")["deadline_seconds"];
  EXPECT_LE(left, 600);
  EXPECT_GT(left, 400);
  ASSERT_EQ(cli({"set", "due", "--deadline", "0"}).status, 0);
  EXPECT_EQ(job_named("due")["deadline_seconds"], nullptr);
}

TEST_F(Limits, TheRulesAreChosenAndShown) {
  auto daemon = monitor({"--policy", "fair", "--minimum", "3%", "--backend", "gate"});
  json about = listing("status")["monitor"];
  EXPECT_EQ(about["policy"], "fair");
  EXPECT_EQ(about["minimum_ratio"], 0.03);
  EXPECT_EQ(about["means"], "gate");
  EXPECT_EQ(listing("status")["gpus"][0]["means"], "gate");
  EXPECT_EQ(about["waits"], "foreseen");
  EXPECT_EQ(cli({"policy", "exclusive", "--minimum", "0.05"}).out, "exclusive, minimum 5%\n");
  EXPECT_EQ(cli({"policy", "--waits", "slices"}).out, "exclusive, minimum 5%, waits slices\n");
  EXPECT_EQ(cli({"policy", "--waits", "foreseen"}).out, "exclusive, minimum 5%\n");
  EXPECT_EQ(cli({"policy", "--slice", "4ms"}).out, "exclusive, minimum 5%, slice 4ms\n");
  EXPECT_EQ(cli({"policy", "--slice", "25ms"}).out, "exclusive, minimum 5%\n");
  EXPECT_EQ(cli({"backend", "slice"}).status, 0);
  about = listing("status")["monitor"];
  EXPECT_EQ(about["policy"], "exclusive");
  EXPECT_EQ(listing("status")["gpus"][0]["means"], "slice");
}

TEST_F(Limits, TheEnvironmentChoosesTheBackendOfAMonitor) {
  EXPECT_EQ(cli({"run", "--", "true"}, {{"SWITCHYARD_BACKEND", "gate"}}).status, 0);
  EXPECT_EQ(listing("status")["monitor"]["means"], "gate");
}

TEST_F(Limits, TheEarlierNamesOfTheBackendStillWork) {
  auto daemon = monitor({"--means", "gate"});
  const auto shown = cli({"backend"});
  EXPECT_EQ(shown.err, "");
  const auto old = cli({"means"});
  EXPECT_EQ(old.status, 0);
  EXPECT_EQ(old.out, shown.out);
  EXPECT_EQ(old.out.substr(0, 5), "gate\n");
  EXPECT_NE(old.err.find("`switchyard means` is now `switchyard backend`"), std::string::npos);
  EXPECT_EQ(std::count(old.err.begin(), old.err.end(), '\n'), 1) << old.err;
  EXPECT_EQ(cli({"means", "slice"}).status, 0);
  EXPECT_EQ(listing("status")["monitor"]["means"], "slice");
  EXPECT_EQ(cli({"--help"}).out.find("means"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::system_tests
