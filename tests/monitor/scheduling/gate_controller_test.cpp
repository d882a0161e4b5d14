// Gates from what is wanted to the words in the page, and back from the words to what is known.
#include "monitor/scheduling/gate_controller.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <thread>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

struct GatePage : testing::Test {
  std::string why;
  std::unique_ptr<ClientPage> page = ClientPage::make(2, why);
  FakeShim shim{page->memfd()};
};

TEST_F(GatePage, AnOrderIsInThePageAndOnlyThere) {
  page->write_gate(1, {.closed = abi::kClosedByTurn,
                       .armed = true,
                       .watch = true,
                       .spacing_us = 400,
                       .pause_until_ns = 77});
  EXPECT_EQ(shim.gate(1).closed, abi::kClosedByTurn);
  EXPECT_EQ(shim.gate(1).spacing_us, 400u);
  EXPECT_EQ(shim.gate(1).pause_until_ns, 77u);
  EXPECT_TRUE(shim.armed(1));
  EXPECT_TRUE(shim.watched(1));
  EXPECT_EQ(shim.gate(0).closed, 0u);
  EXPECT_EQ(shim.lane(0).attention, 0u);
}

TEST_F(GatePage, LingeringNeedsNumbers) {
  page->write_gate(0, {.linger = true});
  EXPECT_EQ(shim.lane().attention, abi::kLinger | abi::kProgress);
  page->write_gate(0, {});
  EXPECT_EQ(shim.lane().attention, 0u);
}

TEST_F(GatePage, BurstsAreTimedWithoutNumbers) {
  shim.lane().attention = abi::kBurstBegins;
  page->write_gate(0, {.time_bursts = true});
  EXPECT_EQ(shim.lane().attention, abi::kTimeBursts | abi::kBurstBegins);
  shim.gate(0).bursts = 3;
  shim.gate(0).waited_ns = 40;
  shim.gate(0).burst_ns = 70;
  const GateReport said = page->gate(0);
  EXPECT_EQ(said.bursts.count, 3u);
  EXPECT_EQ(said.bursts.waited_ns, 40u);
  EXPECT_EQ(said.bursts.burst_ns, 70u);
  page->write_gate(0, {});
  EXPECT_EQ(shim.lane().attention, abi::kBurstBegins);
}

TEST_F(GatePage, WaitsAreToldAndTheLaunchesSinceTheLast) {
  page->write_gate(0, {.time_bursts = true, .tell_waits = true, .ring_after = 300});
  EXPECT_EQ(shim.lane().attention, abi::kTimeBursts | abi::kTellWaits);
  EXPECT_EQ(shim.gate(0).ring_after, 300u);
  page->write_gate(0, {.time_bursts = true, .tell_waits = true, .wait_foreseen = true});
  EXPECT_EQ(shim.gate(0).ring_after, abi::kWaitForeseen);
  shim.lane().launches = 0x1'0000'0005;
  shim.lane().graph_launches = 2;
  shim.gate(0).launched = 0xffff'fffe;
  shim.gate(0).waiting = 7;
  shim.gate(0).counts[3] = 99;
  shim.lane().burst_cpu_us[3] = 700;
  shim.lane().burst_waited_us[3] = 40;
  const GateReport said = page->gate(0);
  EXPECT_EQ(said.bursts.launched, 9u);
  EXPECT_TRUE(said.bursts.waiting);
  EXPECT_EQ(said.bursts.number(3), (policy::Burst{99, 700, 40}));
  page->write_gate(0, {});
  EXPECT_EQ(shim.lane().attention, 0u);
  EXPECT_EQ(shim.gate(0).ring_after, 0u);
}

TEST_F(GatePage, AClosedGateIsArmedWhateverIsSaid) {
  page->write_gate(0, {.closed = abi::kClosedByPause});
  EXPECT_TRUE(shim.armed());
  page->write_gate(0, {});
  EXPECT_FALSE(shim.armed());
  EXPECT_EQ(shim.gate().closed, 0u);
}

TEST_F(GatePage, APauseIsToldWhateverTheGateIs) {
  page->write_gate(0, {.paused = true});
  EXPECT_EQ(shim.gate().closed, 0u);
  EXPECT_EQ(shim.gate().paused, 1u);
  page->write_gate(0, {});
  EXPECT_EQ(shim.gate().paused, 0u);
}

TEST_F(GatePage, TheClientsOwnBitStays) {
  page->ask_to_wake(0);
  page->write_gate(0, {.closed = 1});
  page->write_gate(0, {});
  EXPECT_EQ(shim.lane().attention, abi::kWakeMonitor);
}

TEST_F(GatePage, WhatTheClientSpoiltIsWrittenAgain) {
  page->write_gate(0, {.closed = abi::kClosedByLimit});
  shim.gate().closed = 0;
  shim.lane().attention = 0;
  page->write_gate(0, {.closed = abi::kClosedByLimit});
  EXPECT_EQ(shim.gate().closed, abi::kClosedByLimit);
  EXPECT_TRUE(shim.armed());
}

TEST_F(GatePage, OpeningWakesWhoSleepsBeforeIt) {
  page->write_gate(0, {.closed = abi::kClosedByTurn});
  std::atomic<bool> woken{false};
  // Its own mapping of the page, so that a private futex would not do. No time-out: a wake that
  // doesn't come is a test that hangs.
  std::thread sleeper([&] {
    abi::Word32& word = shim.gate().closed;
    while (const std::uint32_t seen = word.load()) {
      shim.gate().held_threads = 1;
      ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, nullptr, nullptr, 0);
    }
    woken = true;
  });
  while (shim.gate().held_threads == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(woken);
  page->write_gate(0, {});
  sleeper.join();
  EXPECT_TRUE(woken);
}

TEST_F(GatePage, ProgressIsDoneWhenEverySlotIs) {
  EXPECT_TRUE(page->gate(0).done) << "zero-filled: nothing is queued";
  shim.submit(3);
  EXPECT_FALSE(page->gate(0).done);
  EXPECT_TRUE(page->gate(1).done);
  shim.complete();
  EXPECT_TRUE(page->gate(0).done);
  EXPECT_EQ(page->gate(0).progress, 1u);
  shim.submit(15);
  EXPECT_FALSE(page->gate(0).done);
}

TEST_F(GatePage, WhatIsReadIsBounded) {
  shim.gate().state = 99;
  shim.gate().held_threads = ~0u;
  const GateReport report = page->gate(0);
  EXPECT_EQ(report.state, abi::kGateRefused);
  EXPECT_EQ(report.held_threads, 65'535u);
}

struct GateOrders : testing::Test {
  Job job;
  policy::ClientPlan plan;
  const MeansInForce with{true, true, ""};
  const MeansInForce without{true, false, ""};
  GateOrders() {
    plan.closed = abi::kClosedByTurn | abi::kClosedByPause;
    plan.armed = plan.watch = plan.linger = true;
    plan.spacing_us = 400;
  }
};

TEST_F(GateOrders, WithGatesAPlanIsTheOrder) {
  EXPECT_EQ(order_of(plan, job, with),
            (GateOrder{.closed = abi::kClosedByTurn | abi::kClosedByPause,
                       .armed = true,
                       .watch = true,
                       .linger = true,
                       .spacing_us = 400,
                       .paused = true}));
}

TEST_F(GateOrders, WithoutSlicesThereIsNothingToLingerFor) {
  EXPECT_FALSE(order_of(plan, job, {false, true, ""}).linger);
}

TEST_F(GateOrders, WithoutGatesOnlyAPauseIsLeft) {
  const GateOrder order = order_of(plan, job, without);
  EXPECT_EQ(order.closed, abi::kClosedByPause);
  EXPECT_FALSE(order.watch);
  plan.closed = abi::kClosedByTurn;
  plan.linger = false;  // which needs numbers, with gates or without
  EXPECT_FALSE(order_of(plan, job, without).numbered());
}

TEST_F(GateOrders, WhatLeavesHasItsGateOpenAndIsStillPaused) {
  const GateOrder order = order_of(plan, job, with, true);
  EXPECT_EQ(order.closed, 0u);
  EXPECT_TRUE(order.paused);
  plan.closed = abi::kClosedByTurn;
  EXPECT_FALSE(order_of(plan, job, with, true).paused);
}

TEST_F(GateOrders, ATimedPauseTellsItsEnd) {
  pause(job, {.until = seconds(5)}, seconds(1));
  EXPECT_EQ(order_of(plan, job, with).pause_until_ns, 5'000'000'000u);
  resume(job, std::nullopt, seconds(2));
  EXPECT_EQ(order_of(plan, job, with).pause_until_ns, 0u);
}

TEST(GateBusy, NumbersTellWhereTheyAreWrittenElseWhatMoved) {
  Client::Lane lane;
  LaneReport moved;
  moved.launches = 1;
  GateReport gate;
  EXPECT_FALSE(busy(lane, {}, gate));
  EXPECT_TRUE(busy(lane, moved, gate));
  lane.order.watch = true;
  EXPECT_TRUE(busy(lane, moved, gate)) << "its gate is not ready: no numbers come";
  gate.state = abi::kGateReady;
  EXPECT_FALSE(busy(lane, moved, gate));
  gate.done = false;
  EXPECT_TRUE(busy(lane, {}, gate));
}

}  // namespace
}  // namespace switchyard::monitor::test
