// Admission: nobody is inside while memory moves, and nobody is held for ever.
#include "shim/work_guard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "shim/rules/launch.h"
#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

using swap::WorkGuard;
namespace admission = swap::admission;

class Admission : public testing::EngineTest {
 protected:
  ~Admission() override {
    for (unsigned lane : {0u, 1u}) admission::open(lane);
  }

  // Another thread that wants in.
  std::thread enters(std::atomic<bool>& in) {
    return std::thread([&in] {
      const WorkGuard entry;
      in.store(true);
    });
  }
  void await_held(unsigned threads, unsigned lane = 0) {
    while (page().residencies[lane].held_threads.load() != threads) std::this_thread::yield();
  }
};

TEST_F(Admission, WhoIsInsideIsCounted) {
  EXPECT_TRUE(admission::empty());
  {
    const WorkGuard entry;
    EXPECT_FALSE(admission::empty());
    EXPECT_TRUE(admission::inside());
  }
  EXPECT_TRUE(admission::empty());
  EXPECT_FALSE(admission::inside());
}

// The driver knows the context by the kernel or the stream.
TEST_F(Admission, WorkOfAThreadWithoutAContextWaitsToo) {
  process().swappable.store(1);
  world_.device = -1;
  ASSERT_TRUE(admission::shut(0));
  std::atomic<unsigned> put{0};
  const auto driver = [&put](auto...) {
    ++put;
    return CUDA_SUCCESS;
  };
  const CUfunction kernel = nullptr;
  const CUstream stream = nullptr;
  std::vector<std::thread> threads;
  threads.emplace_back(
      [&] { rules::launch(driver, kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, nullptr, nullptr); });
  threads.emplace_back([&] { rules::graph_launch(driver, nullptr, stream); });
  threads.emplace_back(
      [&] { rules::copy(driver, CUdeviceptr{1}, CUdeviceptr{2}, size_t{3}, stream); });
  await_held(3);
  EXPECT_EQ(put.load(), 0u);
  admission::open(0);
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(put.load(), 3u);
}

TEST_F(Admission, AnEntryThatIsNotNeededCountsNothing) {
  const WorkGuard entry(false);
  EXPECT_TRUE(admission::empty());
}

TEST_F(Admission, WhoComesWhileItIsShutWaitsAndTheMonitorIsRung) {
  ASSERT_TRUE(admission::shut(0));
  EXPECT_FALSE(admission::shut(0)) << "once";
  std::atomic<bool> in{false};
  std::thread other = enters(in);
  await_held(1);
  EXPECT_FALSE(in.load());
  EXPECT_TRUE(admission::empty());
  while (world_.wakes.load() == 0) std::this_thread::yield();  // just behind the count
  admission::open(0);
  other.join();
  EXPECT_TRUE(in.load());
}

TEST_F(Admission, WorkIsAdmittedWhereTheMemoryOfAllGpusIsThere) {
  ASSERT_TRUE(admission::shut(1));
  ASSERT_TRUE(admission::shut(0));
  EXPECT_FALSE(admission::is_open());
  admission::open(0);
  EXPECT_TRUE(admission::is_open(0));
  std::atomic<bool> in{false};
  std::thread other = enters(in);
  await_held(1, 1);  // the monitor sees for which GPU it waits
  EXPECT_EQ(page().residencies[0].held_threads.load(), 0u);
  EXPECT_FALSE(in.load());
  admission::open(1);
  other.join();
  EXPECT_EQ(page().residencies[1].held_threads.load(), 0u);
}

// Else the next would be shut again before the last is open, and nobody ever admitted.
TEST_F(Admission, TheFirstDrainThatIsLateEndsAll) {
  for (unsigned lane : {0u, 1u}) {
    ASSERT_TRUE(admission::shut(lane));
    admission::drain_until(lane, 1000 + lane);
  }
  EXPECT_TRUE(admission::overrule(999));
  EXPECT_FALSE(admission::overrule(1000));
  EXPECT_TRUE(admission::is_open());
}

TEST_F(Admission, WhatIsQuiescedOnOneGpuIsNotOverruledWithTheOthers) {
  for (unsigned lane : {0u, 1u}) {
    ASSERT_TRUE(admission::shut(lane));
    admission::drain_until(lane, 1000);
  }
  EXPECT_FALSE(admission::any_quiesced());
  ASSERT_TRUE(admission::mark_quiesced(1));
  EXPECT_TRUE(admission::any_quiesced());
  EXPECT_FALSE(admission::overrule(2000));
  EXPECT_TRUE(admission::is_open(0));
  EXPECT_TRUE(admission::is_quiesced(1));
}

TEST_F(Admission, WhoIsInsideMayComeInAgainWhileItIsShut) {
  const WorkGuard outer;
  ASSERT_TRUE(admission::shut(0));
  const WorkGuard inner;  // a callback inside the call
  EXPECT_FALSE(admission::empty());
}

TEST_F(Admission, ItMovesOnlyAfterItHasDrained) {
  EXPECT_FALSE(admission::mark_quiesced(0));
  ASSERT_TRUE(admission::shut(0));
  EXPECT_FALSE(admission::mark_quiesced(0));
  admission::drain_until(0, 1000);
  EXPECT_TRUE(admission::mark_quiesced(0));
  EXPECT_FALSE(admission::is_open());
}

TEST_F(Admission, WorkThatDoesNotEndInTimeOpensIt) {
  ASSERT_TRUE(admission::shut(0));
  admission::drain_until(0, 1000);
  EXPECT_TRUE(admission::overrule(999)) << "look again soon";
  EXPECT_TRUE(admission::draining(0));
  EXPECT_FALSE(admission::is_open());
  EXPECT_FALSE(admission::overrule(1000));
  EXPECT_TRUE(admission::is_open());
  EXPECT_FALSE(admission::draining(0));
  EXPECT_FALSE(admission::mark_quiesced(0)) << "new work may be there";
}

// A capture may have begun since, which a wait would end.
TEST_F(Admission, OnceItIsOpenedADrainWaitsForNoOtherGpu) {
  testing::use_contexts();
  process().swappable.store(2);
  ASSERT_TRUE(admission::shut(0));
  world_.during_wait = [] { admission::open(0); };
  EXPECT_EQ(swap::drain(0), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(world_.waits.size(), 1u);
  world_.during_wait = nullptr;
  process().swappable.store(0);
}

TEST_F(Admission, WhatMovesIsNotOverruled) {
  ASSERT_TRUE(admission::shut(0));
  admission::drain_until(0, 1000);
  ASSERT_TRUE(admission::mark_quiesced(0));
  EXPECT_FALSE(admission::overrule(2000));
  EXPECT_FALSE(admission::is_open());
}

TEST_F(Admission, NobodyIsInsideOnceItIsShutAndEmpty) {
  std::atomic<bool> stop{false};
  std::atomic<int> inside{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!stop.load()) {
        const WorkGuard entry;
        inside.fetch_add(1);
        inside.fetch_sub(1);
      }
    });
  }
  for (int round = 0; round < 200; ++round) {
    ASSERT_TRUE(admission::shut(0));
    while (!admission::empty()) std::this_thread::yield();
    EXPECT_EQ(inside.load(), 0);
    admission::open(0);
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace switchyard::shim
