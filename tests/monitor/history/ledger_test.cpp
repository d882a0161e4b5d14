// What the ledger makes of a monitor's sums, pages and accounts, with made-up clocks.
#include "monitor/history/ledger.h"

#include <gtest/gtest.h>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

using history::Bill;
using history::JobRow;
using history::Rows;

constexpr auto kHour = history::kHourSeconds;
constexpr std::size_t kMany = 100'000;
constexpr status::Code kIdle{status::State::kIdle, status::Reason::kNone};
constexpr status::Code kPaused{status::State::kPaused, status::Reason::kPause};

class HistoryLedger : public ::testing::Test {
 protected:
  void SetUp() override {
    rig.monitor.ledger().records_to([this](Rows rows) { all.add(std::move(rows), kMany); },
                                    [this] { return wall; });
  }
  void pass(Time span) {
    wall += span.count() / 1'000'000'000;
    rig.pass(span);
  }
  void pass_seconds(int count) {
    for (int i = 0; i < count; ++i) pass(seconds(1));
  }
  // All hours together.
  Bill bill(JobKey job, std::size_t gpu = 0) const {
    Bill sum;
    for (const auto& [key, each] : all.bills) {
      if (key.job == job && key.gpu == gpu) sum.add(each);
    }
    return sum;
  }
  static double sum(const Bill& bill) {
    double all = 0;
    for (const auto& [code, seconds] : bill.seconds) all += seconds;
    return all;
  }

  Rig rig{2};
  std::int64_t wall = 490'000 * kHour;
  Rows all;
};

TEST_F(HistoryLedger, AllOfAJobsLifeIsOnItsBill) {
  pass(seconds(1));
  Joined a = rig.runs({.job = "a", .name = "train"});
  a.client->lanes[0].had.known = true;
  const JobKey key = a.client->job;
  for (int i = 0; i < 10; ++i) {
    a.client->lanes[0].had.gpu_ns += 0.5e9;
    a.client->lanes[0].had.divided_ns += 0.1e9;
    a.shim.launch();
    pass(seconds(1));
  }
  const Bill got = bill(key);
  EXPECT_NEAR(got.gpu_seconds, 5, 1e-6);
  EXPECT_NEAR(got.estimated_seconds, 1, 1e-6);
  EXPECT_EQ(got.launches, 110);
  EXPECT_NEAR(sum(got), 10, 1e-6);
  const JobRow& row = all.jobs.at(key);
  EXPECT_EQ(row.name, "train");
  EXPECT_EQ(row.uid, 1000u);
  EXPECT_NEAR(row.lived_seconds, 10, 1e-6);
  EXPECT_EQ(row.ended, 0);
}

TEST_F(HistoryLedger, AJobOfSlurmHasItsNumberThere) {
  const Joined a = rig.runs({.job = "slurm-42"});
  const Joined b = rig.runs({.job = "other"});
  pass_seconds(2);
  EXPECT_EQ(all.jobs.at(a.client->job).slurm_job, "42");
  EXPECT_EQ(all.jobs.at(b.client->job).slurm_job, "");
}

TEST_F(HistoryLedger, UnmanagedProcessesAreOnTheBillOfTheirUser) {
  pass_seconds(3);  // the first seconds of a monitor, in which jobs join again
  rig.gpus.uses[0][3'500'000] = kGiB;
  rig.gpus.uses[0][3'500'001] = kMiB;
  rig.gpus.load = {{{3'500'000, 0.5}}};
  pass_seconds(6);
  rig.gpus.uses[0].clear();
  pass_seconds(4);
  history::UnmanagedBill sum;
  for (const auto& [key, each] : all.unmanaged) {
    EXPECT_EQ(key.uid, HistoryEvent::kNobody);
    EXPECT_EQ(key.gpu, 0u);
    sum.add(each);
  }
  // It counts until the look that does not find it any more.
  EXPECT_NEAR(sum.memory_byte_seconds, 6.0 * (kGiB + kMiB), 1);
  EXPECT_NEAR(sum.gpu_seconds, 3, 1e-9);
  EXPECT_NEAR(sum.idle_byte_seconds, 6.0 * kMiB, 1);
  EXPECT_EQ(sum.peak_bytes, kGiB);
  EXPECT_TRUE(all.bills.empty()) << "they are no job's";
}

TEST_F(HistoryLedger, WhatIsNotOnTheBillYetRaisesNoPeakOfItsUser) {
  pass_seconds(3);
  rig.gpus.uses[0][3'500'000] = kMiB;
  pass_seconds(2);
  const Joined a = rig.join({});
  const pid_t pid = a.client->peer.pid;
  rig.listed(a) = kGiB;
  pass_seconds(1);
  rig.monitor.left(a.id);  // its process, which is nobody's, lives for a moment
  pass_seconds(1);
  rig.gpus.uses[0].erase(pid);
  pass_seconds(2);
  ASSERT_FALSE(all.unmanaged.empty());
  for (const auto& [key, each] : all.unmanaged) EXPECT_EQ(each.peak_bytes, kMiB);
}

TEST_F(HistoryLedger, AJobWithoutACommandHasThatOfItsFirstProcess) {
  const auto joins = [this](const char* process) {
    wire::Hello hello = hello_of({.job = "a"});
    set_text(hello.process, process);
    return rig.join_as({rig.next_pid++, 1000}, hello);
  };
  const Joined first = joins("first");
  const Joined second = joins("second");
  pass_seconds(1);
  EXPECT_EQ(all.jobs.at(first.client->job).command, "first");
}

TEST_F(HistoryLedger, WhatAProcessDidLastIsOnTheBillWhenItEnds) {
  pass(seconds(1));
  Joined a = rig.runs({.job = "a"});
  const JobKey key = a.client->job;
  pass(milliseconds(100));
  a.client->lanes[0].had.known = true;
  a.client->lanes[0].had.gpu_ns += 0.05e9;
  a.shim.launch();
  a.lane().refusals = 2;
  rig.dies(a);
  const Bill got = bill(key);
  EXPECT_EQ(got.launches, 20);
  EXPECT_EQ(got.refusals, 2);
  const JobRow& row = all.jobs.at(key);
  EXPECT_EQ(row.ended, wall);
  EXPECT_NEAR(row.lived_seconds, 0.1, 1e-6);
  const auto rows = all.bills.size();
  pass_seconds(3);
  EXPECT_EQ(bill(key).launches, 20) << "a bill is final";
  EXPECT_EQ(all.bills.size(), rows);
}

TEST_F(HistoryLedger, GpuTimeOfTheLastMomentCountsUpToItsLength) {
  Joined a = rig.runs({.job = "a"});
  Joined b = rig.runs({.job = "a"});
  const JobKey key = a.client->job;
  pass_seconds(1);
  const double before = bill(key).gpu_seconds;
  for (Joined* each : {&a, &b}) each->client->lanes[0].had.known = true;
  a.client->lanes[0].had.gpu_ns += 0.1e9;
  b.client->lanes[0].had.gpu_ns += 9e9;
  rig.now += milliseconds(300);
  rig.monitor.look_at_status(rig.now);
  rig.dies(a);
  rig.monitor.tick(rig.now);
  EXPECT_NEAR(
      rig.monitor.statistics().usage.of(rig.monitor.registry().jobs().at(key)).gpu_seconds - before,
      0.3, 1e-6);
  rig.dies(b);
  EXPECT_NEAR(bill(key).gpu_seconds - before, 0.3, 1e-6);
}

TEST_F(HistoryLedger, MemoryHasAPeakAMeanAndTheTimeInWhichItIsHeldWithoutWork) {
  Joined a = rig.runs({.job = "a"});
  const JobKey key = a.client->job;
  pass_seconds(1);
  ASSERT_TRUE(rig.allocate(a, 1000 * kMiB));
  for (int i = 0; i < 4; ++i) {
    a.shim.launch();
    pass(seconds(1));
  }
  rig.release(a, 800 * kMiB);
  pass_seconds(16);  // and no work
  const Bill got = bill(key);
  EXPECT_NEAR(got.peak_bytes, 1000.0 * kMiB, 1);
  EXPECT_NEAR(got.memory_byte_seconds, (4 * 1000.0 + 16 * 200) * kMiB, 1.0 * kMiB);
  ASSERT_GT(got.seconds.at(kIdle), 3);
  EXPECT_NEAR(got.idle_byte_seconds, got.seconds.at(kIdle) * 200 * kMiB, 200.0 * kMiB);
}

TEST_F(HistoryLedger, EachStateHasItsSeconds) {
  Joined a = rig.runs({.job = "a", .name = "x"});
  pass_seconds(2);
  rig.tell("pause");
  pass_seconds(3);
  EXPECT_NEAR(bill(a.client->job).seconds.at(kPaused), 3, 1e-6);
  EXPECT_NEAR(sum(bill(a.client->job)), 5, 1e-6);
}

TEST_F(HistoryLedger, EachHourHasItsPart) {
  wall = 490'001 * kHour - 5;
  Joined a = rig.runs({.job = "a"});
  pass_seconds(10);
  const JobKey key = a.client->job;
  EXPECT_NEAR(sum(all.bills.at({490'000, key, 0})), 4, 1e-6);
  EXPECT_NEAR(sum(all.bills.at({490'001, key, 0})), 6, 1e-6);
  EXPECT_NEAR(all.observed.at({490'001, 1}), 6, 1e-6);
}

TEST_F(HistoryLedger, AClockThatJumpsChangesNoSpan) {
  Joined a = rig.runs({.job = "a"});
  const JobKey key = a.client->job;
  for (const std::int64_t jump : {-100'000, 5'000'000, -4'900'000, 0}) {
    wall += jump;
    pass_seconds(2);
  }
  EXPECT_NEAR(sum(bill(key)), 8, 1e-6);
  for (const auto& [at, each] : all.bills) {
    for (const auto& [code, span] : each.seconds) {
      EXPECT_GE(span, 0);
      EXPECT_LE(span, 8);
    }
  }
  wall -= 1'000'000;
  rig.dies(a);
  EXPECT_EQ(all.jobs.at(key).ended, all.jobs.at(key).started);
  EXPECT_NEAR(all.jobs.at(key).lived_seconds, 8, 1e-6);
}

TEST_F(HistoryLedger, AMonitorThatStoodStillBillsNothingForThatTime) {
  Joined a = rig.runs({.job = "a"});
  ASSERT_TRUE(rig.allocate(a, 1000 * kMiB));
  pass_seconds(1);
  const Bill before = bill(a.client->job);
  pass(std::chrono::hours(5));
  const Bill after = bill(a.client->job);
  EXPECT_LE(after.memory_byte_seconds - before.memory_byte_seconds, 2 * 1001.0 * kMiB);
  EXPECT_LE(after.gpu_seconds - before.gpu_seconds, 1);
}

TEST_F(HistoryLedger, AProcessThatWasAnothersBringsItsCountsWithoutABillForThem) {
  Joined a = rig.join({.job = "a"}, 1000, 1, wire::kRejoin);
  const JobKey key = a.client->job;
  pass_seconds(1);
  a.lane().launches = 5000;
  pass_seconds(1);
  EXPECT_EQ(bill(key).launches, 0);
  a.shim.launch();
  pass_seconds(1);
  EXPECT_EQ(bill(key).launches, 10);
  EXPECT_TRUE(all.jobs.at(key).found_again);
}

TEST_F(HistoryLedger, APageThatCountsBackwardsOrTooFarMakesNoAbsurdBill) {
  Joined a = rig.runs({.job = "a"});
  const JobKey key = a.client->job;
  pass_seconds(1);
  a.lane().launches = 0;
  pass_seconds(1);
  a.lane().launches = ~0ull;
  pass_seconds(1);
  EXPECT_GE(bill(key).launches, 0);
  EXPECT_LE(bill(key).launches, 0x1p51);
}

TEST_F(HistoryLedger, AJobWithoutAProcessHasABillToo) {
  const json made = rig.ask({{"op", "create"}, {"pid", 1}, {"command", "python train.py\x1b"}});
  ASSERT_TRUE(made["ok"]) << made;
  pass_seconds(2);
  ASSERT_EQ(all.jobs.size(), 1u);
  EXPECT_EQ(all.jobs.begin()->second.command.substr(0, 15), "python train.py");
  EXPECT_EQ(all.jobs.begin()->second.command.find('\x1b'), std::string::npos);
  EXPECT_NEAR(all.jobs.begin()->second.lived_seconds, 2, 1e-6);
}

TEST_F(HistoryLedger, TheGpusOfAnIdleMachineAreObserved) {
  pass_seconds(5);
  EXPECT_NEAR(all.observed.at({490'000, 0}), 4, 1.001);
  EXPECT_TRUE(all.jobs.empty());
}

}  // namespace
}  // namespace switchyard::monitor::test
