// Guards in the simulator: an interferer that takes a known part, a quiet run, an evaluation.
#include <gtest/gtest.h>

#include <stdexcept>

#include "bench/simulate/simulation.h"
#include "monitor/policy/guard.h"

namespace switchyard::monitor::policy {
namespace {

using namespace switchyard::simulate;
using guard::Measure;

constexpr double kGuard = 0.05;

// Job 0 guards itself against the others.
class GuardedRun {
 public:
  guard::State state;
  std::vector<guard::Event> events;
  std::vector<Time> at;  // of each
  guard::Measures possible = {Measure::kSlices, Measure::kCopies, Measure::kCeiling,
                              Measure::kHold};

  Result run(const std::vector<JobSpec>& jobs, double seconds, bool guarded = true) {
    Settings settings;
    settings.seconds = seconds;
    settings.look_every = std::chrono::milliseconds(50);
    settings.rules.gates = true;
    settings.adjust = [&](std::size_t job, Time now, const JobResult& so_far, ClientView& view) {
      if (!guarded) return;
      if (job == 0) {
        look(now, so_far);
      } else {
        see(job, now, view);
        restrain(job, view);
      }
    };
    return switchyard::simulate::simulate(jobs, settings);
  }

 private:
  void look(Time now, const JobResult& so_far) {
    if (now - looked_ < std::chrono::milliseconds(40)) return;
    looked_ = now;
    // A job that has ended is not asked any more.
    for (const auto& [job, seen] : seen_) {
      if (now - seen.at > std::chrono::milliseconds(100)) others_.erase(job);
    }
    guard::Rank rank{.id = 1, .marker = 1};
    for (; told_ < so_far.ends.size(); ++told_) rank.began.push_back(so_far.ends[told_]);
    guard::Look look{.guard = kGuard, .held = false, .ranks = {rank}, .others = others_};
    for (const guard::Event& event : guard::next(state, look, now)) {
      events.push_back(event);
      at.push_back(now);
    }
  }
  void see(std::size_t job, Time now, const ClientView& view) {
    guard::Other& other = others_[job];
    Seen& seen = seen_[job];
    other.answerable = true;
    other.possible = possible;
    other.wants = view.busy || view.held || view.work != seen.work;
    if (other.wants) other.activity.worked_s += monitor::seconds(now - seen.at);
    other.activity.kernels += static_cast<double>(view.work - seen.work);
    seen = {view.work, now};
  }
  void restrain(std::size_t job, ClientView& view) const {
    const auto answer = state.answers.find(job);
    if (answer == state.answers.end()) return;
    const guard::Measures on = answer->second.on;
    view.restrained = !on.none();
    if (on.has(Measure::kSlices)) view.weight = std::min(view.weight, guard::part_of(kGuard));
    if (on.has(Measure::kCeiling) || on.has(Measure::kHold)) {
      view.limit = guard::part_of(kGuard);
      view.limited_by_guard = true;
    }
    view.held_by_guard = on.has(Measure::kHold);
  }

  struct Seen {
    std::uint64_t work = 0;
    Time at{0};
  };
  std::map<std::uint64_t, guard::Other> others_;
  std::map<std::size_t, Seen> seen_;
  std::size_t told_ = 0;
  Time looked_{0};
};

std::size_t iterations_between(const JobResult& job, double from_s, double to_s) {
  return static_cast<std::size_t>(std::count_if(job.ends.begin(), job.ends.end(), [&](Time at) {
    return monitor::seconds(at) >= from_s && monitor::seconds(at) < to_s;
  }));
}

JobSpec job(const char* text) {
  std::string why;
  const auto out = parse_job(text, why);
  if (!out) throw std::invalid_argument(why);
  return *out;
}
const JobSpec kTrain = job("normal:training:name=train,gpu_ms=60,cpu_ms=5");
const JobSpec kHog = job("normal:training:name=hog,gpu_ms=40,start_s=20");

class SimulatorGuard : public ::testing::Test {
 protected:
  GuardedRun guarded;
};

TEST_F(SimulatorGuard, AComputeHogIsAnsweredWithinFourIterationsAndTheRateIsBack) {
  const Result result = guarded.run({kTrain, kHog}, 60);
  ASSERT_FALSE(guarded.events.empty());
  EXPECT_EQ(guarded.events[0].what, guard::What::kDisturbed);
  EXPECT_EQ(guarded.events[0].measure, Measure::kSlices);
  const double answered_s = monitor::seconds(guarded.at[0]);
  EXPECT_LE(iterations_between(result.jobs[0], 20, answered_s), 4u);
  // Once the first trial has ended, whatever is eased on the way.
  const double alone = static_cast<double>(iterations_between(result.jobs[0], 5, 20)) / 15;
  const double beside = static_cast<double>(iterations_between(result.jobs[0], 22, 60)) / 38;
  EXPECT_GE(beside, 0.95 * alone);
  EXPECT_GT(result.jobs[1].gpu_s, 0.5) << "the hog still gets what is left";
}

// In a gap the hog gets the GPU, and keeps it until its slice ends.
TEST_F(SimulatorGuard, ByShortSlicesAloneTheRateOfOneWithGapsIsBack) {
  const JobSpec train = job("normal:training:name=train,gpu_ms=33,cpu_ms=1");
  const Result result = guarded.run({train, kHog}, 29);
  const double alone = static_cast<double>(iterations_between(result.jobs[0], 5, 20)) / 15;
  // Until the measure is taken back for a trial.
  const double beside = static_cast<double>(iterations_between(result.jobs[0], 21, 29)) / 8;
  EXPECT_GE(beside / alone, 0.98);
  ASSERT_EQ(guarded.state.answers.size(), 1u);
  EXPECT_EQ(guarded.state.answers.begin()->second.on, guard::Measures{Measure::kSlices});
}

TEST_F(SimulatorGuard, WithoutAGuardTheRateStaysAway) {
  const Result result = guarded.run({kTrain, kHog}, 60, false);
  const double alone = static_cast<double>(iterations_between(result.jobs[0], 5, 20)) / 15;
  const double beside = static_cast<double>(iterations_between(result.jobs[0], 22, 60)) / 38;
  EXPECT_LT(beside, 0.7 * alone);
}

TEST_F(SimulatorGuard, ByGatesAloneTheRateIsBackToo) {
  guarded.possible = {Measure::kCeiling, Measure::kHold};
  const Result result = guarded.run({kTrain, kHog}, 60);
  const double alone = static_cast<double>(iterations_between(result.jobs[0], 5, 20)) / 15;
  const double beside = static_cast<double>(iterations_between(result.jobs[0], 25, 60)) / 35;
  EXPECT_GE(beside, 0.9 * alone);
}

TEST_F(SimulatorGuard, InThreeQuietMinutesNothingIsDone) {
  const JobSpec other = job("normal:requests:name=other,rate=20,gpu_ms=1");
  guarded.run({kTrain, other}, 180);
  EXPECT_TRUE(guarded.events.empty());
}

TEST_F(SimulatorGuard, AHogThatEndsLeavesNothingBehind) {
  const JobSpec hog = job("normal:training:name=hog,gpu_ms=40,start_s=20,stop_s=30");
  guarded.run({kTrain, hog}, 40);
  EXPECT_TRUE(guarded.state.answers.empty());
}

}  // namespace
}  // namespace switchyard::monitor::policy
