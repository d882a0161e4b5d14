// The simulator's engine against what was measured on an H200: two processes that always have work,
// for several pairs of slices.
#include <gtest/gtest.h>

#include "bench/simulate/engine.h"
#include "bench/simulate/simulation.h"

namespace switchyard::simulate {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::seconds;

struct Measured {
  std::uint32_t a_us, b_us;
  double sum;    // of what one alone does
  double ratio;  // a to b
  double tolerance;
};

double part(const Engine& engine, std::size_t group) {
  return monitor::seconds(engine.ran(group)) / monitor::seconds(engine.now());
}

class SimulatorModel : public testing::TestWithParam<Measured> {};

TEST_P(SimulatorModel, SharesAsTheHardwareDid) {
  const Measured& as = GetParam();
  Engine engine;
  for (const std::uint32_t us : {as.a_us, as.b_us}) {
    engine.offer(engine.add_group(us), hours(1));
  }
  engine.run_until(seconds(10));
  EXPECT_NEAR(part(engine, 0) + part(engine, 1), as.sum, as.tolerance);
  EXPECT_NEAR(part(engine, 0) / part(engine, 1) / as.ratio, 1, 0.05);
}

INSTANTIATE_TEST_SUITE_P(H200, SimulatorModel,
                         testing::Values(Measured{2048, 2048, 0.904, 1, 0.01},
                                         Measured{10'000, 10'000, 0.979, 1, 0.01},
                                         Measured{50'000, 50'000, 0.996, 1, 0.01},
                                         Measured{8'000, 2'000, 0.9607, 4.03, 0.01},
                                         Measured{20'000, 5'000, 0.9837, 3.98, 0.01},
                                         Measured{30'000, 1'000, 0.9875, 29.3, 0.01},
                                         Measured{200, 200, 0.43, 1, 0.03}));

TEST(SimulatorModel, ShortSlicesOnSeveralSidesBringEverybodyToAStandstill) {
  Engine engine;
  for (int i = 0; i < 3; ++i) engine.offer(engine.add_group(20), hours(1));
  engine.run_until(seconds(10));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(part(engine, i), 0.001);
}

TEST(SimulatorModel, OneShortSliceAloneCostsNothing) {
  Engine engine;
  engine.offer(engine.add_group(20), hours(1));
  engine.add_group(10'000);
  engine.run_until(seconds(10));
  EXPECT_GT(part(engine, 0), 0.999);
}

TEST(SimulatorModel, ARequestWaitsForTheRestOfAShortSliceAndASwitch) {
  Engine engine;
  engine.offer(engine.add_group(20), hours(1));
  const std::size_t high = engine.add_group(10'000);
  engine.run_until(seconds(1));
  engine.offer(high, microseconds(1200));
  EXPECT_EQ(engine.run_until(seconds(2)), high);
  EXPECT_LE(engine.now() - seconds(1), microseconds(20 + 195 + 20 + 1200));
}

TEST(SimulatorModel, ALongerSliceMakesARequestWaitLonger) {
  Engine engine;
  engine.offer(engine.add_group(2048), hours(1));
  const std::size_t high = engine.add_group(10'000);
  engine.run_until(microseconds(100'000));
  engine.offer(high, microseconds(1200));
  EXPECT_EQ(engine.run_until(seconds(2)), high);
  EXPECT_LE(engine.now() - microseconds(100'000), microseconds(2048 + 195 + 20 + 1200));
  EXPECT_GT(engine.now() - microseconds(100'000), microseconds(195 + 1200));
}

// Eight equal trainings: 10.45 thousand tokens/s each by default, 11.44 with slices of 20 ms.
TEST(SimulatorModel, EightTrainingsGainNinePercentOverTheDefault) {
  const std::vector<JobSpec> jobs(8);
  Settings settings;
  settings.seconds = 60;
  const double with = simulate(jobs, settings).busy;
  settings.unmanaged = true;
  EXPECT_NEAR(with / simulate(jobs, settings).busy, 1.095, 0.015);
}

TEST(SimulatorModel, PlaysTheSameWithTheSameSeed) {
  JobSpec requests;
  requests.pattern = Pattern::kRequests;
  requests.priority = Priority::kHigh;
  requests.gpu_ms = 1.2;
  Settings settings;
  settings.seconds = 20;
  const Result a = simulate({requests, {}, {}}, settings);
  const Result b = simulate({requests, {}, {}}, settings);
  settings.seed = 2;
  const Result c = simulate({requests, {}, {}}, settings);
  EXPECT_EQ(a.jobs[0].latencies_ms, b.jobs[0].latencies_ms);
  EXPECT_EQ(a.looks, b.looks);
  EXPECT_NE(a.jobs[0].latencies_ms, c.jobs[0].latencies_ms);
}

TEST(SimulatorJob, UnderstandsItsText) {
  std::string why;
  const auto job = parse_job("high:requests:rate=50,gpu_ms=1.2,limit=30%,count=3,name=web", why);
  ASSERT_TRUE(job) << why;
  EXPECT_EQ(job->priority, Priority::kHigh);
  EXPECT_EQ(job->pattern, Pattern::kRequests);
  EXPECT_DOUBLE_EQ(job->rate, 50);
  EXPECT_DOUBLE_EQ(job->limit, 0.3);
  EXPECT_EQ(job->count, 3u);
  EXPECT_EQ(job->name, "web");
}

TEST(SimulatorJob, SaysWhatItDoesNotUnderstand) {
  for (const char* text :
       {"", "huge:training", "low:sleeping", "low:training:rate", "low", "low:training:gpu_ms=-1",
        "low:training:speed=3", "low:training:gpu_ms=0", "low:training:count=0"}) {
    std::string why;
    EXPECT_FALSE(parse_job(text, why)) << text;
    EXPECT_NE(why.find("CLASS:PATTERN"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace switchyard::simulate
