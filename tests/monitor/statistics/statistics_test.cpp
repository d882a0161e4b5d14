// Iterations and waits, from the words of pages to the listing.
#include "monitor/statistics/statistics.h"

#include <gtest/gtest.h>

#include "tests/monitor/plants.h"
#include "tests/monitor/statistics/statistics_scene.h"

namespace switchyard::monitor::test {
namespace {

TEST_F(Statistics, IterationsAreFoundInCollectives) {
  place(first, 0);
  place(second, 1);
  for (int i = 0; i < 100; ++i) {
    collective(first, kGather, 1000);
    collective(second, kGather, 1000);
    collective(first, kReduce, 500);
    rig.pass(milliseconds(100));
    collective(second, kReduce, 500);
    if (i == 0) pass(seconds(1));  // the first is slow
  }
  rig.pass(milliseconds(1));
  EXPECT_EQ(process()["iterations_source"], "collectives");
  EXPECT_EQ(process()["iterations"], 100);
  EXPECT_NEAR(process()["iterations_per_second"].get<double>(), 10, 0.01);
  EXPECT_EQ(process(1)["iterations"], 100);
}

TEST_F(Statistics, TheRankThatLaunchesLastIsLate) {
  train_with_a_late_second();
  EXPECT_NEAR(process(0)["late_seconds"].get<double>(), 0, 1e-6);
  EXPECT_NEAR(process(1)["late_seconds"].get<double>(), 0.03, 1e-6);
}

TEST_F(Statistics, LaunchesAreRecordedForAsLongAsSomebodyAsks) {
  rig.pass(milliseconds(200));
  EXPECT_EQ(first.lane().attention & abi::kRecordLaunches, 0u);
  EXPECT_TRUE(ask()["processes"][0]["iterations"].is_null());
  rig.pass(milliseconds(200));
  EXPECT_NE(first.lane().attention & abi::kRecordLaunches, 0u);
  EXPECT_EQ(process()["iterations_source"], "launches");
  pass(Progress::kRecordsFor);
  EXPECT_EQ(first.lane().attention & abi::kRecordLaunches, 0u);
  EXPECT_TRUE(process()["iterations_source"].is_null());
}

TEST_F(Statistics, IterationsAreFoundAmongManyKernels) {
  ask();
  pass(seconds(1));
  // 20 iterations a second of 1,500 kernels, of which one comes once.
  for (int i = 0; i < 200; ++i) {
    kernel(first, 201);
    for (std::uint32_t n = 0; n < 1500; ++n) kernel(first, n % 50);
    for (std::uint32_t n = 100; n < 110; ++n) kernel(first, n);
    rig.now += milliseconds(50);
    if (i % 4 == 3) rig.pass(milliseconds(0));
  }
  ASSERT_TRUE(process()["iterations_per_second"].is_number()) << process();
  EXPECT_NEAR(process()["iterations_per_second"].get<double>(), 20, 0.2);
}

TEST_F(Statistics, ARecordOfThisMomentIsNotOld) {
  place(first, 0);
  place(second, 1);
  for (int i = 0; i < 40; ++i) {
    rig.pass(milliseconds(100));
    rig.now += milliseconds(1);  // it is launched after the monitor has read its clock
    collective(first);
    rig.now -= milliseconds(1);
    rig.pass(milliseconds(0));
  }
  EXPECT_NEAR(process()["iterations_per_second"].get<double>(), 10, 0.2);
}

TEST_F(Statistics, BytesOfCollectivesAreTheirWeight) {
  place(first, 0);
  place(second, 1);
  for (int i = 0; i < 100; ++i) {
    collective(first, kGather, 1 << 20);
    if (i % 5 == 0) collective(first, kReduce, 4);  // a log
    rig.pass(milliseconds(100));
  }
  EXPECT_EQ(process()["iterations"], 100);
}

TEST_F(Statistics, CollectivesOfOneRankAreNoSequence) {
  place(first, 0, 1);
  ask();
  pass(seconds(1));
  EXPECT_EQ(process()["iterations_source"], "launches");
  for (int i = 0; i < 100; ++i) {
    kernel(first, 7);
    for (int n = 0; n < i % 7 * 3; ++n) collective(first);
    rig.pass(milliseconds(100));
  }
  EXPECT_EQ(process()["iterations"], 100);
}

TEST_F(Statistics, WhatWasLaunchedUnaskedIsLost) {
  ask();
  pass(seconds(1));
  for (int i = 0; i < 40; ++i) {
    kernel(first, 7);
    rig.pass(milliseconds(100));
  }
  const json before = process();
  pass(Progress::kRecordsFor);
  ask();
  pass(seconds(1));
  EXPECT_GT(process()["iterations_counted_anew"], before["iterations_counted_anew"]);
}

TEST_F(Statistics, ProcessesWithoutPeersAreNotLate) {
  ask();
  pass(seconds(1));
  for (int i = 0; i < 40; ++i) {
    kernel(first, 7);
    rig.pass(milliseconds(30));
    kernel(second, 7);
    rig.pass(milliseconds(70));
  }
  EXPECT_EQ(process(1)["iterations"], 40);
  EXPECT_TRUE(process(1)["late_seconds"].is_null());
}

TEST_F(Statistics, WhatOnlyOneRankStillKnowsDoesNotCount) {
  train_with_a_late_second();
  for (int i = 0; i < 40; ++i) {
    collective(first);
    rig.pass(milliseconds(10));
  }
  EXPECT_NEAR(process(1)["late_seconds"].get<double>(), 0.03, 1e-6);
}

TEST_F(Statistics, LostRecordsAreNoIterations) {
  place(first, 0);
  place(second, 1);
  for (int i = 0; i < 40; ++i) {
    collective(first);
    rig.pass(milliseconds(100));
  }
  const json before = process();
  for (unsigned i = 0; i < 2 * abi::kRecords; ++i) collective(first);
  rig.pass(milliseconds(200));
  EXPECT_GT(process()["iterations_counted_anew"], before["iterations_counted_anew"]);
  EXPECT_EQ(process()["iterations"], 0);
}

TEST_F(Statistics, AHostilePageHarmsNobody) {
  place(first, 0);
  abi::Page& page = first.shim.page();
  for (std::uint32_t i = 0; i < abi::kRecords; ++i) {
    page.records[i].number = ~i;
    page.records[i].what = ~0u;
    page.records[i].time_us = i * 0x01010101u;
  }
  for (const std::uint32_t recorded : {~0u, 0u, 5u, 0x80000000u, 1u}) {
    page.process.recorded = recorded;
    rig.pass(milliseconds(200));
  }
  EXPECT_TRUE(process()["iterations_per_second"].is_null());
}

TEST_F(Statistics, ARecordThatIsNeverFinishedIsPassedOver) {
  place(first, 0);
  for (int i = 0; i < 10; ++i) collective(first);
  rig.pass(milliseconds(200));
  ++first.shim.page().process.recorded;  // its writer has gone
  first.shim.page().records[10].number = 0;
  for (int i = 0; i < 20; ++i) {
    collective(first);
    rig.pass(milliseconds(200));
  }
  EXPECT_GE(process()["iterations"], 15);
}

TEST_F(Statistics, WaitsAreSummedByReason) {
  pass(seconds(2));
  EXPECT_EQ(rig.job()["waits_seconds"]["pause"], 0.0);
  rig.tell("pause");
  pass(seconds(4));
  rig.tell("resume");
  pass(seconds(2));
  EXPECT_NEAR(rig.job()["waits_seconds"]["pause"].get<double>(), 4, 0.21);
  EXPECT_EQ(rig.job()["waits_seconds"]["turn"], 0.0);
}

TEST_F(Statistics, GpuSecondsAreThoseOfAllGpus) {
  Usage usage;
  const Job& job = rig.monitor.registry().jobs().begin()->second;
  second.client->lanes[0].load = 0.25;
  for (int i = 0; i <= 20; ++i) {
    if (i > 0) has(first, 0.5 * 0.2);
    look(usage, milliseconds(200 * i + 1));
  }
  EXPECT_NEAR(usage.of(job).gpu_seconds, 4 * 0.75, 1e-9);
  has(first, 0.5);
  look(usage, seconds(1000));
  EXPECT_NEAR(usage.of(job).gpu_seconds, 5 * 0.75, 1e-9) << "the monitor stood still";
}

TEST_F(Statistics, OneThatCannotActIsBilledOnlyWhileItsGpuGetsOn) {
  Usage usage;
  const Job& job = rig.monitor.registry().jobs().begin()->second;
  first.client->standing.why = Standstill::kStopped;
  first.client->standing.moved = true;
  const auto works = [&](int from, int to) {
    for (int i = from; i <= to; ++i) {
      if (i > 0) has(first, 0.2);
      look(usage, milliseconds(200 * i + 1));
    }
  };
  works(0, 20);
  EXPECT_NEAR(usage.of(job).gpu_seconds, 4, 1e-9);
  first.client->standing.moved = false;
  works(21, 40);
  EXPECT_NEAR(usage.of(job).gpu_seconds, 4, 1e-9);
}

TEST_F(Statistics, MoreThanTheWholeGpuIsTheWholeGpu) {
  Usage usage;
  const Job& job = rig.monitor.registry().jobs().begin()->second;
  for (int i = 0; i <= 20; ++i) {
    if (i > 0) has(first, 1.75 * 0.2);
    has(second, 0);
    look(usage, milliseconds(200 * i + 1));
  }
  EXPECT_NEAR(usage.of(job).gpu_seconds, 4, 1e-9);
}

TEST_F(Statistics, AJobWaitsForTheWorstThatHoldsAnyOfItsProcesses) {
  Usage usage;
  const Job& job = rig.monitor.registry().jobs().begin()->second;
  for (int i = 0; i <= 40; ++i) {
    if (i > 0) had(first).limit_ns += 0.2e9;
    if (i > 20) had(second).turn_ns += 0.2e9;
    look(usage, milliseconds(200 * i + 1));
  }
  EXPECT_EQ(usage.of(job).waits.at(stalls::Hold::kLimit), seconds(8));
  EXPECT_FALSE(usage.of(job).waits.contains(stalls::Hold::kTurn));
}

TEST_F(Statistics, AJobThatHasEndedIsForgotten) {
  Usage usage;
  for (int i = 0; i <= 20; ++i) {
    has(first, 0.2);
    look(usage, milliseconds(200 * i + 1));
  }
  const Job job = rig.monitor.registry().jobs().begin()->second;
  EXPECT_GT(usage.of(job).gpu_seconds, 0);
  rig.dies(first);
  rig.dies(second);
  ASSERT_TRUE(rig.monitor.registry().jobs().empty());
  look(usage, seconds(5));
  EXPECT_EQ(usage.of(job).gpu_seconds, 0);
}

TEST_F(Statistics, WhatHoldsAProcessIsTheFirstOfTheList) {
  Job job = rig.monitor.registry().jobs().begin()->second;
  Client& client = *first.client;
  const auto hold = [&] {
    return status::hold_of(status::see(rig.monitor.registry(), job), status::see(client));
  };
  using stalls::Hold;
  EXPECT_EQ(hold(), Hold::kNone);
  client.lanes[0].order.closed = abi::kClosedByTurn;
  EXPECT_EQ(hold(), Hold::kNone) << "nobody comes to the gate";
  first.shim.page().gates[0].held_threads = 1;
  EXPECT_EQ(hold(), Hold::kTurn);
  client.lanes[0].order.closed = abi::kClosedByTurn | abi::kClosedByLimit;
  EXPECT_EQ(hold(), Hold::kLimit);
  Plants::in(job.gang).stage = GangHold::Stage::kGathering;
  EXPECT_EQ(hold(), Hold::kCut);
  Plants::in(client.lanes[0].wait).since = seconds(1);
  EXPECT_EQ(hold(), Hold::kMemory);
  Plants::in(job.pause).on = true;
  EXPECT_EQ(hold(), Hold::kPause);
}

}  // namespace
}  // namespace switchyard::monitor::test
