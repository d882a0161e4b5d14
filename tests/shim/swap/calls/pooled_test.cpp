// Stream-ordered memory that can leave: what is handed out again, when, and when it is given back.
#include "shim/swap/calls/pooled.h"

#include "shim/work_guard.h"
#include "tests/shim/swap/calls/pooled_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class SwappablePool : public PooledTest {};

// The driver's own, for what isn't ours.
CUresult driver_async(CUdeviceptr* out, size_t, CUstream) {
  *out = 0x600000000000;
  return CUDA_SUCCESS;
}

TEST_F(SwappablePool, AnAllocationIsARangeThatIsChargedOnce) {
  const CUdeviceptr at = allocate(80 * kMiB + 1);
  EXPECT_EQ(swap_.mapped.size(), 3u);
  EXPECT_EQ(swap_.resident, 82 * kMiB);
  EXPECT_EQ(used(), 82 * kMiB);
  EXPECT_EQ(swap_.started.load(), 1);
  free(at);
  EXPECT_EQ(used(), 82 * kMiB) << "the pool keeps it";
  EXPECT_TRUE(world_.waits.empty());
  empty();
  expect_balanced();
}

TEST_F(SwappablePool, SmallOnesStayTheDriversPools) {
  CUdeviceptr at = 0;
  ASSERT_EQ(rules::allocate_async<false>(driver_async, &at, size_t{2 * kMiB - 1}, stream_number(1)),
            CUDA_SUCCESS);
  EXPECT_TRUE(swap_.reserved.empty());
  int frees = 0;
  const auto original = [&](CUdeviceptr, CUstream) { return ++frees, CUDA_SUCCESS; };
  EXPECT_EQ(rules::free_async<false>(original, at, stream_number(1)), CUDA_SUCCESS);
  EXPECT_EQ(frees, 1);
}

// Memory that stood in for it would be memory of the current GPU.
TEST_F(SwappablePool, APoolOfAnotherGpuIsTakenWhereThatIsCurrent) {
  CUmemPoolProps other = plain();
  other.location.id = 1;
  const CUmemoryPool pool = create(3, other);
  EXPECT_FALSE(swap::pooled::takes(pool, 8 * kMiB));
  world_.device = 1;
  forget_lane();
  EXPECT_TRUE(swap::pooled::takes(pool, 8 * kMiB));
  EXPECT_FALSE(swap::pooled::takes(create(4, plain()), 8 * kMiB));
  swap::pooled::access_given(pool, {CU_MEM_LOCATION_TYPE_DEVICE, {1}});
  EXPECT_TRUE(swap::pooled::takes(pool, 8 * kMiB)) << "that GPU has it anyway";
  swap::pooled::access_given(pool, {CU_MEM_LOCATION_TYPE_DEVICE, {0}});
  EXPECT_FALSE(swap::pooled::takes(pool, 8 * kMiB));
  swap::pooled::access_given(pool, {CU_MEM_LOCATION_TYPE_DEVICE, {1}});
  EXPECT_FALSE(swap::pooled::takes(pool, 8 * kMiB)) << "the other GPU still has it";
  world_.device = 0;
  forget_lane();
}

TEST_F(SwappablePool, ANullListThatTheDriverTakesIsNotRead) {
  const auto takes_all = [](CUmemoryPool, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; };
  EXPECT_EQ(rules::pool_access(takes_all, pool_at(1), nullptr, 3), CUDA_SUCCESS);
}

TEST_F(SwappablePool, WithoutAnAddressTheDriverAnswersWhateverTheQuotaIs) {
  set_quota(kMiB);
  const auto refuses = [](CUdeviceptr* out, size_t, CUstream) {
    return out == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  CUdeviceptr* const nowhere = nullptr;
  EXPECT_EQ(rules::allocate_async<false>(refuses, nowhere, size_t{kMiB + 1}, stream_number(1)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(rules::allocate_async<false>(refuses, nowhere, size_t{8 * kMiB}, stream_number(1)),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SwappablePool, OtherProcessesGoTheDriversWay) {
  process().swappable.store(0);
  CUdeviceptr at = 0;
  ASSERT_EQ(rules::allocate_async<false>(driver_async, &at, size_t{8 * kMiB}, stream_number(1)),
            CUDA_SUCCESS);
  EXPECT_TRUE(swap_.reserved.empty());
}

TEST_F(SwappablePool, TheSameStreamHasItAgainAtOnce) {
  const CUdeviceptr at = allocate(8 * kMiB);
  swap::Bounds first;
  EXPECT_TRUE(swap::bounds_at(at, first));
  EXPECT_TRUE(swap::set_sync_memops(at, true));
  free(at);
  EXPECT_EQ(allocate(7 * kMiB), at) << "the same when rounded";
  EXPECT_EQ(pooled_.queries, 0);
  EXPECT_TRUE(pooled_.events.empty());
  EXPECT_EQ(used(), 8 * kMiB);
  swap::Bounds bounds;
  EXPECT_TRUE(swap::bounds_at(at, bounds));
  EXPECT_EQ(bounds.bytes, 7 * kMiB);
  EXPECT_NE(bounds.id, first.id) << "another allocation";
  EXPECT_EQ(bounds.sync, swap::SyncMemops::kUnset);
  free(at);
  empty();
}

TEST_F(SwappablePool, AnotherStreamHasItOnceTheEventHasCome) {
  const CUdeviceptr at = allocate(8 * kMiB);
  free(at);
  const CUdeviceptr other = allocate(8 * kMiB, stream_number(2));
  EXPECT_NE(other, at);
  EXPECT_EQ(used(), 16 * kMiB);
  all_have_come();
  EXPECT_EQ(allocate(8 * kMiB, stream_number(2)), at);
  EXPECT_EQ(used(), 16 * kMiB);
  free(at);
  free(other);
  empty();
}

TEST_F(SwappablePool, TheSameNumberInAnotherContextIsAnotherStream) {
  const CUdeviceptr at = allocate(8 * kMiB, nullptr);
  free(at, nullptr);
  use_context(0x2000);
  const CUdeviceptr other = allocate(8 * kMiB, nullptr);
  EXPECT_NE(other, at);
  free(other, nullptr);
  empty();
}

TEST_F(SwappablePool, AnotherSizeOrPoolMakesItsOwn) {
  const CUmemoryPool pool = create(2, plain());
  const CUdeviceptr at = allocate(8 * kMiB);
  free(at);
  all_have_come();
  EXPECT_NE(allocate(6 * kMiB), at);
  EXPECT_NE(allocate_from(pool, 8 * kMiB), at);
  EXPECT_EQ(used(), 22 * kMiB);
}

TEST_F(SwappablePool, ItsEventIsMadeInTheStreamsContext) {
  const CUdeviceptr at = allocate(8 * kMiB);
  const auto mine = reinterpret_cast<CUcontext>(0x2000);
  pooled_.contexts[stream_number(2)] = mine;
  const CUcontext before = world_.context;
  free(at, stream_number(2));
  EXPECT_EQ(pooled_.recorded, std::vector<CUcontext>{mine});
  EXPECT_EQ(world_.context, before);
  empty();
}

TEST_F(SwappablePool, ASynchronisingCallGivesBackWhatIsDone) {
  const CUdeviceptr at = allocate(8 * kMiB);
  const CUdeviceptr other = allocate(4 * kMiB);
  free(at);
  all_have_come();
  free(other);
  synchronise();
  EXPECT_EQ(used(), 4 * kMiB) << "the second is still in use";
  EXPECT_EQ(swap_.resident, 4 * kMiB);
  empty();
  expect_balanced();
}

TEST_F(SwappablePool, TheThresholdIsOfBothParts) {
  world_.pools[pool_at(1)].threshold = 24 * kMiB;
  world_.pools[pool_at(1)].reserved = 8 * kMiB;
  const CUdeviceptr first = allocate(8 * kMiB);
  const CUdeviceptr second = allocate(8 * kMiB);
  const CUdeviceptr third = allocate(8 * kMiB);
  free(first);
  free(second);
  all_have_come();
  synchronise();  // 32 MiB: 8 are too much
  EXPECT_EQ(swap_.total, 16 * kMiB);
  free(third);
  all_have_come();
  world_.pools[pool_at(1)].threshold = 0;
  world_.pools[pool_at(1)].reserved = 0;
  empty();
}

TEST_F(SwappablePool, BelowTheThresholdNothingIsAsked) {
  world_.pools[pool_at(1)].threshold = UINT64_MAX;
  free(allocate(8 * kMiB));
  all_have_come();
  synchronise();
  EXPECT_EQ(pooled_.queries, 0);
  EXPECT_EQ(swap_.total, 8 * kMiB);
}

TEST_F(SwappablePool, ATrimLeavesWhatMayStayToBothParts) {
  world_.pools[pool_at(1)].threshold = UINT64_MAX;
  world_.pools[pool_at(1)].reserved = 8 * kMiB;
  free(allocate(8 * kMiB));
  const CUdeviceptr at = allocate(4 * kMiB);
  all_have_come();
  size_t kept = 0;
  const auto original = [&](CUmemoryPool, size_t keep) { return kept = keep, CUDA_SUCCESS; };
  EXPECT_EQ(rules::pool_trim(original, pool_at(1), size_t{20 * kMiB}), CUDA_SUCCESS);
  EXPECT_EQ(kept, 8 * kMiB);
  EXPECT_EQ(swap_.total, 12 * kMiB);
  EXPECT_EQ(rules::pool_trim(original, pool_at(1), size_t{5 * kMiB}), CUDA_SUCCESS);
  EXPECT_EQ(kept, 1 * kMiB);
  EXPECT_EQ(swap_.total, 4 * kMiB);
  free(at);
}

TEST_F(SwappablePool, AttributesAreSumsAndHighMarksAreReset) {
  world_.pools[pool_at(1)] = {.used = kMiB, .reserved = 32 * kMiB};
  const CUdeviceptr at = allocate(8 * kMiB);
  const CUdeviceptr other = allocate(3 * kMiB);
  free(other);
  EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 9 * kMiB);
  EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 44 * kMiB);
  EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_USED_MEM_HIGH) - 32 * kMiB, 11 * kMiB);
  EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) - 32 * kMiB, 12 * kMiB);
  EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0u);
  cuuint64_t zero = 0;
  const auto original = [](CUmemoryPool, CUmemPool_attribute, void*) { return CUDA_SUCCESS; };
  rules::pool_set_attribute(original, pool_at(1), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero);
  EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_USED_MEM_HIGH) - 32 * kMiB, 8 * kMiB);
  EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) - 32 * kMiB, 12 * kMiB);
  free(at);
}

TEST_F(SwappablePool, PastTheQuotaItWaitsForWhatIsCached) {
  set_quota(20 * kMiB);
  const CUdeviceptr at = allocate(12 * kMiB);
  free(at);
  CUdeviceptr other = 0;
  pooled_.comes_after = 3;
  EXPECT_EQ(try_allocate(16 * kMiB, other), CUDA_SUCCESS);
  EXPECT_EQ(pooled_.queries, 4);
  EXPECT_EQ(used(), 16 * kMiB);
  EXPECT_EQ(try_allocate(6 * kMiB, other), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(lane().refusals.load(), 1u);
  expect_balanced();
}

TEST_F(SwappablePool, WhereTheDeviceHasNoRoomItWaitsForWhatIsCached) {
  free(allocate(12 * kMiB));
  faults().fail(1);  // the reservation goes, the memory doesn't
  pooled_.comes_after = 3;
  const CUdeviceptr at = allocate(16 * kMiB);
  EXPECT_EQ(pooled_.queries, 4);
  EXPECT_EQ(swap_.total, 16 * kMiB);
  faults().fail(1);
  CUdeviceptr other = 0;
  EXPECT_EQ(try_allocate(4 * kMiB, other), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used(), 16 * kMiB);
  free(at);
  empty();
}

TEST_F(SwappablePool, ASmallOneWaitsForWhatIsCachedToo) {
  free(allocate(12 * kMiB));
  pooled_.comes_after = 3;
  int calls = 0;
  const auto second = [&](CUdeviceptr*, size_t, CUstream) {
    return ++calls == 1 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  };
  CUdeviceptr at = 0;
  EXPECT_EQ(rules::allocate_async<false>(second, &at, size_t{kMiB}, stream_number(1)),
            CUDA_SUCCESS);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(swap_.total, 0u);
}

// The context has failed: what is cached never comes.
TEST_F(SwappablePool, WhatTheDriverDoesNotSayOfAnEventIsNotWaitedFor) {
  set_quota(20 * kMiB);
  free(allocate(12 * kMiB));
  pooled_.query_result = CUDA_ERROR_ILLEGAL_ADDRESS;
  CUdeviceptr at = 0;
  EXPECT_EQ(try_allocate(16 * kMiB, at), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(swap_.total, 12 * kMiB);
  empty();
}

TEST_F(SwappablePool, EachCallFailingInTurnLeavesNothing) {
  // The reservation; create and map of two chunks; access.
  for (int call = 0; call < 1 + 2 * 2 + 1; ++call) {
    faults().fail(call);
    CUdeviceptr at = 0;
    EXPECT_EQ(try_allocate(64 * kMiB, at), CUDA_ERROR_OUT_OF_MEMORY) << "call " << call;
    expect_nothing_left();
  }
}

TEST_F(SwappablePool, AFreeOfWhatIsAwayEndsItAtOnce) {
  const CUdeviceptr at = allocate(40 * kMiB);
  take_away_and_shut(at);
  free(at);
  EXPECT_TRUE(pooled_.recorded.empty());
  expect_nothing_left();
}

TEST_F(SwappablePool, AMoveGivesBackWhatIsCached) {
  free(allocate(8 * kMiB));
  const CUdeviceptr at = allocate(4 * kMiB);
  {
    const swap::RangesLock held;
    swap::cache::drop_all(1);
    EXPECT_EQ(swap_.total, 12 * kMiB) << "another GPU has none of it";
    swap::cache::drop_all(0);
  }
  EXPECT_EQ(swap_.total, 4 * kMiB);
  EXPECT_EQ(used(), 4 * kMiB);
  free(at);
  empty();
}

}  // namespace
}  // namespace switchyard::shim
