// Memory that no allocation names is charged before the driver takes it, and given back with its
// context.
#include "shim/memory/context_memory.h"

#include <atomic>

#include "shim/rules/context.h"
#include "shim/rules/launch.h"
#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

constexpr std::uint64_t kThreads = 132 * 2048;  // that the GPU can have at once
constexpr std::uint64_t kFresh = 1024;          // bytes of a thread in a fresh context

const CUfunction kKernel = reinterpret_cast<CUfunction>(0x4000);

int g_local = 0;                   // of every kernel
std::atomic<int> g_questions = 0;  // after it

class ContextMemory : public EngineTest {
 protected:
  ContextMemory() {
    g_local = 0;
    g_questions = 0;
    context_memory::forget_kernels();
    g_driver.cuDeviceGetAttribute = [](int* value, CUdevice_attribute which, CUdevice) {
      *value = which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 132 : 2048;
      return CUDA_SUCCESS;
    };
    g_driver.cuCtxGetLimit = [](size_t* value, CUlimit limit) {
      *value = limit == CU_LIMIT_STACK_SIZE ? kFresh : 8 * kMiB;
      return CUDA_SUCCESS;
    };
    g_driver.cuFuncGetAttribute = [](int* value, CUfunction_attribute which, CUfunction) {
      EXPECT_EQ(which, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
      ++g_questions;
      *value = g_local;
      return CUDA_SUCCESS;
    };
  }
  ~ContextMemory() override {
    memory::primary_gone(0);
    context_memory::forget_kernels();
  }
  static CUresult launch(CUresult answer = CUDA_SUCCESS, CUfunction function = kKernel) {
    const auto driver = [=](auto...) { return answer; };
    return rules::launch(driver, function, 1, 1, 1, 32, 1, 1, 0, nullptr,
                         static_cast<void**>(nullptr), static_cast<void**>(nullptr));
  }
  static CUresult set_limit(CUlimit limit, size_t value, CUresult answer = CUDA_SUCCESS) {
    return rules::set_limit([=](CUlimit, size_t) { return answer; }, limit, value);
  }
};

TEST_F(ContextMemory, AKernelsLocalMemoryIsThatOfAllThreadsThatTheGpuCanHave) {
  g_local = 48000;
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_GE(used(), (48000 - kFresh) * kThreads);
  EXPECT_LE(used(), (48000 - kFresh) * kThreads + 8 * kMiB) << "rounded up";
  expect_balanced();
}

TEST_F(ContextMemory, WhatAFreshContextHasIsNotCharged) {
  g_local = kFresh;
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
}

TEST_F(ContextMemory, ASmallerKernelUsesWhatIsThere) {
  g_local = 4096;
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  const std::uint64_t once = used();
  g_local = 2048;
  EXPECT_EQ(launch(CUDA_SUCCESS, reinterpret_cast<CUfunction>(0x4100)), CUDA_SUCCESS);
  EXPECT_EQ(used(), once);
  g_local = 6144;
  EXPECT_EQ(launch(CUDA_SUCCESS, reinterpret_cast<CUfunction>(0x4200)), CUDA_SUCCESS);
  EXPECT_GT(used(), once) << "a larger one needs more";
}

TEST_F(ContextMemory, AKernelIsAskedAboutOnce) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(g_questions, 1);
  rules::unload([](CUmodule) { return CUDA_SUCCESS; }, CUmodule{nullptr});
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(g_questions, 2) << "its handle may be another kernel's";
}

TEST_F(ContextMemory, PastTheQuotaTheDriverIsNotCalled) {
  set_quota(512 * kMiB);
  g_local = 4096;
  EXPECT_EQ(launch(CUDA_ERROR_UNKNOWN), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(launch(CUDA_ERROR_UNKNOWN), CUDA_ERROR_OUT_OF_MEMORY) << "nor later";
  EXPECT_EQ(set_limit(CU_LIMIT_STACK_SIZE, 4096, CUDA_ERROR_UNKNOWN), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, size_t{8} << 30, CUDA_ERROR_UNKNOWN),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(set_limit(CU_LIMIT_PRINTF_FIFO_SIZE, SIZE_MAX, CUDA_ERROR_UNKNOWN),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(lane().refusals.load(), 5u);
  expect_balanced();
}

TEST_F(ContextMemory, WhatTheDriverRefusesIsGivenBack) {
  g_local = 4096;
  EXPECT_EQ(launch(CUDA_ERROR_OUT_OF_MEMORY), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 * kMiB, CUDA_ERROR_INVALID_VALUE),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_NE(used(), 0u) << "and asked about anew";
}

TEST_F(ContextMemory, HeapAndBufferAreAsLargeAsTheirLimits) {
  EXPECT_EQ(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, 72 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(), 64 * kMiB);
  EXPECT_EQ(set_limit(CU_LIMIT_PRINTF_FIFO_SIZE, 24 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(), 80 * kMiB);
  EXPECT_EQ(set_limit(CU_LIMIT_MALLOC_HEAP_SIZE, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(), 16 * kMiB);
  EXPECT_EQ(set_limit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 4), CUDA_SUCCESS) << "none of these";
  EXPECT_EQ(used(), 16 * kMiB);
  expect_balanced();
}

TEST_F(ContextMemory, TheStacksLocalMemoryStaysWhenItsLimitFalls) {
  EXPECT_EQ(set_limit(CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS);
  const std::uint64_t once = used();
  EXPECT_GE(once, kFresh * kThreads);
  EXPECT_EQ(set_limit(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
  EXPECT_EQ(used(), once);
}

TEST_F(ContextMemory, EachContextHasItsOwnUntilItEnds) {
  g_local = 2048;
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  const std::uint64_t once = used();
  world_.context = context_number(0x2000);
  memory::context_created(0, world_.context);
  context_memory::forget_kernels();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(used(), 2 * once);
  memory::context_gone(world_.context, swap::made_context(world_.context));
  EXPECT_EQ(used(), once);
  memory::primary_gone(0);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(ContextMemory, AKernelOfAGraphIsLikeOneThatIsLaunched) {
  set_quota(512 * kMiB);
  g_local = 4096;
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = kKernel;
  const auto never = [](auto...) { return CUDA_ERROR_UNKNOWN; };
  EXPECT_EQ(rules::graph_kernel(never, CUgraphNode{nullptr}, &params), CUDA_ERROR_OUT_OF_MEMORY);
  g_local = 2048;
  const auto ok = [](auto...) { return CUDA_SUCCESS; };
  EXPECT_EQ(rules::graph_kernel(ok, CUgraphNode{nullptr}, &params), CUDA_SUCCESS);
  EXPECT_NE(used(), 0u);
}

TEST_F(ContextMemory, AKernelOfALibraryIsAskedAboutAsOne) {
  static const void* asked = nullptr;
  asked = nullptr;
  g_driver.cuKernelGetAttribute = [](int* value, CUfunction_attribute, CUkernel kernel, CUdevice) {
    asked = kernel;
    *value = 2048;
    return CUDA_SUCCESS;
  };
  const auto library = reinterpret_cast<CUlibrary>(0x5000);
  CUkernel kernel = nullptr;
  const auto get = [](CUkernel* out, CUlibrary, const char*) {
    *out = reinterpret_cast<CUkernel>(0x6000);
    return CUDA_SUCCESS;
  };
  ASSERT_EQ(rules::get_kernel(get, &kernel, library, "k"), CUDA_SUCCESS);
  EXPECT_EQ(launch(CUDA_SUCCESS, reinterpret_cast<CUfunction>(kernel)), CUDA_SUCCESS);
  EXPECT_EQ(asked, kernel);
  EXPECT_EQ(g_questions, 0);
  EXPECT_NE(used(), 0u);
  const auto unload = [](CUlibrary) { return CUDA_SUCCESS; };
  EXPECT_EQ(rules::unload_library(unload, library), CUDA_SUCCESS);
  EXPECT_EQ(launch(CUDA_SUCCESS, reinterpret_cast<CUfunction>(kernel)), CUDA_SUCCESS);
  EXPECT_EQ(g_questions, 1) << "a function has its handle";
}

TEST_F(ContextMemory, ThreadsThatLaunchAtOnceChargeItOnce) {
  g_local = 2048;
  in_threads(8, [](int t) {
    for (std::uintptr_t i = 0; i < 50; ++i) {
      const std::uintptr_t handle = 0x10000 + 0x100 * (i * 8 + static_cast<std::uintptr_t>(t));
      launch(CUDA_SUCCESS, reinterpret_cast<CUfunction>(handle));
    }
  });
  const std::uint64_t together = used();
  memory::primary_gone(0);
  EXPECT_EQ(used(), 0u);
  context_memory::forget_kernels();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(used(), together);
  expect_balanced();
}

}  // namespace
}  // namespace switchyard::shim
