// The movers of two GPUs: each moves its own memory, and work goes on when all of it is there.
#include <random>
#include <thread>

#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/memory/consolidation_request.h"
#include "shim/swap/memory/range_table.h"
#include "tests/shim/swap/residency/mover_world.h"
#include "tests/support/seeds.h"

namespace switchyard::shim {
namespace {

using namespace testing;

// The first GPU has three chunks, and the other two.
class TwoGpus : public MoverTest {
 protected:
  static constexpr std::uint64_t kFirst = 3 * kMiB2;
  static constexpr std::uint64_t kSecond = 2 * kMiB2;

  TwoGpus() { use_two_gpus(); }

  static abi::Residency& words_of(unsigned lane) { return page().residencies[lane]; }
  static void limit_on(unsigned lane, std::uint64_t bytes) {
    words_of(lane).limit_bytes.store(bytes);
    words_of(lane).limited.store(1);
  }
  static void lift_on(unsigned lane) { words_of(lane).limited.store(0); }
  bool is_absent(unsigned lane) const { return words_of(lane).phase.load() == abi::kAbsent; }
  static std::uint64_t resident_on(unsigned lane) { return words_of(lane).resident_bytes.load(); }

  // Both movers look, by turns.
  bool both_until(const std::function<bool()>& done) {
    for (int i = 0; i < 10'000 && !done(); ++i) look(static_cast<unsigned>(i) % 2);
    return done();
  }
  bool both_absent() {
    return both_until([&] { return is_absent(0) && is_absent(1); });
  }
  bool both_back() {
    return both_until([&] {
      return words_of(0).phase.load() == abi::kResident &&
             words_of(1).phase.load() == abi::kResident && admits();
    });
  }
  // The driver has no memory for the GPU.
  static void fill_gpu(int device) {
    static int full;
    static const auto create = g_driver.cuMemCreate;
    full = device;
    g_driver.cuMemCreate = [](CUmemGenericAllocationHandle* out, size_t bytes,
                              const CUmemAllocationProp* properties, unsigned long long flags) {
      if (properties->location.id == full) return CUDA_ERROR_OUT_OF_MEMORY;
      return create(out, bytes, properties, flags);
    };
  }
};

TEST_F(TwoGpus, TheMemoryOfOneLeavesAndThatOfTheOtherStays) {
  limit_on(0, 0);
  limit_on(1, kSecond);
  ASSERT_TRUE(both_absent());
  EXPECT_EQ(resident_on(0), 0u);
  EXPECT_EQ(resident_on(1), kSecond);
  EXPECT_EQ(words_of(1).moved_bytes.load(), 0u);
  EXPECT_EQ(words_of(0).host_bytes.load(), swap::pinned_pool::pinned_bytes(0));
  lift_on(1);
  ASSERT_TRUE(both_until([&] { return words_of(1).phase.load() == abi::kResident; }));
  EXPECT_FALSE(admits()) << "work may need the memory of the first";
  lift_on(0);
  ASSERT_TRUE(both_back());
  g_resident = static_cast<std::int64_t>(kAll);
  expect_nothing_lost();
}

TEST_F(TwoGpus, ADrainWaitsForTheWorkOfAllGpusItsOwnLast) {
  limit_on(0, 0);
  ASSERT_TRUE(both_until([&] { return is_absent(0); }));
  EXPECT_EQ(world_.waits, (std::vector{primary_of(1), kPrimary}));
}

TEST_F(TwoGpus, TheSecondToLeaveWaitsForNothing) {
  limit_on(0, 0);
  limit_on(1, 0);
  ASSERT_TRUE(both_absent());
  EXPECT_EQ(world_.waits.size(), 2u) << "work is held and done already";
  EXPECT_EQ(resident_on(0) + resident_on(1), 0u);
  lift_on(0);
  lift_on(1);
  ASSERT_TRUE(both_back());
  g_resident = static_cast<std::int64_t>(kAll);
  expect_nothing_lost();
}

// In the middle of the first one's wait the second begins to leave.
TEST_F(TwoGpus, OneDrainAtATimeServesBoth) {
  limit_on(0, 0);
  limit_on(1, 0);
  std::thread second;
  std::atomic<int> waits{0};
  world_.during_wait = [&] {
    if (waits.fetch_add(1) != 0) return;
    second = std::thread([&] {
      while (!is_absent(1)) look(1);
    });
    while (!swap::admission::draining(1)) std::this_thread::yield();
  };
  look(0);
  second.join();
  EXPECT_EQ(waits.load(), 2) << "once for each GPU";
  EXPECT_TRUE(is_absent(0));
}

TEST_F(TwoGpus, MoversMoveSideBySideAndWhoeverNeedsTheTableWaitsForBoth) {
  std::atomic<bool> changed{false};
  std::thread application;
  {
    const swap::ChunksLock first;
    std::thread([] { const swap::ChunksLock second; }).join();
    application = std::thread([&] {
      const swap::RangesLock held;
      changed = true;
    });
    std::this_thread::yield();
    EXPECT_FALSE(changed.load());
  }
  application.join();
  EXPECT_TRUE(changed.load());
}

TEST_F(TwoGpus, AConsolidationIsAskedOfTheMoverOfItsGpu) {
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread application(
      [&] { result = swap::consolidation_request::ask(4711, 1, 1'000'000 * testing::kSecond); });
  while (!swap::consolidation_request::is_asked(1)) std::this_thread::yield();
  EXPECT_FALSE(swap::consolidation_request::is_asked(0));
  EXPECT_FALSE(swap::consolidation_request::take(0));
  look(0);
  EXPECT_TRUE(swap::consolidation_request::is_asked(1)) << "not the other's";
  look(1);
  application.join();
  EXPECT_EQ(result, CUDA_ERROR_INVALID_VALUE) << "nobody has that number";
}

// Without a monitor, as when another process has the second GPU and waits for the first.
TEST_F(TwoGpus, WithoutAMonitorTheOtherGpusMemoryMakesWayWhereOneLacksRoom) {
  limit_on(1, 0);
  limit_on(0, kFirst);
  ASSERT_TRUE(both_absent());
  fill_gpu(1);
  monitor_dies();
  ASSERT_TRUE(both_until([&] { return resident_on(0) == 0; })) << "the other can have it";
  EXPECT_EQ(words_of(1).error.load(), abi::kSwapNoDeviceRoom);
  fill_gpu(-1);
  ASSERT_TRUE(both_back());
  g_resident = static_cast<std::int64_t>(kAll);
  expect_nothing_lost();
}

TEST_F(TwoGpus, WhatWasSaidOfBothIsInTheNextMonitorsPage) {
  limit_on(0, 0);
  limit_on(1, kMiB2);
  ASSERT_TRUE(both_absent());
  const auto fresh = std::make_unique<abi::Page>();
  swap::residency_page::carry_over(*fresh);
  EXPECT_EQ(fresh->residencies[0].total_bytes.load(), kFirst);
  EXPECT_EQ(fresh->residencies[0].resident_bytes.load(), 0u);
  EXPECT_EQ(fresh->residencies[1].total_bytes.load(), kSecond);
  EXPECT_EQ(fresh->residencies[1].resident_bytes.load(), kMiB2);
  EXPECT_EQ(fresh->residencies[1].phase.load(), abi::kAbsent);
  EXPECT_EQ(fresh->memories[1].moved_out_bytes.load(), kMiB2);
  for (unsigned lane : {0u, 1u}) {
    EXPECT_NE(fresh->lanes[lane].attention.load() & abi::kSwappable, 0u) << lane;
  }
}

// The laws of mover_laws_test.cpp, for two.
class TwoGpuLaws : public TwoGpus {
 protected:
  using MoverState = swap::residency::MoverState;
  static MoverState state(unsigned lane) { return swap::residency::executor(lane).state(); }

  void change_something(std::mt19937& random) {
    const auto roll = [&](unsigned sides) { return random() % sides; };
    const auto lane = static_cast<unsigned>(roll(2));
    world_.during_wait = nullptr;
    switch (roll(9)) {
      case 0:
      case 1:
        words_of(lane).order.fetch_add(1);
        limit_on(lane, roll(4) * kMiB2);
        break;
      case 2:
      case 3:
        words_of(lane).order.fetch_add(1);
        lift_on(lane);
        break;
      case 4:
        words_of(lane).host_limit_bytes.store(roll(2) * swap::pinned_pool::kSlab);
        break;
      case 5:
        faults().fail(static_cast<int>(roll(30)),
                      roll(2) == 0 ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY);
        break;
      case 6:
        set_primaries(roll(2) == 0);
        break;
      case 7:
        process().joined.store(roll(2));
        break;
      default:
        world_.during_wait = [this] {
          mover_.now_ns.fetch_add(11 * testing::kSecond);
          swap::admission::overrule(now());
        };
    }
  }
  void set_primaries(bool active) {
    const bool made = active && !world_.primary;
    world_.primary = active;
    for (unsigned lane = 0; made && lane < 2; ++lane) swap::mover::context_made(lane);
  }

  void expect_laws() {
    g_resident = static_cast<std::int64_t>(resident_on(0) + resident_on(1));
    expect_nothing_lost();
    bool all_admit = true;
    for (unsigned lane : {0u, 1u}) {
      const bool admits_it = swap::residency::admits(state(lane));
      EXPECT_EQ(swap::admission::is_open(lane), admits_it) << lane;
      all_admit = all_admit && admits_it;
      if (state(lane) == MoverState::kResident) {
        EXPECT_EQ(resident_on(lane), words_of(lane).total_bytes.load()) << lane;
      }
    }
    EXPECT_EQ(admits(), all_admit) << "work needs the memory of both";
  }

  void calm() {
    world_.during_wait = nullptr;
    faults().none();
    process().joined.store(1);
    world_.primary = true;
    for (unsigned lane : {0u, 1u}) {
      words_of(lane).host_limit_bytes.store(swap::pinned_pool::kSlab);
      lift_on(lane);
      swap::mover::context_made(lane);
    }
  }
};

TEST_F(TwoGpuLaws, AnyOrderAndFailureKeepsThemAndAllComesBackOnceItIsCalm) {
  std::mt19937 random(815);
  for (unsigned play = 0; play < test_support::seeds(20); ++play) {
    SCOPED_TRACE(play);
    for (int i = 0; i < 60 && !HasFailure(); ++i) {
      change_something(random);
      look(static_cast<unsigned>(random() % 2));
      expect_laws();
      const bool works = state(0) == MoverState::kResident && state(1) == MoverState::kResident;
      if (works) change(random() % 2, random() % 2, random() % kMiB2);
    }
    calm();
    ASSERT_TRUE(both_back()) << static_cast<int>(state(0)) << static_cast<int>(state(1));
    expect_laws();
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace switchyard::shim
