// How many launches stand between two waits, with a made-up GPU and clock.
#include "shim/gate/spacing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace switchyard::shim::spacing {
namespace {

constexpr std::uint64_t kUs = 1000;
constexpr std::uint64_t kMs = 1'000'000;

// A stream's GPU: batches end one after the other, at the pace of its kernels.
class Stream {
 public:
  explicit Stream(std::uint64_t kernel_ns) : kernel_ns_(kernel_ns) {}

  // Puts one batch of the size that the pace asks for; the CPU takes `cpu_ns` for each launch.
  std::uint32_t batch(std::uint64_t spacing_ns, std::uint64_t cpu_ns) {
    pace_.look(done(), number_, false, now_);
    const std::uint32_t size = pace_.launches(spacing_ns);
    ++number_;
    free_ns_ = std::max(free_ns_, now_) + size * kernel_ns_;
    ends_.push_back(free_ns_);
    now_ += size * cpu_ns;
    pace_.ended(number_, size);
    return size;
  }
  void wait() {
    now_ = std::max(now_, free_ns_);
    pace_.look(done(), number_, true, now_);
  }
  void idle(std::uint64_t ns) { now_ += ns; }
  // A queue that is full lets the CPU through at the GPU's pace.
  void at_most(std::size_t batches) {
    while (done(), ends_.size() >= batches) now_ = std::max(now_, ends_.front());
  }
  void kernels_take(std::uint64_t ns) { kernel_ns_ = ns; }

 private:
  std::uint32_t done() {
    while (!ends_.empty() && ends_.front() <= now_) {
      ends_.pop_front();
      ++done_;
    }
    return done_;
  }

  Pace pace_;
  std::uint64_t kernel_ns_;
  std::uint64_t now_ = 1000 * kMs, free_ns_ = 0;
  std::uint32_t number_ = 0, done_ = 0;
  std::deque<std::uint64_t> ends_;
};

TEST(Spacing, StartsSmallAndReachesTheWantedWork) {
  Stream stream(20 * kUs);
  EXPECT_EQ(stream.batch(kMs, 20 * kUs), kFirstLaunches);
  std::uint32_t size = 0;
  for (int i = 0; i < 100; ++i) size = stream.batch(kMs, 20 * kUs);
  EXPECT_NEAR(size, 50, 10);  // of 20 us in 1 ms
  for (int i = 0; i < 100; ++i) size = stream.batch(400 * kUs, 20 * kUs);
  EXPECT_NEAR(size, 20, 5);
}

TEST(Spacing, AQueueThatRunsAheadIsMeasuredByTheGpuNotByTheLauncher) {
  Stream stream(100 * kUs);
  std::uint32_t size = 0;
  for (int step = 0; step < 20; ++step) {
    for (int i = 0; i < 10; ++i) size = stream.batch(kMs, 3 * kUs);  // far ahead of the GPU
    stream.wait();
  }
  EXPECT_NEAR(size, 10, 3);
}

TEST(Spacing, ALauncherThatIsSlowerThanTheGpuPaysForAWaitOncePerSpacing) {
  Stream stream(2 * kUs);
  std::uint32_t size = 0;
  for (int i = 0; i < 200; ++i) size = stream.batch(kMs, 10 * kUs);
  EXPECT_GE(size, 90u);  // 1 ms of launching
}

TEST(Spacing, IdlenessIsNoWork) {
  Stream stream(20 * kUs);
  for (int i = 0; i < 50; ++i) stream.batch(kMs, 20 * kUs);
  stream.wait();
  std::uint32_t size = 0;
  for (int step = 0; step < 20; ++step) {
    stream.idle(500 * kMs);
    for (int i = 0; i < 3; ++i) size = stream.batch(kMs, 3 * kUs);
    stream.wait();
  }
  EXPECT_NEAR(size, 50, 15);
}

TEST(Spacing, LongKernelsAreAloneAndABatchGrowsByStepsOnly) {
  Stream stream(5 * kMs);
  std::uint32_t size = 0;
  for (int step = 0; step < 10; ++step) {
    size = stream.batch(kMs, 3 * kUs);
    stream.wait();
  }
  EXPECT_EQ(size, 1u);
  stream.kernels_take(1 * kUs);
  std::uint32_t before = size;
  for (int step = 0; step < 50; ++step) {
    size = stream.batch(kMs, 3 * kUs);
    stream.wait();
    EXPECT_LE(size, 2 * before);
    before = size;
  }
  EXPECT_GE(size, 100u);
  EXPECT_LE(size, kMostLaunches);
}

TEST(Spacing, GraphsAreNoMeasureOfALaunch) {
  Pace pace;
  pace.restart(0, kMs);
  pace.ended(1, 0);
  pace.look(1, 1, true, 50 * kMs);
  EXPECT_EQ(pace.launches(kMs), kFirstLaunches);
}

TEST(Spacing, ANumberFromNowhereChangesNothing) {
  Pace pace;
  pace.restart(10, kMs);
  pace.ended(11, 4);
  pace.look(4000000000u, 11, true, 2 * kMs);
  EXPECT_EQ(pace.launches(kMs), kFirstLaunches);
  pace.look(11, 11, true, 3 * kMs);
  EXPECT_GE(pace.launches(kMs), 1u);
}

TEST(Spacing, NumbersMayWrap) {
  Pace pace;
  pace.restart(0xffffffff, kMs);
  pace.ended(0, 10);
  pace.look(0, 0, true, 2 * kMs);  // ten in a millisecond
  EXPECT_EQ(pace.launches(kMs), 10u);
}

TEST(Spacing, AFullQueueOfSmallBatchesGrowsAllTheSame) {
  constexpr std::size_t kQueue = 340;  // a batch of one launch is three of a thousand entries
  Stream stream(20 * kUs);
  stream.kernels_take(2 * kMs);
  for (int i = 0; i < 400; ++i) {
    stream.at_most(kQueue);
    stream.batch(kMs, 4 * kUs);
  }
  stream.kernels_take(20 * kUs);
  std::uint32_t size = 0;
  for (int i = 0; i < 3000; ++i) {
    stream.at_most(kQueue);
    size = stream.batch(kMs, 4 * kUs);
  }
  EXPECT_GT(size, 20u);
}

TEST(Spacing, AnUnrememberedCrowdOfBatchesIsStillAMeasure) {
  Pace pace;
  std::uint64_t now = kMs;
  const std::uint32_t ahead = 2 * kRemembered;
  std::uint32_t done = 0;
  for (std::uint32_t number = 1; number < ahead + 200; ++number) {
    if (number > ahead) ++done;
    now += 20 * kUs;
    pace.look(done, number, false, now);
    pace.ended(number, 1);
  }
  EXPECT_GT(pace.launches(kMs), 1u);
}

TEST(Spacing, KnowsWhatItsBatchesTakeOfTheQueue) {
  Pace pace;
  pace.ended(1, 10);
  pace.ended(2, 0);  // a graph
  pace.ended(3, 20);
  EXPECT_EQ(pace.entries(3, 3, 1000), 0u);
  EXPECT_EQ(pace.entries(1, 3, 1000), 24u);
  EXPECT_EQ(pace.entries(0, 3, 1000), 36u);
  EXPECT_LE(pace.entries(9, 3, 100), 101u);  // a number from nowhere costs no more
}

TEST(Spacing, TimeBehindAShutGateCountsLittle) {
  Stream stream(20 * kUs);
  std::uint32_t size = 0;
  for (int i = 0; i < 100; ++i) size = stream.batch(kMs, 20 * kUs);
  stream.idle(500 * kMs);
  for (int i = 0; i < 3; ++i) EXPECT_GE(stream.batch(kMs, 20 * kUs), size / 8);
}

TEST(Spacing, ANumberThatGoesBackIsNoMeasure) {
  Pace pace;
  pace.ended(1, 4);
  pace.ended(2, 4);
  pace.look(2, 2, true, kMs);
  pace.look(1, 2, true, 2 * kMs);
  EXPECT_LE(pace.launches(kMs), kMostLaunches);
}

}  // namespace
}  // namespace switchyard::shim::spacing
