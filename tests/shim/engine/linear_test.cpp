#include "shim/rules/linear.h"

#include <thread>

#include "shim/memory/info.h"
#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class Linear : public EngineTest {
 protected:
  // Originals beside driver_alloc().
  static CUresult alloc_v1(CUdeviceptr_v1* out, unsigned) {
    static std::atomic<CUdeviceptr_v1> next{0x1000000};
    *out = next.fetch_add(0x10000);
    return CUDA_SUCCESS;
  }
  static CUresult refuse(CUdeviceptr*, size_t) { return CUDA_ERROR_OUT_OF_MEMORY; }
  static CUresult free_ok(CUdeviceptr) { return CUDA_SUCCESS; }
  static CUresult free_invalid(CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; }
};

TEST_F(Linear, AnAllocationIsChargedUntilItIsFreed) {
  set_quota(100 * kMiB);
  CUdeviceptr at = 0;
  ASSERT_EQ(rules::allocate(driver_alloc, &at, size_t{5} * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(), 6 * kMiB);
  ASSERT_EQ(rules::release_memory(free_ok, at), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Linear, TheOldThirtyTwoBitCallsAreChargedToo) {
  CUdeviceptr_v1 at = 0;
  ASSERT_EQ(rules::allocate(alloc_v1, &at, 1024u), CUDA_SUCCESS);
  EXPECT_EQ(used(), 1024u);
  ASSERT_EQ(rules::release_memory([](CUdeviceptr_v1) { return CUDA_SUCCESS; }, at), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Linear, ADriversRefusalRollsTheChargeBack) {
  set_quota(100 * kMiB);
  CUdeviceptr at = 0;
  EXPECT_EQ(rules::allocate(refuse, &at, size_t{5} * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(lane().refusals.load(), 0u);  // not ours
  expect_balanced();
}

TEST_F(Linear, PastTheQuotaTheDriverIsNotCalled) {
  set_quota(10 * kMiB);
  CUdeviceptr at = 0;
  bool called = false;
  const auto original = [&](CUdeviceptr*, size_t) {
    called = true;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::allocate(original, &at, size_t{11} * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(called);
  EXPECT_EQ(lane().refusals.load(), 1u);
}

// As the driver refuses: wrong arguments, and whatever a capture forbids.
CUresult alloc_checked(CUdeviceptr* out, size_t) {
  if (process().captures.load() != 0) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = 0x7f0000000000;
  return CUDA_SUCCESS;
}

TEST_F(Linear, PastTheQuotaWhatTheDriverRefusesAnywayIsRefusedAsTheDriverDoes) {
  set_quota(10 * kMiB);
  const size_t size = 11 * kMiB;
  CUdeviceptr at = 0;
  EXPECT_EQ(rules::allocate(alloc_checked, static_cast<CUdeviceptr*>(nullptr), size),
            CUDA_ERROR_INVALID_VALUE);
  process().captures.store(1);
  EXPECT_EQ(rules::allocate(alloc_checked, &at, size), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  process().captures.store(0);
  EXPECT_EQ(rules::allocate(alloc_checked, &at, size), CUDA_ERROR_OUT_OF_MEMORY);
  const auto managed = [](CUdeviceptr* out, size_t bytes, unsigned flags) {
    EXPECT_EQ(bytes, 1u) << "nothing is taken beyond the quota";
    *out = 0x7f0000000000;
    return flags == CU_MEM_ATTACH_GLOBAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  static CUdeviceptr freed = 0;
  g_driver.cuMemFree_v2 = [](CUdeviceptr address) {
    freed = address;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::allocate(managed, &at, size, 99u), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(freed, 0u);
  EXPECT_EQ(rules::allocate(managed, &at, size, unsigned{CU_MEM_ATTACH_GLOBAL}),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(freed, 0u) << "the trial";
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Linear, APitchPastTheQuotaWithAWrongElementIsTheDriversToRefuse) {
  set_quota(kMiB);
  const auto pitched = [](CUdeviceptr* out, size_t* pitch, size_t, size_t, unsigned element) {
    *out = 0x7f0000000000;
    *pitch = 512;
    return element == 4 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  CUdeviceptr at = 0;
  size_t pitch = 0;
  EXPECT_EQ(rules::allocate_pitch(pitched, &at, &pitch, size_t{4096}, size_t{4096}, 3u),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(rules::allocate_pitch(pitched, &at, &pitch, size_t{4096}, size_t{4096}, 4u),
            CUDA_ERROR_OUT_OF_MEMORY);
  expect_balanced();
}

TEST_F(Linear, WithoutAContextTheDriverAnswers) {
  world_.device = -1;
  CUdeviceptr at = 0;
  const auto original = [](CUdeviceptr*, size_t) { return CUDA_ERROR_INVALID_CONTEXT; };
  EXPECT_EQ(rules::allocate(original, &at, size_t{kMiB}), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(world_.charges, 0);
}

TEST_F(Linear, AFreeOfAnUnknownPointerIsTheDriversToAnswer) {
  EXPECT_EQ(rules::release_memory(free_invalid, CUdeviceptr{0xdead}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(rules::release_memory(free_ok, CUdeviceptr{0xdead}), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Linear, AFreeThatTheDriverRefusesKeepsTheCharge) {
  CUdeviceptr at = 0;
  rules::allocate(driver_alloc, &at, size_t{4} * kMiB);
  EXPECT_EQ(rules::release_memory(free_invalid, at), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(used(), 4 * kMiB);
  EXPECT_EQ(rules::release_memory(free_ok, at), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Linear, PitchIsChargedAsTheDriverChoseIt) {
  set_quota(100 * kMiB);
  const auto wide = [](CUdeviceptr* out, size_t* pitch, size_t, size_t, unsigned) {
    *out = 0x100000;
    *pitch = 4096;
    return CUDA_SUCCESS;
  };
  CUdeviceptr at = 0;
  size_t pitch = 0;
  ASSERT_EQ(rules::allocate_pitch(wide, &at, &pitch, size_t{100}, size_t{100}, 4u), CUDA_SUCCESS);
  EXPECT_EQ(used(), 4096u * 100);
  rules::release_memory(free_ok, at);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Linear, APitchThatOverflowsIsRefused) {
  set_quota(100 * kMiB);
  const auto never = [](CUdeviceptr*, size_t*, size_t, size_t, unsigned) { return CUDA_SUCCESS; };
  CUdeviceptr at = 0;
  size_t pitch = 0;
  EXPECT_EQ(rules::allocate_pitch(never, &at, &pitch, SIZE_MAX / 2, size_t{8}, 4u),
            CUDA_ERROR_OUT_OF_MEMORY);
  expect_balanced();
}

TEST_F(Linear, AContextsEndFreesWhatItOwned) {
  CUdeviceptr at = 0;
  rules::allocate(driver_alloc, &at, size_t{2} * kMiB);  // the primary context's
  world_.context = reinterpret_cast<CUcontext>(0x2000);
  memory::context_created(0, world_.context);
  rules::allocate(driver_alloc, &at, size_t{8} * kMiB);
  EXPECT_EQ(used(), 10 * kMiB);
  memory::context_gone(world_.context, swap::made_context(world_.context));
  EXPECT_EQ(used(), 2 * kMiB);
  memory::primary_gone(0);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Linear, ManyThreadsEndAtZero) {
  set_quota(48 * kMiB);
  in_threads(8, [](int t) {
    for (int i = 0; i < 500; ++i) {
      CUdeviceptr at = 0;
      const size_t bytes = static_cast<size_t>((i * 37 + t) % 9 + 1) * kMiB;
      const bool fails = i % 5 == 0;
      if (rules::allocate(fails ? refuse : driver_alloc, &at, bytes) != CUDA_SUCCESS) continue;
      rules::release_memory(free_ok, at);
    }
  });
  EXPECT_EQ(used(), 0u);
  EXPECT_LE(world_.largest_granted, 48 * kMiB);
  expect_balanced();
}

class Info : public EngineTest {
 protected:
  static CUresult driver_info(size_t* free, size_t* total) {
    if (free != nullptr) *free = 900 * kMiB;
    if (total != nullptr) *total = 1000 * kMiB;
    return CUDA_SUCCESS;
  }
  static void expect_told(std::uint64_t wanted_free, std::uint64_t wanted_total) {
    size_t free = 0;
    size_t total = 0;
    ASSERT_EQ(rules::memory_info(driver_info, &free, &total), CUDA_SUCCESS);
    EXPECT_EQ(free, wanted_free);
    EXPECT_EQ(total, wanted_total);
  }
};

TEST_F(Info, WithoutAQuotaTheDriverAnswers) {
  process().joined.store(0);
  expect_told(900 * kMiB, 1000 * kMiB);
}

TEST_F(Info, TheQuotaIsTheTotalAndTheRestOfItIsFree) {
  set_quota(100 * kMiB);
  account::reserve(&lane(), 30 * kMiB, nullptr);
  expect_told(70 * kMiB, 100 * kMiB);
  EXPECT_EQ(world_.refreshes, 1);
}

TEST_F(Info, FreeIsNeverMoreThanTheGpuHas) {
  set_quota(5000 * kMiB);
  expect_told(900 * kMiB, 1000 * kMiB);
}

TEST_F(Info, NullArgumentsAreTheDriversToJudge) {
  set_quota(100 * kMiB);
  size_t free = 0;
  size_t total = 0;
  EXPECT_EQ(rules::memory_info(driver_info, static_cast<size_t*>(nullptr), &total), CUDA_SUCCESS);
  EXPECT_EQ(total, 100 * kMiB);
  EXPECT_EQ(rules::memory_info(driver_info, &free, static_cast<size_t*>(nullptr)), CUDA_SUCCESS);
  EXPECT_EQ(free, 100 * kMiB);
  const auto strict = [](size_t* a, size_t* b) {
    return a == nullptr && b == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  EXPECT_EQ(
      rules::memory_info(strict, static_cast<size_t*>(nullptr), static_cast<size_t*>(nullptr)),
      CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Info, TotalMemoryIsTheQuota) {
  const auto driver_total = [](size_t* bytes, CUdevice) {
    *bytes = 1000 * kMiB;
    return CUDA_SUCCESS;
  };
  size_t bytes = 0;
  rules::total_memory(driver_total, &bytes, 0);
  EXPECT_EQ(bytes, 1000 * kMiB);
  set_quota(100 * kMiB);
  rules::total_memory(driver_total, &bytes, 0);
  EXPECT_EQ(bytes, 100 * kMiB);
  rules::total_memory(driver_total, &bytes, 1);  // another GPU, without a quota
  EXPECT_EQ(bytes, 1000 * kMiB);
}

}  // namespace
}  // namespace switchyard::shim
