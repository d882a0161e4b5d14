// Reduce-scatters on a communicator of their own (`run --urgent-collectives`), in real processes.
#include <signal.h>

#include "tests/system/gang_scene.h"
#include "tests/system/schema.h"

namespace switchyard::system_tests {
namespace {

using Counts = std::vector<long>;

class Urgent : public Gang {
 protected:
  static Changes urgent(const Changes& more = {}) {
    Changes all{{"SWITCHYARD_URGENT_COLLECTIVES", "yes"}};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // Rank 1's reduce-scatter can't begin before "free"; then all ranks gather on a second stream.
  void scatter_late_and_gather() {
    EXPECT_EQ(ask(rank(1), "late"), "did late");
    do_all("scatter 1");
    do_all("side");
  }
  void expect_overtaken() {
    scatter_late_and_gather();
    do_all("syncside");
    EXPECT_EQ(ask_all("busy"), Words(ranks_.size(), "busy 1"));
    EXPECT_EQ(ask(rank(1), "free"), "did free");
    do_all("sync");
    EXPECT_EQ(ask_all("scattered"), Words(ranks_.size(), "right"));
  }
  void expect_queued() {
    scatter_late_and_gather();
    EXPECT_EQ(ask(rank(1), "free"), "did free");
    do_all("syncside");
    EXPECT_EQ(ask_all("busy"), Words(ranks_.size(), "busy 0"));
    EXPECT_EQ(ask_all("scattered"), Words(ranks_.size(), "right"));
  }
  Words live(int count) { return Words(ranks_.size(), "live " + std::to_string(count)); }

  // Each rank's launches in the first twin, and in the original of that twin.
  Counts in_twin() { return counts_of(true); }
  Counts in_original() { return counts_of(false); }

 private:
  Counts counts_of(bool twin) {
    const json all = communicators();
    std::string original;
    for (const json& each : all) {
      if (each["twin_of"].is_null()) continue;
      original = each["twin_of"].get<std::string>();
      if (twin) return launched_in(each);
    }
    for (const json& each : all) {
      if (each["id"] == original) return launched_in(each);
    }
    return {};
  }
  static Counts launched_in(const json& communicator) {
    Counts out;
    for (const json& rank : communicator["ranks"]) out.push_back(rank["launched"]);
    return out;
  }
};

TEST_F(Urgent, AnAllGatherOvertakesAReduceScatter) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  expect_overtaken();
  EXPECT_EQ(in_twin(), (Counts{1, 1}));
  EXPECT_EQ(in_original(), (Counts{1, 1}));
  EXPECT_EQ(job_named("gang")["urgent_collectives"], true);
  EXPECT_EQ(differences(job_named("gang"), read_schema("job")), Words{});
}

TEST_F(Urgent, WithoutTheOptionItQueues) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  EXPECT_EQ(ask_all("live"), live(1));
  expect_queued();
}

TEST_F(Urgent, FourRanksOnTwoGpus) {
  auto daemon = monitor({}, two_gpus());
  begin(4, 2, urgent());
  EXPECT_EQ(ask_all("live"), live(2));
  do_all("scatter 3");
  do_all("sync");
  EXPECT_EQ(ask_all("scattered"), Words(4, "right"));
  EXPECT_EQ(in_twin(), (Counts{3, 3, 3, 3}));
}

TEST_F(Urgent, ARankWithoutTheOptionLeavesAllWithOne) {
  auto daemon = monitor({}, two_gpus());
  begin_each("gang", ranks_, 2,
             {urgent(), {{"SWITCHYARD_JOB", "other"}, {"SWITCHYARD_NAME", "b"}}});
  EXPECT_EQ(ask_all("live"), live(1));
  expect_queued();
}

TEST_F(Urgent, ARankWithoutTheLibraryLeavesAllWithOne) {
  auto daemon = monitor({}, two_gpus());
  begin_each("gang", ranks_, 2, {urgent(), {{"LD_PRELOAD", ""}}});
  EXPECT_EQ(ask_all("live"), live(1));
  expect_queued();
}

TEST_F(Urgent, ARankWithoutAMonitorLeavesAllWithOne) {
  auto daemon = monitor({}, two_gpus());
  begin_each("gang", ranks_, 2, {urgent(), urgent({{"SWITCHYARD_SOCKET", in_folder("nowhere")}})});
  EXPECT_EQ(ask_all("live"), live(1));
  expect_queued();
}

// NCCL spoils the original of a split that fails, so that rank does not get it.
TEST_F(Urgent, ATwinThatOneRankCannotMakeIsMadeByNone) {
  auto daemon = monitor({}, two_gpus());
  start_each("gang", ranks_, 2, {urgent(), urgent({{"FAKENCCL_SPLIT_FAILS", "3"}})});
  EXPECT_EQ(line_of(rank(0)), "ready");
  EXPECT_EQ(line_of(rank(1)), "error");
  EXPECT_EQ(ask(rank(0), "live"), "live 1");
  EXPECT_EQ(communicators().size(), 1u);
}

TEST_F(Urgent, AnErrorOfTheTwinIsTheCommunicators) {
  auto daemon = monitor({}, two_gpus());
  begin_each("gang", ranks_, 2, {urgent(), urgent({{"FAKENCCL_SPLIT_REPORTS", "6"}})});
  EXPECT_EQ(ask_all("error"), (Words{"error 0", "error 6"}));
}

TEST_F(Urgent, FinalizedAndDestroyedBothAreGone) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  do_all("scatter 2");
  do_all("sync");
  EXPECT_EQ(ask_all("live"), live(2));
  do_all("finalize");
  do_all("close");
  EXPECT_EQ(ask_all("live"), live(0));
  EXPECT_EQ(communicators(), json::array());
}

TEST_F(Urgent, AbortedBothLeaveTheGpu) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  EXPECT_EQ(ask(rank(0), "scatter 1"), "did scatter");
  EXPECT_EQ(ask(rank(0), "side"), "did side");
  do_all("abort");
  EXPECT_EQ(ask(rank(0), "sync"), "did sync");
  EXPECT_EQ(ask(rank(0), "syncside"), "did syncside");
  EXPECT_EQ(ask_all("live"), live(0));
  EXPECT_EQ(communicators(), json::array());
}

// The kernel of a twin stands behind one of the child, which is aborted later in the group.
TEST_F(Urgent, CommunicatorsThatAreAbortedInOneGroupLeaveTheGpu) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  do_all("split 0");
  EXPECT_EQ(ask_all("live"), live(4));
  EXPECT_EQ(ask(rank(0), "child 1"), "did child");
  EXPECT_EQ(ask(rank(0), "scatter 1"), "did scatter");
  do_all("abortall");
  EXPECT_EQ(ask(rank(0), "sync"), "did sync");
  EXPECT_EQ(ask_all("live"), live(0));
  EXPECT_EQ(communicators(), json::array());
}

TEST_F(Urgent, RevokedBothLeaveTheGpu) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  EXPECT_EQ(ask(rank(0), "scatter 1"), "did scatter");
  EXPECT_EQ(ask(rank(0), "side"), "did side");
  EXPECT_EQ(ask(rank(0), "revoke"), "did revoke");
  EXPECT_EQ(ask(rank(0), "sync"), "did sync");
  EXPECT_EQ(ask(rank(0), "syncside"), "did syncside");
}

// NCCL waits for the kernels of each, and that of the twin stands behind one of the original.
TEST_F(Urgent, ATwinBehindItsOriginalIsRevokedWithIt) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  EXPECT_EQ(ask(rank(0), "gather 1"), "did gather");
  EXPECT_EQ(ask(rank(0), "scatter 1"), "did scatter");
  EXPECT_EQ(ask(rank(0), "revoke"), "did revoke");
  EXPECT_EQ(ask(rank(0), "sync"), "did sync");
}

TEST_F(Urgent, MemoryIsRegisteredWithBoth) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  do_all("register");
  EXPECT_EQ(ask_all("registered"), Words(2, "registered 4"));
  do_all("deregister");
  EXPECT_EQ(ask_all("registered"), Words(2, "registered 0"));
}

TEST_F(Urgent, AReduceScatterWithAConfigurationGoesToTheTwin) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  do_all("configured");
  do_all("sync");
  EXPECT_EQ(in_twin(), (Counts{1, 1}));
  EXPECT_EQ(in_original(), (Counts{7, 7}));
}

TEST_F(Urgent, SuspendedAndResumedBothAre) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  do_all("suspend");
  EXPECT_EQ(ask_all("scatter 1"), Words(2, "failed scatter 999"));
  do_all("resume");
  do_all("scatter 1");
  do_all("sync");
  EXPECT_EQ(ask_all("scattered"), Words(2, "right"));
}

TEST_F(Urgent, ASplitsChildrenHaveTwins) {
  auto daemon = monitor({}, two_gpus());
  begin(4, 2, urgent());
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(rank(i).write_line("split " + std::to_string(i / 2)));
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(line_of(rank(i)), "did split");
  EXPECT_EQ(ask_all("live"), live(4));
  EXPECT_EQ(communicators().size(), 6u);
  do_all("destroy");
  EXPECT_EQ(ask_all("live"), live(2));
}

TEST_F(Urgent, AShrunkOneHasATwin) {
  auto daemon = monitor({}, two_gpus());
  begin(3, 2, urgent());
  for (const std::size_t i : {0u, 2u}) EXPECT_TRUE(rank(i).write_line("shrink 1"));
  for (const std::size_t i : {0u, 2u}) EXPECT_EQ(line_of(rank(i)), "did shrink");
  EXPECT_EQ(ask_all("live"), (Words{"live 4", "live 2", "live 4"}));
}

TEST_F(Urgent, AShrinkThatAbortsEndsTheTwinsWork) {
  auto daemon = monitor({}, two_gpus());
  begin(3, 2, urgent());
  for (const std::string said : {"scatter 1", "survive 1", "sync"}) {
    const std::string did = "did " + said.substr(0, said.find(' '));
    for (const std::size_t i : {0u, 2u}) EXPECT_TRUE(rank(i).write_line(said));
    for (const std::size_t i : {0u, 2u}) EXPECT_EQ(line_of(rank(i)), did);
  }
  EXPECT_EQ(ask_all("live"), (Words{"live 3", "live 2", "live 3"}));
}

TEST_F(Urgent, AGroupsReduceScattersGoToTheTwin) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  do_all("scatters 3");
  do_all("mixed");
  do_all("sync");
  EXPECT_EQ(in_twin(), (Counts{4, 4}));
  EXPECT_EQ(in_original(), (Counts{1, 1}));
  EXPECT_EQ(ask_all("scattered"), (Words{"right", "right"}));
}

TEST_F(Urgent, AGroupWaitsForAllOfItsStreams) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  EXPECT_EQ(ask(rank(1), "late"), "did late");
  do_all("apart");
  // Rank 0's streams are free, and rank 1's wait for each other.
  EXPECT_EQ(ask(rank(1), "sidebusy"), "busy 1");
  EXPECT_EQ(ask(rank(0), "sidebusy"), "busy 1");
  EXPECT_EQ(ask_all("gathered"), Words(2, "gathered 0"));
  EXPECT_EQ(ask(rank(1), "free"), "did free");
  do_all("syncside");
  EXPECT_EQ(ask_all("gathered"), Words(2, "gathered 1"));
}

TEST_F(Urgent, AllStreamsOfAGroupWaitForAllOfIt) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  EXPECT_EQ(ask(rank(1), "late"), "did late");
  do_all("scatter 1");
  // Its reduce-scatter queues behind that one, and its all-gather runs.
  do_all("third");
  EXPECT_TRUE(eventually([&] { return ask_all("gathered") == Words(2, "gathered 1"); }));
  EXPECT_EQ(ask_all("sidebusy"), Words(2, "busy 1"));
  EXPECT_EQ(ask(rank(1), "free"), "did free");
  do_all("syncside");
  EXPECT_EQ(ask_all("scattered"), (Words{"right", "right"}));
}

TEST_F(Urgent, ACapturedOneStaysOnTheOriginal) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  do_all("scatter 1");
  do_all("frozen 2");
  do_all("replay 3");
  do_all("sync");
  EXPECT_EQ(in_twin(), (Counts{1, 1}));
  EXPECT_EQ(in_original(), (Counts{6, 6}));
}

TEST_F(Urgent, PausedAndSwappedOutWithATwinItComputesTheSame) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent({{"SWITCHYARD_SWAPPABLE", "yes"}}));
  do_all("shard");
  do_all("begin");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(cli({"pause", "gang"}).status, 0);
    EXPECT_EQ(in_twin()[0], in_twin()[1]);
    EXPECT_EQ(in_original()[0], in_original()[1]);
    EXPECT_EQ(cli({"resume", "gang"}).status, 0);
  }
  const auto out = cli({"swap-out", "gang"});
  EXPECT_EQ(out.status, 0) << out.err;
  EXPECT_EQ(cli({"swap-in", "gang"}).status, 0);
  expect_right_in_the_end(ranks_);
  EXPECT_EQ(ask_all("scattered"), (Words{"right", "right"}));
}

// A high gang beside a low one: the low one yields on all GPUs at once, and keeps the rest.
TEST_F(Urgent, ALowGangYieldsToAHighOneOnAllItsGpus) {
  auto daemon = monitor({}, two_gpus());
  Ranks low;
  begin_as("low", low, 2, 2, {{"SWITCHYARD_PRIORITY", "low"}});
  begin(2, 2, urgent({{"SWITCHYARD_PRIORITY", "high"}}));
  do_all("shard");
  // So slow that the ranks of a gang are never far apart.
  for (Ranks* const ranks : {&low, &ranks_}) system_tests::ask_all(*ranks, "begin 2");
  const auto slices = [this](const std::string& name) {
    Counts out;
    const json job = job_named(name);
    for (const json& gpu : job["gpus"]) out.push_back(gpu["slice_in_force_us"]);
    return out;
  };
  EXPECT_TRUE(eventually([&] {
    const Counts longer = slices("gang");
    const Counts shorter = slices("low");
    return longer.size() == 2 && shorter.size() == 2 && shorter[0] != 0 && shorter[1] != 0 &&
           longer[0] > shorter[0] && longer[1] > shorter[1];
  }));
  const auto before = steps_of(low);
  EXPECT_TRUE(eventually([&] { return steps_of(low)[0] > before[0] + 20; }));
  for (Ranks* const ranks : {&low, &ranks_}) expect_right_in_the_end(*ranks);
  EXPECT_EQ(ask_all("scattered"), (Words{"right", "right"}));
}

TEST_F(Urgent, ItGoesOnWithoutItsMonitor) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, urgent());
  kill_and_wait(daemon.pid());
  expect_overtaken();
}

}  // namespace
}  // namespace switchyard::system_tests
