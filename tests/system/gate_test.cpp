// The gate in real processes, with a monitor that the test plays. Queued work stops, and threads
// sleep before the driver. Whatever the monitor does, the work is done in the end, and right.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "tests/system/gate_scene.h"

namespace switchyard::system_tests {
namespace {

using Gate = GateScene;

TEST_F(Gate, AThousandQueuedLaunchesStopAndGoOnWithTheRightResult) {
  begin();
  // On four streams: the queue of one may be too short for a thousand launches and their waits.
  static_assert(kFit >= 250);
  for (const int thread : {3, 4, 5, 6}) done(thread, "hold", "launch 250");
  monitor_->close(abi::kClosedByPause);
  release();
  expect_nothing_runs();
  monitor_->open();
  for (const int thread : {3, 4, 5, 6}) done(thread, "sync");
  EXPECT_EQ(count(), 1000);
}

TEST_F(Gate, ThreadsSleepBeforeTheDriverWhetherTheyLaunchCopyFreeOrWait) {
  begin();
  done(4, "query");
  monitor_->close(abi::kClosedByTurn);
  tell(0, "launch 1");
  tell(1, "copy 1");
  tell(2, "launch 1");
  tell(3, "sync");
  tell(4, "free");
  tell(5, "all");
  EXPECT_TRUE(held(6));
  done(6, "query");  // a question is answered
  EXPECT_EQ(count(), 0);
  monitor_->open();
  for (const int thread : {0, 2}) await(thread, "launch");
  await(1, "copy");
  await(3, "sync");
  await(4, "free");
  await(5, "all");
  done(5, "all");
  EXPECT_EQ(count(), 2);
  EXPECT_TRUE(held(0));
}

TEST_F(Gate, AFullQueueAndWhatWaitsForItWithTheDriversLocksOutliveAClosedGate) {
  begin();
  done(3, "hold");
  done(4, "query");
  tell(3, "launch 5000");
  EXPECT_TRUE(queue_is_full());
  tell(4, "free");  // waits behind it, for the driver's lock
  monitor_->close(abi::kClosedByPause);
  release();
  tell(5, "free");
  tell(6, "all");
  expect_nothing_runs();
  EXPECT_FALSE(answered(3, "launch"));
  monitor_->open();
  await(3, "launch");
  await(4, "free");
  await(5, "free");
  await(6, "all");
  done(3, "sync");
  EXPECT_EQ(count(), 5000);
}

TEST_F(Gate, AllKindsOfWorkComeOutRightThroughAGateThatOpensAndCloses) {
  begin();
  std::atomic<bool> over{false};
  std::thread closer([&] {
    while (!over) {
      monitor_->close(abi::kClosedByTurn);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      monitor_->open();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  for (int round = 0; round < 5; ++round) {
    for (int thread = 0; thread < 8; ++thread) {
      tell(thread, "launch 100");
      tell(thread, "copy 5");
      tell(thread, "cross");
      tell(thread, "free");
      tell(thread, "sync");
    }
    for (int thread = 0; thread < 8; ++thread) {
      for (const char* command : {"launch", "copy", "cross", "free", "sync"}) {
        await(thread, command);
      }
    }
    // A global capture makes what others do unsafe, so graphs have the GPU to themselves.
    done(3, "graph 50", "sync");
    done(2, "graph 50", "all");
  }
  over = true;
  closer.join();
  EXPECT_EQ(count(), 5 * (8 * 102 + 100));
}

TEST_F(Gate, ACaptureGoesOnAtAClosedGateAndOpensNothing) {
  begin();
  done(4, "query");
  monitor_->close(abi::kClosedByTurn);
  tell(3, "launch 5");
  EXPECT_TRUE(held(1));
  done(4, "capture 20");
  EXPECT_EQ(monitor_->gate().held_threads.load(), 1u);
  EXPECT_EQ(count(), 0);
  monitor_->open();
  expect_launched(3, 5);
}

TEST_F(Gate, NumbersAreEqualOnceTheCpuHasWaited) {
  begin();
  monitor_->arm(abi::kProgress);
  for (const int thread : {0, 1, 2, 3}) done(thread, "launch 7", "sync");
  EXPECT_TRUE(no_batch_is_open());
  done(3, "hold", "launch 3");
  bool busy = false;
  for (unsigned slot = 0; slot < abi::kProgressSlots; ++slot) {
    const abi::Gate& gate = monitor_->gate();
    busy = busy || gate.done[slot].load() != gate.submitted[slot].load();
  }
  EXPECT_TRUE(busy);
  release();
  done(3, "sync");
}

TEST_F(Gate, WhenTheMonitorDiesATurnIsNobodysAndTheJobGoesOn) {
  begin();
  close_behind_the_queue(abi::kClosedByTurn | abi::kClosedByLimit);
  expect_nothing_runs();
  monitor_->vanish();
  expect_queue_and_held_launched();
}

TEST_F(Gate, APauseOutlivesTheMonitorAndTheNextOneEndsIt) {
  begin();
  close_behind_the_queue(abi::kClosedByPause | abi::kClosedByTurn);
  const auto dead = std::exchange(monitor_, nullptr);
  dead->vanish();
  EXPECT_TRUE(eventually([&] { return dead->gate().closed.load() == abi::kClosedByPause; }));
  monitor_ = std::make_unique<PlayedMonitor>(socket());
  EXPECT_TRUE(eventually([&] { return monitor_->joined(); }));
  EXPECT_EQ(monitor_->hello().flags, wire::kRejoin);
  EXPECT_EQ(monitor_->hello().paused, 1u);
  EXPECT_TRUE(held(1));  // now before the new page
  expect_nothing_runs();
  EXPECT_FALSE(answered(4, "launch"));
  monitor_->open();
  expect_queue_and_held_launched();
  // And the new page's gate is in force.
  done(3, "launch 50", "sync");
  EXPECT_EQ(monitor_->gate().state.load(), abi::kGateReady);
  monitor_->close(abi::kClosedByTurn);
  tell(3, "launch 1");
  EXPECT_TRUE(held(1));
  monitor_->open();
  await(3, "launch");
}

TEST_F(Gate, TheMonitorIsToldWhetherTheGpuIsSharedThroughMps) {
  begin();
  EXPECT_EQ(monitor_->lane().under_mps.load(), 0u);
}

TEST_F(Gate, TheNextMonitorIsToldThatTheGpuIsSharedThroughMps) {
  begin({{"FAKECUDA_MPS", "1"}});
  EXPECT_EQ(monitor_->lane().under_mps.load(), 1u);
  const auto dead = std::exchange(monitor_, nullptr);
  dead->vanish();
  monitor_ = std::make_unique<PlayedMonitor>(socket());
  // It says so a moment after it has joined.
  EXPECT_TRUE(
      eventually([&] { return monitor_->joined() && monitor_->lane().under_mps.load() == 1u; }));
}

TEST_F(Gate, APauseWithATimeOutEndsWithoutAMonitor) {
  begin();
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  monitor_->gate().pause_until_ns =
      static_cast<std::uint64_t>(now.tv_sec + 1) * 1'000'000'000 + 999'999'999;
  monitor_->close(abi::kClosedByPause);
  tell(3, "launch 5");
  EXPECT_TRUE(held(1));
  monitor_->vanish();
  expect_launched(3, 5);
}

TEST_F(Gate, AfterAFullQueueTheNextMonitorIsFoundThoughTheDriversLocksAreHeld) {
  begin();
  done(3, "hold");
  tell(3, "launch 5000");
  EXPECT_TRUE(queue_is_full());
  monitor_->close(abi::kClosedByPause);
  release();
  const auto dead = std::exchange(monitor_, nullptr);
  dead->vanish();
  monitor_ = std::make_unique<PlayedMonitor>(socket());
  // Opened before the job has brought its pause along, it would be shut again by that.
  EXPECT_TRUE(eventually(
      [&] { return monitor_->joined() && monitor_->gate().closed.load() == abi::kClosedByPause; }));
  EXPECT_EQ(count(), 0);
  monitor_->open();
  expect_launched(3, 5000);
}

}  // namespace
}  // namespace switchyard::system_tests
