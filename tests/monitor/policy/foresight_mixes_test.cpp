// Waits are foreseen of servers that replay graphs as well, beside several jobs, and without
// slices.
#include <gtest/gtest.h>

#include "tests/monitor/policy/served.h"

namespace switchyard::monitor::policy {
namespace {

// Without slices the driver's own are long enough: the gate does it.
TEST(Foresight, ItNeedsNoSlices) {
  Served it;
  it.event_loop.snapshot.rules.slices = false;
  it.go(seconds(2), 300);
  ASSERT_TRUE(it.on());
  it.count_anew();
  it.go(seconds(1), 300);
  EXPECT_EQ(it.late, 0u);
  EXPECT_LT(it.shut, milliseconds(300));
  EXPECT_EQ(it.plan.clients[1].slices, kNothing);
}

TEST(Foresight, JobsThatHaveTheGpuOneAfterTheOtherAreNotServedByIt) {
  Served it;
  it.event_loop.snapshot.rules.kind = Kind::kExclusive;
  it.go(seconds(2), 300);
  EXPECT_FALSE(it.on());
}

TEST(Foresight, BesideAHighJobThatSaysNothingOfItsWaitsAllAreServedBySlices) {
  Served it;
  it.go(seconds(2), 300);
  ASSERT_TRUE(it.on());
  it.event_loop.snapshot.clients.push_back(client(3, Priority::kHigh));
  it.look();
  ++it.event_loop[2].work;
  it.look();
  EXPECT_FALSE(it.on());
  EXPECT_FALSE(it.closed());
}

TEST(Foresight, SeveralLowJobsTakeTurnsWhileTheGateIsOpenAndAreAllClosedBeforeAWait) {
  Served it;
  it.event_loop.snapshot.clients.push_back(client(3, Priority::kLow));
  for (std::size_t low : {1, 2}) it.event_loop[low].busy = it.event_loop[low].numbered = true;
  const auto closed = [&it](std::size_t at) { return it.plan.clients[at].closed != 0; };
  Time open[2] = {Time{0}, Time{0}};
  for (int i = 0; i < 700; ++i) {
    ++it.event_loop[2].work;
    it.launches(150);
    if (i >= 300) {
      ASSERT_TRUE(it.on());
      EXPECT_LE((closed(1) ? 0 : 1) + (closed(2) ? 0 : 1), 1) << i;
      for (std::size_t low : {0, 1}) open[low] += closed(low + 1) ? Time{0} : it.launch;
    }
    it.launches(149);
    EXPECT_TRUE(i < 300 || (closed(1) && closed(2))) << i;
    it.launches(1);
    it.begin_wait();
    it.end_wait(it.wait);
  }
  EXPECT_GT(open[0], 150 * it.launch);
  EXPECT_GT(open[1], 150 * it.launch);
}

TEST(Foresight, TwoHighJobsAreEachAlone) {
  Served it;
  it.go(seconds(2), 300);
  it.event_loop.snapshot.clients.push_back(client(3, Priority::kHigh));
  ClientView& other = it.event_loop[2];
  const auto other_waits = [&](bool waits) {
    other.work += waits ? 200 : 0;
    other.bursts.launched = waits ? 200 : 0;
    other.bursts.waiting = waits;
    it.look();
  };
  for (int i = 0; i < 200; ++i) {
    it.step(300);
    other_waits(true);
    ++other.bursts.count;
    other.bursts.number(other.bursts.count) = {200, 4000, 50};
    other.bursts.waited_ns += 50'000;
    other.bursts.burst_ns += 4'050'000;
    other_waits(false);
  }
  ASSERT_TRUE(it.on());
  it.launches(100);
  EXPECT_FALSE(it.closed());
  other_waits(true);
  EXPECT_TRUE(it.closed()) << "the other's wait";
  other_waits(false);
}

// A server that launches its first token kernel by kernel, and replays a graph for each other one.
struct Tokens : Served {
  unsigned opened = 0;  // waits for a token that began before an open gate
  void token() {
    launches(1);
    begin_wait();
    opened += closed() ? 0 : 1;
    end_wait(milliseconds(3));
    pass(microseconds(100));
  }
  void answer(unsigned tokens) {
    step(900);
    for (unsigned i = 0; i < tokens; ++i) token();
    pass(milliseconds(30));
  }
};

TEST(Foresight, TokensByGraphsHaveTheGpuToThemselvesAndTheFirstTokenSharesIt) {
  Tokens it;
  for (int i = 0; i < 12; ++i) it.answer(23);
  ASSERT_TRUE(it.on());
  it.opened = 0;
  for (int i = 0; i < 5; ++i) {
    it.launches(600);
    EXPECT_FALSE(it.closed()) << "the CPU makes the first token";
    it.launches(300);
    it.begin_wait();
    EXPECT_TRUE(it.closed());
    it.end_wait(it.wait);
    for (unsigned token = 0; token < 23; ++token) it.token();
    EXPECT_TRUE(it.closed()) << "one more may come";
    it.pass(milliseconds(2));
    EXPECT_FALSE(it.closed()) << "it rests";
    EXPECT_FALSE(it.told().linger);
    it.pass(milliseconds(28));
  }
  EXPECT_EQ(it.opened, 0u);
  EXPECT_STREQ(waits_for(it.event_loop.state.clients[1].bursts), "gpu");
}

TEST(Foresight, ManyTokensDoNotMakeTheFirstForgotten) {
  Tokens it;
  for (int i = 0; i < 12; ++i) it.answer(150);
  EXPECT_TRUE(it.on());
}

TEST(Foresight, AServerThatOnlyReplaysGraphsByNowIsServedAsSuch) {
  Tokens it;
  for (int i = 0; i < 12; ++i) it.answer(23);
  ASSERT_TRUE(it.on());
  for (int i = 0; i < 250; ++i) it.token();
  EXPECT_FALSE(it.on());
}

// Its thread loses the CPU between its only launch and its wait, and then the GPU is done. With
// slices of milliseconds for the low job each of the next requests would find the GPU taken.
TEST(Foresight, AGraphReplayWhoseThreadLosesItsCpuForAMomentIsServedAsSuch) {
  Tokens it;
  unsigned on = 0;
  for (int i = 0; i < 300; ++i) {
    const bool loses = i % 100 == 50;
    it.launch = loses ? milliseconds(3) : microseconds(40);
    it.launches(1);
    it.begin_wait();
    it.end_wait(microseconds(loses ? 10 : 1300));
    it.pass(milliseconds(18));
    on += it.on() ? 1 : 0;
  }
  EXPECT_EQ(on, 0u);
}

// Each of its waits would find the gate open at its end.
TEST(Foresight, AServerWhoseTokensTakeTooLongIsServedBySlices) {
  Tokens it;
  unsigned on = 0;
  for (int i = 0; i < 40; ++i) {
    it.step(900);
    for (int token = 0; token < 8; ++token) {
      it.launches(1);
      it.begin_wait();
      it.end_wait(milliseconds(40));
    }
    on += it.on() ? 1 : 0;
  }
  EXPECT_LE(on, 8u);
}

TEST(Foresight, ALowJobWhoseGateIsRefusedIsLeftOpen) {
  Served it;
  it.low().gateable = false;
  it.go(seconds(2), 300);
  EXPECT_FALSE(it.on());
  EXPECT_FALSE(it.closed());
}

TEST(Foresight, ALowJobThatOnlyCopiesIsLeftOpen) {
  Served it;
  it.low_copies = true;
  it.go(seconds(5), 300);
  EXPECT_FALSE(it.on());
  EXPECT_FALSE(it.plan.clients[1].armed);
  it.low_copies = false;
  it.go(seconds(1), 300);
  EXPECT_TRUE(it.on());
}

}  // namespace
}  // namespace switchyard::monitor::policy
