// Islands against the model of the GPU: what they keep of themselves, and of the jobs outside.
#include <gtest/gtest.h>

#include <random>

#include "bench/simulate/simulation.h"
#include "tests/support/seeds.h"

namespace switchyard::simulate {
namespace {

JobSpec steps(const char* name, Priority priority, unsigned island = 0) {
  JobSpec job;
  job.name = name;
  job.priority = priority;
  job.gpu_ms = 40;
  job.island = island;
  return job;
}

JobSpec service() {
  JobSpec job;
  job.name = "service";
  job.priority = Priority::kHigh;
  job.pattern = Pattern::kRequests;
  job.rate = 50;
  job.gpu_ms = 1.2;
  return job;
}

Settings for_seconds(double seconds, std::uint64_t seed = 1) {
  Settings out;
  out.seconds = seconds;
  out.seed = seed;
  return out;
}

TEST(SimulatedIslands, MembersRunAtOnce) {
  const Result result = simulate(
      {steps("a", Priority::kNormal, 1), steps("b", Priority::kNormal, 1)}, for_seconds(10));
  for (const JobResult& job : result.jobs) EXPECT_GT(job.share, 0.98) << job.name;
}

TEST(SimulatedIslands, AnIslandHasTheSharesOfItsMembersTogether) {
  const Result result = simulate({steps("a", Priority::kNormal, 1),
                                  steps("b", Priority::kNormal, 1), steps("c", Priority::kNormal)},
                                 for_seconds(20));
  EXPECT_NEAR(result.jobs[0].share, 2.0 / 3, 0.03);
  EXPECT_NEAR(result.jobs[1].share, 2.0 / 3, 0.03);
  EXPECT_NEAR(result.jobs[2].share, 1.0 / 3, 0.03);
}

// As beside one job, however many members there are.
TEST(SimulatedIslands, AServiceOutsideWaitsNoLongerThanBesideOneJob) {
  const auto p99 = [](const std::vector<JobSpec>& jobs) {
    const Result result = simulate(jobs, for_seconds(40));
    EXPECT_LE(result.most_short, 1u);
    return percentile(result.jobs[0].latencies_ms, 0.99);
  };
  const double one = p99({service(), steps("a", Priority::kLow)});
  const double island = p99({service(), steps("a", Priority::kLow, 1),
                             steps("b", Priority::kLow, 1), steps("c", Priority::kLow, 1)});
  EXPECT_LT(island, one * 1.1);
}

TEST(SimulatedIslands, TwoIslandsBesideAServiceTakeTurns) {
  const Result result =
      simulate({service(), steps("a", Priority::kLow, 1), steps("b", Priority::kLow, 1),
                steps("c", Priority::kLow, 2), steps("d", Priority::kLow, 2)},
               for_seconds(40));
  EXPECT_LE(result.most_short, 1u);
  for (std::size_t i = 1; i < 5; ++i) EXPECT_GT(result.jobs[i].share, 0.35) << i;
}

TEST(SimulatedIslands, ALimitOfAMemberIsOfTheWholeGpu) {
  std::vector<JobSpec> jobs = {steps("a", Priority::kNormal, 1), steps("b", Priority::kNormal, 1)};
  jobs[0].limit = 0.2;
  jobs[0].gpu_ms = jobs[1].gpu_ms = 5;
  const Result result = simulate(jobs, for_seconds(30));
  // It is charged a half of the time in which both work.
  EXPECT_NEAR(result.jobs[0].share, 0.4, 0.06);
  EXPECT_GT(result.jobs[1].share, 0.95);
}

class IslandsInTheSimulator : public testing::TestWithParam<std::uint64_t> {};

JobSpec random_job(std::mt19937_64& random) {
  const auto between = [&random](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  JobSpec job;
  job.island = static_cast<unsigned>(random() % 4);
  job.priority = static_cast<Priority>(job.island != 0 ? job.island % 2 : random() % 3);
  job.pattern = static_cast<Pattern>(random() % 3);
  job.weight = random() % 4 == 0 ? 2 : 1;
  job.rate = between(0.1, 30);
  job.gpu_ms = job.pattern == Pattern::kTraining ? between(5, 200) : between(0.2, 10);
  job.cpu_ms = random() % 2 == 0 ? between(1, 100) : 0;
  job.start_s = between(0, 8);
  job.limit = random() % 6 == 0 ? 0.3 : 0;
  if (random() % 3 == 0) job.stop_s = job.start_s + between(0, 8);
  return job;
}

TEST_P(IslandsInTheSimulator, NeverHaveTwoShortSlicesAndKeepNobodyForNothing) {
  std::mt19937_64 random(GetParam());
  std::vector<JobSpec> jobs(2 + random() % 8);
  for (JobSpec& job : jobs) job = random_job(random);
  for (const bool slices : {true, false}) {
    Settings how = for_seconds(12, GetParam());
    how.rules.slices = slices;
    const Result result = simulate(jobs, how);
    EXPECT_LE(result.most_short, 1u);
    EXPECT_LT(result.longest_idle_ms, 100);
  }
}

// Against the same jobs without islands, by the driver's own scheduling.
TEST_P(IslandsInTheSimulator, GiveNobodyLessThanTheDefault) {
  std::mt19937_64 random(GetParam());
  std::vector<JobSpec> jobs;
  for (std::uint64_t i = 0; i < 2 + random() % 5; ++i) {
    jobs.push_back(steps("job", Priority::kNormal, static_cast<unsigned>(random() % 3)));
    jobs.back().gpu_ms = 5 + static_cast<double>(random() % 100);
  }
  const Result ours = simulate(jobs, for_seconds(12, GetParam()));
  Settings unmanaged = for_seconds(12, GetParam());
  unmanaged.unmanaged = true;
  for (JobSpec& job : jobs) job.island = 0;
  const Result theirs = simulate(jobs, unmanaged);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_GT(ours.jobs[i].gpu_s, 0.97 * theirs.jobs[i].gpu_s) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, IslandsInTheSimulator,
                         testing::Range<std::uint64_t>(0, test_support::seeds(12)));

}  // namespace
}  // namespace switchyard::simulate
