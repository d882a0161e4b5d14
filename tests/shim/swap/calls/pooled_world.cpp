#include "tests/shim/swap/calls/pooled_world.h"

#include "shim/swap/calls/pooled.h"
#include "shim/swap/memory/pool_cache.h"
#include "shim/swap/memory/stream_event.h"

namespace switchyard::shim::testing {

PooledWorld* g_pooled = nullptr;

namespace {

CUresult stream_context(CUstream stream, CUcontext* context) {
  const auto found = g_pooled->contexts.find(stream);
  *context = found != g_pooled->contexts.end() ? found->second : g_world->context;
  return CUDA_SUCCESS;
}

CUresult stream_id(CUstream stream, unsigned long long* id) {
  *id = reinterpret_cast<std::uintptr_t>(stream) + 7;
  return CUDA_SUCCESS;
}

CUresult event_create(CUevent* event, unsigned flags) {
  EXPECT_EQ(flags, unsigned{CU_EVENT_DISABLE_TIMING});
  const std::lock_guard hold(g_world->lock);
  static std::uintptr_t next = 0x5000;
  *event = reinterpret_cast<CUevent>(++next);
  g_pooled->events[*event] = true;
  return CUDA_SUCCESS;
}

CUresult event_record(CUevent event, CUstream) {
  const std::lock_guard hold(g_world->lock);
  EXPECT_TRUE(g_pooled->events.contains(event));
  g_pooled->events[event] = false;
  g_pooled->recorded.push_back(g_world->context);
  return g_pooled->record_result;
}

CUresult event_query(CUevent event) {
  if (g_pooled->during_query) g_pooled->during_query();
  const std::lock_guard hold(g_world->lock);
  EXPECT_EQ(process().captures.load(), 0u);
  EXPECT_TRUE(g_pooled->events.contains(event));
  const bool enough = g_pooled->queries++ == g_pooled->comes_after;
  for (auto& [each, come] : g_pooled->events) come = come || enough;
  return g_pooled->events[event] ? CUDA_SUCCESS : g_pooled->query_result;
}

CUresult event_destroy(CUevent event) {
  const std::lock_guard hold(g_world->lock);
  EXPECT_EQ(g_pooled->events.erase(event), 1u);
  return CUDA_SUCCESS;
}

}  // namespace

PooledTest::PooledTest() {
  g_pooled = &pooled_;
  world_.current_pool = pool_at(1);
  world_.pools = {{pool_at(1), {}}};
  use_streams();
  g_driver.cuStreamGetCtx = stream_context;
  g_driver.cuStreamGetId = g_driver.cuStreamGetId_ptsz = stream_id;
  g_driver.cuEventCreate = event_create;
  g_driver.cuEventRecord = g_driver.cuEventRecord_ptsz = event_record;
  g_driver.cuEventQuery = event_query;
  g_driver.cuEventDestroy_v2 = event_destroy;
}

PooledTest::~PooledTest() {
  {
    // Not cleared: that is for a forked child, which leaves the parent's table where it is.
    const swap::RangesLock held;
    for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) swap::cache::drop_all(lane);
    for (unsigned pool = 0; pool < 16; ++pool) {
      swap::cache::take_pool(reinterpret_cast<std::uint64_t>(pool_at(pool)));
    }
  }
  swap::pooled::clear_order();
  g_pooled = nullptr;
}

CUresult PooledTest::try_allocate(std::uint64_t bytes, CUdeviceptr& at) {
  const auto never = [](CUdeviceptr*, size_t, CUstream) {
    ADD_FAILURE() << "the driver was called";
    return CUDA_ERROR_UNKNOWN;
  };
  return rules::allocate_async<false>(never, &at, size_t{bytes}, stream_number(1));
}

CUdeviceptr PooledTest::allocate(std::uint64_t bytes, CUstream stream) {
  const auto never = [](CUdeviceptr*, size_t, CUstream) {
    ADD_FAILURE() << "the driver was called";
    return CUDA_ERROR_UNKNOWN;
  };
  CUdeviceptr at = 0;
  EXPECT_EQ(rules::allocate_async<false>(never, &at, size_t{bytes}, stream), CUDA_SUCCESS);
  return at;
}

CUdeviceptr PooledTest::allocate_from(CUmemoryPool pool, std::uint64_t bytes) {
  const auto never = [](CUdeviceptr*, size_t, CUmemoryPool, CUstream) {
    ADD_FAILURE() << "the driver was called";
    return CUDA_ERROR_UNKNOWN;
  };
  CUdeviceptr at = 0;
  EXPECT_EQ(rules::allocate_from_pool<false>(never, &at, size_t{bytes}, pool, stream_number(1)),
            CUDA_SUCCESS);
  return at;
}

void PooledTest::free(CUdeviceptr at, CUstream stream) {
  const auto never = [](CUdeviceptr, CUstream) {
    ADD_FAILURE() << "the driver was called";
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(rules::free_async<false>(never, at, stream), CUDA_SUCCESS);
}

CUmemPoolProps PooledTest::plain() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}

CUmemoryPool PooledTest::create(std::uintptr_t number, const CUmemPoolProps& properties) {
  const auto made = [=](CUmemoryPool* out, const CUmemPoolProps*) {
    *out = pool_at(number);
    g_world->pools[*out] = {};
    return CUDA_SUCCESS;
  };
  CUmemoryPool pool = nullptr;
  EXPECT_EQ(rules::pool_create(made, &pool, &properties), CUDA_SUCCESS);
  return pool;
}

cuuint64_t PooledTest::attribute(CUmemPool_attribute which, CUmemoryPool pool) {
  cuuint64_t value = 0;
  EXPECT_EQ(rules::pool_attribute(g_driver.cuMemPoolGetAttribute, pool, which, &value),
            CUDA_SUCCESS);
  return value;
}

void PooledTest::synchronise() {
  rules::synchronise<gate::Waiting::kStream>([] { return CUDA_SUCCESS; });
}

void PooledTest::all_have_come() {
  const std::lock_guard hold(world_.lock);
  for (auto& [event, come] : pooled_.events) come = true;
}

void PooledTest::empty() {
  all_have_come();
  synchronise();
  expect_nothing_left();
  EXPECT_TRUE(pooled_.events.empty());
  EXPECT_EQ(world_.retained, 0);
}

}  // namespace switchyard::shim::testing
