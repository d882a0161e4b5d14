// Communicators of real processes, as `ps` shows them.
#include <atomic>
#include <set>
#include <thread>

#include "switchyard/status.h"
#include "tests/system/gang_scene.h"
#include "tests/system/schema.h"

namespace switchyard::system_tests {
namespace {

using Counts = std::vector<long>;

class Nccl : public Gang {};

TEST_F(Nccl, RanksOfTwoProcessesAreOneCommunicator) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("reduce 5");
  const json job = job_named("gang");
  ASSERT_EQ(job["communicators"].size(), 1u);
  const json& communicator = job["communicators"][0];
  EXPECT_EQ(communicator["size"], 2);
  ASSERT_EQ(communicator["ranks"].size(), 2u);
  std::set<std::string> gpus;
  std::set<long> pids;
  for (int rank = 0; rank < 2; ++rank) {
    const json& at = communicator["ranks"][static_cast<std::size_t>(rank)];
    EXPECT_EQ(at["rank"], rank);
    EXPECT_EQ(at["launched"], 5);
    EXPECT_EQ(at["bytes"], 20);
    EXPECT_EQ(at["last_kind"], "all_reduce");
    EXPECT_EQ(at["last_bytes"], 4);
    EXPECT_TRUE(at["last_seconds"].is_number());
    gpus.insert(at["gpu_uuid"].get<std::string>());
    pids.insert(at["pid"].get<long>());
  }
  EXPECT_EQ(gpus.size(), 2u);
  EXPECT_EQ(pids, (std::set<long>{rank(0).pid(), rank(1).pid()}));
  EXPECT_EQ(job["communicators_unwatched"], 0);
  EXPECT_EQ(differences(job, read_schema("job")), Words{});
}

TEST_F(Nccl, TheTextNamesTheRanks) {
  auto daemon = monitor({}, two_gpus());
  begin(4);
  const std::string text = cli({"ps", "-o", "wide", "--per-gpu"}).out;
  EXPECT_NE(text.find("RANKS"), std::string::npos) << text;
  EXPECT_NE(text.find("0,2/4"), std::string::npos) << text;
  EXPECT_NE(text.find("1,3/4"), std::string::npos) << text;
}

TEST_F(Nccl, WithoutRanksThereIsNothingToSay) {
  auto job = loop({"--name", "only"});
  EXPECT_EQ(cli({"ps"}).out.find("RANKS"), std::string::npos);
  EXPECT_EQ(cli({"ps", "--format", "{ranks}"}).out, "-\n");
  EXPECT_EQ(job_named("only")["communicators"], json::array());
}

TEST_F(Nccl, AGroupCountsWhenItEnds) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("group 3");
  EXPECT_EQ(launched(), (Counts{3, 3}));
  do_all("empty");
  EXPECT_EQ(launched(), (Counts{3, 3})) << "what is only simulated isn't launched";
  do_all("reduce 1");
  EXPECT_EQ(launched(), (Counts{4, 4}));
}

TEST_F(Nccl, EachKindCountsOnceAlsoByItsTwinsName) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("kinds");
  EXPECT_EQ(launched(), (Counts{8, 8})) << "ncclBcast calls ncclBroadcast";
  do_all("twins");
  EXPECT_EQ(launched(), (Counts{9, 9}));
}

TEST_F(Nccl, EachKindWithAConfigurationCountsOnce) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("configured");
  do_all("sync");
  EXPECT_EQ(launched(), (Counts{8, 8}));
}

// One wait is for several puts, so their counts say nothing of how far ranks are.
TEST_F(Nccl, OneSidedOperationsAreBesideTheCountAlsoOfTwoRanks) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("register");
  do_all("put 3");
  do_all("sync");
  EXPECT_EQ(ask_all("came"), (Words{"right", "right"}));
  EXPECT_EQ(launched(), (Counts{0, 0}));
  EXPECT_EQ(communicators()[0]["ranks"][0]["point_to_point"], 5);
  do_all("begin");
  EXPECT_EQ(cli({"pause", "gang"}).status, 0);
  EXPECT_EQ(launched()[0], launched()[1]);
  EXPECT_EQ(cli({"resume", "gang"}).status, 0);
  expect_right_in_the_end(ranks_);
}

TEST_F(Nccl, AGrownOneIsCountedAsNotWatched) {
  auto daemon = monitor({}, two_gpus());
  begin(3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(rank(i).write_line(i < 2 ? "split 0" : "split -1"));
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(line_of(rank(i)), "did split");
  do_all("grow");
  do_all("grown 2");
  do_all("sync");
  EXPECT_EQ(launched(), (Counts{0, 0, 0}));
  EXPECT_EQ(job_named("gang")["communicators_unwatched"], 3);
  // Nobody knows where its ranks could stop together.
  const auto best_effort = [this] {
    EXPECT_EQ(cli({"pause", "gang"}).status, 0);
    const bool said = job_named("gang")["pause_best_effort"];
    EXPECT_EQ(cli({"resume", "gang"}).status, 0);
    return said;
  };
  EXPECT_TRUE(best_effort());
  do_all("ungrow");
  EXPECT_EQ(job_named("gang")["communicators_unwatched"], 0);
  EXPECT_FALSE(best_effort());
}

TEST_F(Nccl, SendsCountWhereThereAreTwoRanks) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("pass");
  EXPECT_EQ(launched(), (Counts{2, 2}));
  EXPECT_EQ(communicators()[0]["ranks"][0]["point_to_point"], 0);
}

TEST_F(Nccl, SendsAreBesideTheCountOfMoreRanks) {
  auto daemon = monitor({}, two_gpus());
  begin(3);
  do_all("pass");
  EXPECT_EQ(launched(), (Counts{0, 0, 0}));
  EXPECT_EQ(communicators()[0]["ranks"][2]["point_to_point"], 2);
}

TEST_F(Nccl, ACapturedOneCountsAtEachLaunchOfItsGraph) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("capture 3");
  EXPECT_EQ(launched(), (Counts{0, 0}));
  do_all("replay 4");
  do_all("sync");
  EXPECT_EQ(launched(), (Counts{12, 12}));
}

TEST_F(Nccl, ASplitHasAnIdOfItsOwnForEachColour) {
  auto daemon = monitor({}, two_gpus());
  begin(4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(rank(i).write_line("split " + std::to_string(i / 2)));
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(line_of(rank(i)), "did split");
  do_all("child 2");
  const json all = communicators();
  ASSERT_EQ(all.size(), 3u);
  std::set<std::string> ids;
  for (const json& each : all) ids.insert(each["id"].get<std::string>());
  EXPECT_EQ(ids.size(), 3u);
  for (const std::size_t child : {1u, 2u}) {
    EXPECT_EQ(all[child]["size"], 2);
    EXPECT_EQ(launched(child), (Counts{2, 2}));
  }
  EXPECT_EQ(launched(0), (Counts{0, 0, 0, 0}));
  do_all("destroy");
  EXPECT_EQ(communicators().size(), 1u);
}

TEST_F(Nccl, AShrunkOneLacksARank) {
  auto daemon = monitor({}, two_gpus());
  begin(3);
  for (const std::size_t i : {0u, 2u}) EXPECT_TRUE(rank(i).write_line("shrink 1"));
  for (const std::size_t i : {0u, 2u}) EXPECT_EQ(line_of(rank(i)), "did shrink");
  for (const std::size_t i : {0u, 2u}) EXPECT_TRUE(rank(i).write_line("child 1"));
  for (const std::size_t i : {0u, 2u}) EXPECT_EQ(line_of(rank(i)), "did child");
  const json all = communicators();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1]["size"], 2);
  EXPECT_EQ(launched(1), (Counts{1, 1}));
}

TEST_F(Nccl, AnAbortedOneIsGone) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  EXPECT_EQ(ask(rank(0), "reduce 1"), "did reduce");
  EXPECT_EQ(launched(), (Counts{1, 0})) << "its peer lags behind";
  do_all("abort");
  EXPECT_EQ(communicators(), json::array());
  EXPECT_EQ(ask(rank(0), "sync"), "did sync") << "an aborted one leaves the GPU";
}

TEST_F(Nccl, MoreThanThereIsRoomForAreNotWatched) {
  auto daemon = monitor({}, two_gpus());
  begin(1);
  do_all("more 1025");
  EXPECT_EQ(communicators().size(), 1024u);
  EXPECT_EQ(job_named("gang")["communicators_unwatched"], 2);
  EXPECT_TRUE(rank(0).write_line("quit"));
  const auto end = rank(0).finish(kLimit);
  EXPECT_TRUE(says(end, "communicator 1025 of this process has no place, 1024 at most have"))
      << end.err;
}

TEST_F(Nccl, AnotherMonitorFindsTheCounts) {
  auto first = monitor({}, two_gpus());
  begin(2);
  do_all("begin");
  ASSERT_TRUE(eventually([this] {
    const Counts now = launched();
    return now.size() == 2 && now[0] > 20;
  }));
  kill_and_wait(first.pid());
  auto second = monitor({}, two_gpus());
  ASSERT_TRUE(eventually([this] { return launched().size() == 2; }));
  const Words said = ask_all("steps");
  const auto steps =
      std::to_string(std::max(std::stol(said[0].substr(6)), std::stol(said[1].substr(6))) + 50);
  EXPECT_EQ(ask_all("until " + steps), (Words{"end " + steps, "end " + steps}));
  EXPECT_EQ(launched(), (Counts{std::stol(steps), std::stol(steps)}));
}

TEST_F(Nccl, StatsTellRatesByKindAndWhoIsBehind) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  EXPECT_EQ(ask(rank(1), "reduce 3"), "did reduce");
  Child counting = start({built("switchyard"), "stats", "gang", "--interval", "1s", "--json"});
  // As long as it counts, for nobody knows when it begins.
  Child::End end;
  std::atomic<bool> counted{false};
  std::thread waiting([&] {
    end = counting.finish(kLimit);
    counted = true;
  });
  long launches = 3;
  for (; !counted; ++launches) {
    EXPECT_EQ(ask(rank(1), "reduce 1"), "did reduce");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  waiting.join();
  ASSERT_EQ(end.status, 0) << end.err;
  const json said = json::parse(end.out);
  EXPECT_EQ(differences(said, read_schema("stats")), Words{});
  const json& job = said["jobs"][0];
  EXPECT_GT(job["kinds_per_second"]["all_reduce"], 0);
  EXPECT_EQ(job["kinds_per_second"]["all_reduce"], job["collectives_per_second"]);
  EXPECT_EQ(job["kind_bytes_per_second"]["all_reduce"], job["bytes_per_second"]);
  const json& communicator = job["communicators"][0];
  EXPECT_EQ(communicator["collectives_per_second"], job["collectives_per_second"]);
  ASSERT_EQ(communicator["behind"].size(), 1u);
  EXPECT_EQ(communicator["behind"][0]["rank"], 0);
  EXPECT_GE(communicator["behind"][0]["operations"], 3);
  EXPECT_LE(communicator["behind"][0]["operations"], launches);
  EXPECT_NE(cli({"stats", "--interval", "10ms"}).out.find("rank 0 (pid "), std::string::npos);
  EXPECT_EQ(cli({"stats", "nobody", "--interval", "10ms"}).status, kNoSuchJobOrGpu);
  EXPECT_EQ(cli({"stats", "--interval", "never"}).status, kUsage);
}

TEST_F(Nccl, ARankThatIsLateHoldsTheOthersOnTheGpu) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  EXPECT_EQ(ask(rank(0), "reduce 1"), "did reduce");
  EXPECT_TRUE(rank(0).write_line("sync"));
  std::string said;
  EXPECT_FALSE(rank(0).read_line(said, std::chrono::milliseconds(300))) << said;
  EXPECT_EQ(ask(rank(1), "reduce 1"), "did reduce");
  EXPECT_EQ(line_of(rank(0)), "did sync");
  EXPECT_EQ(ask_all("sum")[0], ask_all("sum")[1]);
}

}  // namespace
}  // namespace switchyard::system_tests
