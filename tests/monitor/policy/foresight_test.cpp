// The low job's gate closes before the high job's CPU waits, by what it has launched.
#include <gtest/gtest.h>

#include <random>

#include "tests/monitor/policy/served.h"

namespace switchyard::monitor::policy {
namespace {

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

// A wait that no margin shortens belongs to a server that is bound by the GPU.
TEST(Foresight, AWaitIsItsOwnOnlyWhenTheLongestMarginLeavesIt) {
  Served it;
  it.go(seconds(1), 1000);
  for (int i = 0; i < 600; ++i) {
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

// Work that it queued before its gate was armed still runs then.
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

// Two servers wait for each other now and then, for milliseconds, whatever the margin is.
TEST(Foresight, OneLongWaitAmongShortOnesDoesNotShutTheLowJobOut) {
  Served it;
  it.go(seconds(2), 900);
  for (int i = 0; i < 1000; ++i) {
    it.wait = i % 15 == 0 ? milliseconds(4) : Time(microseconds(60));
    it.step(900);
  }
  ASSERT_TRUE(it.on());
  EXPECT_LT(it.event_loop.state.clients[1].foresight.margin.ns, 0.5e6);
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
