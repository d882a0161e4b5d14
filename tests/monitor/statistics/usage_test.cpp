// The jobs' use of their GPUs and the time that they lacked them, with a made-up clock.
#include "monitor/statistics/usage.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/monitor/plants.h"
#include "tests/monitor/rig.h"
#include "tests/support/seeds.h"

namespace switchyard::monitor::test {
namespace {

class UsageOf : public ::testing::Test {
 protected:
  using Sum = double Client::Lane::Had::*;
  static constexpr Sum kGpu = &Client::Lane::Had::gpu_ns;
  static constexpr Sum kDivided = &Client::Lane::Had::divided_ns;
  static constexpr Sum kSlices = &Client::Lane::Had::slices_ns;
  static constexpr Sum kLimit = &Client::Lane::Had::limit_ns;
  static constexpr Sum kTurn = &Client::Lane::Had::turn_ns;

  // Within the next span.
  static void counts(const Joined& who, Sum sum, double seconds) {
    who.client->lanes[0].had.known = true;
    who.client->lanes[0].had.*sum += seconds * 1e9;
  }
  void look(Time span = milliseconds(200)) {
    now += span;
    rig.monitor.look_at_status(rig.now);
    usage.tick(rig.monitor.registry(), rig.monitor.statuses(), now);
  }
  const Usage::Sums& of(const Joined& who) {
    return usage.of(*rig.monitor.registry().find(who.client->job));
  }
  double waits(const Joined& who, stalls::Hold hold) {
    const auto found = of(who).waits.find(hold);
    return found != of(who).waits.end() ? monitor::seconds(found->second) : 0;
  }
  double waits(const Joined& who) {
    double sum = of(who).slices_seconds;
    for (const auto& [hold, span] : of(who).waits) sum += monitor::seconds(span);
    return sum;
  }

  void SetUp() override { look(); }

  Rig rig;
  Joined a = rig.runs({.job = "a", .name = "a"}), b = rig.runs({.job = "b", .name = "b"});
  Usage usage;
  Time now = seconds(5);
};

TEST_F(UsageOf, AJobThatOthersSlicesLeaveAThirdWaitsForTheRestOfThem) {
  for (int i = 0; i < 10; ++i) {
    counts(a, kGpu, 0.14);
    counts(a, kDivided, 0.14);
    counts(a, kSlices, 0.06);
    counts(b, kGpu, 0.06);
    counts(b, kSlices, 0.14);
    look();
  }
  EXPECT_NEAR(of(b).gpu_seconds, 0.6, 1e-9);
  EXPECT_NEAR(of(b).slices_seconds, 1.4, 1e-9);
  ASSERT_EQ(of(b).slices_of.size(), 1u);
  EXPECT_NEAR(of(b).slices_of.begin()->second, 1.4, 1e-9);
  EXPECT_EQ(of(b).slices_of.begin()->first, a.client->job);
  EXPECT_NEAR(of(a).estimated_seconds, of(a).gpu_seconds, 1e-9);
  EXPECT_EQ(of(b).estimated_seconds, 0);
}

TEST_F(UsageOf, ALimitIsWaitedForAsLongAsItsGateHeldTheJob) {
  for (int i = 0; i < 10; ++i) {
    counts(a, kGpu, 0.04);
    counts(a, kLimit, 0.16);
    look();
  }
  EXPECT_NEAR(waits(a, stalls::Hold::kLimit), 1.6, 1e-6);
  EXPECT_NEAR(of(a).gpu_seconds, 0.4, 1e-9);
}

TEST_F(UsageOf, WhatRanOnBehindAClosedGateWasNoWait) {
  counts(a, kGpu, 0.15);
  counts(a, kTurn, 0.2);
  look();
  EXPECT_NEAR(waits(a, stalls::Hold::kTurn), 0.05, 1e-6);
}

TEST_F(UsageOf, WhatTheCpuBroughtNoWorkForIsNoWait) {
  counts(a, kGpu, 0.05);
  look();
  EXPECT_EQ(waits(a), 0);
}

TEST_F(UsageOf, APauseHasAllThatIsLacking) {
  rig.tell("pause", "a");
  counts(a, kGpu, 0.03);
  counts(a, kTurn, 0.2);
  look();
  EXPECT_NEAR(waits(a, stalls::Hold::kPause), 0.17, 1e-6);
  EXPECT_EQ(waits(a, stalls::Hold::kTurn), 0);
}

TEST_F(UsageOf, WhatComesLateHasItsPlaceLater) {
  counts(a, kGpu, 0.5);  // a kernel that ran since before
  look();
  EXPECT_NEAR(of(a).gpu_seconds, 0.2, 1e-9);
  look();
  look();
  EXPECT_NEAR(of(a).gpu_seconds, 0.5, 1e-9);
}

// No kernel runs for longer.
TEST_F(UsageOf, WhatComesLateIsOfTheLastTenSeconds) {
  counts(a, kGpu, 30);
  look();
  for (int i = 0; i < 30; ++i) look(seconds(1));
  EXPECT_NEAR(of(a).gpu_seconds, 0.2 + 10, 1e-9);
}

// It began after the last look at all jobs.
TEST_F(UsageOf, AJobThatEndsIsBilledForNoMoreThanItLived) {
  Job& job = *rig.monitor.registry().find(a.client->job);
  now = job.since;
  usage = Usage();
  look();
  const Time looked_at = now;
  job.since = looked_at + milliseconds(100);
  counts(a, kGpu, 5);
  usage.leaves(*a.client);
  usage.ends(job, rig.monitor.statuses(), looked_at + milliseconds(300));
  EXPECT_NEAR(of(a).gpu_seconds, 0.2, 1e-9);
}

// A user may run many jobs that are shorter than the time between two looks.
TEST_F(UsageOf, WhatAJobHadBeforeItEndedIsItsUsersToo) {
  const Job& job = *rig.monitor.registry().find(a.client->job);
  now = job.since;
  usage = Usage();
  look();
  counts(a, kGpu, 0.1);
  usage.leaves(*a.client);
  usage.ends(job, rig.monitor.statuses(), now + milliseconds(150));
  EXPECT_NEAR(of(a).gpu_seconds, 0.1, 1e-9);
  Usage::Users users = usage.users();
  EXPECT_NEAR(users[job.uid][0], 0.1, 1e-9);
}

TEST_F(UsageOf, TheLoadOfSeveralJobsIsAnEstimate) {
  a.client->lanes[0].load = 1;
  b.client->lanes[0].load = 1;
  b.client->lanes[0].active = false;
  a.client->lanes[0].active = true;
  a.client->lanes[0].had.known = b.client->lanes[0].had.known = false;
  b.client->lanes[0].load = 0;
  look();
  EXPECT_EQ(of(a).estimated_seconds, 0) << "it works alone";
  b.client->lanes[0].load = 1;
  look();
  EXPECT_NEAR(of(a).estimated_seconds, 0.1, 1e-9);
  EXPECT_NEAR(of(a).gpu_seconds, 0.3, 1e-9);
}

TEST_F(UsageOf, LoadsBeyondTheWholeGpuAreWaitsForSlices) {
  a.client->lanes[0].load = 0.75;
  b.client->lanes[0].load = 0.45;
  for (const Joined* each : {&a, &b}) each->client->lanes[0].had.known = false;
  for (int i = 0; i < 10; ++i) look();
  EXPECT_NEAR(of(a).gpu_seconds, 2 * 0.75 / 1.2, 1e-9);
  EXPECT_NEAR(of(b).gpu_seconds, 2 * 0.45 / 1.2, 1e-9);
  EXPECT_NEAR(of(a).slices_seconds, 2 * (0.75 - 0.75 / 1.2), 1e-9);
  EXPECT_EQ(of(a).slices_of.begin()->first, b.client->job);
  EXPECT_NEAR(of(b).slices_of.begin()->second, of(b).slices_seconds, 1e-9);
  a.client->lanes[0].load = 0.5;
  const double before = of(a).slices_seconds;
  look();
  EXPECT_NEAR(of(a).slices_seconds, before, 1e-9) << "the GPU had room for both";
}

TEST_F(UsageOf, OfManyOthersThoseWithMostOfTheGpuAreNamed) {
  std::vector<Joined> many;
  for (unsigned i = 0; i < 40; ++i) {
    many.push_back(rig.runs({.job = "m" + std::to_string(i), .name = "m" + std::to_string(i)}));
  }
  look();
  for (unsigned i = 0; i < 40; ++i) counts(many[i], kGpu, i < 20 ? 0.001 : 0.006);
  counts(a, kSlices, 0.14);
  look();
  EXPECT_NEAR(of(a).slices_seconds, 0.14, 1e-9);
  ASSERT_EQ(of(a).slices_of.size(), Usage::kMostOthers);
  for (const auto& [key, had] : of(a).slices_of) EXPECT_NEAR(had, 0.14 * 0.006 / 0.14, 1e-9);
}

TEST_F(UsageOf, AClockThatGoesBackCountsNothing) {
  counts(a, kGpu, 0.1);
  look(milliseconds(-100));
  EXPECT_EQ(of(a).gpu_seconds, 0);
}

TEST_F(UsageOf, WaitsAndGpuTimeAreTheTimeAtMost) {
  for (unsigned seed = 1; seed <= test_support::seeds(50); ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> part(0, 0.4);
    usage = Usage();
    look();
    double time = 0;
    for (int i = 0; i < 200; ++i) {
      for (const Joined* each : {&a, &b}) {
        for (const Sum sum : {kGpu, kDivided, kSlices, kLimit, kTurn}) {
          if (random() % 2 == 0) counts(*each, sum, part(random));
        }
        if (random() % 20 == 0)
          rig.tell(random() % 2 == 0 ? "pause" : "resume", each == &a ? "a" : "b");
      }
      const auto span = milliseconds(random() % 400);
      look(span);
      time += monitor::seconds(span);
      for (const Joined* each : {&a, &b}) {
        ASSERT_LE(of(*each).gpu_seconds + waits(*each), time + 1e-6) << "seed " << seed;
        ASSERT_LE(of(*each).estimated_seconds, of(*each).gpu_seconds + 1e-9) << "seed " << seed;
        double others = 0;
        for (const auto& [key, seconds] : of(*each).slices_of) others += seconds;
        ASSERT_LE(others, of(*each).slices_seconds + 1e-9) << "seed " << seed;
      }
    }
  }
}

TEST_F(UsageOf, TimeInWhichTheMonitorStoodStillIsOfNoState) {
  const Time since = rig.monitor.registry().find(a.client->job)->since;
  now = since;
  usage = Usage();
  look(milliseconds(200));
  look(seconds(31));
  using namespace status;
  const auto& times = of(a).times.at(0);
  EXPECT_EQ(times.at({State::kUnknown, Reason::kNone}), seconds(30));
  Time sum{0};
  for (const auto& [code, span] : times) sum += span;
  EXPECT_EQ(sum, now - since);
}

TEST_F(UsageOf, BeforeAJobSawAGpuItDidNothingThere) {
  Job& job = *rig.monitor.registry().find(a.client->job);
  now = job.since;
  usage = Usage();
  look(milliseconds(500));
  job.gpus.see(1);
  job.gpus.lose(0);
  look(milliseconds(300));
  using namespace status;
  for (const std::size_t gpu : {0, 1}) {
    Time sum{0};
    for (const auto& [code, span] : of(a).times.at(gpu)) sum += span;
    EXPECT_EQ(sum, milliseconds(800)) << gpu;
  }
  EXPECT_EQ(of(a).times.at(1),
            (std::map<Code, Time>{{{State::kIdle, Reason::kNoCuda}, milliseconds(800)}}));
}

TEST_F(UsageOf, TurnsThatChangeFasterThanAnybodyLooksCountAsLongAsTheyWere) {
  now = rig.monitor.registry().find(a.client->job)->since;
  usage = Usage();
  a.client->lanes[0].active = false;
  look(milliseconds(200));
  a.client->lanes[0].active = true;
  for (int i = 0; i < 10; ++i) {
    counts(a, kTurn, 0.15);
    look();
  }
  using namespace status;
  const auto& times = of(a).times.at(0);
  EXPECT_EQ(times.at({State::kWaiting, Reason::kTurn}), milliseconds(1500));
  EXPECT_EQ(times.at({State::kRunning, Reason::kNone}), milliseconds(500));
}

TEST_F(UsageOf, AStoppedJobWaitsForNobody) {
  Plants::in(rig.monitor.registry().find(a.client->job)->stands) = true;
  a.client->standing.why = Standstill::kStopped;
  counts(a, kTurn, 0.2);
  look();
  EXPECT_EQ(waits(a), 0);
}

// --- the whole monitor ---

TEST_F(UsageOf, AListingCountsUpToItsOwnTime) {
  a.client->lanes[0].load = 1;
  rig.pass(milliseconds(200));
  const double before = rig.job()["gpu_seconds"].get<double>();
  const double since = rig.job()["since_seconds"].get<double>();
  rig.now += milliseconds(130);
  const json after = rig.job();
  EXPECT_LE(after["gpu_seconds"].get<double>() - before,
            after["since_seconds"].get<double>() - since + 1e-9);
  EXPECT_NEAR(after["gpu_seconds"].get<double>() - before, 0.13, 1e-6);
}

TEST_F(UsageOf, APauseBeginsWhenItIsAskedFor) {
  rig.pass(milliseconds(200));
  rig.now += milliseconds(150);
  rig.tell("pause", "a");
  rig.now += milliseconds(50);
  EXPECT_NEAR(rig.job()["waits_seconds"]["pause"].get<double>(), 0.05, 1e-6);
}

}  // namespace
}  // namespace switchyard::monitor::test
