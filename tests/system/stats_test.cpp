// `switchyard stats` and the ranks that others wait for, with real processes.
#include <signal.h>

#include <atomic>
#include <thread>

#include "switchyard/status.h"
#include "tests/system/gang_scene.h"
#include "tests/system/schema.h"

namespace switchyard::system_tests {
namespace {

class Stats : public Gang {
 protected:
  json stalls() { return job_named("gang")["stalls"]; }
  // The only rank that is told of, once there is one.
  json stall() {
    json told;
    EXPECT_TRUE(eventually([&] {
      told = stalls();
      return told.is_array() && !told.empty();
    }));
    EXPECT_EQ(told.size(), 1u) << told;
    return told.empty() ? json() : told[0];
  }
  json process(std::size_t rank) {
    const json job = job_named("gang");
    for (const json& each : job["processes"]) {
      if (each["pid"] == Gang::rank(rank).pid()) return each;
    }
    return {};
  }
};

TEST_F(Stats, ItCountsTheStepsOfATraining) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("begin 5");
  ask_all("until 400");
  for (const std::size_t rank : {0u, 1u}) {
    EXPECT_TRUE(eventually([&] { return process(rank)["iterations"] == 400; })) << process(rank);
    EXPECT_EQ(process(rank)["iterations_source"], "collectives");
  }
}

TEST_F(Stats, ItCountsTheStepsOfAProcessWithoutPeers) {
  auto daemon = monitor({}, two_gpus());
  begin(1);
  // From now on launches are recorded.
  ASSERT_EQ(cli({"stats", "gang", "--interval", "1s"}).status, 0);
  do_all("begin 5");
  ask_all("until 400");
  EXPECT_TRUE(eventually([&] { return process(0)["iterations"] == 400; })) << process(0);
  EXPECT_EQ(process(0)["iterations_source"], "launches");
}

TEST_F(Stats, ItCountsTheLaunchesOfAGraph) {
  auto daemon = monitor({}, two_gpus());
  begin(1);
  do_all("capture 3");
  ASSERT_EQ(cli({"stats", "gang", "--interval", "1s"}).status, 0);
  for (int i = 0; i < 50; ++i) do_all("replay 1");
  EXPECT_TRUE(eventually([&] { return process(0)["iterations"] == 50; })) << process(0);
}

TEST_F(Stats, TheListingTellsTheRate) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("begin 5");
  const auto end = cli({"stats", "gang", "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  const json said = json::parse(end.out);
  EXPECT_EQ(differences(said, read_schema("stats")), Words{});
  const json& job = said["jobs"][0];
  EXPECT_EQ(job["iterations_source"], "collectives");
  EXPECT_GT(job["iterations_per_second"], 0.0);
  EXPECT_TRUE(job["slowest_rank"].is_object());
  const std::string text = cli({"stats", "--interval", "100ms"}).out;
  EXPECT_NE(text.find("IT/S"), std::string::npos) << text;
  EXPECT_NE(text.find("SLOWEST"), std::string::npos) << text;
  EXPECT_EQ(differences(listing("ps"), read_schema("ps")), Words{});
}

TEST_F(Stats, WatchedItSaysOneListingAfterTheOther) {
  auto daemon = monitor({}, two_gpus());
  begin(1);
  Child watching = start({built("switchyard"), "stats", "--watch", "--json", "--interval", "50ms"});
  for (int i = 0; i < 3; ++i) {
    const json said = json::parse(line_of(watching), nullptr, false);
    ASSERT_TRUE(said.is_object());
    EXPECT_EQ(differences(said, read_schema("stats")), Words{});
    EXPECT_EQ(said["jobs"][0]["name"], "gang");
  }
}

TEST_F(Stats, ARankThatIsStoppedIsNamed) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("begin");
  ASSERT_TRUE(stop_behind());
  const auto counts = launched();
  const json told = stall();
  EXPECT_EQ(told["rank"], 1);
  EXPECT_EQ(told["pid"], rank(1).pid());
  EXPECT_EQ(told["operation"], counts[1] + 1);
  EXPECT_EQ(told["kind"], "all_reduce");
  EXPECT_EQ(told["bytes"], 4);
  EXPECT_EQ(told["does"], "stopped");
  EXPECT_TRUE(told["held_by"].is_null());
  EXPECT_EQ(differences(job_named("gang"), read_schema("job")), Words{});
  const std::string name = "gang: rank 1 (pid " + std::to_string(rank(1).pid()) + ")";
  for (const Words& words : {Words{"ps"}, Words{"stats", "--interval", "10ms"}}) {
    const std::string text = cli(words).out;
    EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_NE(text.find("has not launched all_reduce number"), std::string::npos) << text;
    EXPECT_NE(text.find("it is stopped by a signal"), std::string::npos) << text;
  }
  ::kill(rank(1).pid(), SIGCONT);
  EXPECT_TRUE(eventually([&] { return stalls().empty(); }));
}

TEST_F(Stats, ARankThatIsStoppedAfterItLaunchedIsNamed) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("reduce 5");
  ::kill(rank(1).pid(), SIGSTOP);
  const json told = stall();
  EXPECT_EQ(told["rank"], 1);
  EXPECT_EQ(told["reason"], "stopped");
  EXPECT_EQ(told["operation"], 5);
  EXPECT_EQ(told["kind"], "all_reduce");
  EXPECT_EQ(told["does"], "stopped");
  EXPECT_EQ(differences(job_named("gang"), read_schema("job")), Words{});
  EXPECT_NE(cli({"ps"}).out.find("has launched all_reduce number 5 (4 B) as 1 rank did"),
            std::string::npos);
  ::kill(rank(1).pid(), SIGCONT);
  EXPECT_TRUE(eventually([&] { return stalls().empty(); }));
}

TEST_F(Stats, ARankThatSkipsACollectiveIsNamed) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("reduce 5");
  EXPECT_EQ(ask(rank(0), "gather 1"), "did gather");
  do_all("reduce 5");
  const json told = stall();
  EXPECT_EQ(told["rank"], 1);
  EXPECT_EQ(told["operation"], 11);
  EXPECT_EQ(told["kind"], "all_reduce");
  EXPECT_EQ(told["waiting_ranks"], 1);
  EXPECT_NE(told["does"], "stopped");
}

TEST_F(Stats, ARankThatLaunchesAnotherInItsPlaceIsNamed) {
  auto daemon = monitor({}, two_gpus());
  begin(3);
  do_all("reduce 5");
  for (const std::size_t each : {0u, 2u}) EXPECT_EQ(ask(rank(each), "gather 1"), "did gather");
  EXPECT_EQ(ask(rank(1), "reduce 1"), "did reduce");
  const json told = stall();
  EXPECT_EQ(told["rank"], 1);
  EXPECT_EQ(told["reason"], "other_operation");
  EXPECT_EQ(told["operation"], 6);
  EXPECT_EQ(told["kind"], "all_gather");
  EXPECT_NE(cli({"ps"}).out.find("launched another operation"), std::string::npos);
}

TEST_F(Stats, ARankThatIsKilledIsNamed) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("reduce 5");
  ASSERT_TRUE(eventually([&] { return launched().size() == 2; }));
  const pid_t victim = rank(1).pid();
  // The monitor has seen it.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ::kill(victim, SIGKILL);
  EXPECT_EQ(ask(rank(0), "reduce 1"), "did reduce");
  const json told = stall();
  EXPECT_EQ(told["rank"], 1);
  EXPECT_EQ(told["pid"], victim);
  EXPECT_EQ(told["does"], "gone");
}

TEST_F(Stats, APauseOfOursIsNoFalseReport) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, {{"SWITCHYARD_SWAPPABLE", "yes"}});
  do_all("begin");
  for (const Words& hold : {Words{"pause", "gang"}, Words{"swap-out", "gang"}}) {
    ASSERT_EQ(cli(hold).status, 0);
    // Longer than a rank that is free may be late.
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      for (const json& each : stalls()) EXPECT_FALSE(each["held_by"].is_null()) << each;
    }
    ASSERT_EQ(cli({hold[0] == "pause" ? "resume" : "swap-in", "gang"}).status, 0);
    EXPECT_EQ(stalls(), json::array());
  }
}

// --- communication ---

class Communicates : public Stats {
 protected:
  // The answer of `stats` about the job once its collectives are timed, and this holds.
  template <typename Holds>
  json told(Holds holds) {
    json job;
    EXPECT_TRUE(eventually([&] {
      const json said = json::parse(cli({"stats", "gang", "--json"}).out, nullptr, false);
      if (!said.is_object()) return false;
      EXPECT_EQ(differences(said, read_schema("stats")), Words{});
      job = said["jobs"][0];
      return job["communication_state"] == "timed" && holds(job);
    })) << job;
    return job;
  }
  json told() {
    return told([](const json& job) { return job["communication_hidden_ratio"].is_number(); });
  }
};

TEST_F(Communicates, ACollectiveBesideTheComputingIsHidden) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("hidden");
  const json job = told([](const json& each) {
    const json& hidden = each["communication_hidden_ratio"];
    return hidden.is_number() && hidden > 0.5;
  });
  EXPECT_EQ(job["communication_ranks"].size(), 2u);
  EXPECT_NE(cli({"stats"}).out.find("% hidden"), std::string::npos);
}

TEST_F(Communicates, ACollectiveThatTheComputingWaitsForIsNotHidden) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("exposed");
  EXPECT_LT(told()["communication_hidden_ratio"], 0.2);
}

// Rank 0 waits longer by the 60 ms that rank 1 is late, of a step of 80 ms and more.
TEST_F(Communicates, WaitsForALateRankAreToldApart) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  EXPECT_EQ(ask(rank(0), "exposed 0"), "did exposed");
  EXPECT_EQ(ask(rank(1), "exposed 60"), "did exposed");
  const json job = told([](const json& each) { return each["waited_for_rank"].is_object(); });
  EXPECT_EQ(job["waited_for_rank"]["rank"], 1);
  EXPECT_EQ(job["waited_for_rank"]["pid"], rank(1).pid());
  EXPECT_GT(job["waited_for_rank"]["ratio"], 0.2);
}

TEST_F(Communicates, CollectivesInGraphsAreSaidToBeUntimed) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("capture 3");
  EXPECT_TRUE(eventually([&] {
    do_all("replay 5");
    do_all("sync");
    return cli({"stats", "gang", "--interval", "100ms"}).out.find("not timed in graphs") !=
           std::string::npos;
  }));
}

TEST_F(Communicates, NothingIsTimedUnasked) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("reduce 20");
  do_all("sync");
  EXPECT_TRUE(process(0)["communication_state"].is_null());
  EXPECT_TRUE(process(0)["communication_ratio"].is_null());
}

}  // namespace
}  // namespace switchyard::system_tests
