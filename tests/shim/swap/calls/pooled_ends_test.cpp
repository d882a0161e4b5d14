// Stream-ordered memory that can leave: captures, other ways to free it, and the ends of pools and
// contexts.
#include <atomic>
#include <thread>

#include "shim/memory/owner.h"
#include "shim/rules/launch.h"
#include "shim/rules/questions.h"
#include "shim/swap/calls/pooled.h"
#include "tests/shim/swap/calls/pooled_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class SwappablePoolsEnd : public PooledTest {};

TEST_F(SwappablePoolsEnd, InACaptureOnlyTheSameStreamHasItAgain) {
  free(allocate(8 * kMiB));
  process().captures.store(1);
  synchronise();
  EXPECT_EQ(swap_.total, 8 * kMiB);
  const CUdeviceptr other = allocate(8 * kMiB, stream_number(2));
  EXPECT_EQ(swap_.total, 16 * kMiB);
  const CUdeviceptr at = allocate(8 * kMiB);
  EXPECT_EQ(swap_.total, 16 * kMiB);
  free(at);
  free(other);
  EXPECT_EQ(pooled_.queries, 0);
  process().captures.store(0);
  empty();
}

TEST_F(SwappablePoolsEnd, WhatIsCapturedIsTheGraphs) {
  process().captures.store(1);
  world_.all_captured = true;
  const auto captured = [](CUdeviceptr* out, size_t, CUstream) {
    *out = 0x600000000000;
    return CUDA_SUCCESS;
  };
  CUdeviceptr at = 0;
  ASSERT_EQ(rules::allocate_async<false>(captured, &at, size_t{8 * kMiB}, stream_number(1)),
            CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
  EXPECT_TRUE(swap_.reserved.empty());
}

TEST_F(SwappablePoolsEnd, WhereNoEventCanBePutItIsKeptAside) {
  const CUdeviceptr at = allocate(8 * kMiB);
  pooled_.record_result = CUDA_ERROR_UNKNOWN;
  free(at);
  EXPECT_TRUE(pooled_.events.empty());
  EXPECT_EQ(used(), 8 * kMiB);
  EXPECT_EQ(SwapTest::free(0), CUDA_SUCCESS);
  EXPECT_EQ(world_.waits.size(), 1u);
  expect_nothing_left();
}

TEST_F(SwappablePoolsEnd, AFreeThatWaitsEndsIt) {
  const CUdeviceptr at = allocate(8 * kMiB);
  EXPECT_EQ(SwapTest::free(at), CUDA_SUCCESS);
  EXPECT_EQ(world_.waits.size(), 1u);
  expect_nothing_left();
  expect_balanced();
}

TEST_F(SwappablePoolsEnd, AnAddressInsideIsInvalid) {
  const CUdeviceptr at = allocate(8 * kMiB);
  const auto never = [](CUdeviceptr, CUstream) { return CUDA_SUCCESS; };
  EXPECT_EQ(rules::free_async<false>(never, at + 512, stream_number(1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(used(), 8 * kMiB);
  free(at);
  const auto refuse = [](CUdeviceptr, CUstream) { return CUDA_ERROR_INVALID_VALUE; };
  EXPECT_EQ(rules::free_async<false>(refuse, at, stream_number(1)), CUDA_ERROR_INVALID_VALUE)
      << "twice";
}

TEST_F(SwappablePoolsEnd, PoolsThatOthersMayKnowStayTheDrivers) {
  CUmemPoolProps exportable = plain();
  exportable.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemPoolProps limited = plain();
  reinterpret_cast<unsigned char*>(
      &limited)[offsetof(CUmemPoolProps, win32SecurityAttributes) + sizeof(void*) + 4] = 1;
  for (const CUmemoryPool pool : {create(2, exportable), create(3, limited), pool_at(9)}) {
    EXPECT_FALSE(swap::pooled::takes(pool, 8 * kMiB));
  }
  EXPECT_TRUE(swap::pooled::takes(create(4, plain()), 8 * kMiB));
}

TEST_F(SwappablePoolsEnd, APoolThatAnotherDeviceHasAccessToStaysFromThenOn) {
  const CUdeviceptr at = allocate(8 * kMiB);
  const auto original = [](CUmemoryPool, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; };
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  rules::pool_access(original, pool_at(1), &access, size_t{1});
  EXPECT_TRUE(swap::pooled::takes(pool_at(1), 8 * kMiB)) << "its own has it anyway";
  access.location.id = 1;
  rules::pool_access(original, pool_at(1), &access, size_t{1});
  EXPECT_FALSE(swap::pooled::takes(pool_at(1), 8 * kMiB));
  free(at);
  empty();
}

TEST_F(SwappablePoolsEnd, ADestroyedPoolsMemoryLivesUntilItIsFreed) {
  const CUmemoryPool pool = create(2, plain());
  world_.pools[pool].threshold = UINT64_MAX;
  const CUdeviceptr at = allocate_from(pool, 8 * kMiB);
  free(allocate_from(pool, 4 * kMiB));
  all_have_come();
  EXPECT_EQ(rules::pool_destroy([](CUmemoryPool) { return CUDA_SUCCESS; }, pool), CUDA_SUCCESS);
  EXPECT_EQ(swap_.total, 8 * kMiB);
  EXPECT_EQ(used(), 8 * kMiB);
  create(2, plain());  // the driver may give the same number to the next
  EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, pool), 0u);
  free(at);
  const CUdeviceptr other = allocate_from(pool, 8 * kMiB);
  EXPECT_NE(other, at);
  free(other);
  world_.pools[pool].threshold = 0;
  empty();
}

TEST_F(SwappablePoolsEnd, WhatTheDriverDoesNotDestroyGoesOn) {
  const CUdeviceptr at = allocate(8 * kMiB);
  free(at);
  EXPECT_EQ(rules::pool_destroy([](CUmemoryPool) { return CUDA_ERROR_INVALID_VALUE; }, pool_at(1)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocate(8 * kMiB), at);
}

TEST_F(SwappablePoolsEnd, NoEventOutlivesItsContext) {
  const CUcontext mine = make_context(0x2000);
  const CUdeviceptr live = allocate(8 * kMiB);
  const CUdeviceptr done = allocate(6 * kMiB);
  free(done);
  all_have_come();
  free(allocate(4 * kMiB));
  swap::pooled::context_ends(memory::owner_of(mine));
  EXPECT_TRUE(pooled_.events.empty());
  memory::context_gone(mine, swap::made_context(mine));
  EXPECT_EQ(swap_.total, 14 * kMiB)
      << "what had come is cached, and what lives belongs to the pool";
  use_context(0x1000);
  EXPECT_EQ(allocate(6 * kMiB), done);
  free(done);
  free(live);
  empty();
}

TEST_F(SwappablePoolsEnd, AfterAGreenContextTheDriverAllocates) {
  const CUdeviceptr at = allocate(8 * kMiB);
  swap::pooled::green_context_made();
  EXPECT_FALSE(swap::pooled::takes(pool_at(1), 8 * kMiB));
  free(at);
  EXPECT_TRUE(pooled_.events.empty());
  EXPECT_EQ(SwapTest::free(0), CUDA_SUCCESS);
  EXPECT_EQ(world_.waits, std::vector<CUcontext>{kPrimary}) << "a green one ends unseen";
  empty();
}

TEST_F(SwappablePoolsEnd, AFreeWaitsForTheCallersContextForItsOwnMayHaveEnded) {
  const CUcontext mine = make_context(0x2000);
  const CUdeviceptr at = allocate(8 * kMiB);
  memory::context_gone(mine, swap::made_context(mine));
  world_.refused.insert(mine);
  const CUcontext other = use_context(0x1000);
  EXPECT_EQ(SwapTest::free(at), CUDA_SUCCESS);
  EXPECT_EQ(world_.waits, std::vector<CUcontext>{other});
  empty();
}

TEST_F(SwappablePoolsEnd, WhatTheDriverSaysAgainstAWaitLeavesItToThePool) {
  const CUcontext mine = make_context(0x2000);
  const CUdeviceptr at = allocate(8 * kMiB);
  world_.wait_result = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(SwapTest::free(at), CUDA_ERROR_ILLEGAL_ADDRESS);
  memory::context_gone(mine, swap::made_context(mine));
  EXPECT_EQ(swap_.total, 8 * kMiB);
  use_context(0x1000);
  free(at);
  empty();
}

TEST_F(SwappablePoolsEnd, ItsPoolIsAnAttributeAndItsContextIsNone) {
  const CUdeviceptr at = allocate(8 * kMiB);
  const auto driver = [](void* out, CUpointer_attribute, CUdeviceptr) {
    *static_cast<std::uint64_t*>(out) = 0;
    return CUDA_SUCCESS;
  };
  std::uint64_t value = 0;
  rules::pointer_attribute(driver, &value, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at + kMiB);
  EXPECT_EQ(value, reinterpret_cast<std::uintptr_t>(pool_at(1)));
  rules::pointer_attribute(driver, &value, CU_POINTER_ATTRIBUTE_CONTEXT, at);
  EXPECT_EQ(value, 0u);
  const CUdeviceptr plain = SwapTest::allocate(8 * kMiB);
  rules::pointer_attribute(driver, &value, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, plain);
  EXPECT_EQ(value, 0u);
  free(at);
}

// The GPU may wait for the thread that ends the context.
TEST_F(SwappablePoolsEnd, AContextMayEndWhileItsEventIsWaitedForAndItsEventIsGone) {
  set_quota(12 * kMiB);
  const CUcontext mine = make_context(0x2000);
  free(allocate(12 * kMiB));
  std::thread other;
  pooled_.during_query = [&] {
    if (pooled_.queries == 3) {
      other = std::thread([&] {
        t_lane = 0;
        swap::pooled::context_ends(memory::owner_of(mine));
      });
    }
  };
  // The end of the context asks for the last time. Then the range waits for the context's work.
  const CUdeviceptr at = allocate(10 * kMiB);
  ASSERT_TRUE(other.joinable());
  other.join();
  EXPECT_TRUE(pooled_.events.empty());
  EXPECT_EQ(world_.waits.size(), 1u);
  free(at);
  empty();
}

TEST_F(SwappablePoolsEnd, NothingIsHeldWhileAnEventIsWaitedFor) {
  set_quota(12 * kMiB);
  free(allocate(12 * kMiB));
  std::atomic<bool> begun{false};
  std::thread other([&] {
    t_lane = 0;
    while (pooled_.queries < 3) std::this_thread::yield();
    // The work before the event waits for this thread.
    const auto begin = [](CUstream, CUstreamCaptureMode) { return CUDA_SUCCESS; };
    rules::begin_capture(begin, stream_number(2), CU_STREAM_CAPTURE_MODE_RELAXED);
    capture::ended(stream_number(2));
    begun = true;
    all_have_come();
  });
  CUdeviceptr at = 0;
  while (try_allocate(10 * kMiB, at) != CUDA_SUCCESS) {
    // It doesn't wait while the other thread captures.
    ASSERT_EQ(swap_.total, 12 * kMiB);
  }
  other.join();
  EXPECT_TRUE(begun.load());
  free(at);
  empty();
}

TEST_F(SwappablePoolsEnd, ManyThreadsEndAtNothing) {
  set_quota(300 * kMiB);
  pooled_.comes_after = 5;
  in_threads(4, [this](int t) {
    t_lane = 0;
    for (int i = 0; i < 200; ++i) {
      CUdeviceptr at = 0;
      if (try_allocate(static_cast<std::uint64_t>((i * 7 + t) % 9 + 2) * kMiB, at) !=
          CUDA_SUCCESS) {
        continue;
      }
      if (i % 11 == 0) {
        EXPECT_EQ(SwapTest::free(at), CUDA_SUCCESS);
      } else {
        free(at);
      }
      if (i % 13 == 0) synchronise();
    }
  });
  empty();
  expect_balanced();
}

}  // namespace
}  // namespace switchyard::shim
