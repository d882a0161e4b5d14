// Servers that wait for their CPU, beside a training: never worse off than by the driver's default,
// and the training never worse off than with the shortest slice.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "bench/simulate/simulation.h"

namespace switchyard::simulate {
namespace {

JobSpec training() {
  JobSpec job;
  job.priority = Priority::kLow;
  return job;
}

JobSpec eager(double cpu_ms, double gpu_ms, unsigned launches) {
  JobSpec job;
  job.priority = Priority::kHigh;
  job.pattern = Pattern::kEager;
  job.cpu_ms = cpu_ms;
  job.gpu_ms = gpu_ms;
  job.launches = launches;
  return job;
}

double mean(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

class SimulatorServing : public testing::TestWithParam<std::uint64_t> {
 protected:
  static Result run(const std::vector<JobSpec>& jobs, bool unmanaged = false) {
    Settings how;
    how.seconds = 20;
    how.seed = GetParam();
    how.unmanaged = unmanaged;
    return simulate(jobs, how);
  }
};

TEST_P(SimulatorServing, AnEagerServerIsAsQuickAsByDefaultAndTheTrainingGetsOn) {
  std::mt19937_64 random(GetParam());
  const auto between = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  const double cpu_ms = between(2, 40);
  JobSpec server = eager(cpu_ms, between(0.05, 0.25) * cpu_ms, 20 + random() % 200);
  const std::vector<JobSpec> jobs{server, training()};
  const Result ours = run(jobs);
  const Result by_default = run(jobs, true);
  server.timed = false;
  const Result shortest = run({server, training()});
  EXPECT_LE(mean(ours.jobs[0].latencies_ms), 1.02 * mean(by_default.jobs[0].latencies_ms));
  EXPECT_LE(percentile(ours.jobs[0].latencies_ms, 0.99),
            1.02 * percentile(by_default.jobs[0].latencies_ms, 0.99));
  EXPECT_LE(mean(ours.jobs[0].latencies_ms), 1.05 * mean(shortest.jobs[0].latencies_ms));
  // With the shortest slice some servers are taken for greedy ones: that costs them their latency,
  // and the training gains by it.
  const auto gains = [&](auto figure) {
    return figure(ours.jobs[0].latencies_ms) < 0.97 * figure(shortest.jobs[0].latencies_ms);
  };
  const auto p99 = [](const std::vector<float>& values) { return percentile(values, 0.99); };
  EXPECT_TRUE(ours.jobs[1].share >= 0.99 * shortest.jobs[1].share || gains(mean) || gains(p99))
      << ours.jobs[1].share << " " << shortest.jobs[1].share;
  EXPECT_LE(ours.most_short, 1u);
}

TEST_P(SimulatorServing, AServiceBoundByTheGpuIsServedAsBefore) {
  std::mt19937_64 random(GetParam());
  JobSpec service;
  service.priority = Priority::kHigh;
  service.pattern = Pattern::kRequests;
  service.rate = 20 + static_cast<double>(random() % 80);
  service.gpu_ms = 0.5 + static_cast<double>(random() % 40) / 10;
  if (service.rate * service.gpu_ms > 500) service.rate = 500 / service.gpu_ms;
  const Result ours = run({service, training()});
  service.timed = false;
  const Result before = run({service, training()});
  EXPECT_LE(percentile(ours.jobs[0].latencies_ms, 0.5),
            1.01 * percentile(before.jobs[0].latencies_ms, 0.5));
  EXPECT_LE(percentile(ours.jobs[0].latencies_ms, 0.99),
            1.01 * percentile(before.jobs[0].latencies_ms, 0.99));
  EXPECT_NEAR(ours.jobs[1].share, before.jobs[1].share, 0.01);
}

TEST_P(SimulatorServing, SeveralTrainingsAndTwoServersNeverMakeTwoShortSlices) {
  const Result ours = run({eager(8, 1, 100), eager(15, 2, 200), training(), training()});
  EXPECT_LE(ours.most_short, 1u);
  const Result by_default =
      run({eager(8, 1, 100), eager(15, 2, 200), training(), training()}, true);
  for (const std::size_t server : {0, 1}) {
    EXPECT_LE(mean(ours.jobs[server].latencies_ms),
              1.02 * mean(by_default.jobs[server].latencies_ms));
  }
}

INSTANTIATE_TEST_SUITE_P(Loads, SimulatorServing, testing::Range<std::uint64_t>(1, 13));

}  // namespace
}  // namespace switchyard::simulate
