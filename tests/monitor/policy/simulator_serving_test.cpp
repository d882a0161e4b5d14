// Servers that wait for their CPU, beside a training. They are never worse off than by the driver's
// default, and the training never worse off than with the shortest slice.
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <tuple>

#include "tests/monitor/policy/regimes.h"
#include "tests/support/seeds.h"

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

// A seed, and whether waits are foreseen.
using Load = std::tuple<std::uint64_t, bool>;

class SimulatorServing : public testing::TestWithParam<Load> {
 protected:
  static std::uint64_t seed() { return std::get<0>(GetParam()); }
  static Result run(const std::vector<JobSpec>& jobs, bool unmanaged = false) {
    Settings how;
    how.seconds = 20;
    how.seed = seed();
    how.rules.foresee = std::get<1>(GetParam());
    how.unmanaged = unmanaged;
    return simulate(jobs, how);
  }
};

TEST_P(SimulatorServing, AnEagerServerIsAsQuickAsByDefaultAndTheTrainingGetsOn) {
  std::mt19937_64 random(seed());
  const auto between = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  const double cpu_ms = between(2, 40);
  // Before the call: compilers draw for its arguments in different orders.
  const auto launches = static_cast<unsigned>(20 + random() % 200);
  JobSpec server = eager(cpu_ms, between(0.05, 0.25) * cpu_ms, launches);
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
  std::mt19937_64 random(seed());
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

double share_of_lows(const std::vector<JobSpec>& jobs, const Result& result) {
  double sum = 0;
  for (std::size_t job = 0; job < jobs.size(); ++job) {
    if (jobs[job].priority == Priority::kLow) sum += result.jobs[job].share;
  }
  return sum;
}

// The promise for any jobs. The high ones are as quick as by default or nearly as alone. The lower
// ones keep the default's share, unless a high one gains by the loss. Of two high ones one may have
// what the default gives the other, so there the tails are compared together.
void expect_promise(const std::vector<JobSpec>& highs, std::size_t lows, Settings how) {
  std::vector<JobSpec> jobs = highs;
  for (std::size_t i = 0; i < lows; ++i) jobs.push_back(training());
  const Result ours = simulate(jobs, how);
  const Result alone = simulate(highs, how);
  how.unmanaged = true;
  const Result by_default = simulate(jobs, how);
  bool gains = false;
  double means = 1;
  double tails = 1;
  for (std::size_t high = 0; high < highs.size(); ++high) {
    const auto figures = [high](const Result& result) {
      const std::vector<float>& all = result.jobs[high].latencies_ms;
      return std::pair(mean(all), percentile(all, 0.99));
    };
    const auto [mean_here, p99_here] = figures(ours);
    const auto [mean_default, p99_default] = figures(by_default);
    const auto [mean_alone, p99_alone] = figures(alone);
    EXPECT_LE(mean_here, std::max(1.03 * mean_default, 1.03 * mean_alone)) << "high " << high;
    means *= mean_here / mean_default;
    tails *= p99_here / std::max(1.03 * p99_default, 1.04 * p99_alone);
    gains = gains || mean_here < 0.99 * mean_default || p99_here < 0.99 * p99_default;
  }
  EXPECT_LE(means, 1.01);
  // By gates alone the minimum of the lower ones is some milliseconds of the GPU at a time.
  EXPECT_LE(tails, how.rules.slices ? 1 : 1.1);
  EXPECT_TRUE(gains || share_of_lows(jobs, ours) >= 0.99 * share_of_lows(jobs, by_default))
      << share_of_lows(jobs, ours) << " " << share_of_lows(jobs, by_default);
}

class SimulatorPromise : public testing::TestWithParam<Load> {
 protected:
  double between(double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random_);
  }
  JobSpec some_server() {
    const double cpu_ms = between(2, 40);
    return eager(cpu_ms, between(0.05, 0.25) * cpu_ms, 20 + random_() % 200);
  }
  JobSpec some_high() {
    JobSpec job = some_server();
    if (random_() % 2 == 0) return job;
    job.pattern = Pattern::kRequests;
    job.gpu_ms = between(0.5, 4);
    job.rate = between(10, 300) / job.gpu_ms;
    return job;
  }
  void check(const std::vector<JobSpec>& highs, std::size_t lows) {
    how_.seconds = 30;
    how_.seed = std::get<0>(GetParam());
    how_.rules.foresee = std::get<1>(GetParam());
    expect_promise(highs, lows, how_);
  }

  std::mt19937_64 random_{std::get<0>(GetParam())};
  Settings how_;
};

TEST_P(SimulatorPromise, OneHighBesideOneLow) { check({some_high()}, 1); }
TEST_P(SimulatorPromise, OneServerBesideSeveralLows) { check({some_server()}, 2 + random_() % 3); }
TEST_P(SimulatorPromise, TwoServersBesideOneLow) { check({some_server(), some_server()}, 1); }
TEST_P(SimulatorPromise, TwoHighsBesideSeveralLows) { check({some_high(), some_high()}, 2); }
TEST_P(SimulatorPromise, ByGatesAlone) {
  how_.rules.slices = false;
  check({some_server()}, 1);
}
TEST_P(SimulatorPromise, TwoServersByGatesAlone) {
  how_.rules.slices = false;
  check({some_server(), some_server()}, 2);
}

INSTANTIATE_TEST_SUITE_P(
    Loads, SimulatorPromise,
    testing::Combine(testing::Range<std::uint64_t>(1, 1 + test_support::seeds(12)),
                     testing::Bool()));

TEST(SimulatorRegimes, AHundredChangesAreFollowedWithinASecondAndNothingSwings) {
  Regimes it(eager(8, 1, 20));
  it.change([&]() -> Phase {
    return {it.how.seconds, it.between(3, 30), it.between(0.2, 0.5), 20};
  });
  const Result result = simulate({it.server, training()}, it.how);
  const std::vector<std::uint32_t>& slices = result.jobs[1].slices_us;
  it.each_phase([&](const Phase& phase, std::size_t first, std::size_t past) {
    const double allowed = phase.launches > 1 ? 0.03 * phase.cpu_ms * 1e3 : 20;
    unsigned changes = 0;
    for (std::size_t i = first; i < past; ++i) {
      ASSERT_GE(slices[i] * 2.0, allowed) << phase.from_s << " s, sample " << i;
      ASSERT_LE(slices[i], 2 * allowed) << phase.from_s << " s, sample " << i;
      changes += slices[i] != slices[i - 1] ? 1 : 0;
    }
    EXPECT_LE(changes, 1u) << phase.from_s << " s";
  });
}

INSTANTIATE_TEST_SUITE_P(
    Loads, SimulatorServing,
    testing::Combine(testing::Range<std::uint64_t>(1, 1 + test_support::seeds(12)),
                     testing::Bool()));

}  // namespace
}  // namespace switchyard::simulate
