// The laws of gangs, played: 2 to 64 GPUs, gangs of random shapes against jobs on one GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "bench/simulate/gangs.h"
#include "tests/support/seeds.h"

namespace switchyard::simulate {
namespace {

using monitor::policy::Kind;

GangSettings exclusive(std::size_t gpus, double seconds = 20, std::uint64_t seed = 1) {
  GangSettings settings;
  settings.rules.kind = Kind::kExclusive;
  settings.gpus = gpus;
  settings.seconds = seconds;
  settings.seed = seed;
  return settings;
}

std::vector<std::size_t> gpus(std::size_t from, std::size_t count) {
  std::vector<std::size_t> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = from + i;
  return out;
}

TEST(SimulatorGangs, TheirTextIsUnderstood) {
  std::string why;
  const auto gang =
      parse_gang("high:gpus=0+2-4,gpu_ms=5,cpu_ms=1,limit=30%,start_s=2,name=train", 5, why);
  ASSERT_TRUE(gang) << why;
  EXPECT_EQ(gang->priority, Priority::kHigh);
  EXPECT_EQ(gang->gpus, (std::vector<std::size_t>{0, 2, 3, 4}));
  EXPECT_DOUBLE_EQ(gang->gpu_ms, 5);
  EXPECT_DOUBLE_EQ(gang->cpu_ms, 1);
  EXPECT_DOUBLE_EQ(gang->limit, 0.3);
  EXPECT_DOUBLE_EQ(gang->start_s, 2);
  EXPECT_EQ(gang->name, "train");
  EXPECT_EQ(parse_gang("low:gpus=1,cpu_ms=1", 2, why)->name, "low:gpus=1");
}

TEST(SimulatorGangs, WhatIsNotUnderstoodIsSaid) {
  for (const char* text :
       {"", "low", "huge:gpus=0", "low:gpus=", "low:gpus=2", "low:gpus=0+0", "low:gpus=0-1+1",
        "low:gpus=1-0", "low:gpus=0.5", "low:gpus=0%", "low:gpus=0,gpus=1", "low:gpus=0,gpu_ms=0",
        "low:gpus=0,gpu_ms=x", "low:gpus=0,speed=3", "low:gpus=0,name=", "low:gpus=-1"}) {
    std::string why;
    EXPECT_FALSE(parse_gang(text, 2, why)) << text;
    EXPECT_NE(why.find("CLASS:gpus=GPUS"), std::string::npos) << text;
  }
}

TEST(SimulatorGangs, TwoGangsOnTheSameGpusHaveHalfEachAndWaitForNothing) {
  const std::vector<GangSpec> jobs(2, GangSpec{.gpus = {0, 1}});
  const GangsResult played = simulate_gangs(jobs, exclusive(2));
  for (const GangResult& job : played.jobs) {
    EXPECT_NEAR(job.gpu_s, 10, 1.5) << "the collectives and its CPU take the rest";
    EXPECT_LT(job.longest_wait_s, 0.3);
    EXPECT_LT(job.held_for_nothing_s, 0.05);
  }
}

TEST(SimulatorGangs, EachGpuByItselfWouldLoseWhatTheLawKeeps) {
  const std::vector<GangSpec> jobs = {{.gpus = {0, 1}}, {.gpus = {0}}, {.gpus = {1}}};
  GangSettings settings = exclusive(2);
  const GangsResult together = simulate_gangs(jobs, settings);
  settings.together = false;
  const GangsResult apart = simulate_gangs(jobs, settings);
  EXPECT_GT(apart.jobs[0].held_for_nothing_s, 2);
  EXPECT_LT(together.jobs[0].held_for_nothing_s, 0.1);
  EXPECT_GT(together.jobs[0].gpu_s, apart.jobs[0].gpu_s);
}

TEST(SimulatorGangs, JobsBesideAGangWorkAtTheSameTime) {
  const std::vector<GangSpec> jobs = {{.gpus = {0, 1}}, {.gpus = {0}}, {.gpus = {1}}};
  const GangsResult played = simulate_gangs(jobs, exclusive(2));
  for (const GangResult& job : played.jobs) EXPECT_NEAR(job.gpu_s, 9, 1.5);
}

TEST(SimulatorGangs, AHigherGangGoesFirstAndLeavesTheMinimum) {
  const std::vector<GangSpec> jobs = {{.gpus = {0, 1}, .priority = Priority::kHigh, .cpu_ms = 0},
                                      {.gpus = {0, 1}}};
  GangSettings settings = exclusive(2, 40);
  settings.rules.minimum = 0.05;
  const GangsResult played = simulate_gangs(jobs, settings);
  EXPECT_GT(played.jobs[1].gpu_s, 0.5 * 0.05 * 40);
  EXPECT_LT(played.jobs[1].gpu_s, 2 * 0.05 * 40);
  EXPECT_GT(played.jobs[0].gpu_s, 0.85 * 40);
}

TEST(SimulatorGangs, ALimitClosesAGangOnAllItsGpus) {
  const std::vector<GangSpec> jobs = {{.gpus = {0, 1}, .limit = 0.3}, {.gpus = {0}}};
  GangSettings settings = exclusive(2);
  settings.rules.kind = Kind::kPriority;
  const GangsResult played = simulate_gangs(jobs, settings);
  EXPECT_LT(played.jobs[0].held_for_nothing_s, 0.2);
  EXPECT_LT(played.jobs[0].gpu_s, 0.35 * 20);
  EXPECT_GT(played.jobs[0].gpu_s, 0.15 * 20);
  EXPECT_GT(played.jobs[1].gpu_s, 0.6 * 20);
}

TEST(SimulatorGangs, OfSeveralLowGangsOneAtATimeYieldsToAHighJob) {
  const std::vector<GangSpec> jobs = {
      {.gpus = {0}, .priority = Priority::kHigh, .gpu_ms = 1, .cpu_ms = 10},
      {.gpus = {0, 1}},
      {.gpus = {0, 1}}};
  GangSettings settings = exclusive(2);
  settings.rules.kind = Kind::kPriority;
  const GangsResult played = simulate_gangs(jobs, settings);
  for (const std::size_t low : {1, 2}) {
    EXPECT_LT(played.jobs[low].held_for_nothing_s, 0.1);
    EXPECT_GT(played.jobs[low].gpu_s, 0.3 * 20);
  }
}

// Gangs of random shapes, and a job of its own on half of the GPUs.
std::vector<GangSpec> random_jobs(std::size_t count, std::mt19937& random) {
  std::vector<GangSpec> jobs;
  const auto some = [&](double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(random);
  };
  for (unsigned i = 0; i < 2 + count / 8; ++i) {
    const std::size_t size = 2 + random() % (count - 1);
    jobs.push_back({.gpus = gpus(random() % (count - size + 1), size)});
  }
  for (std::size_t gpu = 0; gpu < count; gpu += 2) jobs.push_back({.gpus = {gpu}});
  for (GangSpec& job : jobs) {
    job.gpu_ms = some(2, 30);
    job.cpu_ms = some(0, 4);
    job.start_s = some(0, 0.5);
  }
  return jobs;
}

// Granted whole or not at all; nobody starves; no GPU idles for nothing.
void expect_laws_of(const std::vector<GangSpec>& jobs, std::size_t count, double seconds,
                    unsigned seed) {
  SCOPED_TRACE(std::to_string(count) + " GPUs, seed " + std::to_string(seed));
  const GangsResult played = simulate_gangs(jobs, exclusive(count, seconds, seed));
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE("job " + std::to_string(i) + " on " + std::to_string(jobs[i].gpus.size()));
    const GangResult& job = played.jobs[i];
    // A turn of each of the others, their ends, and what these wait for in turn.
    EXPECT_LT(job.longest_wait_s, 0.4 * static_cast<double>(jobs.size())) << "it starves";
    EXPECT_LT(job.held_for_nothing_s, 0.01 * seconds) << "hold and wait";
    const double alone = jobs[i].gpu_ms / (jobs[i].gpu_ms + 2 * jobs[i].cpu_ms);
    EXPECT_GT(job.gpu_s, 0.4 * alone * seconds / static_cast<double>(jobs.size()));
  }
  EXPECT_LT(played.idle_though_fits_s, 0.08 * seconds * static_cast<double>(count));
}

unsigned seeds_of(std::size_t count) {
  const std::size_t long_from = test_support::kSanitized ? 8 : 16;
  return count < long_from ? test_support::seeds(2) : test_support::seeds_of_longest();
}

TEST(SimulatorGangs, TheLawsHoldForRandomShapesOn2To64Gpus) {
  for (const std::size_t count : {2, 3, 4, 8, 16, 64}) {
    for (unsigned seed = 1; seed <= seeds_of(count); ++seed) {
      std::mt19937 random(seed);
      expect_laws_of(random_jobs(count, random), count, count < 16 ? 10 : 4, seed);
    }
  }
}

// As a scheduler of the cluster leaves them: no gang has neighbours only.
TEST(SimulatorGangs, TheLawsHoldForGangsOnGpusThatAreNoNeighbours) {
  for (const std::size_t count : {4, 8, 16}) {
    for (unsigned seed = 1; seed <= seeds_of(count); ++seed) {
      std::mt19937 random(seed);
      std::vector<std::size_t> places = gpus(0, count);
      std::shuffle(places.begin(), places.end(), random);
      std::vector<GangSpec> jobs = random_jobs(count, random);
      for (GangSpec& job : jobs) {
        for (std::size_t& gpu : job.gpus) gpu = places[gpu];
        std::sort(job.gpus.begin(), job.gpus.end());
      }
      // Each on every second GPU.
      for (const std::size_t first : {0, 1}) {
        jobs.push_back({});
        for (std::size_t gpu = first; gpu < count; gpu += 2) jobs.back().gpus.push_back(gpu);
      }
      expect_laws_of(jobs, count, 10, seed);
    }
  }
}

TEST(SimulatorGangs, TheLawsHoldForGangsThatOverlapBesideSingleJobs) {
  std::vector<GangSpec> jobs = {{.gpus = gpus(0, 4)}, {.gpus = gpus(2, 4)}};
  for (std::size_t gpu = 0; gpu < 8; ++gpu) jobs.push_back({.gpus = {gpu}});
  for (unsigned seed = 1; seed <= test_support::seeds(2); ++seed) {
    expect_laws_of(jobs, 8, 10, seed);
  }
}

// The same with limits and classes of all sorts.
std::vector<GangSpec> random_mixed_jobs(std::size_t count, std::mt19937& random) {
  std::vector<GangSpec> jobs = random_jobs(count, random);
  for (GangSpec& job : jobs) {
    const Priority classes[] = {Priority::kLow, Priority::kNormal, Priority::kHigh};
    job.priority = classes[random() % 3];
    if (random() % 2 == 0) job.limit = 0.2 + 0.1 * static_cast<double>(random() % 6);
  }
  return jobs;
}

void expect_laws_of_mixed_jobs(Kind kind, std::size_t count, unsigned seed) {
  SCOPED_TRACE(std::to_string(count) + " GPUs, seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<GangSpec> jobs = random_mixed_jobs(count, random);
  const double seconds = count < 16 ? 10 : 4;
  GangSettings settings = exclusive(count, seconds, seed);
  settings.rules.kind = kind;
  settings.rules.minimum = 0.05;
  const GangsResult played = simulate_gangs(jobs, settings);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE("job " + std::to_string(i) + " on " + std::to_string(jobs[i].gpus.size()));
    const GangResult& job = played.jobs[i];
    const double most = jobs[i].limit != 0 ? jobs[i].limit + 0.1 : 1;
    EXPECT_LE(job.gpu_s, most * seconds);
    EXPECT_LT(job.held_for_nothing_s, 0.04 * seconds) << "hold and wait";
    EXPECT_GE(job.steps, 1u);
    if (count >= 16) continue;  // some gangs are below a dozen others
    // Two turns of others beside a high job, each of two seconds at most.
    EXPECT_LT(job.longest_wait_s, 4.5) << "it starves";
    EXPECT_GT(job.gpu_s, 0.01 * seconds);
  }
  EXPECT_LT(played.idle_though_fits_s, 0.01 * seconds * static_cast<double>(count));
}

TEST(SimulatorGangs, TheLawsHoldForRandomLimitsAndClassesOn2To64Gpus) {
  for (const Kind kind : {Kind::kExclusive, Kind::kPriority}) {
    for (const std::size_t count : {2, 3, 4, 8, 16, 64}) {
      if (kind == Kind::kExclusive && count == 64) continue;
      for (unsigned seed = 1; seed <= seeds_of(count); ++seed)
        expect_laws_of_mixed_jobs(kind, count, seed);
    }
  }
}

}  // namespace
}  // namespace switchyard::simulate
