// The mover takes the contexts away as well, and brings them back.
#include <string.h>

#include <memory>
#include <thread>

#include "shim/checkpoint/checkpoint.h"
#include "shim/clock.h"
#include "shim/inside.h"
#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/residency/residency_page.h"
#include "tests/shim/swap/residency/mover_world.h"
#include "tests/support/card.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class MoverDetaches : public MoverTest {
 protected:
  void expect_running() {
    EXPECT_EQ(mover_.process, CU_PROCESS_STATE_RUNNING);
    EXPECT_FALSE(inside::is_closed());
  }
  void expect_stays_with(std::uint32_t for_error, CUresult result) {
    run_for(kSecond);
    expect_held(abi::kAbsent, for_error, 0);
    EXPECT_EQ(words().swap_result.load(), static_cast<std::uint32_t>(result));
    expect_running();
    EXPECT_TRUE(mover_.groups);
    lift();
    ASSERT_TRUE(run_until([&] { return is_back(); }));
    expect_told_right();
  }
};

TEST_F(MoverDetaches, TheContextsLeaveAfterTheMemoryAndComeBackBeforeIt) {
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  expect_held(abi::kDetached, abi::kSwapFine, 0);
  EXPECT_FALSE(mover_.groups);
  EXPECT_TRUE(inside::is_closed());
  run_for(kSecond);
  EXPECT_TRUE(is_detached());
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  EXPECT_TRUE(mover_.groups);
  expect_running();
  expect_told_right();
}

int g_pinned = 0;  // slabs

// A checkpoint takes longer for each GiB that is pinned.
TEST_F(MoverDetaches, NoSlabIsPinnedWhileTheContextsLeave) {
  g_pinned = 1;  // of the world's
  g_driver.cuMemHostUnregister = [](void*) {
    EXPECT_NE(g_world->context, nullptr);
    EXPECT_EQ(g_mover->process, CU_PROCESS_STATE_RUNNING);
    --g_pinned;
    return CUDA_SUCCESS;
  };
  g_driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) {
    EXPECT_NE(g_world->context, nullptr);
    EXPECT_EQ(g_mover->process, CU_PROCESS_STATE_RUNNING);
    ++g_pinned;
    return CUDA_SUCCESS;
  };
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  EXPECT_EQ(g_pinned, 0);
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  EXPECT_EQ(g_pinned, 1);
  expect_told_right();
}

TEST_F(MoverDetaches, MemoryComesBackFromAHostThatIsNotPinnedAgain) {
  static bool refuses = true;
  static int asked = 0;
  g_driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) {
    ++asked;
    return refuses ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  };
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  expect_told_right();
  EXPECT_TRUE(swap::pinned_pool::any_unpinned(0));
  const int then = asked;
  run_for(kSecond);
  EXPECT_GT(asked, then) << "it is tried again between moves";
  EXPECT_LT(asked, then + 20) << "and not all the time";
  refuses = false;
  run_for(kSecond);
  EXPECT_FALSE(swap::pinned_pool::any_unpinned(0));
}

TEST_F(MoverDetaches, WhatLeavesNextFindsItsHostMemoryPinned) {
  static bool refuses = true;
  g_driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) {
    return refuses ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  };
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  refuses = false;
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_FALSE(swap::pinned_pool::any_unpinned(0));
}

// A slab that no copy needed on the way back is pinned between moves, before the next one.
TEST_F(MoverDetaches, AFreeSlabIsPinnedAgainBetweenMoves) {
  allow_host(2 * swap::pinned_pool::kSlab);
  ASSERT_TRUE(swap::pinned_pool::grow(0, UINT64_MAX));
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  run_for(kSecond);
  EXPECT_FALSE(swap::pinned_pool::any_unpinned(0));
}

// The movers of a process's other GPUs call the driver, too.
TEST(InsideLook, IsAwaitedAndNoneOfAnotherGpuBeginsWhileContextsAreAway) {
  const inside::MoverLook mine(0);
  auto others = std::make_unique<inside::MoverLook>(1);
  EXPECT_TRUE(others->admitted());
  EXPECT_FALSE(inside::close(0, monotonic_ns() + 2'000'000));
  EXPECT_FALSE(inside::is_closed());
  others.reset();
  ASSERT_TRUE(inside::close(0, monotonic_ns() + 5'000'000'000));
  EXPECT_FALSE(inside::MoverLook(1).admitted());
  EXPECT_TRUE(inside::MoverLook(0).admitted());
  inside::open();
  EXPECT_TRUE(inside::MoverLook(1).admitted());
}

TEST_F(MoverDetaches, AProcessWithoutMemoryToMoveLeavesAsWell) {
  swap::mover::freed(0, kAll, kAll);
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  expect_running();
  swap::mover::allocated(0, kAll);
}

TEST_F(MoverDetaches, OnlyTheContextsComeWhenMemoryMayNotYet) {
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  words().limited.store(abi::kLimited);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  expect_running();
}

TEST_F(MoverDetaches, AMemoryThatIsAwayAlreadyIsEnough) {
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
}

TEST_F(MoverDetaches, WhoComesMeanwhileIsHeldAndSeen) {
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  std::atomic<bool> came{false};
  std::thread caller([&] {
    const Inside inside;
    came.store(true);
  });
  while (words().held_threads.load() == 0) std::this_thread::yield();
  EXPECT_FALSE(came.load());
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  caller.join();
  EXPECT_TRUE(came.load());
}

TEST_F(MoverDetaches, WhoDoesNotComeOutOfACallKeepsTheContextsThere) {
  std::atomic<bool> go{false};
  std::atomic<bool> there{false};
  std::thread caller([&] {
    const Inside inside;
    there.store(true);
    while (!go.load()) std::this_thread::yield();
  });
  while (!there.load()) std::this_thread::yield();
  detach();
  ASSERT_TRUE(run_until([&] { return error() == abi::kSwapBusy; }));
  expect_running();
  go.store(true);
  caller.join();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
}

TEST_F(MoverDetaches, WhoSleepsInTheLibraryIsNoHindrance) {
  std::atomic<bool> there{false};
  std::thread caller([&] {
    const Inside inside;
    const Outside outside;
    there.store(true);
    while (!inside::is_closed()) std::this_thread::yield();
  });
  while (!there.load()) std::this_thread::yield();
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  while (words().held_threads.load() == 0) std::this_thread::yield();
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  caller.join();
}

TEST_F(MoverDetaches, WhenTheLockFailsAllIsAsBefore) {
  mover_.lock_result = CUDA_ERROR_NOT_READY;
  detach();
  expect_stays_with(abi::kSwapBusy, CUDA_ERROR_NOT_READY);
}

TEST_F(MoverDetaches, WhenTheCheckpointFailsAllIsAsBefore) {
  mover_.take_result = CUDA_ERROR_NOT_SUPPORTED;
  detach();
  expect_stays_with(abi::kSwapContextsStay, CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(MoverDetaches, ADriverThatDoesNotUnlockIsAskedAgain) {
  mover_.take_result = CUDA_ERROR_NOT_SUPPORTED;
  mover_.unlock_result = CUDA_ERROR_UNKNOWN;
  detach();
  ASSERT_TRUE(run_until([&] { return phase() == abi::kDetached; }));
  lift();
  run_for(kSecond);
  EXPECT_TRUE(inside::is_closed()) << "its calls would sleep in the driver";
  mover_.unlock_result = CUDA_SUCCESS;
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  expect_running();
}

TEST_F(MoverDetaches, WithoutRoomItIsTriedAgain) {
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  mover_.restore_result = CUDA_ERROR_OUT_OF_MEMORY;
  lift();
  run_for(kSecond);
  EXPECT_TRUE(is_detached());
  EXPECT_EQ(error(), abi::kSwapNoDeviceRoom);
  EXPECT_TRUE(inside::is_closed());
  mover_.restore_result = CUDA_SUCCESS;
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  expect_told_right();
}

TEST_F(MoverDetaches, WhatTheDriverLostLetsWorkFailByItself) {
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  mover_.restore_result = CUDA_ERROR_UNKNOWN;
  mover_.process = CU_PROCESS_STATE_FAILED;
  lift();
  ASSERT_TRUE(run_until([&] { return admits(); }));
  EXPECT_EQ(error(), abi::kSwapFailed);
  EXPECT_FALSE(inside::is_closed());
}

TEST_F(MoverDetaches, WithoutAMonitorTheContextsComeBack) {
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  monitor_dies();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  expect_running();
}

TEST_F(MoverDetaches, APersonsPauseOutlivesTheMonitor) {
  detach();
  pause(true);
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  monitor_dies();
  run_for(5 * kSecond);
  EXPECT_TRUE(is_detached());
  pause(false);
  ASSERT_TRUE(run_until([&] { return is_back(); }));
}

TEST_F(MoverDetaches, ContextsThatTheDriverCannotTakeAreNotTouched) {
  const auto expect_untouched = [&] {
    detach();
    expect_stays_with(abi::kSwapContextsStay, CUDA_ERROR_NOT_SUPPORTED);
    mover_.now_ns.fetch_add(10 * kSecond);
  };
  for (const Stays why : kKeepsContexts) {
    process().stays_bytes[0][static_cast<unsigned>(why)].store(1);
    expect_untouched();
    process().stays_bytes[0][static_cast<unsigned>(why)].store(0);
  }
  page().lanes[0].contexts.store(1);
  page().lanes[1].contexts.store(1);
  expect_untouched();
  page().lanes[1].contexts.store(0);
  g_driver.cuCheckpointProcessLock = nullptr;
  expect_untouched();
}

TEST_F(MoverDetaches, TheProcessSaysWhetherTheDriverCanTakeContexts) {
  write_card(page(), &JobCard::swappable, "yes");
  swap::residency_page::choose_swappable(1);
  EXPECT_EQ(page().memories[0].contexts.load(), abi::kContextsMayLeave);
  g_driver.cuCheckpointProcessRestore = nullptr;
  swap::residency_page::choose_swappable(1);
  EXPECT_EQ(page().memories[0].contexts.load(), abi::kContextsNoCalls);
}

}  // namespace
}  // namespace switchyard::shim
