#include "shim/swap/calls/allocate.h"

#include <thread>

#include "shim/rules/linear.h"
#include "shim/rules/stream_ordered.h"
#include "shim/swap/memory/range_table.h"
#include "shim/work_guard.h"
#include "tests/shim/swap/swap_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using swap::RangesLock;

class SwappableAllocation : public SwapTest {};

TEST_F(SwappableAllocation, IsMadeOfChunksInOneReservation) {
  const CUdeviceptr at = allocate(80 * kMiB + 1);
  EXPECT_EQ(swap_.reserved.at(at), 82 * kMiB);
  ASSERT_EQ(swap_.mapped.size(), 3u);
  EXPECT_EQ(swap_.mapped.at(at).bytes, 32 * kMiB);
  EXPECT_EQ(swap_.mapped.at(at + 32 * kMiB).bytes, 32 * kMiB);
  EXPECT_EQ(swap_.mapped.at(at + 64 * kMiB).bytes, 18 * kMiB);
  for (const auto& [address, mapping] : swap_.mapped) EXPECT_TRUE(mapping.accessible);
  EXPECT_EQ(swap_.started.load(), 1);
  EXPECT_EQ(swap_.total, 82 * kMiB);
  EXPECT_EQ(swap_.resident, 82 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableAllocation, IsChargedAsTheDriversOwn) {
  set_quota(100 * kMiB);
  const CUdeviceptr at = allocate(5 * kMiB);
  EXPECT_EQ(used(), 6 * kMiB);
  CUdeviceptr more = 0;
  EXPECT_EQ(rules::allocate(never, &more, size_t{95 * kMiB}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used(), 6 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  expect_nothing_left();
  expect_balanced();
}

TEST_F(SwappableAllocation, EachCallFailingInTurnLeavesNothing) {
  constexpr int kCalls = 1 + 3 * 2 + 1;  // the reservation; create and map of three chunks; access
  for (const CUresult failure : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    for (int call = 0; call < kCalls; ++call) {
      faults().fail(call, failure);
      CUdeviceptr at = 0;
      EXPECT_EQ(rules::allocate(never, &at, size_t{80 * kMiB}), failure) << "call " << call;
      expect_nothing_left();
    }
  }
  faults().fail(kCalls);
  allocate(80 * kMiB);
}

TEST_F(SwappableAllocation, SmallOnesStayTheDrivers) {
  CUdeviceptr at = 0;
  ASSERT_EQ(rules::allocate(driver_alloc, &at, size_t{2 * kMiB - 1}), CUDA_SUCCESS);
  EXPECT_TRUE(swap_.reserved.empty());
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(swap_.freed, std::vector<CUdeviceptr>{at});
  EXPECT_EQ(world_.waits.size(), 0u);
  expect_nothing_left();
}

TEST_F(SwappableAllocation, ManagedOldAndImpossibleOnesStayTheDrivers) {
  CUdeviceptr at = 0;
  CUdeviceptr_v1 old = 0;
  const auto managed = [](CUdeviceptr* out, size_t bytes, unsigned) {
    return driver_alloc(out, bytes);
  };
  const auto narrow = [](CUdeviceptr_v1* out, unsigned) {
    *out = 0x1000000;
    return CUDA_SUCCESS;
  };
  const auto refuse = [](CUdeviceptr*, size_t) { return CUDA_ERROR_OUT_OF_MEMORY; };
  EXPECT_EQ(rules::allocate(managed, &at, size_t{8 * kMiB}, 1u), CUDA_SUCCESS);
  EXPECT_EQ(rules::allocate(narrow, &old, 8u << 20), CUDA_SUCCESS);
  EXPECT_EQ(rules::allocate(refuse, &at, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(swap_.reserved.empty());
}

TEST_F(SwappableAllocation, OtherProcessesGoTheDriversWay) {
  process().swappable.store(0);
  CUdeviceptr at = 0;
  ASSERT_EQ(rules::allocate(driver_alloc, &at, size_t{8 * kMiB}), CUDA_SUCCESS);
  EXPECT_TRUE(swap_.reserved.empty());
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(swap_.freed, std::vector<CUdeviceptr>{at});
}

TEST_F(SwappableAllocation, WithoutAContextTheDriverAnswers) {
  world_.device = -1;
  CUdeviceptr at = 0;
  const auto refuse = [](CUdeviceptr*, size_t) { return CUDA_ERROR_INVALID_CONTEXT; };
  EXPECT_EQ(rules::allocate(refuse, &at, size_t{8 * kMiB}), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(SwappableAllocation, RowsOfAPitchedOneAre512Apart) {
  const auto never = [](CUdeviceptr*, size_t*, size_t, size_t, unsigned) {
    ADD_FAILURE() << "the driver was called";
    return CUDA_ERROR_UNKNOWN;
  };
  CUdeviceptr at = 0;
  size_t pitch = 0;
  ASSERT_EQ(rules::allocate_pitch(never, &at, &pitch, size_t{1000}, size_t{8192}, 4u),
            CUDA_SUCCESS);
  EXPECT_EQ(pitch, 1024u);
  EXPECT_EQ(swap_.total, 8 * kMiB);
  EXPECT_EQ(used(), 8 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  const auto judge = [](CUdeviceptr*, size_t*, size_t, size_t, unsigned) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(rules::allocate_pitch(judge, &at, &pitch, size_t{1000}, size_t{8192}, 5u),
            CUDA_ERROR_INVALID_VALUE);
  expect_nothing_left();
}

TEST_F(SwappableAllocation, WaitsUntilMemoryHasMoved) {
  ASSERT_TRUE(swap::admission::shut(0));
  std::thread other([] {
    t_lane = 0;
    CUdeviceptr at = 0;
    EXPECT_EQ(rules::allocate(never, &at, size_t{8 * kMiB}), CUDA_SUCCESS);
  });
  while (page().residencies[0].held_threads.load() == 0) std::this_thread::yield();
  EXPECT_EQ(swap_.total, 0u);
  { const RangesLock held; }  // it waits with nothing held
  swap::admission::open(0);
  other.join();
  EXPECT_EQ(swap_.total, 8 * kMiB);
}

TEST_F(SwappableAllocation, WaitsAgainWhenAMoveBeganBeforeItHeldTheRanges) {
  std::thread other;
  {
    const RangesLock held;
    other = std::thread([] {
      t_lane = 0;
      CUdeviceptr at = 0;
      EXPECT_EQ(rules::allocate(never, &at, size_t{8 * kMiB}), CUDA_SUCCESS);
    });
    while (swap_.started.load() == 0) std::this_thread::yield();
    ASSERT_TRUE(swap::admission::shut(0));
  }
  while (page().residencies[0].held_threads.load() == 0) std::this_thread::yield();
  EXPECT_EQ(swap_.total, 0u);
  swap::admission::open(0);
  other.join();
  EXPECT_EQ(swap_.total, 8 * kMiB);
}

TEST_F(SwappableAllocation, InsideAnEntryDoesNotWait) {
  const swap::WorkGuard entry;
  ASSERT_TRUE(swap::admission::shut(0));
  const CUdeviceptr at = allocate(8 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_TRUE(world_.waits.empty());  // nor for the GPU: the mover would wait for the waiter
}

TEST_F(SwappableAllocation, GoesOnInACaptureInRelaxedMode) {
  process().captures.store(1);
  allocate(8 * kMiB);
  EXPECT_EQ(swap_.relaxed, 4) << "the question, the memory, and back each time";
}

// As the driver answers while a capture forbids allocations, and while none does.
int g_trials = 0;
CUresult forbidden(CUdeviceptr*, size_t) {
  ++g_trials;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}
CUresult permitted(CUdeviceptr* out, size_t) {
  ++g_trials;
  *out = 0x7000;
  return CUDA_SUCCESS;
}

TEST_F(SwappableAllocation, IsRefusedAsTheDriverDoesWhereACaptureForbidsIt) {
  process().captures.store(1);
  swap_.capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  g_driver.cuMemAlloc_v2 = forbidden;
  CUdeviceptr at = 0;
  EXPECT_EQ(rules::allocate(never, &at, size_t{8 * kMiB}), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const auto pitched = [](CUdeviceptr*, size_t*, size_t, size_t, unsigned) {
    ADD_FAILURE() << "the driver was called";
    return CUDA_ERROR_UNKNOWN;
  };
  size_t pitch = 0;
  EXPECT_EQ(rules::allocate_pitch(pitched, &at, &pitch, size_t{4096}, size_t{4096}, 4u),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(used(), 0u);
  EXPECT_TRUE(swap_.handles.empty());
}

TEST_F(SwappableAllocation, IsMadeWhereTheDriverPermitsTheTrialAndTheTrialIsGivenBack) {
  process().captures.store(1);
  swap_.capture_mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  g_driver.cuMemAlloc_v2 = permitted;
  g_driver.cuMemFree_v2 = driver_free;
  g_trials = 0;
  allocate(8 * kMiB);
  EXPECT_EQ(g_trials, 1);
  EXPECT_EQ(swap_.freed, std::vector<CUdeviceptr>{0x7000});
}

}  // namespace
}  // namespace switchyard::shim
