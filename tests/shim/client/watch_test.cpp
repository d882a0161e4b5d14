#include "shim/client/watch.h"

#include <gtest/gtest.h>

namespace switchyard::shim::service {
namespace {

// The thread looks as often as it does, until `until`. The answer that it has then.
bool hears_until(Watch& watch, std::int64_t& now, std::int64_t until, std::uint64_t beat) {
  while (now + kLookMs < until) watch.hears(now += kLookMs, beat);
  return watch.hears(now = until, beat);
}

TEST(Watch, AMonitorIsSilentAfterTwoSecondsWithoutABeat) {
  Watch watch(1000);
  std::int64_t now = 1000;
  EXPECT_TRUE(watch.hears(now, 7));
  EXPECT_TRUE(hears_until(watch, now, 1000 + kSilentMs, 7));
  EXPECT_FALSE(watch.hears(now + 1, 7));
}

// The machine stood still for 7 s, and this thread is the first to run again.
TEST(Watch, ThatItDidNotRunItselfIsNoSilenceOfTheMonitor) {
  Watch watch(0);
  EXPECT_TRUE(watch.hears(0, 1));
  EXPECT_TRUE(watch.hears(7000, 1));
  EXPECT_TRUE(watch.hears(7001, 2));
  std::int64_t now = 20000;
  EXPECT_TRUE(watch.hears(now, 2));
  EXPECT_FALSE(hears_until(watch, now, now + kSilentMs + 1, 2))
      << "a dead one is noticed all the same";
}

TEST(Watch, AnyChangeOfTheHeartbeatCounts) {
  Watch watch(0);
  std::int64_t now = 0;
  for (const std::uint64_t beat : {5u, 4u, 5u}) {
    EXPECT_TRUE(hears_until(watch, now, now + 1900, beat - 1));
    EXPECT_TRUE(watch.hears(now, beat));
  }
  EXPECT_FALSE(hears_until(watch, now, now + kSilentMs + 1, 5));
}

// The process itself may have been stopped for long.
TEST(Watch, ABeatIsHeardHoweverLateTheLook) {
  Watch watch(0);
  EXPECT_TRUE(watch.hears(10, 1));
  EXPECT_TRUE(watch.hears(1'000'000, 2));
}

TEST(Watch, TriesComeAtGrowingIntervals) {
  Watch watch(0);
  watch.gone(0);
  std::int64_t now = 0;
  for (const std::int64_t interval : {100, 200, 400, 800, 1600, 2000, 2000}) {
    EXPECT_FALSE(watch.tries(now + interval - 1)) << interval;
    EXPECT_EQ(watch.sleep_ms(false, false), interval);
    now += interval;
    EXPECT_TRUE(watch.tries(now)) << interval;
    watch.failed(now);
  }
  watch.gone(now);
  EXPECT_TRUE(watch.tries(now + 100));
}

TEST(Watch, AThreadThatNeverHadAMonitorTriesAtOnce) { EXPECT_TRUE(Watch(5).tries(5)); }

// Another thread may have joined meanwhile: that monitor's first beat may be the old one's last.
TEST(Watch, SilenceBeginsAnewWithEachConnection) {
  Watch watch(0);
  EXPECT_TRUE(watch.hears(0, 3));
  watch.gone(2001);
  EXPECT_TRUE(watch.tries(9000));
  std::int64_t now = 9000;
  EXPECT_TRUE(hears_until(watch, now, 9000 + kSilentMs, 3));
  EXPECT_FALSE(watch.hears(9001 + kSilentMs, 3));
}

TEST(Watch, SleepsAreShortWhileWorkMustNotWait) {
  const Watch watch(0);
  EXPECT_EQ(watch.sleep_ms(true, false), 500);
  EXPECT_EQ(watch.sleep_ms(true, true), 20);
  EXPECT_EQ(watch.sleep_ms(false, false), 100);
  EXPECT_EQ(watch.sleep_ms(false, true), 20);
}

}  // namespace
}  // namespace switchyard::shim::service
