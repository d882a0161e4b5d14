// Foreseen waits beside a training, by the simulator: what the high job waits, and what is left for
// the low one. The shapes of docs/measurements/tuning.md.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/monitor/policy/regimes.h"

namespace switchyard::simulate {
namespace {

JobSpec job(const std::string& text) {
  std::string why;
  const auto parsed = parse_job(text, why);
  EXPECT_TRUE(parsed.has_value()) << why;
  return *parsed;
}

JobSpec training() { return job("low:training:gpu_ms=100,kernel_ms=0.3"); }

double p50(const Result& result) { return percentile(result.jobs[0].latencies_ms, 0.5); }

Result run(const std::vector<JobSpec>& jobs, bool foresee, bool unmanaged = false) {
  Settings how;
  how.seconds = 20;
  how.rules.foresee = foresee;
  how.unmanaged = unmanaged;
  return simulate(jobs, how);
}

class SimulatorForesight : public testing::TestWithParam<const char*> {
 protected:
  JobSpec server_ = job(std::string("high:eager:") + GetParam());
};

TEST_P(SimulatorForesight, TheServerIsNearlyAsQuickAsAloneAndTheTrainingKeepsMoreThanBySlices) {
  const double alone = p50(run({server_}, true));
  const Result foreseen = run({server_, training()}, true);
  const Result slices = run({server_, training()}, false);
  const Result by_default = run({server_, training()}, false, true);
  EXPECT_LE(p50(foreseen), 1.04 * alone);
  EXPECT_GE(foreseen.jobs[1].share, 1.5 * slices.jobs[1].share);
  EXPECT_GE(foreseen.jobs[1].share, 0.7 * by_default.jobs[1].share);
  EXPECT_LE(foreseen.most_short, 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SimulatorForesight,
    testing::Values("launches=400,cpu_ms=5.6,gpu_ms=0.84",
                    "launches=400,cpu_ms=5.6,gpu_ms=0.84,tail=2",
                    "launches=400,cpu_ms=5.6,gpu_ms=0.84,scatter=20%",
                    "launches=160,cpu_ms=3.6,gpu_ms=0.9", "launches=200,cpu_ms=4,gpu_ms=1.2",
                    "launches=200,cpu_ms=4,gpu_ms=2", "launches=300,cpu_ms=14,gpu_ms=2",
                    "launches=100,cpu_ms=2,gpu_ms=0.4", "launches=800,cpu_ms=30,gpu_ms=6",
                    "launches=60,cpu_ms=8,gpu_ms=3"));

TEST(SimulatorForesight, AGraphReplayIsServedAsBefore) {
  const JobSpec server = job("high:eager:launches=1,cpu_ms=0.3,gpu_ms=2");
  const Result foreseen = run({server, training()}, true);
  const Result slices = run({server, training()}, false);
  EXPECT_EQ(p50(foreseen), p50(slices));
  EXPECT_EQ(foreseen.jobs[1].share, slices.jobs[1].share);
  EXPECT_EQ(foreseen.closes, slices.closes);
}

TEST(SimulatorForesight, RandomNumbersOfLaunchesAreServedBySlices) {
  const JobSpec server = job("high:eager:launches=400,cpu_ms=5.6,gpu_ms=0.84,scatter=95%");
  const Result foreseen = run({server, training()}, true);
  const Result slices = run({server, training()}, false);
  EXPECT_LE(p50(foreseen), 1.05 * p50(slices));
}

TEST(SimulatorForesight, AHundredChangesAreFollowedWithinASecondAndNothingSwings) {
  Regimes it(job("high:eager:launches=300,cpu_ms=8,gpu_ms=1"));
  it.how.rules.foresee = true;
  it.change([&]() -> Phase {
    const double cpu_ms = it.between(3, 20);
    return {it.how.seconds, cpu_ms, it.between(0.05, 0.2) * cpu_ms,
            200 + static_cast<unsigned>(it.random() % 300)};
  });
  const Result result = simulate({it.server, training()}, it.how);
  const std::vector<std::uint32_t>& slices = result.jobs[1].slices_us;
  it.each_phase([&](const Phase& phase, std::size_t first, std::size_t past) {
    for (std::size_t i = first; i < past; ++i) {
      ASSERT_EQ(slices[i] >= 1000, phase.launches > 1) << phase.from_s << " s, sample " << i;
    }
  });
}

}  // namespace
}  // namespace switchyard::simulate
