#include "shim/memory/pools.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "shim/rules/stream_ordered.h"
#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

constexpr std::uint64_t kChunk = 32 * kMiB;  // what the made-up driver grows a pool by

class Pools : public EngineTest {
 protected:
  // A driver whose pools grow by chunks, and never shrink by themselves.
  static CUresult from_pool(CUdeviceptr* out, size_t size, CUmemoryPool handle, CUstream) {
    static CUdeviceptr next = 0x600000000000;
    const std::lock_guard hold(g_world->lock);
    FakePool& pool = g_world->pools[handle];
    pool.used += size;
    pool.reserved = std::max(pool.reserved, (pool.used + kChunk - 1) / kChunk * kChunk);
    *out = next += 2 * kMiB;
    return CUDA_SUCCESS;
  }
  static CUresult async(CUdeviceptr* out, size_t size, CUstream stream) {
    return from_pool(out, size, pool_number(1), stream);
  }
  CUresult free(CUdeviceptr at, size_t size, CUmemoryPool handle = pool_number(1)) {
    return rules::free_async<false>(
        [=](CUdeviceptr, CUstream) {
          const std::lock_guard hold(g_world->lock);
          g_world->pools[handle].used -= size;
          return CUDA_SUCCESS;
        },
        at, nullptr);
  }
  static CUmemoryPool create(std::uintptr_t number, CUmemLocationType type,
                             unsigned kind = CU_MEM_ALLOCATION_TYPE_PINNED,
                             CUresult expected = CUDA_SUCCESS) {
    CUmemPoolProps properties{};
    properties.allocType = static_cast<CUmemAllocationType>(kind);
    properties.location = {type, 0};
    const auto made = [=](CUmemoryPool* out, const CUmemPoolProps*) {
      *out = pool_number(number);
      return CUDA_SUCCESS;
    };
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(rules::pool_create(made, &pool, &properties), expected);
    return pool;
  }
  static void synchronise(CUmemoryPool handle = pool_number(1)) {
    rules::synchronise<gate::Waiting::kContext>([=] {
      const std::lock_guard hold(g_world->lock);
      g_world->pools[handle].reserved = g_world->pools[handle].used;
      return CUDA_SUCCESS;
    });
  }
};

TEST_F(Pools, APoolIsChargedWhatItReserves) {
  CUdeviceptr at = 0;
  ASSERT_EQ(rules::allocate_async<false>(async, &at, kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(used(), kChunk);
  EXPECT_EQ(stays(Stays::kPools), kChunk);
  expect_balanced();
  ASSERT_EQ(free(at, kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(), kChunk);  // the driver keeps it for the next one
  synchronise();
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(stays(Stays::kPools), 0u);
  expect_balanced();
}

// As CUDA 13 has them. Older headers lack the names.
constexpr unsigned kManaged = 2;
constexpr auto kNowhere = static_cast<CUmemLocationType>(0);
constexpr auto kHost = static_cast<CUmemLocationType>(2);

// The driver's answer about what a managed pool reserves says nothing of the GPU.
TEST_F(Pools, AManagedOneIsChargedWhatLivesInItWhereverItsPlaceIs) {
  set_quota(40 * kMiB);
  std::uintptr_t number = 40;
  for (const auto place : {CU_MEM_LOCATION_TYPE_DEVICE, kNowhere, kHost, kHostNuma}) {
    const CUmemoryPool pool = create(++number, place, kManaged);
    g_driver.cuMemPoolGetAttribute = [](CUmemoryPool, CUmemPool_attribute, void* value) {
      *static_cast<cuuint64_t*>(value) = 0;
      return CUDA_SUCCESS;
    };
    CUdeviceptr at[2] = {};
    const auto take = [&](CUdeviceptr& out, std::uint64_t bytes) {
      return rules::allocate_from_pool<false>(from_pool, &out, size_t{bytes}, pool, nullptr);
    };
    EXPECT_EQ(take(at[0], 32 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(used(), 32 * kMiB) << place;
    EXPECT_EQ(take(at[1], 16 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
    synchronise(pool);
    EXPECT_EQ(used(), 32 * kMiB) << place;
    EXPECT_EQ(free(at[0], 32 * kMiB, pool), CUDA_SUCCESS);
    EXPECT_EQ(used(), 0u) << place;
    expect_balanced();
  }
}

TEST_F(Pools, AManagedOneWithoutAPlaceIsChargedToTheGpuThatUsesItFirst) {
  world_.device = -1;  // no context is current when it is made
  const CUmemoryPool pool = create(50, kNowhere, kManaged);
  world_.device = 0;
  CUdeviceptr at = 0;
  EXPECT_EQ(rules::allocate_from_pool<false>(from_pool, &at, size_t{4 * kMiB}, pool, nullptr),
            CUDA_SUCCESS);
  EXPECT_GE(used(), 4 * kMiB);
}

TEST_F(Pools, PinnedOnesOfTheHostAreNotChargedWhateverTheirPlaceIsCalled) {
  set_quota(4 * kMiB);
  std::uintptr_t number = 60;
  for (unsigned place = 2; place <= 4; ++place) {
    const CUmemoryPool pool = create(++number, static_cast<CUmemLocationType>(place));
    CUdeviceptr at = 0;
    EXPECT_EQ(rules::allocate_from_pool<false>(from_pool, &at, size_t{32 * kMiB}, pool, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(used(), 0u);
  }
}

// The one exception to passing on what isn't known.
TEST_F(Pools, OneOfAnUnknownKindIsRefusedUnderAQuotaAlone) {
  static int destroyed = 0;
  destroyed = 0;
  g_driver.cuMemPoolDestroy = [](CUmemoryPool) {
    ++destroyed;
    return CUDA_SUCCESS;
  };
  constexpr unsigned kNew = 7;
  create(70, CU_MEM_LOCATION_TYPE_DEVICE, kNew);
  create(71, static_cast<CUmemLocationType>(kNew));
  EXPECT_EQ(destroyed, 0);
  set_quota(40 * kMiB);
  create(72, CU_MEM_LOCATION_TYPE_DEVICE, kNew, CUDA_ERROR_OUT_OF_MEMORY);
  create(73, static_cast<CUmemLocationType>(kNew), CU_MEM_ALLOCATION_TYPE_PINNED,
         CUDA_ERROR_OUT_OF_MEMORY);
  create(74, static_cast<CUmemLocationType>(kNew), kManaged, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(destroyed, 3);
  EXPECT_EQ(lane().refusals.load(), 3u);
}

// Beyond the table nothing is known of a pool.
TEST_F(Pools, UnderAQuotaNothingIsTakenFromOnesThatAreNotCounted) {
  for (std::uintptr_t i = 0; i < 600; ++i) pools::learn(pool_number(1000 + i), 0);
  CUdeviceptr at = 0;
  const auto take = [&] {
    return rules::allocate_from_pool<false>(from_pool, &at, size_t{kMiB}, pool_number(1599),
                                            nullptr);
  };
  EXPECT_EQ(take(), CUDA_SUCCESS);
  set_quota(40 * kMiB);
  EXPECT_EQ(take(), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Pools, WhatThePoolHasAlreadyIsNotChargedAgain) {
  CUdeviceptr at = 0;
  rules::allocate_async<false>(async, &at, kMiB, nullptr);
  const int asked = world_.charges;
  for (int i = 0; i < 20; ++i) rules::allocate_async<false>(async, &at, kMiB, nullptr);
  EXPECT_EQ(used(), kChunk);
  EXPECT_EQ(world_.charges, asked);
}

TEST_F(Pools, TwoAllocationsUnderWayEachReserveWhatTheyNeed) {
  pools::learn(pool_number(1), 0);
  pools::Growth first;
  pools::Growth second;
  ASSERT_EQ(pools::begin(pool_number(1), 8 * kMiB, first), CUDA_SUCCESS);
  ASSERT_EQ(pools::begin(pool_number(1), 8 * kMiB, second), CUDA_SUCCESS);
  EXPECT_EQ(second.need, 8 * kMiB) << "what the first will take isn't there for the second";
  EXPECT_EQ(used(), 16 * kMiB);
  EXPECT_TRUE(pools::end(first));
  EXPECT_TRUE(pools::end(second));
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Pools, PastTheQuotaAnAllocationIsRefusedAndNothingStays) {
  set_quota(40 * kMiB);
  CUdeviceptr at = 0;
  EXPECT_EQ(rules::allocate_async<false>(async, &at, 50 * kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(lane().refusals.load(), 1u);
  expect_balanced();
  ASSERT_EQ(rules::allocate_async<false>(async, &at, kMiB, nullptr), CUDA_SUCCESS);
  pools::Growth next;
  ASSERT_EQ(pools::begin(pool_number(1), kMiB, next), CUDA_SUCCESS);
  EXPECT_EQ(next.need, 0u) << "what was refused takes none of what the pool has";
  pools::end(next);
}

TEST_F(Pools, GrowthBeyondTheQuotaIsTakenBackAndRefused) {
  set_quota(40 * kMiB);
  CUdeviceptr at = 0;
  ASSERT_EQ(rules::allocate_async<false>(async, &at, 30 * kMiB, nullptr), CUDA_SUCCESS);
  CUdeviceptr second = 0;
  // 4 MiB would fit, but the driver takes a chunk for it.
  EXPECT_EQ(rules::allocate_async<false>(async, &second, 4 * kMiB, nullptr),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(second, 0u);
  ASSERT_EQ(world_.freed_async.size(), 1u);
  EXPECT_EQ(lane().refusals.load(), 1u);
}

TEST_F(Pools, IdlePoolsAreTrimmedBeforeAnybodyIsRefused) {
  set_quota(40 * kMiB);
  CUdeviceptr at = 0;
  rules::allocate_async<false>(async, &at, kMiB, nullptr);
  free(at, kMiB);
  EXPECT_EQ(used(), kChunk);
  const auto linear = [](CUdeviceptr* out, size_t) {
    *out = 0x5000;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::allocate(linear, &at, size_t{40} * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(world_.trims, 1);
  EXPECT_EQ(used(), 40 * kMiB);
  expect_balanced();
}

TEST_F(Pools, ACaptureThatBeginsWhileTheyAreTrimmedGoesOn) {
  static CUstreamCaptureMode mode;
  mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  g_driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* other) {
    std::swap(*other, mode);
    return CUDA_SUCCESS;
  };
  static CUstreamCaptureMode seen;
  static auto* trim = g_driver.cuMemPoolTrimTo;
  g_driver.cuMemPoolTrimTo = [](CUmemoryPool pool, size_t keep) {
    seen = mode;
    return trim(pool, keep);
  };
  CUdeviceptr at = 0;
  rules::allocate_async<false>(async, &at, kMiB, nullptr);
  free(at, kMiB);
  pools::reclaim();
  EXPECT_EQ(world_.trims, 1);
  EXPECT_EQ(seen, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_F(Pools, CreatedPoolsAreChargedByTheirDevice) {
  const CUmemoryPool pool = create(2, CU_MEM_LOCATION_TYPE_DEVICE);
  CUdeviceptr at = 0;
  rules::allocate_from_pool<false>(from_pool, &at, kMiB, pool, nullptr);
  EXPECT_EQ(used(), kChunk);
  const auto trim = [](CUmemoryPool handle, size_t) {
    g_world->pools[handle].reserved = kMiB;
    return CUDA_SUCCESS;
  };
  rules::pool_trim(trim, pool, size_t{0});
  EXPECT_EQ(used(), kMiB);
}

TEST_F(Pools, PoolsOfTheHostAndImportedOnesAreNotCharged) {
  const CUmemoryPool pool = create(3, kHostNuma);
  CUdeviceptr at = 0;
  ASSERT_EQ(rules::allocate_from_pool<false>(from_pool, &at, kMiB, pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Pools, ADestroyedPoolsAllocationsStayChargedUntilTheyAreFreed) {
  pools::learn(pool_number(2), 0);
  CUdeviceptr a = 0;
  CUdeviceptr b = 0;
  rules::allocate_from_pool<false>(from_pool, &a, kMiB, pool_number(2), nullptr);
  rules::allocate_from_pool<false>(from_pool, &b, kMiB, pool_number(2), nullptr);
  free(b, kMiB, pool_number(2));
  const auto refuse = [](CUmemoryPool) { return CUDA_ERROR_INVALID_VALUE; };
  rules::pool_destroy(refuse, pool_number(2));
  EXPECT_EQ(used(), kChunk);
  const auto destroy = [](CUmemoryPool handle) {
    g_world->pools.erase(handle);
    return CUDA_SUCCESS;
  };
  ASSERT_EQ(rules::pool_destroy(destroy, pool_number(2)), CUDA_SUCCESS);
  EXPECT_EQ(used(), kMiB);
  rules::release_memory([](CUdeviceptr) { return CUDA_SUCCESS; }, a);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

// As the driver does with the default one.
TEST_F(Pools, APoolThatIsNotDestroyedGoesOnAsItWas) {
  set_quota(64 * kMiB);
  const CUmemoryPool pool = pool_number(2);
  pools::learn(pool, 0);
  pools::exported(pool);
  CUdeviceptr at = 0;
  const auto meanwhile = [](CUdeviceptr* out, size_t size, CUmemoryPool handle, CUstream stream) {
    const auto refuse = [](CUmemoryPool asked) {
      pools::settle(asked);
      pools::learn(asked, 0);  // as another thread does that uses it
      return CUDA_ERROR_INVALID_VALUE;
    };
    EXPECT_EQ(rules::pool_destroy(refuse, handle), CUDA_ERROR_INVALID_VALUE);
    return from_pool(out, size, handle, stream);
  };
  ASSERT_EQ(rules::allocate_from_pool<false>(meanwhile, &at, size_t{kMiB}, pool, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(used(), kChunk);
  EXPECT_EQ(stays(Stays::kIpcExported), kChunk);
  ASSERT_EQ(rules::allocate_from_pool<false>(from_pool, &at, size_t{kChunk}, pool, nullptr),
            CUDA_SUCCESS);
  synchronise(pool);
  EXPECT_EQ(used(), kMiB + kChunk);
  EXPECT_EQ(stays(Stays::kIpcExported), kMiB + kChunk);
  EXPECT_EQ(lane().refusals.load(), 0u);
  expect_balanced();
}

TEST_F(Pools, CapturedAllocationsAreNodesAndChargedNothing) {
  process().captures.store(1);
  use_streams();
  world_.all_captured = true;
  CUdeviceptr at = 0;
  ASSERT_EQ(rules::allocate_async<false>(async, &at, kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
  EXPECT_TRUE(graph_memory::g_nodes.load());
}

TEST_F(Pools, ADriversRefusalRollsBack) {
  set_quota(100 * kMiB);
  CUdeviceptr at = 0;
  const auto refuse = [](CUdeviceptr*, size_t, CUstream) { return CUDA_ERROR_OUT_OF_MEMORY; };
  EXPECT_EQ(rules::allocate_async<false>(refuse, &at, kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Pools, ManyThreadsEndAtZero) {
  set_quota(512 * kMiB);
  in_threads(8, [this](int) {
    for (int i = 0; i < 300; ++i) {
      CUdeviceptr at = 0;
      const size_t bytes = static_cast<size_t>(i % 7 + 1) * kMiB;
      if (rules::allocate_async<false>(async, &at, bytes, nullptr) != CUDA_SUCCESS) {
        ADD_FAILURE() << "refused far below the quota";
        return;
      }
      free(at, bytes);
    }
  });
  synchronise();
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(debt(), 0u);
  expect_balanced();
}

class GraphMemory : public EngineTest {
 protected:
  // In the order in which they were added.
  struct Node {
    CUgraphNodeType type;
    CUdeviceptr address;
  };
  static Node allocates(CUdeviceptr address) { return {CU_GRAPH_NODE_TYPE_MEM_ALLOC, address}; }
  static Node frees(CUdeviceptr address) { return {CU_GRAPH_NODE_TYPE_MEM_FREE, address}; }
  static inline std::vector<Node> nodes_;

  static const Node& at(CUgraphNode node) {
    return nodes_[reinterpret_cast<std::uintptr_t>(node) - 1];
  }

  GraphMemory() {
    nodes_ = {allocates(1)};
    g_driver.cuGraphGetNodes = [](CUgraph, CUgraphNode* nodes, size_t* count) {
      *count = nodes_.size();
      for (size_t i = 0; nodes != nullptr && i < *count; ++i) {
        nodes[i] = reinterpret_cast<CUgraphNode>(i + 1);
      }
      return CUDA_SUCCESS;
    };
    g_driver.cuGraphNodeGetType = [](CUgraphNode node, CUgraphNodeType* type) {
      *type = at(node).type;
      return CUDA_SUCCESS;
    };
    g_driver.cuGraphMemAllocNodeGetParams = [](CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
      out->poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
      out->bytesize = 64 * kMiB;
      out->dptr = at(node).address;
      return CUDA_SUCCESS;
    };
    g_driver.cuGraphMemFreeNodeGetParams = [](CUgraphNode node, CUdeviceptr* out) {
      *out = at(node).address;
      return CUDA_SUCCESS;
    };
    g_driver.cuGraphChildGraphNodeGetGraph = [](CUgraphNode, CUgraph*) {
      return CUDA_ERROR_INVALID_VALUE;
    };
    rules::add_allocating_node([] { return CUDA_SUCCESS; });
  }
  static CUresult instantiate(CUgraphExec* out, CUgraph, unsigned long long) {
    *out = reinterpret_cast<CUgraphExec>(0x9);
    return CUDA_SUCCESS;
  }
  CUresult launch() {
    return rules::graph_upload(
        [](CUgraphExec, CUstream) {
          g_world->graphs = {64 * kMiB, 64 * kMiB};
          return CUDA_SUCCESS;
        },
        reinterpret_cast<CUgraphExec>(0x9), nullptr);
  }
};

TEST_F(GraphMemory, IsChargedWhenItsGraphRuns) {
  CUgraphExec executable = nullptr;
  ASSERT_EQ(rules::graph_instantiate(instantiate, &executable, CUgraph{}, 0ull), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
  ASSERT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(used(), 64 * kMiB);
  EXPECT_EQ(stays(Stays::kGraphs), 64 * kMiB);
  ASSERT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(used(), 64 * kMiB);
  rules::graph_destroy(
      [](CUgraphExec) {
        g_world->graphs.used = 0;
        return CUDA_SUCCESS;
      },
      executable);
  EXPECT_EQ(used(), 64 * kMiB);  // kept by the driver until it is trimmed
  rules::graphs_change(
      [](CUdevice) {
        g_world->graphs.reserved = 0;
        return CUDA_SUCCESS;
      },
      0);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(stays(Stays::kGraphs), 0u);
  expect_balanced();
}

TEST_F(GraphMemory, IsRefusedAtInstantiationPastTheQuota) {
  set_quota(60 * kMiB);
  CUgraphExec executable = nullptr;
  EXPECT_EQ(rules::graph_instantiate(instantiate, &executable, CUgraph{}, 0ull),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(executable, nullptr);
  expect_balanced();
}

TEST_F(GraphMemory, WhatIsFreedBeforeTheNextIsReservedOnce) {
  set_quota(100 * kMiB);
  nodes_ = {allocates(1), frees(1), allocates(2), frees(2), allocates(3)};
  CUgraphExec executable = nullptr;
  EXPECT_EQ(rules::graph_instantiate(instantiate, &executable, CUgraph{}, 0ull), CUDA_SUCCESS);
}

TEST_F(GraphMemory, WhatLivesAtOnceIsReservedTogether) {
  set_quota(100 * kMiB);
  // Added in no order, a free says nothing of what lives before it.
  for (const auto& nodes : {std::vector{allocates(1), allocates(2), frees(1)},
                            std::vector{frees(1), allocates(1), allocates(2)}}) {
    nodes_ = nodes;
    CUgraphExec executable = nullptr;
    EXPECT_EQ(rules::graph_instantiate(instantiate, &executable, CUgraph{}, 0ull),
              CUDA_ERROR_OUT_OF_MEMORY);
  }
  expect_balanced();
}

TEST_F(GraphMemory, ALaterRunFindsItsMemoryInThePool) {
  set_quota(100 * kMiB);
  CUgraphExec executable = nullptr;
  ASSERT_EQ(rules::graph_instantiate(instantiate, &executable, CUgraph{}, 0ull), CUDA_SUCCESS);
  ASSERT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(launch(), CUDA_SUCCESS) << "there is no room for it twice";
  EXPECT_EQ(used(), 64 * kMiB);
}

TEST_F(GraphMemory, AfterATrimItIsReservedAgain) {
  set_quota(100 * kMiB);
  CUgraphExec executable = nullptr;
  ASSERT_EQ(rules::graph_instantiate(instantiate, &executable, CUgraph{}, 0ull), CUDA_SUCCESS);
  ASSERT_EQ(launch(), CUDA_SUCCESS);
  world_.graphs.used = 0;  // it frees what it allocates
  ASSERT_EQ(account::reserve(&lane(), 90 * kMiB, pools::reclaim), CUDA_SUCCESS);
  EXPECT_EQ(launch(), CUDA_ERROR_OUT_OF_MEMORY);
  account::release(&lane(), 90 * kMiB);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(used(), 64 * kMiB);
}

TEST_F(GraphMemory, IsRefusedAtTheFirstLaunchIfTheRestIsTakenMeanwhile) {
  set_quota(100 * kMiB);
  CUgraphExec executable = nullptr;
  ASSERT_EQ(rules::graph_instantiate(instantiate, &executable, CUgraph{}, 0ull), CUDA_SUCCESS);
  account::reserve(&lane(), 50 * kMiB, nullptr);
  EXPECT_EQ(launch(), CUDA_ERROR_OUT_OF_MEMORY);
  account::release(&lane(), 50 * kMiB);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace switchyard::shim
