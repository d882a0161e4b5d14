// Snapshots of a monitor over time: counters that never fall, and jobs that have ended.
#include "monitor/export/collector.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "tests/monitor/residency/migrations_scene.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

class MetricsOf : public ::testing::Test {
 protected:
  void works(const Joined& who, double for_seconds) {
    who.client->lanes[0].had.known = true;
    who.client->lanes[0].had.gpu_ns += for_seconds * 1e9;
    rig.pass(milliseconds(200));
  }
  // Null: it has no row there.
  static const metrics::OnGpu* row(const metrics::Snapshot& seen, const std::string& name,
                                   bool ended = false) {
    for (const metrics::Job& job : seen.jobs) {
      if (job.name == name && job.ended == ended && !job.gpus.empty()) return &job.gpus[0];
    }
    return nullptr;
  }
  double gpu_seconds(const std::string& name, bool ended = false) {
    const auto seen = collector.look(rig.now);
    const metrics::OnGpu* on = row(seen, name, ended);
    return on != nullptr ? on->sums.gpu_seconds : -1;
  }
  double user_seconds() {
    double out = 0;
    for (const metrics::User& user : collector.look(rig.now).users) out += user.gpu_seconds;
    return out;
  }

  Rig rig;
  metrics::Collector collector{rig.monitor};
};

TEST_F(MetricsOf, AJobIsThereWithWhatItHas) {
  const Joined a = rig.runs({.job = "a", .name = "a", .priority = "high", .memory = "1GiB"});
  ASSERT_TRUE(rig.allocate(a, 100 * kMiB));
  rig.pass(milliseconds(200));
  works(a, 0.1);
  const auto seen = collector.look(rig.now);
  EXPECT_EQ(seen.living_jobs, 1u);
  const metrics::OnGpu* on = row(seen, "a");
  ASSERT_NE(on, nullptr);
  EXPECT_NEAR(on->sums.gpu_seconds, 0.1, 1e-9);
  EXPECT_GE(on->used_bytes, 100 * kMiB);
  EXPECT_EQ(on->quota_bytes, kGiB);
  EXPECT_EQ(seen.jobs[0].priority, "high");
  EXPECT_TRUE(seen.jobs[0].high);
  EXPECT_NEAR(seen.gpus[0].busy_seconds, 0.1, 1e-9);
  EXPECT_EQ(seen.gpus[0].index, 0u);
}

TEST_F(MetricsOf, AJobOfAPodHasItsNames) {
  const std::string id(64, 'c');
  std::string folder = (std::filesystem::temp_directory_path() / "pods-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::filesystem::create_symlink("/nowhere", folder + "/train-1_team_main-" + id + ".log");
  metrics::Collector with_pods(rig.monitor, folder);
  rig.join({.job = "in"});
  rig.join({.job = "out"});
  rig.monitor.registry().find_target("in")->place.container = id;
  PodNames in;
  for (int i = 0; i < 6000 && in.pod.empty(); ++i) {
    for (const metrics::Job& job : with_pods.look(rig.now).jobs) {
      if (job.name == "in") {
        in = job.pod;
      } else {
        EXPECT_EQ(job.pod, PodNames{});
      }
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(in, (PodNames{"train-1", "team", "main"}));
  std::filesystem::remove_all(folder);
}

TEST_F(MetricsOf, AJobThatEndsStaysForFiveMinutesAndItsUsersTimeForGood) {
  const Joined a = rig.runs({.job = "a", .name = "a"});
  rig.pass(milliseconds(200));
  works(a, 0.1);
  rig.dies(a);
  EXPECT_EQ(gpu_seconds("a"), -1);
  EXPECT_NEAR(gpu_seconds("a", true), 0.1, 1e-9);
  EXPECT_EQ(row(collector.look(rig.now), "a", true)->state, metrics::kEnded);
  rig.pass(metrics::kEndedStay);
  EXPECT_NEAR(gpu_seconds("a", true), 0.1, 1e-9);
  rig.pass(seconds(1));
  EXPECT_EQ(gpu_seconds("a", true), -1);
  EXPECT_NEAR(user_seconds(), 0.1, 1e-9);
}

TEST_F(MetricsOf, AJobOfTheSameNameGoesOnCountingWhereTheOtherEnded) {
  for (int i = 0; i < 3; ++i) {
    const Joined a = rig.runs({.job = "a" + std::to_string(i), .name = "a"});
    rig.pass(milliseconds(200));
    EXPECT_GE(gpu_seconds("a"), 0.1 * i - 1e-9) << "it has fallen";
    EXPECT_EQ(gpu_seconds("a", true), -1) << "one series twice";
    works(a, 0.1);
    EXPECT_NEAR(gpu_seconds("a"), 0.1 * (i + 1), 1e-9);
    rig.dies(a);
  }
  EXPECT_NEAR(gpu_seconds("a", true), 0.3, 1e-9);
  EXPECT_NEAR(user_seconds(), 0.3, 1e-9);
}

TEST_F(MetricsOf, NoMoreThanAThousandThatHaveEndedAreKept) {
  for (std::size_t i = 0; i < metrics::kMostEnded + 10; ++i) {
    rig.dies(rig.join({.job = "j" + std::to_string(i), .name = "j" + std::to_string(i)}));
  }
  EXPECT_EQ(collector.look(rig.now).jobs.size(), metrics::kMostEnded);
  EXPECT_NE(row(collector.look(rig.now), "j" + std::to_string(metrics::kMostEnded + 9), true),
            nullptr)
      << "the last one is among them";
}

TEST_F(MetricsOf, ACounterKeepsWhatAProcessCountedThatHasGone) {
  const Joined a = rig.runs({.job = "a", .name = "a", .memory = "1GiB"});
  const Joined b = rig.join({.job = "a", .name = "a", .memory = "1GiB"});
  EXPECT_EQ(rig.charge(b, 2 * kGiB).verdict, wire::kOverQuota);
  b.lane().refusals = 3;
  rig.monitor.left(b.id);
  rig.pass(milliseconds(200));
  const auto seen = collector.look(rig.now);
  const metrics::OnGpu* on = row(seen, "a");
  ASSERT_NE(on, nullptr);
  EXPECT_EQ(on->sums.counters.refusals, (std::array<std::uint64_t, 4>{3, 0, 0, 0}));
  // Whatever a process writes there, nothing falls.
  a.lane().refusals = 7;
  rig.pass(milliseconds(200));
  a.lane().refusals = 1;
  rig.pass(milliseconds(200));
  EXPECT_EQ(row(collector.look(rig.now), "a")->sums.counters.refusals[3], 7u);
  a.lane().refusals = 3;
  rig.pass(milliseconds(200));
  EXPECT_EQ(row(collector.look(rig.now), "a")->sums.counters.refusals[3], 9u) << "two more";
}

TEST_F(MetricsOf, WhatAProcessCarriesOverIsNotCountedTwice) {
  const Ask ask{.job = "a", .name = "a", .swappable = "yes"};
  const Joined a = rig.runs(ask);
  a.lane().refusals = 3;
  a.shim.memory().moved_out_bytes = 500 * kMiB;
  rig.pass(milliseconds(200));
  const Joined again = rig.join(ask, 1000, 1, wire::kRejoin);
  rig.monitor.left(a.id);
  rig.pass(milliseconds(200));
  again.shim.open_context();
  again.shim.launch();
  again.lane().refusals = 3;
  rig.pass(milliseconds(200));
  again.shim.memory().moved_out_bytes = 500 * kMiB;
  rig.pass(milliseconds(200));
  again.lane().refusals = 4;
  again.shim.memory().moved_out_bytes = 600 * kMiB;
  rig.pass(milliseconds(200));
  const auto seen = collector.look(rig.now);
  const metrics::OnGpu* on = row(seen, "a");
  ASSERT_NE(on, nullptr);
  EXPECT_EQ(on->sums.counters.refusals[3], 4u);
  EXPECT_EQ(on->sums.counters.swapped_out_bytes, 600 * kMiB);
}

TEST_F(MetricsOf, WhatAProcessThatJoinedAgainDoesFirstCounts) {
  const Ask ask{.job = "a", .name = "a", .swappable = "yes"};
  const Joined a = rig.join(ask, 1000, 1, wire::kRejoin);
  a.shim.open_context();
  for (int i = 0; i < 3; ++i) {
    a.shim.launch();
    rig.pass(milliseconds(200));
  }
  a.shim.memory().moved_out_bytes = 500 * kMiB;
  rig.pass(milliseconds(200));
  EXPECT_EQ(row(collector.look(rig.now), "a")->sums.counters.swapped_out_bytes, 500 * kMiB);
}

TEST(MetricsOfMoves, WhatAJobHadOnTheGpuThatItLeftStays) {
  Moves rig;
  metrics::Collector collector(rig.monitor);
  const Joined a = rig.process(kGiB);
  a.client->lanes[0].had.known = true;
  a.client->lanes[0].had.gpu_ns += 0.1e9;
  rig.pass(milliseconds(200));
  const double before = collector.look(rig.now).jobs[0].gpus[0].sums.gpu_seconds;
  ASSERT_GT(before, 0);
  ASSERT_EQ(rig.migrate()["ok"], true);
  rig.leave({&a});
  rig.land(a, 1);
  rig.come({&a}, 1);
  rig.pass(seconds(1));
  const metrics::Snapshot seen = collector.look(rig.now);
  ASSERT_EQ(seen.jobs.size(), 1u);
  ASSERT_EQ(seen.jobs[0].gpus.size(), 2u);
  EXPECT_GE(seen.jobs[0].gpus[0].sums.gpu_seconds, before);
  EXPECT_EQ(seen.jobs[0].gpus[0].state, metrics::kEnded);
}

TEST(MetricsOfTwoGpus, ACounterOutlastsAJobOfThatNameThatWasNotThere) {
  Rig rig(2);
  metrics::Collector collector(rig.monitor);
  const auto runs = [&](const char* job, std::initializer_list<unsigned> lanes) {
    const Joined a = rig.join({.job = job, .name = "a"}, 1000, 2);
    for (const unsigned lane : lanes) {
      a.shim.open_context(lane);
      a.shim.launch(lane);
    }
    rig.pass(milliseconds(200));
    for (const unsigned lane : lanes) {
      a.client->lanes[lane].had.known = true;
      a.client->lanes[lane].had.gpu_ns += 0.1e9;
    }
    rig.pass(milliseconds(200));
    double there = -1;
    for (const metrics::Job& each : collector.look(rig.now).jobs) {
      for (const metrics::OnGpu& on : each.gpus) {
        if (!each.ended && on.gpu == 1) there = on.sums.gpu_seconds;
      }
    }
    rig.dies(a);
    return there;
  };
  EXPECT_NEAR(runs("first", {0, 1}), 0.1, 1e-9);
  EXPECT_EQ(runs("second", {0}), -1) << "it is not there";
  EXPECT_NEAR(runs("third", {1}), 0.2, 1e-9);
}

TEST_F(MetricsOf, AGateThatOpensIsASwitch) {
  const Joined a = rig.runs({.job = "a", .name = "a"});
  rig.pass(milliseconds(200));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(rig.tell("pause", "a")["ok"], true);
    rig.pass(milliseconds(200));
    EXPECT_EQ(rig.tell("resume", "a")["ok"], true);
    rig.pass(milliseconds(200));
  }
  EXPECT_EQ(row(collector.look(rig.now), "a")->sums.counters.gate_openings, 3u);
}

TEST_F(MetricsOf, AWaitIsCountedOnTheGpuWhereItWas) {
  const Joined a = rig.runs({.job = "a", .name = "a"});
  rig.pass(milliseconds(200));
  EXPECT_EQ(rig.tell("pause", "a")["ok"], true);
  for (int i = 0; i < 5; ++i) rig.pass(milliseconds(200));
  const auto seen = collector.look(rig.now);
  const metrics::OnGpu* on = row(seen, "a");
  ASSERT_NE(on, nullptr);
  EXPECT_EQ(on->state, static_cast<std::size_t>(status::State::kPaused));
  EXPECT_NEAR(on->sums.waits_seconds[0], 1.0, 0.01) << "pause is the first reason";
}

// Of the last eight bursts in the page, those that came since the last look.
TEST_F(MetricsOf, WaitsOfBurstsAreCountedOnce) {
  const Joined a = rig.runs({.job = "a", .name = "a", .priority = "high"});
  const auto waits = [&](std::uint32_t upto, std::uint16_t us) {
    for (std::uint32_t n = a.shim.gate().bursts + 1; n <= upto; ++n) {
      a.shim.gate().counts[n % abi::kCountedBursts] = 5;
      a.lane().burst_cpu_us[n % abi::kCountedBursts] = 10;
      a.lane().burst_waited_us[n % abi::kCountedBursts] = us;
    }
    a.shim.gate().bursts = upto;
    rig.pass(milliseconds(200));
  };
  rig.pass(milliseconds(200));
  waits(3, 150);
  rig.pass(milliseconds(200));
  waits(5, 40'000);
  const auto seen = collector.look(rig.now);
  ASSERT_NE(row(seen, "a"), nullptr);
  const BurstWaits& counted = row(seen, "a")->sums.counters.waits;
  EXPECT_EQ(counted.counts[1], 3u);
  EXPECT_EQ(counted.counts[9], 2u);
  EXPECT_EQ(counted.sum_us, 3 * 150 + 2 * 40'000u);
  waits(105, 150);
  EXPECT_EQ(row(collector.look(rig.now), "a")->sums.counters.waits.counts[1], 3u + 8u);
}

TEST_F(MetricsOf, TheHostPoolIsUsedAsFarAsItIsPinned) {
  const Joined a = rig.runs({.job = "a", .name = "a", .swappable = "yes"});
  EXPECT_EQ(collector.look(rig.now).host_pool_used_bytes, 0u);
  a.shim.swappable(100 * kMiB);
  a.shim.residency().host_bytes = 64 * kMiB;
  rig.pass(milliseconds(200));
  EXPECT_EQ(collector.look(rig.now).host_pool_used_bytes, 64 * kMiB);
}

TEST_F(MetricsOf, UnmanagedProcessesAreCountedWithoutAJob) {
  rig.gpus.uses[0][4711] = 100 * kMiB;
  rig.pass(seconds(2));
  const auto seen = collector.look(rig.now);
  EXPECT_EQ(seen.gpus[0].unmanaged_processes, 1u);
  EXPECT_EQ(seen.gpus[0].unmanaged_memory_bytes, 100 * kMiB);
}

TEST_F(MetricsOf, UnmanagedProcessesAreAddedUpByUser) {
  rig.pass(Unmanaged::kQuiet);
  for (const pid_t pid : {3'500'000, 3'500'001}) rig.gpus.uses[0][pid] = 100 * kMiB;
  rig.gpus.load = {{{3'500'000, 0.5}}};
  for (int i = 0; i < 5; ++i) rig.pass(seconds(1));
  auto seen = collector.look(rig.now);
  ASSERT_EQ(seen.unmanaged.size(), 1u);
  EXPECT_EQ(seen.unmanaged[0].name, "unknown");
  EXPECT_EQ(seen.unmanaged[0].bytes, 200 * kMiB);
  EXPECT_NEAR(seen.unmanaged[0].gpu_seconds, 2, 1e-9);
  EXPECT_TRUE(seen.users.empty()) << "they are no job's";
  rig.gpus.uses[0].clear();
  for (int i = 0; i < 2; ++i) rig.pass(seconds(1));
  seen = collector.look(rig.now);
  EXPECT_EQ(seen.unmanaged[0].bytes, 0u);
  EXPECT_GE(seen.unmanaged[0].gpu_seconds, 2) << "a counter never falls";
}

}  // namespace
}  // namespace switchyard::monitor::test
