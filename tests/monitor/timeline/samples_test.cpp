// Samples of jobs and GPUs, and for how long they are kept.
#include "monitor/timeline/samples.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

using timeline::Sample;

// The newest sample of the job; of the GPU: 0.
Sample last_of(Rig& rig, JobKey job) {
  const auto& ring = rig.monitor.samples().ring();
  for (std::uint64_t number = ring.newest(); number >= ring.oldest(); --number) {
    if (ring.at(number).job == job) return ring.at(number);
  }
  ADD_FAILURE() << "no sample of job " << job;
  return {};
}

TEST(Samples, OfAJobTellItsMemoryAndItsWork) {
  Rig rig;
  const Joined job = rig.runs({.name = "x"});
  ASSERT_TRUE(rig.allocate(job, 64 * kMiB));
  rig.pass(milliseconds(200));
  for (int i = 0; i < 3; ++i) job.shim.launch();
  rig.pass(milliseconds(5));  // a look
  rig.pass(milliseconds(195));
  const Sample sample = last_of(rig, job.client->job);
  EXPECT_EQ(Time(sample.at_ns), rig.now);
  EXPECT_EQ(sample.gpu, 1);
  EXPECT_GE(sample.memory_bytes, 64 * kMiB);
  EXPECT_LT(sample.memory_bytes, kGiB);
  std::uint64_t launches = 0;
  const auto& ring = rig.monitor.samples().ring();
  for (std::uint64_t number = 1; number <= ring.newest(); ++number) {
    if (ring.at(number).job == job.client->job) launches += ring.at(number).launches;
  }
  EXPECT_EQ(launches, 40u) << "the first, and three more";
}

TEST(Samples, OfAGpuTellWhatNvmlSees) {
  Rig rig(2);
  rig.pass(seconds(2));
  const auto& ring = rig.monitor.samples().ring();
  const std::uint64_t before = ring.newest();
  rig.pass(milliseconds(200));
  ASSERT_EQ(ring.newest(), before + 2) << "one of each GPU";
  EXPECT_EQ(ring.at(before + 1).gpu, 1);
  EXPECT_EQ(ring.at(before + 2).gpu, 2);
  EXPECT_EQ(ring.at(before + 2).share, Sample::kUnknown);
  EXPECT_EQ(ring.at(before + 2).memory_bytes, rig.monitor.gpus()[1].memory.used_bytes);
}

TEST(Samples, OfAJobThatEndsBeforeTheNextTickTellWhereItWas) {
  Rig rig(2);
  const Joined job = rig.join({.name = "x"});
  const JobKey key = job.client->job;
  rig.dies(job);
  EXPECT_EQ(last_of(rig, key).gpu, 1);
  EXPECT_EQ(Time(last_of(rig, key).at_ns), rig.now);
}

TEST(Samples, OfAJobEndWithIt) {
  Rig rig;
  const Joined job = rig.runs({.name = "x"});
  rig.pass(milliseconds(200));
  const JobKey key = job.client->job;
  rig.dies(job);
  const std::uint64_t before = rig.monitor.samples().ring().newest();
  rig.pass(milliseconds(200));
  ASSERT_EQ(rig.monitor.samples().ring().newest(), before + 1);
  EXPECT_EQ(last_of(rig, key).job, key);
  EXPECT_EQ(rig.monitor.samples().ring().at(before + 1).job, 0u);
}

// A job that works on its second GPU alone has a sample of the first one, too: it has memory there.
TEST(Samples, OfAJobOnTwoGpusAreOfEach) {
  Rig rig(2);
  const Joined job = rig.join({.name = "x"}, 1000, 2);
  rig.pass(milliseconds(200));
  const auto& ring = rig.monitor.samples().ring();
  const std::uint64_t before = ring.newest();
  rig.pass(milliseconds(200));
  ASSERT_EQ(ring.newest(), before + 4);
  EXPECT_EQ(ring.at(before + 3).job, job.client->job);
  EXPECT_EQ(ring.at(before + 3).gpu, 1);
  EXPECT_EQ(ring.at(before + 4).gpu, 2);
}

TEST(Samples, OfAProcessOnTwoGpusTellTheLaunchesOnEach) {
  Rig rig(2);
  const Joined job = rig.join({.name = "x"}, 1000, 2);
  job.shim.launch(0);
  for (int i = 0; i < 5; ++i) {
    for (int launched = 0; launched < 4; ++launched) job.shim.launch(1);
    rig.pass(milliseconds(200));
  }
  rig.pass(milliseconds(200));
  std::map<unsigned, std::uint64_t> launches;  // by GPU
  const auto& ring = rig.monitor.samples().ring();
  for (std::uint64_t number = ring.oldest(); number <= ring.newest(); ++number) {
    const Sample& sample = ring.at(number);
    if (sample.job == job.client->job) launches[sample.gpu] += sample.launches;
  }
  EXPECT_EQ(launches[1], 10u);
  EXPECT_EQ(launches[2], 5 * 40u);
}

// A page may say anything.
TEST(Samples, OfAJobWhoseCountFallsTellNoLaunches) {
  Rig rig;
  const Joined job = rig.runs({.name = "x"});
  for (int i = 0; i < 3; ++i) job.shim.launch();
  for (int i = 0; i < 2; ++i) rig.pass(milliseconds(200));
  job.lane().launches.store(1);
  for (int i = 0; i < 2; ++i) rig.pass(milliseconds(200));
  const auto& ring = rig.monitor.samples().ring();
  for (std::uint64_t number = ring.oldest(); number <= ring.newest(); ++number) {
    EXPECT_LT(ring.at(number).launches, 1000u);
  }
}

TEST(Timeline, AMinuteOfEightJobsWithTurnsOfAMillisecondIsKept) {
  Journal journal;
  timeline::Samples samples;
  const Time end = seconds(60);
  std::uint64_t written = 0;
  for (Time at = milliseconds(1); at <= end; at += milliseconds(1)) {
    // One gate closes and another opens.
    for (int gate = 0; gate < 2; ++gate, ++written) {
      journal.take(event_of(EventKind::kGate, 1 + gate, at));
    }
    // A look at eight jobs finds that each has another state than with the last one.
    for (JobKey job = 1; at.count() % 200'000'000 == 0 && job <= 8; ++job, ++written) {
      journal.take(event_of(EventKind::kWork, job, at));
    }
  }
  EXPECT_EQ(journal.timeline().newest(), written);
  EXPECT_EQ(journal.timeline().dropped(), 0u);
  EXPECT_GE(timeline::Samples::kCapacity, 60u * 5 * (300 + 8)) << "300 jobs on one of 8 GPUs each";
}

}  // namespace
}  // namespace switchyard::monitor::test
