// The laws of the policies over random loads. A seed that failed is kept in kKept, so that it stays
// a case.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "bench/simulate/simulation.h"
#include "tests/support/seeds.h"

namespace switchyard::simulate {
namespace {

using monitor::policy::Kind;

constexpr std::uint64_t kKept[] = {1};

struct Dice {
  std::mt19937_64 random;
  std::uint64_t below(std::uint64_t n) { return random() % n; }
  double between(double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  }
};

JobSpec training(Priority priority = Priority::kNormal, double weight = 1) {
  JobSpec job;
  job.priority = priority;
  job.weight = weight;
  return job;
}

JobSpec requests(double rate, double gpu_ms, Priority priority = Priority::kHigh) {
  JobSpec job;
  job.priority = priority;
  job.pattern = Pattern::kRequests;
  job.rate = rate;
  job.gpu_ms = gpu_ms;
  return job;
}

JobSpec random_job(Dice& dice) {
  JobSpec job = training(static_cast<Priority>(dice.below(3)), 0.5 * (1 + dice.below(4)));
  job.pattern = static_cast<Pattern>(dice.below(3));
  job.rate = dice.between(0.1, 30);
  job.gpu_ms = job.pattern == Pattern::kTraining ? dice.between(5, 200) : dice.between(0.2, 10);
  job.cpu_ms = dice.below(2) == 0 ? dice.between(1, 100) : 0;
  job.processes = dice.below(5) == 0 ? 3 : 1;
  job.sliceable = dice.below(20) != 0;
  job.start_s = dice.between(0, 20);
  if (dice.below(3) == 0) job.stop_s = job.start_s + dice.between(0, 20);
  return job;
}

// GPU time of a job from one sample to another, as a part of that time.
double share(const JobResult& job, std::size_t from, std::size_t to, double sample_s) {
  return (job.samples_s[to] - job.samples_s[from]) / (static_cast<double>(to - from) * sample_s);
}

class SimulatorLaws : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override { dice_.random.seed(GetParam()); }
  Settings settings(double seconds, double sample_s = 0) {
    Settings out;
    out.seconds = seconds;
    out.sample_s = sample_s;
    out.seed = GetParam();
    return out;
  }
  Dice dice_;
};

// Joins, leaves and kills of all kinds of jobs, under all rules.
TEST_P(SimulatorLaws, NeverTwoShortSlicesAndNobodyKeptForNothing) {
  std::vector<JobSpec> jobs(2 + dice_.below(12));
  for (JobSpec& job : jobs) job = random_job(dice_);
  Settings how = settings(25);
  for (const Kind kind : {Kind::kPriority, Kind::kFair, Kind::kExclusive, Kind::kDeadline}) {
    for (const bool slices : {true, false}) {
      how.rules.kind = kind;
      how.rules.slices = slices;
      const Result result = simulate(jobs, how);
      EXPECT_LE(result.most_short, 1u) << "seed " << GetParam();
      // That a turn's holder has no more work is seen after two milliseconds or so.
      const bool much_by_turns = kind == Kind::kExclusive || !slices;
      EXPECT_LT(result.idle_with_work, much_by_turns ? 0.1 : 0.03)
          << "seed " << GetParam() << " kind " << static_cast<int>(kind) << " slices " << slices;
      EXPECT_LT(result.longest_idle_ms, 60)
          << "seed " << GetParam() << " kind " << static_cast<int>(kind) << " slices " << slices;
    }
  }
}

TEST_P(SimulatorLaws, WeightsAreKeptOverTenSeconds) {
  std::vector<JobSpec> jobs(2 + dice_.below(7));
  double sum = 0;
  for (JobSpec& job : jobs) {
    job = training(Priority::kNormal, static_cast<double>(1 + dice_.below(4)));
    sum += job.weight;
  }
  const double sample_s = 1;
  const Result result = simulate(jobs, settings(60, sample_s));
  EXPECT_GT(result.busy, 0.96);
  for (std::size_t from = 5; from + 10 < result.jobs[0].samples_s.size(); ++from) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_NEAR(share(result.jobs[i], from, from + 10, sample_s), jobs[i].weight / sum, 0.02)
          << "seed " << GetParam() << " job " << i << " of " << jobs.size();
    }
  }
}

// The same requests, alone and beside several low trainings.
TEST_P(SimulatorLaws, HighDoesNotWaitForLow) {
  std::vector<JobSpec> jobs{requests(dice_.between(5, 80), dice_.between(0.5, 3))};
  const Result alone = simulate(jobs, settings(60));
  const std::size_t lows = 1 + dice_.below(6);
  for (std::size_t i = 0; i < lows; ++i) jobs.push_back(training(Priority::kLow));
  const Result beside = simulate(jobs, settings(60));
  ASSERT_EQ(alone.jobs[0].latencies_ms.size(), beside.jobs[0].latencies_ms.size());
  const auto p = [](const Result& result, double part) {
    return percentile(result.jobs[0].latencies_ms, part);
  };
  // Two switches of context, and what a queue makes of them.
  EXPECT_LT(p(beside, 0.5), p(alone, 0.5) + 0.3) << "seed " << GetParam();
  EXPECT_LT(p(beside, 0.99), 1.15 * p(alone, 0.99) + 0.3) << "seed " << GetParam();
  EXPECT_LT(p(beside, 1), 1.5 * p(alone, 1) + 7) << "seed " << GetParam();
  EXPECT_GT(beside.busy, 0.94) << "seed " << GetParam();
}

TEST_P(SimulatorLaws, TurnsAreSharedByWeight) {
  std::vector<JobSpec> jobs{requests(50, 1.2)};
  const std::size_t lows = 2 + dice_.below(5);
  const bool equal = dice_.below(2) == 0;
  double sum = 0;
  for (std::size_t i = 0; i < lows; ++i) {
    jobs.push_back(training(Priority::kLow, equal ? 1 : static_cast<double>(1 + dice_.below(3))));
    jobs.back().gpu_ms = dice_.between(5, 200);
    sum += jobs.back().weight;
  }
  const Result result = simulate(jobs, settings(120, 10));
  double got = 0;
  for (std::size_t i = 1; i <= lows; ++i) got += share(result.jobs[i], 1, 11, 10);
  for (std::size_t i = 1; i <= lows; ++i) {
    EXPECT_NEAR(share(result.jobs[i], 1, 11, 10) / got, jobs[i].weight / sum, 0.02)
        << "seed " << GetParam() << " job " << i << " of " << lows;
  }
}

TEST_P(SimulatorLaws, NobodyStarvesBesideAHighThatNeverRests) {
  std::vector<JobSpec> jobs{training(Priority::kHigh)};
  const std::size_t lows = 1 + dice_.below(3);
  for (std::size_t i = 0; i < lows; ++i) jobs.push_back(training(Priority::kLow));
  const Result result = simulate(jobs, settings(120, 20));
  double together = 0;
  for (std::size_t i = 1; i <= lows; ++i) {
    for (std::size_t at = 1; at + 1 < result.jobs[i].samples_s.size(); ++at) {
      EXPECT_GT(share(result.jobs[i], at, at + 1, 20), 0) << "seed " << GetParam();
    }
    together += share(result.jobs[i], 1, 5, 20);
  }
  EXPECT_NEAR(together, 0.02, 0.003) << "seed " << GetParam();
  EXPECT_GT(result.jobs[0].share, 0.95) << "seed " << GetParam();
}

TEST_P(SimulatorLaws, ByGatesAloneTheMinimumIsLeftOpen) {
  Settings how = settings(60, 1);
  how.rules.slices = false;
  const Result result = simulate({training(Priority::kHigh), training(Priority::kLow)}, how);
  for (std::size_t at = 5; at + 1 < result.jobs[1].samples_s.size(); ++at) {
    // Open for a fiftieth, of which the driver's own slices give it half.
    EXPECT_GT(share(result.jobs[1], at, at + 1, 1), 0.008) << "seed " << GetParam();
  }
  EXPECT_GT(result.jobs[0].share, 0.95);
}

TEST_P(SimulatorLaws, ByGatesAloneHighWaitsLittle) {
  Settings how = settings(60);
  how.rules.slices = false;
  std::vector<JobSpec> jobs{requests(50, 1.2)};
  const Result alone = simulate(jobs, how);
  jobs.push_back(training(Priority::kLow));
  const Result beside = simulate(jobs, how);
  EXPECT_LT(percentile(beside.jobs[0].latencies_ms, 0.99),
            1.8 * percentile(alone.jobs[0].latencies_ms, 0.99))
      << "seed " << GetParam();
  EXPECT_GT(beside.jobs[1].share, 0.9 * (1 - beside.jobs[0].share)) << "seed " << GetParam();
}

TEST_P(SimulatorLaws, ALimitAloneHoldsInEveryWindow) {
  JobSpec job = training();
  job.limit = dice_.between(0.05, 0.95);
  const double sample_s = 0.1;
  Settings how = settings(30, sample_s);
  how.rules.kind = static_cast<Kind>(dice_.below(4));
  how.rules.slices = dice_.below(2) == 0;
  const Result result = simulate({job}, how);
  for (std::size_t from = 5; from + 20 < result.jobs[0].samples_s.size(); ++from) {
    ASSERT_NEAR(share(result.jobs[0], from, from + 20, sample_s), job.limit, 0.02)
        << "seed " << GetParam() << " from " << static_cast<double>(from) * sample_s << " s";
  }
}

TEST_P(SimulatorLaws, ALimitBesideOthersHoldsInEveryWindow) {
  std::vector<JobSpec> jobs(2 + dice_.below(3), training());
  // Less than its part by weight, so that it can be reached.
  jobs[0].limit = dice_.between(0.05, 0.8) / static_cast<double>(jobs.size());
  const double sample_s = 0.1;
  const Result result = simulate(jobs, settings(30, sample_s));
  for (std::size_t from = 25; from + 20 < result.jobs[0].samples_s.size(); ++from) {
    ASSERT_NEAR(share(result.jobs[0], from, from + 20, sample_s), jobs[0].limit, 0.02)
        << "seed " << GetParam() << " from " << static_cast<double>(from) * sample_s << " s of "
        << jobs.size();
  }
}

TEST_P(SimulatorLaws, ThePausedGetNothing) {
  std::vector<JobSpec> jobs(2 + dice_.below(4));
  for (JobSpec& job : jobs) job = training(static_cast<Priority>(dice_.below(3)));
  const std::size_t victim = dice_.below(jobs.size());
  const Time from = std::chrono::seconds(10);
  const Time to = std::chrono::seconds(20);
  Settings how = settings(30, 1);
  how.rules.kind = static_cast<Kind>(dice_.below(4));
  how.paused = [&](std::size_t job, Time now) { return job == victim && now >= from && now < to; };
  const Result result = simulate(jobs, how);
  EXPECT_EQ(share(result.jobs[victim], 12, 20, 1), 0) << "seed " << GetParam();
  EXPECT_GT(share(result.jobs[victim], 0, 9, 1), 0) << "seed " << GetParam();
  EXPECT_GT(share(result.jobs[victim], 21, 29, 1), 0) << "seed " << GetParam();
  EXPECT_LE(result.most_short, 1u);
}

TEST_P(SimulatorLaws, ExclusiveJobsGetEqualTurnsAndOverlapTheirCpuPhases) {
  Settings how = settings(60, 10);
  how.rules.kind = Kind::kExclusive;
  JobSpec job = training();
  job.gpu_ms = dice_.between(20, 60);
  job.cpu_ms = job.gpu_ms;
  const Result result = simulate({job, job}, how);
  EXPECT_NEAR(result.jobs[0].share, result.jobs[1].share, 0.01) << "seed " << GetParam();
  // A lock around whole iterations would leave the GPU half unused.
  EXPECT_GT(result.busy, 1.25 * 0.5) << "seed " << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulatorLaws,
                         testing::Range<std::uint64_t>(1, 1 + test_support::seeds(8)));
INSTANTIATE_TEST_SUITE_P(Kept, SimulatorLaws, testing::ValuesIn(kKept));

TEST(Simulator, AnEarlierDeadlineMissesLessThanFairShares) {
  std::vector<JobSpec> jobs(3, training());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].work_s = 10;
    jobs[i].deadline_s = 11.5 * static_cast<double>(i + 1);
  }
  Settings how;
  how.seconds = 60;
  const auto missed = [&](Kind kind) {
    how.rules.kind = kind;
    const Result result = simulate(jobs, how);
    return result.jobs[0].missed + result.jobs[1].missed + result.jobs[2].missed;
  };
  EXPECT_EQ(missed(Kind::kDeadline), 0);
  EXPECT_GT(missed(Kind::kFair), 0);
}

TEST(Simulator, PlaysSixtyFourJobs) {
  std::vector<JobSpec> jobs(64);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i] = i % 4 == 0 ? requests(0.5, 2) : training(Priority::kLow);
  }
  Settings how;
  how.seconds = test_support::kSanitized ? 30 : 300;
  const Result result = simulate(jobs, how);
  EXPECT_LE(result.most_short, 1u);
  EXPECT_GT(result.busy, 0.9);
}

}  // namespace
}  // namespace switchyard::simulate
