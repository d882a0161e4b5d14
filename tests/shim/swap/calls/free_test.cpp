// The end of a swappable allocation: what it waits for, and what it must not wait for.
#include <atomic>
#include <functional>
#include <thread>

#include "shim/memory/owner.h"
#include "shim/rules/launch.h"
#include "shim/rules/linear.h"
#include "shim/rules/stream_ordered.h"
#include "shim/swap/calls/allocate.h"
#include "shim/swap/memory/range_table.h"
#include "shim/work_guard.h"
#include "tests/shim/swap/swap_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using swap::RangesLock;

class SwappableFree : public SwapTest {
 protected:
  // Kept aside until the capture has ended, as it has then.
  static void free_in_a_capture(CUdeviceptr at) {
    process().captures.store(1);
    EXPECT_EQ(free(at), CUDA_SUCCESS);
    process().captures.store(0);
  }
};

TEST_F(SwappableFree, WaitsForTheContextsWork) {
  const CUcontext mine = use_context(0x2000);
  const CUdeviceptr at = allocate(8 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(world_.waits, std::vector<CUcontext>{mine});
  expect_nothing_left();
}

TEST_F(SwappableFree, WaitsForTheContextItWasMadeInWhateverIsCurrent) {
  const CUcontext mine = use_context(0x2000);
  const CUdeviceptr at = allocate(8 * kMiB);
  const CUcontext other = use_context(0x3000);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(world_.waits, std::vector<CUcontext>{mine});
  EXPECT_EQ(world_.context, other);
}

TEST_F(SwappableFree, OfWhatAGreenContextMadeWaitsForThePrimaryOne) {
  use_context(0x7000);
  swap::pooled::green_context_made();
  const CUdeviceptr at = allocate(8 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(world_.waits, std::vector<CUcontext>{kPrimary});
  swap::pooled::clear_order();
  expect_nothing_left();
}

TEST_F(SwappableFree, WaitsWithNothingHeldAndTheMemoryStillThere) {
  const CUdeviceptr at = allocate(8 * kMiB);
  bool came = false;
  world_.during_wait = [&] {
    const RangesLock held;
    came = true;
    EXPECT_EQ(swap_.mapped.size(), 1u);
    EXPECT_FALSE(swap::find(at)->chunks[0].handle == 0);
  };
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_TRUE(came);
  expect_nothing_left();
}

TEST_F(SwappableFree, MayMoveWhileAFreeWaits) {
  const CUdeviceptr at = allocate(8 * kMiB);
  world_.during_wait = [&] { take_away(at); };
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableFree, OfWhatIsAwayWaitsForNothing) {
  const CUdeviceptr at = allocate(40 * kMiB);
  take_away_and_shut(at);
  lane().attention.fetch_or(abi::kGateArmed);
  page().gates[0].closed.store(abi::kClosedByTurn);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_TRUE(world_.waits.empty());
  expect_nothing_left();
}

TEST_F(SwappableFree, DuringACaptureIsKeptAside) {
  const CUdeviceptr at = allocate(8 * kMiB);
  const CUdeviceptr other = allocate(4 * kMiB);
  process().captures.store(1);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(free(other), CUDA_SUCCESS);
  EXPECT_TRUE(world_.waits.empty());
  EXPECT_EQ(swap_.mapped.size(), 2u);
  EXPECT_EQ(used(), 12 * kMiB) << "it is there";
  EXPECT_EQ(swap::context_of(at), nullptr) << "the application's it is no more";
  allocate(2 * kMiB);
  EXPECT_EQ(swap_.mapped.size(), 3u) << "still captured";
  process().captures.store(0);
  const CUdeviceptr last = allocate(2 * kMiB);
  EXPECT_EQ(swap_.mapped.size(), 4u) << "an allocation doesn't wait for the GPU";
  EXPECT_EQ(free(last), CUDA_SUCCESS);
  EXPECT_EQ(world_.waits.size(), 3u);
  EXPECT_EQ(swap_.mapped.size(), 1u);
  EXPECT_EQ(used(), 2 * kMiB);
}

TEST_F(SwappableFree, IsRefusedAsTheDriverDoesWhereACaptureForbidsIt) {
  const CUdeviceptr at = allocate(8 * kMiB);
  process().captures.store(1);
  swap_.capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  g_driver.cuMemAlloc_v2 = [](CUdeviceptr*, size_t) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  };
  EXPECT_EQ(free(at), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_NE(swap::context_of(at), nullptr) << "it lives";
  EXPECT_EQ(used(), 8 * kMiB);
  process().captures.store(0);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableFree, WhatIsKeptAsideIsEndedForAnAllocationThatFindsNoRoom) {
  const CUdeviceptr at = allocate(8 * kMiB);
  free_in_a_capture(at);
  faults().fail(1);  // the reservation goes, the memory doesn't
  const CUdeviceptr other = allocate(2 * kMiB);
  EXPECT_NE(other, 0u);
  EXPECT_EQ(world_.waits.size(), 1u);
  EXPECT_EQ(swap_.mapped.size(), 1u);
  EXPECT_EQ(free(other), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableFree, WhatIsKeptAsideIsEndedBeforeAQuotaRefuses) {
  set_quota(16 * kMiB);
  const auto never = [](CUdeviceptr, CUstream) { return CUDA_ERROR_INVALID_VALUE; };
  for (int i = 0; i < 4; ++i) {
    const CUdeviceptr at = allocate(10 * kMiB);
    ASSERT_NE(at, 0u);
    EXPECT_EQ(rules::free_async<false>(never, at, CUstream{nullptr}), CUDA_SUCCESS);
    EXPECT_EQ(used(), 10 * kMiB);
  }
  EXPECT_EQ(swap_.mapped.size(), 1u);
  EXPECT_EQ(free(0), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableFree, WhatIsKeptAsideAndCannotBeWaitedForStaysSo) {
  const CUdeviceptr at = allocate(8 * kMiB);
  free_in_a_capture(at);
  world_.wait_result = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(free(0), CUDA_SUCCESS);
  EXPECT_EQ(world_.waits.size(), 1u);
  EXPECT_EQ(swap::context_of(at), nullptr) << "the application has freed it";
  world_.wait_result = CUDA_SUCCESS;
  EXPECT_EQ(free(0), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableFree, ACaptureThatBeginsUnderAFreesWaitIsNoError) {
  const CUdeviceptr at = allocate(8 * kMiB);
  world_.wait_result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(swap_.mapped.size(), 1u);
  world_.wait_result = CUDA_SUCCESS;
  EXPECT_EQ(free(0), CUDA_SUCCESS);
  expect_nothing_left();
}

// As a program would, but for what is seen of it.
CUresult begin_a_capture(const std::function<void()>& begun) {
  const auto begin = [&](CUstream, CUstreamCaptureMode) { return begun(), CUDA_SUCCESS; };
  return rules::begin_capture(begin, CUstream{nullptr}, CU_STREAM_CAPTURE_MODE_RELAXED);
}

TEST_F(SwappableFree, NoCaptureBeginsBeforeAWaitThatHasAskedForItIsOver) {
  const CUdeviceptr at = allocate(8 * kMiB);
  std::thread other;
  std::atomic<bool> waits{false};
  world_.during_wait = [&] {
    waits = true;
    other = std::thread([&] { begin_a_capture([&] { EXPECT_FALSE(waits.load()); }); });
    while (process().captures.load() == 0) std::this_thread::yield();
    waits = false;
  };
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  other.join();
  EXPECT_EQ(process().captures.load(), 1u);
  process().captures.store(0);
  expect_nothing_left();
}

// The GPU waits for a word that the capturing thread sets once it captures. Without this library
// such a program ends, too.
TEST_F(SwappableFree, ACaptureBeginsWhileAFreeWaitsForTheCapturingThread) {
  const CUdeviceptr at = allocate(8 * kMiB);
  std::thread other;
  std::atomic<bool> word{false};
  world_.during_wait = [&] {
    other = std::thread([&] { begin_a_capture([&] { word = true; }); });
    while (!word) std::this_thread::yield();
  };
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  other.join();
  process().captures.store(0);
  expect_nothing_left();
}

// Each waits for its own GPU: the one whose work ends first sets the word that the other's waits
// for.
TEST_F(SwappableFree, TwoThreadsWaitAtTheSameTime) {
  const CUdeviceptr first = allocate(8 * kMiB);
  const CUdeviceptr second = allocate(8 * kMiB);
  std::atomic<int> waiting{0};
  world_.during_wait = [&] {
    for (++waiting; waiting < 2;) std::this_thread::yield();
  };
  std::thread other([&] {
    t_lane = 0;
    EXPECT_EQ(free(second), CUDA_SUCCESS);
  });
  EXPECT_EQ(free(first), CUDA_SUCCESS);
  other.join();
  expect_nothing_left();
}

TEST_F(SwappableFree, WhatTheDriverSaysAgainstTheWaitIsSaidAndNothingIsFreed) {
  const CUdeviceptr at = allocate(8 * kMiB);
  world_.wait_result = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(free(at), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(used(), 8 * kMiB);
  EXPECT_NE(swap::context_of(at), nullptr);
  world_.wait_result = CUDA_SUCCESS;
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableFree, OfAnAddressInsideIsInvalid) {
  const CUdeviceptr at = allocate(8 * kMiB);
  EXPECT_EQ(free(at + 2 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(swap_.freed.empty());
  EXPECT_EQ(used(), 8 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
}

TEST_F(SwappableFree, FreeingTwiceIsTheDriversToAnswer) {
  const CUdeviceptr at = allocate(8 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  const auto refuse = [](CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; };
  EXPECT_EQ(rules::free_memory(refuse, at), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SwappableFree, AFreeInStreamOrderDoesNotWait) {
  const CUdeviceptr at = allocate(8 * kMiB);
  const auto never = [](CUdeviceptr, CUstream) {
    ADD_FAILURE() << "the driver was called";
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(rules::free_async<false>(never, at, CUstream{nullptr}), CUDA_SUCCESS);
  EXPECT_TRUE(world_.waits.empty());
  EXPECT_EQ(used(), 8 * kMiB) << "until it ends";
  EXPECT_EQ(free(0), CUDA_SUCCESS);
  EXPECT_EQ(world_.waits.size(), 1u);
  expect_nothing_left();
}

TEST_F(SwappableFree, AContextsEndFreesWhatItOwned) {
  const CUdeviceptr primary = allocate(2 * kMiB);
  const CUcontext mine = make_context(0x2000);
  allocate(8 * kMiB);
  const CUdeviceptr aside = allocate(4 * kMiB);
  free_in_a_capture(aside);
  world_.refused.insert(mine);
  memory::context_gone(mine, swap::made_context(mine));
  EXPECT_EQ(swap_.total, 2 * kMiB);
  EXPECT_EQ(used(), 2 * kMiB);
  EXPECT_TRUE(world_.waits.empty()) << "its end has waited";
  EXPECT_TRUE(swap_.mapped.contains(primary));
  memory::primary_gone(0);
  expect_nothing_left();
}

TEST_F(SwappableFree, ItsContextMayEndWhileAFreeWaits) {
  const CUcontext mine = make_context(0x2000);
  const CUdeviceptr at = allocate(8 * kMiB);
  world_.wait_result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  world_.during_wait = [&] { memory::context_gone(mine, swap::made_context(mine)); };
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableFree, WhatComesToTheAddressMeanwhileIsAnothers) {
  const CUcontext mine = make_context(0x2000);
  const CUdeviceptr at = allocate(8 * kMiB);
  world_.during_wait = [&] {
    memory::context_gone(mine, swap::made_context(mine));
    use_context(0x3000);
    EXPECT_EQ(allocate(8 * kMiB), at);
  };
  EXPECT_EQ(swap::context_of(at), mine);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  world_.during_wait = nullptr;
  EXPECT_EQ(swap::context_of(at), world_.context);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableFree, ManyThreadsEndAtNothing) {
  set_quota(400 * kMiB);
  in_threads(4, [](int t) {
    t_lane = 0;
    for (int i = 0; i < 200; ++i) {
      CUdeviceptr at = 0;
      const size_t bytes = static_cast<size_t>((i * 37 + t) % 40 + 2) * kMiB;
      if (rules::allocate(never, &at, bytes) != CUDA_SUCCESS) continue;
      if (i % 7 == 0) {
        rules::free_async<false>([](CUdeviceptr, CUstream) { return CUDA_ERROR_UNKNOWN; }, at,
                                 CUstream{nullptr});
      } else {
        EXPECT_EQ(free(at), CUDA_SUCCESS);
      }
    }
  });
  EXPECT_EQ(free(0), CUDA_SUCCESS);
  expect_nothing_left();
  expect_balanced();
}

}  // namespace
}  // namespace switchyard::shim
