// Contexts end in one thread while another one makes the next, with the same handle and the same
// addresses. The books of each are its own.
#include "shim/rules/context.h"

#include <atomic>
#include <future>
#include <thread>

#include "shim/rules/arrays.h"
#include "shim/rules/linear.h"
#include "shim/rules/stream_ordered.h"
#include "shim/rules/vmm.h"
#include "tests/shim/engine/world.h"

// What the rules need besides the engine.
namespace switchyard::shim {
bool join() { return true; }
groups::Making::Making(int) : before_(-1) {}
groups::Making::~Making() = default;
namespace swap::mover {
void context_made(unsigned) {}
Standstill::Standstill() : locked_(0) {}
Standstill::~Standstill() = default;
}  // namespace swap::mover

namespace {

using namespace testing;

constexpr CUdeviceptr kAddress = 0x7a0000000000;
const CUcontext kHandle = context_number(0x2000);

// `between`: what another thread does once the driver has ended a context, before we know.
std::function<void()> g_between;
std::atomic<bool> g_active{false};

class Contexts : public EngineTest {
 protected:
  Contexts() {
    use_contexts();
    g_between = nullptr;
    g_active.store(false);
  }

  static CUresult create_driver(CUcontext* context, unsigned, CUdevice) {
    *context = kHandle;
    return CUDA_SUCCESS;
  }
  static CUresult destroy_driver(CUcontext) {
    if (g_between) g_between();
    return CUDA_SUCCESS;
  }
  // Made, and current.
  void create() {
    CUcontext context = nullptr;
    EXPECT_EQ(rules::context_create(create_driver, &context, 0u, CUdevice{0}), CUDA_SUCCESS);
    world_.context = context;
  }
  // The same address each time.
  static CUresult allocate(std::uint64_t bytes) {
    CUdeviceptr at = 0;
    const auto driver = [](CUdeviceptr* out, size_t) {
      *out = kAddress;
      return CUDA_SUCCESS;
    };
    return rules::allocate(driver, &at, size_t{bytes});
  }
};

TEST_F(Contexts, WhatTheNextContextOfTheSameHandleHasIsItsOwn) {
  create();
  ASSERT_EQ(allocate(8 * kMiB), CUDA_SUCCESS);
  g_between = [&] {
    g_between = nullptr;
    create();
    ASSERT_EQ(allocate(32 * kMiB), CUDA_SUCCESS);
  };
  EXPECT_EQ(rules::context_destroy(destroy_driver, kHandle), CUDA_SUCCESS);
  EXPECT_EQ(used(), 32 * kMiB);
  EXPECT_EQ(rules::context_destroy(destroy_driver, kHandle), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Contexts, AnAddressThatAnotherContextHasByNowIsChargedOnce) {
  create();
  ASSERT_EQ(allocate(8 * kMiB), CUDA_SUCCESS);
  g_between = [&] {
    world_.context = kPrimary;
    ASSERT_EQ(allocate(2 * kMiB), CUDA_SUCCESS);
  };
  EXPECT_EQ(rules::context_destroy(destroy_driver, kHandle), CUDA_SUCCESS);
  EXPECT_EQ(used(), 2 * kMiB);
  EXPECT_EQ(rules::release_memory([](CUdeviceptr) { return CUDA_SUCCESS; }, kAddress),
            CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Contexts, ACaptureInTheNextContextOfTheSameHandleGoesOn) {
  create();
  const auto begin = [](CUstream) { return CUDA_SUCCESS; };
  rules::begin_capture(begin, reinterpret_cast<CUstream>(0x51));
  g_between = [&] {
    create();
    rules::begin_capture(begin, reinterpret_cast<CUstream>(0x52));
  };
  EXPECT_EQ(rules::context_destroy(destroy_driver, kHandle), CUDA_SUCCESS);
  EXPECT_EQ(process().captures.load(), 1u);
  capture::clear();
  process().captures.store(0);
  g_between = nullptr;
  EXPECT_EQ(rules::context_destroy(destroy_driver, kHandle), CUDA_SUCCESS);
}

// After a fault, say.
TEST_F(Contexts, OneWhoseGpuTheDriverDoesNotNameIsForgottenToo) {
  create();
  ASSERT_EQ(lane().contexts.load(), 1u);
  world_.device = -1;
  EXPECT_EQ(rules::context_destroy(destroy_driver, kHandle), CUDA_SUCCESS);
  world_.device = 0;
  EXPECT_EQ(lane().contexts.load(), 0u);
}

TEST_F(Contexts, OneThatTheDriverDoesNotEndKeepsWhatItHas) {
  create();
  ASSERT_EQ(allocate(8 * kMiB), CUDA_SUCCESS);
  const auto refuse = [](CUcontext) { return CUDA_ERROR_INVALID_CONTEXT; };
  EXPECT_EQ(rules::context_destroy(+refuse, kHandle), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(used(), 8 * kMiB);
  EXPECT_EQ(rules::context_destroy(destroy_driver, kHandle), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
}

// NVML alone tells the size of a context, once it is there.
TEST_F(Contexts, OneBeyondTheQuotaIsGivenBackAndRefused) {
  static int destroyed = 0;
  destroyed = 0;
  g_driver.cuCtxDestroy_v2 = [](CUcontext context) {
    EXPECT_EQ(context, kHandle);
    ++destroyed;
    return CUDA_SUCCESS;
  };
  set_quota(64 * kMiB);
  const auto make = [] {
    CUcontext context = nullptr;
    return rules::context_create(create_driver, &context, 0u, CUdevice{0});
  };
  lane().others_used_bytes.store(64 * kMiB);
  EXPECT_EQ(make(), CUDA_SUCCESS);
  EXPECT_EQ(rules::context_destroy(destroy_driver, kHandle), CUDA_SUCCESS);
  world_.before_answer = [&] { lane().others_used_bytes.store(65 * kMiB); };
  EXPECT_EQ(make(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(lane().contexts.load(), 0u);
  EXPECT_EQ(lane().refusals.load(), 1u);
  world_.before_answer = nullptr;
}

TEST_F(Contexts, AModuleBeyondTheQuotaIsGivenBackAndRefused) {
  static std::uint64_t free = 0;
  static int unloaded = 0;
  unloaded = 0;
  g_driver.cuMemGetInfo_v2 = [](size_t* bytes, size_t*) {
    *bytes = free;
    return CUDA_SUCCESS;
  };
  g_driver.cuModuleUnload = [](CUmodule) {
    ++unloaded;
    return CUDA_SUCCESS;
  };
  set_quota(64 * kMiB);
  lane().others_used_bytes.store(65 * kMiB);
  const auto load = [](std::uint64_t takes) {
    free = 1024 * kMiB;
    const auto driver = [takes](CUmodule*, const void*) {
      free -= takes;
      return CUDA_SUCCESS;
    };
    CUmodule module = nullptr;
    return rules::load_module(driver, &module, nullptr);
  };
  EXPECT_EQ(load(kMiB), CUDA_SUCCESS) << "small ones are left to the next reading";
  EXPECT_EQ(load(32 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(unloaded, 1);
  lane().others_used_bytes.store(10 * kMiB);
  EXPECT_EQ(load(32 * kMiB), CUDA_SUCCESS);
}

// The primary contexts of a GPU have one handle and one owner.
TEST_F(Contexts, ThePrimaryOneIsMadeAgainOnlyOnceTheBooksOfTheLastAreRight) {
  g_driver.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned* flags, int* active) {
    *flags = 0;
    *active = g_active.load() ? 1 : 0;
    return CUDA_SUCCESS;
  };
  const auto retain = [](CUcontext* context, CUdevice) {
    g_active.store(true);
    *context = kPrimary;
    return CUDA_SUCCESS;
  };
  CUcontext context = nullptr;
  world_.context = kPrimary;
  ASSERT_EQ(rules::primary_retain(retain, &context, 0), CUDA_SUCCESS);
  ASSERT_EQ(allocate(8 * kMiB), CUDA_SUCCESS);
  std::promise<void> driver_has_ended_it;
  std::atomic<bool> made{false};
  std::thread next([&] {
    driver_has_ended_it.get_future().wait();
    CUcontext again = nullptr;
    EXPECT_EQ(rules::primary_retain(retain, &again, 0), CUDA_SUCCESS);
    made.store(true);
    EXPECT_EQ(allocate(32 * kMiB), CUDA_SUCCESS);
  });
  const auto release = [&](CUdevice) {
    g_active.store(false);
    driver_has_ended_it.set_value();
    // Time enough for one that does not wait; one that waits comes later, however long this is.
    for (int i = 0; i < 100 && !made.load(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_FALSE(made.load());
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::primary_end(release, 0), CUDA_SUCCESS);
  next.join();
  EXPECT_EQ(used(), 32 * kMiB);
  const auto last = [](CUdevice) {
    g_active.store(false);
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::primary_end(last, 0), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Contexts, AThreadThatLeavesAGpuWithoutALaneIsManagedAgain) {
  const auto use = [this](int device) {
    const auto original = [&](CUcontext) {
      world_.device = device;
      return CUDA_SUCCESS;
    };
    return rules::current_changes(original, kHandle);
  };
  EXPECT_EQ(use(abi::kMaxGpus), CUDA_SUCCESS);
  EXPECT_EQ(current_lane(), nullptr);
  world_.device = 0;
  EXPECT_EQ(current_lane(), nullptr) << "nobody asks again for each call";
  use(0);
  EXPECT_EQ(current_lane(), &lane());
}

TEST_F(Contexts, APoolOfAHandleThatWasAnothersKeepsItsOwn) {
  const CUmemoryPool pool = pool_number(7);
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const auto make = [&](std::uint64_t bytes) {
    CUmemoryPool made = nullptr;
    const auto create = [&](CUmemoryPool* out, const CUmemPoolProps*) {
      *out = pool;
      return CUDA_SUCCESS;
    };
    ASSERT_EQ(rules::pool_create(create, &made, &properties), CUDA_SUCCESS);
    world_.pools[pool] = {};
    const auto take = [&](CUdeviceptr* out, size_t size, CUmemoryPool, CUstream) {
      world_.pools[pool] = {size, size};
      *out = kAddress + bytes;
      return CUDA_SUCCESS;
    };
    CUdeviceptr at = 0;
    ASSERT_EQ(rules::allocate_from_pool<false>(take, &at, size_t{bytes}, pool, nullptr),
              CUDA_SUCCESS);
  };
  make(8 * kMiB);
  const auto destroy = [&](CUmemoryPool) {
    make(32 * kMiB);  // by another thread
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::pool_destroy(destroy, pool), CUDA_SUCCESS);
  EXPECT_EQ(used(), 40 * kMiB) << "memory lives longer than its pool";
  const auto free = [](CUdeviceptr, CUstream) { return CUDA_SUCCESS; };
  EXPECT_EQ(rules::free_async<false>(free, kAddress + 8 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(used(), 32 * kMiB);
}

TEST_F(Contexts, AHandleThatIsAnothersOnceItsLastMappingHasGoneIsLeftAlone) {
  using Handle = CUmemGenericAllocationHandle;
  CUmemAllocationProp properties{};
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const auto make = [&](size_t bytes) {
    const auto create = [](Handle* out, size_t, const CUmemAllocationProp*, unsigned long long) {
      *out = 4711;
      return CUDA_SUCCESS;
    };
    Handle handle = 0;
    ASSERT_EQ(rules::create_memory(create, &handle, bytes, &properties, 0ull), CUDA_SUCCESS);
    const auto map = [](CUdeviceptr, size_t, size_t, Handle, unsigned long long) {
      return CUDA_SUCCESS;
    };
    ASSERT_EQ(rules::map_memory(map, kAddress, bytes, 0, handle, 0), CUDA_SUCCESS);
    ASSERT_EQ(rules::release_handle([](Handle) { return CUDA_SUCCESS; }, handle), CUDA_SUCCESS);
  };
  make(8 * kMiB);
  const auto unmap = [&](CUdeviceptr, size_t) {
    make(32 * kMiB);  // by another thread
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::unmap_memory(unmap, kAddress, size_t{8 * kMiB}), CUDA_SUCCESS);
  EXPECT_EQ(used(), 32 * kMiB);
  const auto last = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  EXPECT_EQ(rules::unmap_memory(last, kAddress, size_t{32 * kMiB}), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

}  // namespace
}  // namespace switchyard::shim
