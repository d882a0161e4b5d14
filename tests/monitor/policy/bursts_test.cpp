// The clients that wait for the GPU, those that wait for their CPU, and the length of the yielding
// one's slice then.
#include <gtest/gtest.h>

#include <random>

#include "tests/monitor/policy/policy_rig.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// What a high client does between two waits.
struct Sort {
  Time cpu{0};   // its own part
  Time wait{0};  // beside the shortest slice; half of a longer one comes on top
};
constexpr Sort kEager{milliseconds(7), microseconds(150)};
constexpr Sort kGraph{microseconds(60), milliseconds(1)};

struct Beside {
  EventLoop event_loop;
  Plan plan;
  unsigned changes = 0;  // of the yielder's slice

  explicit Beside(unsigned highs = 1) {
    for (unsigned i = 0; i < highs; ++i) {
      event_loop.snapshot.clients.push_back(client(i + 1, Priority::kHigh));
    }
    event_loop.snapshot.clients.push_back(client(highs + 1, Priority::kLow));
    plan = event_loop.decide();
  }

  ClientView& low() { return event_loop.snapshot.clients.back(); }
  std::uint32_t slice_us() const { return plan.clients.back().slices.compute_us; }

  // Time goes by, and the highs work so. None: that one sleeps.
  void go(Time span, std::initializer_list<const Sort*> sorts) {
    constexpr Time kStep = milliseconds(20);
    for (Time end = event_loop.now + span; event_loop.now < end;) {
      event_loop.now += kStep;
      ++low().work;
      std::size_t at = 0;
      for (const Sort* sort : sorts) {
        ClientView& high = event_loop[at++];
        if (sort == nullptr) continue;
        const double wait = ns(*sort, slice_us());
        const double burst = static_cast<double>(sort->cpu.count()) + wait;
        const auto count =
            static_cast<std::uint32_t>(std::max(1.0, static_cast<double>(kStep.count()) / burst));
        high.bursts.count += count;
        high.bursts.waited_ns += static_cast<std::uint64_t>(wait * count);
        high.bursts.burst_ns += static_cast<std::uint64_t>(burst * count);
        high.work += 100;
      }
      const std::uint32_t before = slice_us();
      plan = event_loop.decide();
      changes += slice_us() != before ? 1 : 0;
      EXPECT_LE(shorts(plan), 1u);
    }
  }

  // The same for a moment, and nobody times a burst.
  void go_untimed() {
    event_loop.now += milliseconds(20);
    ++low().work;
    ++event_loop[0].work;
    plan = event_loop.decide();
  }

  static double ns(const Sort& sort, std::uint32_t slice_us) {
    return static_cast<double>(sort.wait.count()) + 500.0 * slice_us;
  }
};

TEST(PolicyBursts, OneOfWhichNothingIsKnownHasTheShortestSliceBeside) {
  Beside it;
  it.event_loop.work({0, 1});
  it.plan = it.event_loop.decide();
  EXPECT_EQ(it.slice_us(), kYieldShort.compute_us);
  EXPECT_TRUE(it.plan.clients[0].linger);
  EXPECT_TRUE(it.plan.clients[0].time_bursts);
}

TEST(PolicyBursts, BesideOneThatWaitsForItsCpuTheSliceAddsAtMostAPartOfThat) {
  Beside it;
  it.go(seconds(2), {&kEager});
  EXPECT_GT(it.slice_us(), 100u);
  EXPECT_LE(it.slice_us() * 0.5, 0.025 * 7000);
  EXPECT_EQ(it.plan.clients.back().slices.copy_us, kYieldShort.copy_us);
}

TEST(PolicyBursts, ThereNothingIsKeptForItAndItsLaunchesAreNotNumbered) {
  Beside it;
  it.go(seconds(2), {&kEager});
  EXPECT_FALSE(it.plan.clients[0].linger);
  EXPECT_FALSE(it.plan.clients[0].watch);
  EXPECT_TRUE(it.plan.clients[0].time_bursts);
}

TEST(PolicyBursts, OneThatWaitsForTheGpuKeepsAllAsItWas) {
  Beside it;
  it.go(seconds(5), {&kGraph});
  EXPECT_EQ(it.plan.clients.back().slices, kYieldShort);
  EXPECT_TRUE(it.plan.clients[0].linger);
  EXPECT_EQ(it.changes, 0u);
}

TEST(PolicyBursts, BesideOneThatOnlyCopiesNothingIsKept) {
  Beside it;
  for (int i = 0; i < 200; ++i) {
    it.event_loop.now += milliseconds(20);
    it.low().copies = ++it.low().work;
    ++it.event_loop[0].work;
    it.plan = it.event_loop.decide();
  }
  EXPECT_FALSE(it.plan.clients[0].linger);
  EXPECT_EQ(it.plan.clients.back().slices, kYieldShort);
}

TEST(PolicyBursts, OneThatHardlyEverWaitsLeavesTheDriversOwnSlice) {
  Beside it;
  const Sort rare{milliseconds(300), microseconds(300)};
  it.go(seconds(8), {&rare});
  EXPECT_EQ(it.slice_us(), abi::kDefaultSliceUs);
}

TEST(PolicyBursts, ABusyTrainingOfTheHighClassIsBoundByTheGpu) {
  Beside it;
  const Sort training{milliseconds(40), milliseconds(15)};
  it.go(seconds(4), {&training});
  EXPECT_EQ(it.slice_us(), kYieldShort.compute_us);
}

TEST(PolicyBursts, TheMostSensitiveOfTheActiveOnesDecides) {
  Beside it(2);
  it.go(seconds(2), {&kEager, &kGraph});
  EXPECT_EQ(it.slice_us(), kYieldShort.compute_us);
  it.go(seconds(5), {&kEager, nullptr});
  EXPECT_GT(it.slice_us(), 100u);
  it.go(seconds(2), {&kEager, &kEager});
  EXPECT_GT(it.slice_us(), 100u);
}

TEST(PolicyBursts, WhatALowJobSaysOfItsWaitsChangesNothing) {
  Beside it;
  for (int i = 0; i < 200; ++i) {
    it.low().bursts.count += 5;
    it.low().bursts.burst_ns += 100'000'000;
    it.go(milliseconds(20), {&kGraph});
    ASSERT_EQ(it.slice_us(), kYieldShort.compute_us);
    ASSERT_FALSE(it.plan.clients.back().time_bursts);
  }
}

// The library of an older version, or a program that polls.
TEST(PolicyBursts, OneThatSaysNothingKeepsTheShortestSlice) {
  Beside it;
  for (int i = 0; i < 500; ++i) {
    it.go_untimed();
    ASSERT_EQ(it.slice_us(), kYieldShort.compute_us);
  }
}

// A library times bursts only beside a lower job. The first burst that ends then may have begun
// long before.
TEST(PolicyBursts, ABurstThatBeganUntimedIsNotBelieved) {
  Beside it;
  it.go(seconds(2), {&kEager});
  const std::uint32_t before = it.slice_us();
  for (const bool leaves : {false, true}) {
    const std::vector<ClientView> all = it.event_loop.snapshot.clients;
    if (leaves) it.event_loop.snapshot.clients.pop_back();
    for (int i = 0; i < 150; ++i) {
      it.event_loop.now += milliseconds(20);
      ++it.event_loop[0].work;
      it.plan = it.event_loop.decide();
    }
    EXPECT_FALSE(it.plan.clients[0].time_bursts);
    if (leaves) it.event_loop.snapshot.clients.push_back(all.back());
    ++it.low().work;
    it.plan = it.event_loop.decide();
    it.event_loop[0].bursts.count += 1;
    it.event_loop[0].bursts.waited_ns += 200'000;
    it.event_loop[0].bursts.burst_ns += 450'000'000;
    it.go(milliseconds(500), {&kEager});
    EXPECT_LE(it.slice_us(), before) << leaves;
    it.go(seconds(2), {&kEager});
    EXPECT_EQ(it.slice_us(), before) << leaves;
  }
}

TEST(PolicyBursts, AListingSaysTheSliceAndWhy) {
  Beside it;
  const auto told = [&it] { return yielding(it.event_loop.state.high); };
  const auto waits = [&it] { return waits_for(it.event_loop.state.clients[1].bursts); };
  EXPECT_EQ(waits(), nullptr);
  it.go(seconds(2), {&kGraph});
  EXPECT_EQ(told().slice_us, it.slice_us());
  EXPECT_STREQ(told().reason, "a high job waits for the GPU, or does not say for what it waits");
  EXPECT_STREQ(waits(), "gpu");
  it.go(seconds(2), {&kEager});
  EXPECT_EQ(told().slice_us, it.slice_us());
  EXPECT_STREQ(told().reason, "the high jobs wait for their CPU, and the GPU is idle meanwhile");
  EXPECT_STREQ(waits(), "cpu");
  it.event_loop.snapshot.clients.pop_back();
  it.plan = it.event_loop.decide();
  EXPECT_EQ(told().slice_us, 0u);
  EXPECT_STREQ(told().reason, "no job yields to a high one");
  EXPECT_EQ(waits(), nullptr);
}

TEST(PolicyBursts, AHighThatNeverRestsIsSaidToLeaveTheMinimum) {
  Beside it;
  it.event_loop[0].numbered = it.event_loop[0].busy = true;
  it.go(seconds(5), {nullptr});
  EXPECT_EQ(yielding(it.event_loop.state.high).slice_us, it.slice_us());
  EXPECT_STREQ(yielding(it.event_loop.state.high).reason,
               "the high jobs never rest, so the others get the minimum");
}

TEST(PolicyBursts, OneThatWaitsNoLongerIsForgotten) {
  Beside it;
  it.go(seconds(2), {&kEager});
  for (int i = 0; i < 400; ++i) it.go_untimed();
  EXPECT_EQ(it.slice_us(), kYieldShort.compute_us);
}

TEST(PolicyBursts, SumsThatFallOrCannotBeAreNotBelieved) {
  Beside it;
  it.go(seconds(2), {&kEager});
  const std::uint32_t before = it.slice_us();
  it.event_loop[0].bursts = {};
  it.go(seconds(2), {&kEager});
  EXPECT_EQ(it.slice_us(), before);
  std::mt19937_64 random(5);
  for (int i = 0; i < 5000; ++i) {
    it.event_loop.now += milliseconds(20);
    ++it.low().work;
    ++it.event_loop[0].work;
    it.event_loop[0].bursts = {static_cast<std::uint32_t>(random()), random(), random()};
    it.plan = it.event_loop.decide();
    const double cpu_us = it.plan.clients[0].cpu_burst_us;
    ASSERT_TRUE(std::isfinite(cpu_us));
    ASSERT_GE(it.slice_us(), kYieldShort.compute_us);
    ASSERT_LE(it.slice_us(), kYieldLongestUs);
  }
}

TEST(PolicyBursts, ALongerSliceThatMakesItWaitForTheGpuIsTriedMoreAndMoreRarely) {
  Beside it;
  // Its GPU is always busy: beside the shortest slice its CPU finds all done, else nothing.
  Sort pipelined{milliseconds(40), microseconds(100)};
  unsigned tries = 0;
  for (int i = 0; i < 600; ++i) {  // a minute
    pipelined.wait = it.slice_us() > 100 ? milliseconds(10) : Time(microseconds(100));
    const std::uint32_t before = it.slice_us();
    it.go(milliseconds(100), {&pipelined});
    tries += it.slice_us() > before ? 1 : 0;
  }
  EXPECT_GE(tries, 2u);
  EXPECT_LE(tries, 8u);
}

// A prompt, then tokens; a batch that grows; a server that begins to use graphs.
TEST(PolicyBursts, AHundredChangesAreEachFollowedWithinASecondAndNothingSwings) {
  std::mt19937_64 random(16);
  const auto between = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  Beside it;
  bool eager = false;
  for (int change = 0; change < 100; ++change) {
    eager = !eager;
    const Sort sort =
        eager ? Sort{microseconds(static_cast<int>(between(3000, 30'000))), microseconds(200)}
              : Sort{microseconds(static_cast<int>(between(20, 300))),
                     microseconds(static_cast<int>(between(800, 8000)))};
    it.go(seconds(1), {&sort});
    const double allowed = 0.03 * static_cast<double>(sort.cpu.count()) / 1e3;
    if (eager) {
      EXPECT_GT(it.slice_us() * 2.0, std::min(allowed, 2048.0)) << change;
      EXPECT_LT(it.slice_us(), 2.0 * allowed) << change;
    } else {
      EXPECT_EQ(it.slice_us(), kYieldShort.compute_us) << change;
    }
    const unsigned before = it.changes;
    it.go(milliseconds(static_cast<int>(between(500, 4000))), {&sort});
    EXPECT_LE(it.changes - before, 1u) << change;
  }
}

}  // namespace
}  // namespace switchyard::monitor::policy
