// The low job's gate closes before the high job's CPU waits, by what it has launched.
#include <gtest/gtest.h>

#include <random>

#include "tests/monitor/policy/policy_rig.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A server that launches every 20 us and then waits; the monitor looks whenever it rings.
struct Served {
  EventLoop event_loop;
  Plan plan;
  Time launch{microseconds(20)};
  Time wait{microseconds(50)};
  unsigned closes = 0;
  unsigned late = 0;  // waits that began before an open gate
  unsigned waits = 0;
  Time shut{0};
  bool low_copies = false;  // and does nothing else

  Served() {
    event_loop.snapshot.clients = {client(1, Priority::kHigh), client(2, Priority::kLow)};
    event_loop.snapshot.rules.foresee = true;
    look();
  }

  ClientView& high() { return event_loop[0]; }
  ClientView& low() { return event_loop[1]; }
  bool closed() const { return (plan.clients[1].closed & abi::kClosedByTurn) != 0; }
  const ClientPlan& told() const { return plan.clients[0]; }
  std::uint32_t slice_us() const { return plan.clients[1].slices.compute_us; }
  bool on() const { return event_loop.state.high.foreseen_us != 0; }

  void look() {
    const bool before = !plan.clients.empty() && closed();
    ++low().work;
    low().copies += low_copies ? 1 : 0;
    plan = event_loop.decide();
    closes += !before && closed() ? 1 : 0;
    EXPECT_LE(shorts(plan), 1u);
  }
  void pass(Time span) {
    const Time end = event_loop.now + span;
    for (Time at = next_look(); at <= end; at = next_look()) {
      shut += closed() ? at - event_loop.now : Time{0};
      event_loop.now = at;
      look();
    }
    shut += closed() ? end - event_loop.now : Time{0};
    event_loop.now = end;
  }
  Time next_look() const {
    const Time tick = event_loop.state.looked_at + milliseconds(250);
    const bool sooner = plan.look_again != Time{0} && plan.look_again < tick;
    return std::max(event_loop.now, sooner ? plan.look_again : tick);
  }
  void launches(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      ++high().work;
      const std::uint32_t launched = ++high().bursts.launched;
      if (told().tell_waits && told().ring_after != 0 && launched == told().ring_after) look();
      pass(launch);
    }
  }
  void begin_wait() {
    high().bursts.waiting = true;
    ++waits;
    late += closed() ? 0 : 1;
    if (told().tell_waits && !told().wait_foreseen) look();
  }
  void end_wait(Time took) {
    pass(took);
    Bursts& bursts = high().bursts;
    ++bursts.count;
    const Time cpu = bursts.launched * launch;
    const auto us = [](Time span) {
      return static_cast<std::uint16_t>(std::clamp<Time::rep>(span / microseconds(1), 1, 0xffff));
    };
    bursts.number(bursts.count) = {static_cast<std::uint16_t>(bursts.launched), us(cpu), us(took)};
    bursts.waited_ns += static_cast<std::uint64_t>(took.count());
    bursts.burst_ns += static_cast<std::uint64_t>((took + cpu).count());
    bursts.launched = 0;
    bursts.waiting = false;
    if (told().tell_waits) look();
  }
  void step(unsigned count) {
    launches(count);
    begin_wait();
    end_wait(wait);
  }
  void go(Time span, unsigned count) {
    for (const Time end = event_loop.now + span; event_loop.now < end;) step(count);
  }
  void count_anew() {
    closes = late = waits = 0;
    shut = Time{0};
  }
};

TEST(Foresight, TheGateClosesBeforeEachWaitAndOpensAfterIt) {
  Served it;
  it.go(seconds(2), 300);
  ASSERT_TRUE(it.on());
  it.count_anew();
  for (int i = 0; i < 20; ++i) {
    it.launches(100);
    EXPECT_FALSE(it.closed());
    it.launches(199);
    EXPECT_TRUE(it.closed());
    it.launches(1);
    it.begin_wait();
    EXPECT_TRUE(it.closed());
    it.end_wait(it.wait);
    EXPECT_FALSE(it.closed());
  }
  EXPECT_EQ(it.closes, 20u);
  EXPECT_EQ(it.late, 0u);
}

TEST(Foresight, ItCountsLaunchesAndNotTime) {
  Served it;
  it.go(seconds(2), 300);
  it.launch = microseconds(60);  // the CPU is slow now
  it.launches(150);
  EXPECT_FALSE(it.closed());
  it.launches(149);
  EXPECT_TRUE(it.closed());
}

TEST(Foresight, MeanwhileTheLowJobHasLongSlicesAndNothingIsShort) {
  Served it;
  it.go(seconds(2), 300);
  EXPECT_GE(it.slice_us(), 1000u);
  EXPECT_LE(it.slice_us(), 8000u);
  EXPECT_TRUE(it.plan.clients[1].armed);
  EXPECT_FALSE(it.told().linger);
  EXPECT_FALSE(it.told().watch);
}

TEST(Foresight, ItIsAskedFor) {
  Served it;
  it.event_loop.snapshot.rules.foresee = false;
  it.go(seconds(2), 300);
  EXPECT_FALSE(it.on());
  EXPECT_FALSE(it.told().tell_waits);
  EXPECT_FALSE(it.plan.clients[1].armed);
}

TEST(Foresight, ItNeedsGates) {
  Served it;
  it.event_loop.snapshot.rules.gates = false;
  it.go(seconds(2), 300);
  EXPECT_FALSE(it.on());
  EXPECT_FALSE(it.told().tell_waits);
}

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

TEST(Foresight, AWaitThatComesUnforeseenClosesTheGateWhenItBegins) {
  Served it;
  it.go(seconds(2), 300);
  it.launches(100);
  EXPECT_FALSE(it.closed());
  it.begin_wait();
  EXPECT_TRUE(it.closed());
  it.end_wait(it.wait);
  EXPECT_FALSE(it.closed());
}

TEST(Foresight, OneThatDoesNotWaitWhereItWasForeseenOpensTheGate) {
  Served it;
  it.go(seconds(2), 300);
  it.launches(330);
  EXPECT_FALSE(it.closed());
}

TEST(Foresight, OneThatStopsBeforeItsWaitOpensTheGateSoon) {
  Served it;
  it.go(seconds(2), 300);
  it.launches(299);
  EXPECT_TRUE(it.closed());
  it.pass(milliseconds(20));
  EXPECT_FALSE(it.closed());
  it.begin_wait();
  it.end_wait(it.wait);
  it.launches(299);
  EXPECT_TRUE(it.closed()) << "the next wait is foreseen again";
}

// The first wait after a pause between two requests.
TEST(Foresight, AWaitThatComesLateClosesTheGateWhenItBegins) {
  Served it;
  it.go(seconds(2), 300);
  it.launches(299);
  ASSERT_TRUE(it.closed());
  it.pass(milliseconds(20));
  ASSERT_FALSE(it.closed());
  it.look();
  EXPECT_FALSE(it.closed()) << "it is still late";
  it.launches(1);
  it.begin_wait();
  EXPECT_TRUE(it.closed());
  it.end_wait(it.wait);
  EXPECT_FALSE(it.closed());
}

TEST(Foresight, AWaitThatDoesNotEndKeepsTheLowJobOutForAMomentOnly) {
  Served it;
  it.go(seconds(2), 300);
  it.launches(300);
  it.begin_wait();
  it.pass(milliseconds(15));
  EXPECT_TRUE(it.closed());
  it.pass(milliseconds(10));
  EXPECT_FALSE(it.closed());
  it.end_wait(milliseconds(100));
  it.launches(299);
  EXPECT_TRUE(it.closed());
}

TEST(Foresight, WaitsThatAreTooLongCloseTheGateEarlier) {
  Served it;
  it.go(seconds(2), 300);
  const double before = it.event_loop.state.clients[1].foresight.margin.ns;
  it.wait = microseconds(450);
  it.go(milliseconds(700), 300);
  EXPECT_GT(it.event_loop.state.clients[1].foresight.margin.ns, 1.5 * before);
}

// A server whose last kernel is long waits for it, alone on the GPU or not.
TEST(Foresight, WhatAWaitHasOfItsOwnIsNoReasonToCloseTheGateEarlier) {
  Served it;
  it.wait = microseconds(350);
  it.go(seconds(20), 300);
  ASSERT_TRUE(it.on());
  EXPECT_LT(it.event_loop.state.clients[1].foresight.margin.ns, 1e6);
}

TEST(Foresight, OneBoundByTheGpuIsServedAsBeforeAndTriedMoreAndMoreRarely) {
  Served it;
  unsigned tries = 0;
  for (const Time end = it.event_loop.now + seconds(100); it.event_loop.now < end;) {
    // Whatever the margin is, its waits are long as soon as the low slice is.
    it.wait = it.slice_us() >= 1000 ? milliseconds(5) : Time(microseconds(100));
    const bool before = it.on();
    it.step(300);
    tries += !before && it.on() ? 1 : 0;
  }
  EXPECT_GE(tries, 2u);
  EXPECT_LE(tries, 8u);
}

TEST(Foresight, CountsThatScatterAreServedBySlices) {
  Served it;
  std::mt19937_64 random(7);
  for (int i = 0; i < 400; ++i) it.step(100 + random() % 3000);
  unsigned foreseen = 0;
  for (int i = 0; i < 200; ++i) {
    it.step(100 + random() % 3000);
    foreseen += it.on() ? 1 : 0;
  }
  EXPECT_LE(foreseen, 20u);
}

TEST(Foresight, ShortBurstsAreServedBySlices) {
  Served it;
  it.go(seconds(3), 20);  // 0.4 ms
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

// A wait that no margin shortens belongs to a server that is bound by the GPU.
TEST(Foresight, AWaitIsItsOwnOnlyWhenTheLongestMarginLeavesIt) {
  Served it;
  it.go(seconds(1), 1000);
  for (int i = 0; i < 200; ++i) {
    const double margin = it.event_loop.state.clients[1].foresight.margin.ns;
    const double tried = it.event_loop.state.clients[1].foresight.margin.tried;
    const double closed = tried > 0 ? tried * margin : margin;
    it.wait = Time(static_cast<Time::rep>(std::max(50e3, 6e6 - closed)));
    it.step(1000);
  }
  EXPECT_TRUE(it.on());
  EXPECT_LT(it.event_loop.state.clients[1].foresight.margin.own_ns, 400e3);
  EXPECT_LT(it.wait, milliseconds(1));
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

// What it had queued before its gate was armed still runs then.
TEST(Foresight, LongWaitsOfTheFirstWindowsAreNotBelieved) {
  Served it;
  while (!it.on()) it.step(150);  // 3 ms: the longest margin is tried at once
  it.wait = milliseconds(2);
  it.go(milliseconds(200), 150);
  EXPECT_TRUE(it.on());
  it.wait = microseconds(50);
  it.go(seconds(3), 150);
  EXPECT_TRUE(it.on());
  EXPECT_FALSE(it.event_loop.state.clients[1].foresight.margin.gpu_bound);
}

TEST(Foresight, OneLongKernelOfTheLowJobNowAndThenIsNoReasonToStop) {
  Served it;
  for (int i = 0; i < 1500; ++i) {
    it.wait = it.on() && i % 8 == 0 ? milliseconds(6) : Time(microseconds(100));
    it.step(150);
    ASSERT_TRUE(it.on() || i < 200) << i;
  }
}

TEST(Foresight, AnOlderLibraryIsServedBySlices) {
  Served it;
  for (int i = 0; i < 400; ++i) {
    it.step(300);
    for (Burst& each : it.high().bursts.last) each.cpu_us = each.waited_us = 0;
  }
  EXPECT_FALSE(it.on());
  EXPECT_FALSE(it.told().tell_waits);
  EXPECT_GT(it.slice_us(), kYieldShort.compute_us);
}

TEST(Foresight, AListingSaysThatWaitsAreForeseen) {
  Served it;
  it.go(seconds(2), 300);
  EXPECT_EQ(yielding(it.event_loop.state.high).slice_us, it.slice_us());
  EXPECT_STREQ(yielding(it.event_loop.state.high).reason,
               "the high job's waits are foreseen by its launches, and the low job's gate closes "
               "before each");
  EXPECT_EQ(yielding(it.event_loop.state.high).not_foreseen, nullptr);
  EXPECT_STREQ(waits_for(it.event_loop.state.clients[1].bursts), "cpu");
}

TEST(Foresight, AListingSaysWhyTheyAreNot) {
  const auto why = [](unsigned launches, bool foresee, bool copies) {
    Served it;
    it.event_loop.snapshot.rules.foresee = foresee;
    it.low_copies = copies;
    it.go(seconds(3), launches);
    return std::string(yielding(it.event_loop.state.high).not_foreseen);
  };
  EXPECT_NE(why(300, false, false).find("does not ask"), std::string::npos);
  EXPECT_NE(why(300, true, true).find("no lower job computes"), std::string::npos);
  EXPECT_NE(why(40, true, false).find("too briefly"), std::string::npos);
  Served it;
  std::mt19937_64 random(7);
  for (int i = 0; i < 400; ++i) it.step(100 + random() % 3000);
  EXPECT_STREQ(yielding(it.event_loop.state.high).not_foreseen,
               "a high job's launches don't foretell its waits");
}

// Whatever a high job says, the low one gets on.
TEST(Foresight, OneThatSaysThatItAlwaysWaitsCannotKeepTheLowJobOut) {
  Served it;
  it.go(seconds(2), 300);
  it.count_anew();
  const Time from = it.event_loop.now;
  while (it.event_loop.now - from < seconds(60)) {
    Bursts& bursts = it.high().bursts;
    bursts.waiting = true;
    ++bursts.count;
    bursts.last.fill({300, 6000, 50});
    bursts.waited_ns += 50'000;
    bursts.burst_ns += 6'050'000;
    ++it.high().work;
    it.look();
    it.pass(milliseconds(1));
  }
  EXPECT_LT(it.shut, seconds(30));
}

TEST(Foresight, WhateverAClientSaysThePlanIsSound) {
  Served it;
  std::mt19937_64 random(8);
  for (int i = 0; i < 20'000; ++i) {
    Bursts& bursts = it.high().bursts;
    if (random() % 4 == 0) {
      bursts.launched = static_cast<std::uint32_t>(random());
      bursts.waited_ns = random();
      bursts.burst_ns = random();
      for (Burst& each : bursts.last) {
        each = {static_cast<std::uint16_t>(random()), static_cast<std::uint16_t>(random()),
                static_cast<std::uint16_t>(random())};
      }
      it.high().work += random() % 5 == 0 ? random() : random() % 1000;
    }
    bursts.count += static_cast<std::uint32_t>(random() % 12);
    bursts.waiting = random() % 2 == 0;
    it.step(1 + static_cast<unsigned>(random() % 100));
    ASSERT_GE(it.slice_us(), kYieldShort.compute_us);
    ASSERT_LE(it.slice_us(), 8000u);
  }
}

// A prompt, then tokens; a batch that grows; a server that begins to use graphs.
TEST(Foresight, AHundredChangesAreEachFollowedWithinASecondAndNothingSwings) {
  std::mt19937_64 random(16);
  Served it;
  for (int change = 0; change < 100; ++change) {
    const bool eager = change % 2 == 0;
    it.launch = microseconds(eager ? 10 + random() % 30 : 30);
    it.wait = microseconds(eager ? 60 : 1000 + random() % 5000);
    const unsigned count = eager ? 200 + static_cast<unsigned>(random() % 800) : 2;
    it.go(seconds(1), count);
    EXPECT_EQ(it.on(), eager) << change;
    it.count_anew();
    unsigned changes = 0;
    for (int i = 0; i < 100; ++i) {
      const bool before = it.on();
      it.step(count);
      changes += it.on() != before ? 1 : 0;
    }
    EXPECT_EQ(changes, 0u) << change;
    EXPECT_LE(it.late, eager ? 2u : 1000u) << change;
  }
}

}  // namespace
}  // namespace switchyard::monitor::policy
