// A brief listing is what the table of `ps` asks for: a part of the whole one, and much shorter.
#include "monitor/control/listing.h"

#include <gtest/gtest.h>

#include "monitor/control/guard_listing.h"
#include "monitor/control/job_on_gpu.h"
#include "switchyard/collectives.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

// Keys may be left out; all that is said is the same.
void expect_part(const json& part, const json& whole, const std::string& where) {
  if (part.is_object()) {
    for (const auto& [key, value] : part.items()) {
      ASSERT_TRUE(whole.contains(key)) << where << key;
      expect_part(value, whole[key], where + key + ".");
    }
  } else if (part.is_array()) {
    ASSERT_EQ(part.size(), whole.size()) << where;
    for (std::size_t i = 0; i < part.size(); ++i) expect_part(part[i], whole[i], where);
  } else {
    EXPECT_EQ(part, whole) << where;
  }
}

TEST(Listing, ABriefOneIsAPartOfTheWholeAndLessThanHalfOfIt) {
  Rig rig(2);
  const Joined works = rig.runs({.name = "works", .memory = "1GiB"}, 2);
  const Joined paused = rig.runs({.name = "paused"});
  ASSERT_TRUE(rig.allocate(works, 100 * kMiB));
  rig.settle({&works, &paused});
  rig.tell("pause", "paused");
  rig.pass(milliseconds(100));
  const json whole = rig.ask({{"op", "ps"}});
  const json brief = rig.ask({{"op", "ps"}, {"brief", true}});
  ASSERT_EQ(brief["jobs"].size(), 2u);
  expect_part(brief, whole, "");
  EXPECT_LT(2 * brief["jobs"].dump().size(), whole["jobs"].dump().size());
}

TEST(Listing, ABriefOneComesInPartsLikeAWholeOne) {
  Rig rig;
  // Of root, whose jobs are not bounded.
  for (int i = 0; i < 300; ++i) rig.join({.name = "job-" + std::to_string(i)}, 0);
  std::size_t jobs = 0, parts = 0;
  for (json after = 0; !after.is_null(); ++parts) {
    const json part = rig.ask({{"op", "ps"}, {"brief", true}, {"after", after}});
    EXPECT_LT(part.dump().size(), 256u * 1024);
    jobs += part["jobs"].size();
    after = part.value("more_after", json());
  }
  EXPECT_EQ(jobs, 300u);
  EXPECT_GT(parts, 1u);
}

// Two processes of one job on one GPU, which have contexts.
struct TwoProcesses : ::testing::Test {
  TwoProcesses() {
    for (const Joined* each : {&first, &second}) each->shim.open_context();
  }
  json on_gpu() { return rig.job()["gpus"][0]; }

  Rig rig;
  Joined first = rig.join({.job = "j", .name = "x", .swappable = "yes"});
  Joined second = rig.join({.job = "j", .swappable = "yes"});
};

TEST_F(TwoProcesses, TheirLoadsAreAddedUp) {
  rig.gpus.load = {{{first.client->peer.pid, 0.25}, {second.client->peer.pid, 0.5}}};
  rig.pass(seconds(1));
  EXPECT_EQ(on_gpu()["share_got_ratio"], 0.75);
}

// NVML counts the time in which a kernel waited for its slice, too.
TEST_F(TwoProcesses, AShareThatThePolicyKnowsIsShownAndNoLoad) {
  const Job& job = *rig.monitor.registry().find(first.client->job);
  OnGpu sums;
  sums.load = 0.75;
  const auto share = [&] {
    return list_on_gpu_briefly(rig.monitor, job, 0, sums)["share_got_ratio"];
  };
  EXPECT_EQ(share(), 0.75);
  sums.got = 0.25;
  EXPECT_EQ(share(), 0.25);
  sums.got = 1.5;
  EXPECT_EQ(share(), 1.0) << "the whole GPU at most";
}

TEST_F(TwoProcesses, ACommunicatorIsAsLargeAsAnyOfItsRanksSays) {
  first.shim.joins_communicator(77, 0, 4);
  second.shim.joins_communicator(77, 1, 2);
  EXPECT_EQ(rig.job()["communicators"][0]["size"], 4);
  first.shim.joins_communicator(77, 1, 2);
  second.shim.joins_communicator(77, 0, 4);
  EXPECT_EQ(rig.job()["communicators"][0]["size"], 4);
}

TEST(Listing, ADeadlineIsTheTimeThatIsLeft) {
  Rig rig;
  const Joined a = rig.join({.name = "x", .deadline = "60s"});
  rig.pass(seconds(10));
  EXPECT_EQ(rig.job()["deadline_seconds"], 50);
}

TEST(Listing, AGuardIsWhatItDoesNow) {
  using guard::Phase;
  guard::State state;
  EXPECT_STREQ(state_of(state), "learning");
  state.answers[7];
  EXPECT_STREQ(state_of(state), "answering");
  state.phase = Phase::kTrying;
  EXPECT_STREQ(state_of(state), "trying");
  state.phase = Phase::kEasing;
  EXPECT_STREQ(state_of(state), "easing");
}

TEST_F(TwoProcesses, TheActiveOnesSlicesAreShown) {
  rig.settle({&second});
  first.lane().compute_slice_applied_us = 11;
  second.lane().compute_slice_applied_us = 22;
  EXPECT_EQ(on_gpu()["slice_in_force_us"], 22);
}

TEST_F(TwoProcesses, AnErrorOfMemoryThatIsBackIsNotShown) {
  second.shim.swappable(kGiB);
  second.shim.be_resident(abi::kSwapFailed);
  rig.pass(milliseconds(50));
  EXPECT_EQ(on_gpu()["swap_error"], nullptr);
}

TEST_F(TwoProcesses, AnErrorIsShownOnlyOfAJobWhoseMemoryMayLeave) {
  const Joined other = rig.join({.name = "y"});
  OnGpu sums;
  sums.swap_error = abi::kSwapFailed;
  const auto error_of = [&](const Joined& who) {
    const Job& job = *rig.monitor.registry().find(who.client->job);
    return list_on_gpu_briefly(rig.monitor, job, 0, sums)["swap_error"];
  };
  EXPECT_TRUE(error_of(first).is_string());
  EXPECT_EQ(error_of(other), nullptr);
}

TEST_F(TwoProcesses, WithoutRoomTheJobWaitsUnlessItHasFailed) {
  Job& job = *rig.monitor.registry().find(first.client->job);
  OnGpu sums;
  const auto waits = [&] {
    return list_on_gpu_briefly(rig.monitor, job, 0, sums)["swap_waits_for_room"];
  };
  EXPECT_EQ(waits(), false);
  sums.swap_error = abi::kSwapFailed;
  EXPECT_EQ(waits(), false);
  sums.swap_error = abi::kSwapNoDeviceRoom;
  EXPECT_EQ(waits(), true);
}

TEST_F(TwoProcesses, TheirCountsAreAddedUp) {
  for (const std::uint32_t part : {1u, 2u}) {
    const FakeShim& shim = (part == 1 ? first : second).shim;
    abi::Lane& words = shim.lane();
    words.launches = part;
    words.graph_launches = 10 * part;
    words.copies = 100 * part;
    words.link_bytes = 1000 * part;
    words.device_bytes = 10'000 * part;
    words.refusals = 7 * part;
    shim.gate().held_threads = 5 * part;
    shim.gate().waits = 50 * part;
  }
  rig.pass(milliseconds(200));
  const json gpu = on_gpu();
  const struct {
    const char* key;
    int sum;
  } rows[] = {{"launches", 3},
              {"graph_launches", 30},
              {"copies", 300},
              {"copied_link_bytes", 3000},
              {"copied_device_bytes", 30'000},
              {"refusals", 21},
              {"held_threads", 15},
              {"gate_waits", 150}};
  for (const auto& row : rows) EXPECT_EQ(gpu[row.key], row.sum) << row.key;
}

TEST_F(TwoProcesses, AnObserverBesideThemAddsNothing) {
  const Joined observer = rig.join({.job = "j"}, 1000, 1, wire::kObserver);
  const json before = on_gpu();
  observer.lane().launches = 1;
  observer.lane().refusals = 1;
  observer.shim.gate().held_threads = 1;
  observer.shim.joins_communicator(77, 0, 2);
  rig.pass(milliseconds(200));
  const json after = on_gpu();
  for (const char* key : {"launches", "refusals", "held_threads"}) {
    EXPECT_EQ(after[key], before[key]) << key;
  }
  EXPECT_EQ(rig.job()["communicators"], json::array());
}

TEST(Listing, EachGpuOfAJobHasItsOwnCounts) {
  Rig rig(2);
  const Joined job = rig.runs({.name = "x"}, 2);
  job.shim.open_context(1);
  job.lane(0).launches = 1;
  job.lane(1).launches = 2;
  rig.pass(milliseconds(200));
  EXPECT_EQ(rig.job()["gpus"][0]["launches"], 1);
  EXPECT_EQ(rig.job()["gpus"][1]["launches"], 2);
}

TEST_F(TwoProcesses, AShareIsAnEstimateForThreeSecondsAfterTheGpuWasDivided) {
  const Job& job = *rig.monitor.registry().find(first.client->job);
  const auto estimated = [&](Time passed) {
    return add_up(rig.monitor, job, 0, rig.now + passed).estimated;
  };
  EXPECT_FALSE(estimated(Time{0})) << "it never was";
  first.client->lanes.at(0).had.divided_at = rig.now;
  EXPECT_TRUE(estimated(seconds(3) - Time{1}));
  EXPECT_FALSE(estimated(seconds(3)));
}

TEST_F(TwoProcesses, AClosedGateCountsAsArmed) {
  const Job& job = *rig.monitor.registry().find(first.client->job);
  EXPECT_FALSE(add_up(rig.monitor, job, 0, rig.now).armed);
  second.client->lanes.at(0).order.closed = abi::kClosedByLimit;
  EXPECT_TRUE(add_up(rig.monitor, job, 0, rig.now).armed);
}

TEST_F(TwoProcesses, AGateThatAnyOfThemRefusedIsRefused) {
  const auto status = [&] { return on_gpu()["gate_status"]; };
  EXPECT_EQ(status(), "none");
  first.shim.gate().state = abi::kGateRefused;
  rig.pass(milliseconds(200));
  EXPECT_EQ(status(), "refused");
  second.shim.ready_gate();
  rig.pass(milliseconds(200));
  EXPECT_EQ(status(), "refused");
}

TEST(Listing, AnObserverMakesNoPauseBestEffort) {
  Rig rig;
  const Joined works = rig.runs({.job = "j", .name = "x"});
  const Joined observer = rig.join({.job = "j"}, 1000, 1, wire::kObserver);
  EXPECT_EQ(rig.tell("pause")["pause_best_effort"], false);
  const Joined second = rig.runs({.job = "j"});
  EXPECT_EQ(rig.job()["pause_best_effort"], true);
}

TEST_F(TwoProcesses, OnlyAPauseIsBestEffort) {
  EXPECT_EQ(rig.job()["pause_best_effort"], false);
  rig.tell("pause");
  EXPECT_EQ(rig.job()["pause_best_effort"], true);
  rig.tell("resume");
  EXPECT_EQ(rig.job()["pause_best_effort"], false);
}

TEST(Listing, AGpuCountsItsClientsAndEachOfTheirJobsOnce) {
  Rig rig(2);
  rig.join({.job = "j"}, 1000, 2);
  rig.join({.job = "j"});
  rig.join({.job = "other"});
  const json gpus = rig.ask({{"op", "status"}})["gpus"];
  EXPECT_EQ(gpus[0]["clients"], 3);
  EXPECT_EQ(gpus[0]["jobs"], 2);
  EXPECT_EQ(gpus[1]["clients"], 1);
  EXPECT_EQ(gpus[1]["jobs"], 1);
}

TEST(Listing, AQuotaIsBytesOrAPart) {
  Rig rig;
  rig.join({.name = "bytes", .memory = "1GiB"});
  rig.join({.name = "part", .memory = "25%"});
  rig.join({.name = "none"});
  const auto quota = [&](std::size_t at) {
    const json job = rig.job(at);
    return json::array({job["memory_quota_bytes"], job["memory_quota_ratio"]});
  };
  EXPECT_EQ(quota(0), json::array({kGiB, nullptr}));
  EXPECT_EQ(quota(1), json::array({nullptr, 0.25}));
  EXPECT_EQ(quota(2), json::array({nullptr, nullptr}));
}

TEST_F(TwoProcesses, RanksAreListedInTheirOrder) {
  first.shim.joins_communicator(77, 1, 2);
  second.shim.joins_communicator(77, 0, 2);
  const json ranks = rig.job()["communicators"][0]["ranks"];
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0]["rank"], 0);
  EXPECT_EQ(ranks[0]["pid"], second.client->peer.pid);
  EXPECT_EQ(ranks[1]["rank"], 1);
}

TEST_F(TwoProcesses, TheCommunicatorWithMostRanksComesFirst) {
  first.shim.joins_communicator(5, 0, 1);
  first.shim.joins_communicator(77, 0, 2, 1);
  second.shim.joins_communicator(77, 1, 2);
  const json all = rig.job()["communicators"];
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["id"], "000000000000004d");
  EXPECT_EQ(all[1]["id"], "0000000000000005");
}

TEST_F(TwoProcesses, ARankThatDoesNotKnowItsNumberHasNone) {
  first.shim.joins_communicator(77, 0, 0);
  const json communicator = rig.job()["communicators"][0];
  EXPECT_EQ(communicator["size"], nullptr);
  EXPECT_EQ(communicator["ranks"][0]["rank"], nullptr);
}

TEST_F(TwoProcesses, OnlyATwinNamesItsOriginal) {
  first.shim.joins_communicator(77, 0, 2);
  first.shim.joins_communicator(twin_id(77), 0, 2, 1);
  const json all = rig.job()["communicators"];
  ASSERT_EQ(all.size(), 2u);
  for (const json& each : all) {
    const bool original = each["id"] == "000000000000004d";
    EXPECT_EQ(each["twin_of"], original ? json() : json("000000000000004d")) << each;
  }
}

TEST_F(TwoProcesses, ACollectiveHasAnAgeOnceThereWasOne) {
  first.shim.joins_communicator(77, 0, 2);
  const auto age = [&] { return rig.job()["communicators"][0]["ranks"][0]["last_seconds"]; };
  EXPECT_EQ(age(), nullptr);
  first.shim.collective(static_cast<std::uint32_t>(Collective::kAllReduce), 8,
                        rig.now - seconds(5));
  EXPECT_EQ(age(), 5.0);
  first.shim.collective(static_cast<std::uint32_t>(Collective::kAllReduce), 8,
                        rig.now + seconds(5));
  EXPECT_EQ(age(), 0.0) << "none is of the future";
}

TEST(Listing, ACommunicatorOnAGpuThatIsNotGovernedIsOnlyCounted) {
  Rig rig(1);
  const Joined both = rig.join({.name = "x"}, 1000, 2);
  both.shim.joins_communicator(77, 0, 2).use = 2;
  both.shim.joins_communicator(78, 0, 2, 1);
  const json job = rig.job();
  ASSERT_EQ(job["communicators"].size(), 1u);
  EXPECT_EQ(job["communicators"][0]["id"], "000000000000004e");
  EXPECT_EQ(job["communicators_unwatched"], 1);
}

TEST_F(TwoProcesses, OnlyCollectivesThatWereLaunchedAreListed) {
  first.shim.page().process.collectives[static_cast<unsigned>(Collective::kBroadcast)] = 3;
  const json processes = rig.job()["processes"];
  EXPECT_EQ(processes[0]["collectives"], (json{{"broadcast", 3}}));
  EXPECT_EQ(processes[1]["collectives"], json::object());
}

TEST(Listing, WhatAProcessLaunchedStandsAtItAlsoBehindAnObserver) {
  Rig rig;
  const Joined observer = rig.join({.job = "j"}, 1000, 1, wire::kObserver);
  const Joined first = rig.join({.job = "j"}), second = rig.join({.job = "j"});
  const auto broadcast = static_cast<unsigned>(Collective::kBroadcast);
  first.shim.page().process.collectives[broadcast] = 3;
  second.shim.page().process.collectives[broadcast] = 5;
  json processes = rig.job()["processes"];
  ASSERT_EQ(processes.size(), 3u);
  EXPECT_EQ(processes[0]["observer"], true);
  EXPECT_EQ(processes[0]["collectives"], json::object());
  EXPECT_EQ(processes[1]["collectives"], (json{{"broadcast", 3}}));
  EXPECT_EQ(processes[2]["collectives"], (json{{"broadcast", 5}}));
}

}  // namespace
}  // namespace switchyard::monitor::test
