// Jobs that have the GPU one after the other, over seconds: who gets how much, and what it costs.
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/simulate/simulation.h"
#include "tests/support/seeds.h"

namespace switchyard::simulate {
namespace {

using monitor::policy::Kind;

JobSpec training(Priority priority, double gpu_ms = 50, double cpu_ms = 0, double kernel_ms = 0) {
  JobSpec job;
  job.priority = priority;
  job.gpu_ms = gpu_ms;
  job.cpu_ms = cpu_ms;
  job.kernel_ms = kernel_ms;
  return job;
}

JobSpec service() {
  JobSpec job;
  job.priority = Priority::kHigh;
  job.pattern = Pattern::kRequests;
  job.rate = 50;
  job.gpu_ms = 1.2;
  return job;
}

// GPU time of a job between two moments, as a part of that time.
double share(const JobResult& job, std::size_t from_s, std::size_t to_s) {
  return (job.samples_s[to_s] - job.samples_s[from_s]) / static_cast<double>(to_s - from_s);
}

Settings settings(double seconds, Kind kind = Kind::kPriority, std::uint64_t seed = 1) {
  Settings out;
  out.seconds = seconds;
  out.sample_s = 1;
  out.seed = seed;
  out.rules.kind = kind;
  return out;
}

// --- equal jobs beside a service ---

struct Lows {
  std::size_t count;
  double cpu_ms;     // of each step, if all have the same
  bool mixed;        // or each another, from 0 to cpu_ms
  double kernel_ms;  // what runs on after a gate has closed
};

class EqualTurns : public testing::TestWithParam<Lows> {};

TEST_P(EqualTurns, AreEqualInEveryFifteenSeconds) {
  const Lows& lows = GetParam();
  for (std::uint64_t seed = 1; seed <= test_support::seeds(3); ++seed) {
    std::vector<JobSpec> jobs{service()};
    for (std::size_t i = 0; i < lows.count; ++i) {
      const double part = static_cast<double>(i) / static_cast<double>(lows.count - 1);
      const double cpu_ms = lows.mixed ? part * lows.cpu_ms : lows.cpu_ms;
      jobs.push_back(training(Priority::kLow, 50, cpu_ms, lows.kernel_ms));
    }
    const Result result = simulate(jobs, settings(40, Kind::kPriority, seed));
    for (std::size_t from = 2; from + 15 < result.jobs[0].samples_s.size(); from += 4) {
      double sum = 0;
      for (std::size_t i = 1; i <= lows.count; ++i) sum += share(result.jobs[i], from, from + 15);
      EXPECT_GT(sum, 0.84);
      for (std::size_t i = 1; i <= lows.count; ++i) {
        EXPECT_NEAR(share(result.jobs[i], from, from + 15) / sum,
                    1 / static_cast<double>(lows.count), 0.02)
            << "job " << i << " seed " << seed << " from " << from << " s";
      }
    }
    EXPECT_LT(result.switching, 0.045) << "half of it is the service's own coming and going";
  }
}

std::string name_of(const testing::TestParamInfo<Lows>& info) {
  const Lows& lows = info.param;
  const auto tenths = [](double ms) { return std::to_string(static_cast<int>(ms * 10)); };
  return std::to_string(lows.count) + "LowsWithGapsOf" + tenths(lows.cpu_ms) +
         "TenthsAndKernelsOf" + tenths(lows.kernel_ms) + (lows.mixed ? "Mixed" : "");
}

INSTANTIATE_TEST_SUITE_P(BesideAService, EqualTurns,
                         testing::Values(Lows{3, 0, false, 0}, Lows{3, 0.5, false, 0},
                                         Lows{3, 1.5, false, 0}, Lows{3, 3, false, 0},
                                         Lows{3, 3, true, 0}, Lows{2, 3, true, 0},
                                         Lows{4, 3, true, 4}, Lows{3, 0, false, 1},
                                         Lows{3, 0, false, 2}, Lows{3, 0, false, 4},
                                         Lows{3, 3, true, 4}, Lows{6, 1, true, 2}),
                         name_of);

// --- limits among turns ---

struct Limited {
  std::size_t others;
  double limit;
  double kernel_ms;
  Kind kind;
};

class LimitAmongTurns : public testing::TestWithParam<Limited> {};

TEST_P(LimitAmongTurns, IsReachedUpToTheFairShareAndKept) {
  const Limited& how = GetParam();
  std::vector<JobSpec> jobs;
  if (how.kind == Kind::kPriority) jobs.push_back(service());
  const std::size_t first = jobs.size();
  for (std::size_t i = 0; i <= how.others; ++i) {
    jobs.push_back(training(Priority::kLow, 50, 0, how.kernel_ms));
  }
  const double free_share = share(simulate(jobs, settings(40, how.kind)).jobs[first], 5, 35);
  jobs[first].limit = how.limit;
  const Result result = simulate(jobs, settings(60, how.kind));
  const double may = std::min(how.limit, free_share);
  EXPECT_NEAR(share(result.jobs[first], 5, 55), may, 0.02);
  // In a shorter window the turn of a job shows, however well the limit is kept.
  for (std::size_t from = 5; from < 55; ++from) {
    EXPECT_LT(share(result.jobs[first], from, from + 5), how.limit + 0.03) << from;
  }
  EXPECT_GT(result.busy, 0.92);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, LimitAmongTurns,
    testing::Values(Limited{1, 0.4, 0, Kind::kPriority}, Limited{1, 0.1, 0, Kind::kPriority},
                    Limited{1, 0.4, 4, Kind::kPriority}, Limited{2, 0.25, 0, Kind::kPriority},
                    Limited{2, 0.25, 4, Kind::kPriority}, Limited{4, 0.15, 0, Kind::kPriority},
                    Limited{2, 0.9, 0, Kind::kPriority}, Limited{1, 0.4, 0, Kind::kExclusive},
                    Limited{1, 0.4, 4, Kind::kExclusive}, Limited{3, 0.2, 4, Kind::kExclusive},
                    Limited{1, 0.05, 4, Kind::kExclusive}));

// --- classes under `exclusive` ---

TEST(ExclusiveTurns, LowerClassesGetTheMinimumAndWeightsHoldInsideAClass) {
  std::vector<JobSpec> jobs{training(Priority::kHigh), training(Priority::kHigh),
                            training(Priority::kNormal), training(Priority::kLow)};
  jobs[1].weight = 3;
  const Result result = simulate(jobs, settings(130, Kind::kExclusive));
  const auto got = [&](std::size_t job) { return share(result.jobs[job], 10, 130); };
  EXPECT_NEAR(got(2) + got(3), 0.02, 0.005);
  EXPECT_GT(std::min(got(2), got(3)), 0.005);
  EXPECT_NEAR(got(1) / got(0), 3, 0.1);
}

// --- deadlines ---

// Batches that arrive over time, each with its deadline.
TEST(DeadlineTurns, MissFewerDeadlinesThanFairSharesOnTheSameArrivals) {
  int by_deadline = 0;
  int fair = 0;
  const unsigned seeds = test_support::seeds(6);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    std::vector<JobSpec> jobs;
    for (int batch = 0; batch < 6; ++batch) {
      for (int of = 0; of < 3; ++of) {
        JobSpec job = training(Priority::kNormal);
        job.start_s = 14.0 * batch + static_cast<double>((seed * 7 + batch * 3 + of * 5) % 4);
        job.work_s = 2 + of;
        job.deadline_s = 3.5 + 4.5 * of;
        jobs.push_back(job);
      }
    }
    const auto missed = [&](Kind kind) {
      const Result result = simulate(jobs, settings(100, kind, seed));
      return static_cast<int>(std::count_if(result.jobs.begin(), result.jobs.end(),
                                            [](const JobResult& job) { return job.missed; }));
    };
    by_deadline += missed(Kind::kDeadline);
    fair += missed(Kind::kFair);
  }
  EXPECT_LT(by_deadline * 4, fair) << "of " << seeds * 18;
  EXPECT_GT(fair, static_cast<int>(2 * seeds));
}

}  // namespace
}  // namespace switchyard::simulate
