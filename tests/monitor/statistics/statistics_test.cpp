// Iterations, waits and stalls, from the words of pages to the listing.
#include "monitor/statistics/statistics.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "monitor/platform/processes.h"
#include "tests/monitor/log_lines.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

constexpr std::uint64_t kId = 77;
constexpr std::uint32_t kReduce = 1, kGather = 4, kSend = 9, kReceive = 10;

class Statistics : public ::testing::Test {
 protected:
  // The library's side: a communicator, what is launched in it, and kernels.
  static void place(const Joined& who, std::uint32_t rank, std::uint32_t ranks = 2) {
    who.shim.joins_communicator(kId, rank, ranks);
  }
  void record(const Joined& who, std::uint32_t what, std::uint32_t bytes = 0) const {
    abi::Page& page = who.shim.page();
    const std::uint32_t number = ++page.recorded;
    abi::Record& at = page.records[(number - 1) % abi::kRecords];
    at.time_us = static_cast<std::uint32_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(rig.now).count());
    at.what = what;
    at.bytes = bytes;
    at.number = number;
  }
  void collective(const Joined& who, std::uint32_t kind = kReduce, std::uint32_t bytes = 4) const {
    abi::Communicator& at = who.shim.page().communicators[0];
    const std::uint64_t launched = ++at.launched;
    at.last_kind = kind;
    at.last_bytes = bytes;
    at.last_ns = static_cast<std::uint64_t>(rig.now.count());
    record(who, abi::collective_record(0, kind, launched), bytes);
  }
  // 40 iterations of 100 ms; the second rank launches 30 ms after the first.
  void train_with_a_late_second() {
    place(first, 0);
    place(second, 1);
    for (int i = 0; i < 40; ++i) {
      collective(first);
      rig.pass(milliseconds(30));
      collective(second);
      rig.pass(milliseconds(70));
    }
  }
  // As the library does it: only what is asked for.
  void kernel(const Joined& who, std::uint32_t what) const {
    const bool asked = (who.lane().attention & abi::kRecordLaunches) != 0;
    const std::uint32_t kind = what % abi::kLaunchClasses;
    const std::uint64_t wanted = who.shim.page().recorded_classes[kind / 64];
    if (asked && (wanted >> kind % 64 & 1) != 0) record(who, what | abi::kLaunchRecord);
  }
  json ask() { return rig.ask({{"op", "ps"}, {"iterations", true}})["jobs"][0]; }
  json process(std::size_t at = 0) { return rig.job()["processes"][at]; }
  json stalls() { return rig.job()["stalls"]; }
  void pass(Time span) {
    for (const Time end = rig.now + span; rig.now < end;) rig.pass(milliseconds(200));
  }

  Rig rig{2};
  Ask x{.job = "x", .name = "x", .swappable = "yes"};
  Joined first = rig.runs(x), second = rig.runs(x);
};

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
    page.recorded = recorded;
    rig.pass(milliseconds(200));
  }
  EXPECT_TRUE(process()["iterations_per_second"].is_null());
}

TEST_F(Statistics, ARecordThatIsNeverFinishedIsPassedOver) {
  place(first, 0);
  for (int i = 0; i < 10; ++i) collective(first);
  rig.pass(milliseconds(200));
  ++first.shim.page().recorded;  // its writer has gone
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
  first.client->lanes[0].share_got = 0.5;
  second.client->lanes[0].share_got = -1;
  second.client->lanes[0].load = 0.25;
  for (int i = 0; i <= 20; ++i) usage.tick(rig.monitor.registry(), milliseconds(200 * i + 1));
  EXPECT_NEAR(usage.of(job).gpu_seconds, 4 * 0.75, 1e-9);
  usage.tick(rig.monitor.registry(), seconds(1000));
  EXPECT_NEAR(usage.of(job).gpu_seconds, 5 * 0.75, 1e-9) << "the monitor stood still";
}

TEST_F(Statistics, MoreThanTheWholeGpuIsTheWholeGpu) {
  Usage usage;
  const Job& job = rig.monitor.registry().jobs().begin()->second;
  first.client->lanes[0].share_got = 1.75;
  second.client->lanes[0].share_got = 0;
  for (int i = 0; i <= 20; ++i) usage.tick(rig.monitor.registry(), milliseconds(200 * i + 1));
  EXPECT_NEAR(usage.of(job).gpu_seconds, 4, 1e-9);
}

TEST_F(Statistics, AJobWaitsForTheWorstThatHoldsAnyOfItsProcesses) {
  Usage usage;
  const Job& job = rig.monitor.registry().jobs().begin()->second;
  for (const Joined* each : {&first, &second}) {
    each->shim.page().gates[0].held_threads = 1;
    each->client->lanes[0].order.closed = each == &first ? abi::kClosedByLimit : 0;
  }
  for (int i = 0; i <= 20; ++i) usage.tick(rig.monitor.registry(), milliseconds(200 * i + 1));
  second.client->lanes[0].order.closed = abi::kClosedByTurn;
  for (int i = 21; i <= 40; ++i) usage.tick(rig.monitor.registry(), milliseconds(200 * i + 1));
  EXPECT_EQ(usage.of(job).waits.at(stalls::Hold::kLimit), seconds(8));
  EXPECT_FALSE(usage.of(job).waits.contains(stalls::Hold::kTurn));
}

TEST_F(Statistics, AJobThatHasEndedIsForgotten) {
  Usage usage;
  first.client->lanes[0].share_got = 1;
  for (int i = 0; i <= 20; ++i) usage.tick(rig.monitor.registry(), milliseconds(200 * i + 1));
  const Job job = rig.monitor.registry().jobs().begin()->second;
  EXPECT_GT(usage.of(job).gpu_seconds, 0);
  rig.dies(first);
  rig.dies(second);
  ASSERT_TRUE(rig.monitor.registry().jobs().empty());
  usage.tick(rig.monitor.registry(), seconds(5));
  EXPECT_EQ(usage.of(job).gpu_seconds, 0);
}

TEST_F(Statistics, WhatHoldsAProcessIsTheFirstOfTheList) {
  Job job = rig.monitor.registry().jobs().begin()->second;
  Client& client = *first.client;
  const auto hold = [&] { return hold_of(rig.monitor.registry(), job, client); };
  using stalls::Hold;
  EXPECT_EQ(hold(), Hold::kNone);
  client.lanes[0].order.closed = abi::kClosedByTurn;
  EXPECT_EQ(hold(), Hold::kNone) << "nobody comes to the gate";
  first.shim.page().gates[0].held_threads = 1;
  EXPECT_EQ(hold(), Hold::kTurn);
  client.lanes[0].order.closed = abi::kClosedByTurn | abi::kClosedByLimit;
  EXPECT_EQ(hold(), Hold::kLimit);
  job.gang.stage = GangHold::Stage::kGathering;
  EXPECT_EQ(hold(), Hold::kCut);
  client.lanes[0].waits_since = seconds(1);
  EXPECT_EQ(hold(), Hold::kMemory);
  job.pause.on = true;
  EXPECT_EQ(hold(), Hold::kPause);
}

TEST_F(Statistics, ARankThatOthersWaitForIsListedAndLogged) {
  const LogLines log;
  place(first, 0);
  place(second, 1);
  collective(first);
  collective(second);
  pass(seconds(1));
  collective(first, kGather, 64);
  collective(first, kReduce, 8);
  pass(seconds(4));
  ASSERT_EQ(stalls().size(), 1u);
  const json stall = stalls()[0];
  EXPECT_EQ(stall["rank"], 1);
  EXPECT_EQ(stall["pid"], second.client->peer.pid);
  EXPECT_EQ(stall["operation"], 2);
  EXPECT_EQ(stall["kind"], "all_gather") << "of the one that it lacks, not of the last";
  EXPECT_EQ(stall["bytes"], 64);
  EXPECT_EQ(stall["waiting_ranks"], 1);
  EXPECT_EQ(stall["does"], "unknown") << "nobody has this pid";
  EXPECT_TRUE(stall["held_by"].is_null());
  EXPECT_EQ(log.count("rank 1 (pid " + std::to_string(second.client->peer.pid)), 1u);
  EXPECT_EQ(
      log.count("has not launched all_gather number 2 (64 bytes), as 1 other rank did, for 3 s"),
      1u)
      << "once";
  collective(second, kGather, 64);
  collective(second, kReduce, 8);
  pass(seconds(1));
  EXPECT_EQ(stalls().size(), 0u);
  EXPECT_EQ(log.count("is not waited for any more"), 1u);
}

TEST_F(Statistics, WhatALateRankDoesIsWhatItsLaunchingThreadDoes) {
  place(first, 0);
  place(second, 1);
  second.client->peer.pid = ::getpid();  // whose first thread runs
  collective(first);
  collective(second);
  std::atomic<std::uint32_t> thread{0};
  std::promise<void> over;
  std::thread sleeper([&] {
    thread = static_cast<std::uint32_t>(::syscall(SYS_gettid));
    over.get_future().wait();
  });
  const auto does = [&] {
    pass(seconds(4));
    return stalls().empty() ? json() : stalls()[0]["does"];
  };
  while (thread == 0 || thread_state(::getpid(), thread) != 'S') std::this_thread::yield();
  second.shim.page().launching_thread = thread.load();
  collective(first);
  EXPECT_EQ(does(), "sleeping");
  second.shim.page().launching_thread = 0x7fffffff;
  EXPECT_EQ(does(), "running") << "the first thread's, where that one is not to be found";
  over.set_value();
  sleeper.join();
}

TEST_F(Statistics, SendsOfMoreThanTwoRanksAreNotAnotherOperation) {
  place(first, 0, 3);
  place(second, 1, 3);
  for (const Joined* each : {&first, &second}) collective(*each);
  // A send has no number there: it is the last of its rank alone.
  first.shim.page().communicators[0].last_kind = kSend;
  first.shim.page().communicators[0].last_bytes = 99;
  record(first, abi::collective_record(0, kSend, 1), 99);
  pass(seconds(10));
  EXPECT_EQ(stalls().size(), 0u);
}

TEST_F(Statistics, TwoRanksExchangeInAnyOrder) {
  place(first, 0);
  place(second, 1);
  collective(first, kSend, 16);
  collective(second, kReceive, 32);
  pass(seconds(10));
  EXPECT_EQ(stalls().size(), 0u);
}

TEST_F(Statistics, APauseIsToldAsOne) {
  const LogLines log;
  place(first, 0, 3);  // a rank is elsewhere, so no cut is possible
  place(second, 1, 3);
  collective(first);
  pass(seconds(2));
  rig.tell("pause");
  pass(seconds(2));
  ASSERT_EQ(stalls().size(), 1u);
  EXPECT_EQ(log.count("is held"), 0u) << "most holds are over soon";
  pass(seconds(38));
  ASSERT_EQ(stalls().size(), 1u);
  EXPECT_EQ(stalls()[0]["held_by"], "pause");
  EXPECT_EQ(stalls()[0]["does"], "held");
  EXPECT_NEAR(stalls()[0]["held_seconds"].get<double>(), 40, 0.5);
  EXPECT_EQ(log.count("has not launched"), 0u);
  EXPECT_EQ(log.count("is held by us (pause), for 3 s; 1 other rank launched all_reduce number 1 "
                      "(4 bytes) 5 s ago"),
            1u)
      << "once";
}

TEST_F(Statistics, TheEndOfALateRankIsLoggedAlsoWhereAShortHoldCameBetween) {
  const LogLines log;
  place(first, 0);
  place(second, 1);
  collective(first);
  pass(seconds(4));
  ASSERT_EQ(log.count("has not launched"), 1u);
  rig.tell("pause");
  pass(seconds(1));
  ASSERT_EQ(stalls().size(), 1u);
  ASSERT_EQ(stalls()[0]["does"], "held");
  rig.tell("resume");
  collective(second);
  pass(seconds(1));
  EXPECT_EQ(stalls().size(), 0u);
  EXPECT_EQ(log.count("is not waited for any more"), 1u);
}

TEST_F(Statistics, ARankWhoseProcessHasEndedIsGone) {
  place(first, 0);
  place(second, 1);
  pass(seconds(1));
  rig.dies(second);
  collective(first);
  pass(seconds(4));
  ASSERT_EQ(stalls().size(), 1u);
  EXPECT_EQ(stalls()[0]["does"], "gone");
}

}  // namespace
}  // namespace switchyard::monitor::test
