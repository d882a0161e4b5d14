#include "shim/rules/vmm.h"

#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using Handle = CUmemGenericAllocationHandle;

constexpr CUdeviceptr kVa = 0x700000000000;

class Vmm : public EngineTest {
 protected:
  Handle create(size_t size, CUmemLocationType type = CU_MEM_LOCATION_TYPE_DEVICE) {
    CUmemAllocationProp properties{};
    properties.location = {type, 0};
    Handle handle = 0;
    const auto original = [this](Handle* out, size_t, const CUmemAllocationProp*,
                                 unsigned long long) {
      *out = ++last_;
      return CUDA_SUCCESS;
    };
    EXPECT_EQ(rules::create_memory(original, &handle, size, &properties, 0ull), CUDA_SUCCESS);
    return handle;
  }
  static CUresult map(CUdeviceptr at, size_t size, Handle handle) {
    const auto original = [](CUdeviceptr, size_t, size_t, Handle, unsigned long long) {
      return CUDA_SUCCESS;
    };
    return rules::map_memory(original, at, size, 0, handle, 0);
  }
  static CUresult unmap(CUdeviceptr at, size_t size) {
    return rules::unmap_memory([](CUdeviceptr, size_t) { return CUDA_SUCCESS; }, at, size);
  }
  static CUresult release(Handle handle) {
    return rules::release_handle([](Handle) { return CUDA_SUCCESS; }, handle);
  }
  Handle last_ = 0;
};

TEST_F(Vmm, MemoryOfTheDeviceIsChargedUntilItsRelease) {
  const Handle handle = create(32 * kMiB);
  EXPECT_EQ(used(), 32 * kMiB);
  release(handle);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Vmm, PastTheQuotaWhatTheDriverRefusesAnywayIsRefusedAsTheDriverDoes) {
  set_quota(4 * kMiB);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const auto original = [](Handle* out, size_t size, const CUmemAllocationProp* of,
                           unsigned long long flags) {
    EXPECT_LE(size, 2 * kMiB) << "nothing is taken beyond the quota";
    const bool right = out != nullptr && size % (2 * kMiB) == 0 && flags == 0 &&
                       of->type == CU_MEM_ALLOCATION_TYPE_PINNED;
    return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  Handle handle = 0;
  const auto create = [&](Handle* out, size_t size, unsigned long long flags) {
    return rules::create_memory(original, out, size, &properties, flags);
  };
  EXPECT_EQ(create(&handle, 32 * kMiB, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(create(nullptr, 32 * kMiB, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(&handle, 32 * kMiB + 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(&handle, 32 * kMiB, 7), CUDA_ERROR_INVALID_VALUE);
  properties.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  EXPECT_EQ(create(&handle, 32 * kMiB, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Vmm, MemoryOfTheHostIsNotCharged) {
  const Handle numa = create(32 * kMiB, kHostNuma);
  EXPECT_EQ(used(), 0u);
  map(kVa, 32 * kMiB, numa);
  unmap(kVa, 32 * kMiB);
  release(numa);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Vmm, AHandleReleasedWhileMappedStaysChargedUntilItIsUnmapped) {
  const Handle handle = create(4 * kMiB);
  map(kVa, 4 * kMiB, handle);
  release(handle);
  EXPECT_EQ(used(), 4 * kMiB);
  unmap(kVa, 4 * kMiB);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Vmm, OneUnmapMayEndManyMappings) {
  const Handle a = create(4 * kMiB);
  const Handle b = create(2 * kMiB);
  map(kVa, 4 * kMiB, a);
  map(kVa + 4 * kMiB, 2 * kMiB, b);
  map(kVa + 6 * kMiB, 4 * kMiB, a);  // a second time
  release(a);
  release(b);
  EXPECT_EQ(used(), 6 * kMiB);
  unmap(kVa, 6 * kMiB);
  EXPECT_EQ(used(), 4 * kMiB);
  unmap(kVa + 6 * kMiB, 4 * kMiB);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Vmm, UnmapSkipsWhatWeDidNotMap) {
  const Handle ours = create(2 * kMiB);
  map(kVa, 2 * kMiB, Handle{4711});  // imported from another process
  map(kVa + 2 * kMiB, 2 * kMiB, ours);
  release(ours);
  unmap(kVa, 4 * kMiB);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Vmm, AnUnmapOfMoreThanThereIsEndsAtOnceAndChangesNothing) {
  const Handle handle = create(2 * kMiB);
  map(kVa, 2 * kMiB, handle);
  release(handle);
  const auto refuse = [](CUdeviceptr, size_t) { return CUDA_ERROR_INVALID_VALUE; };
  for (const CUdeviceptr at : {CUdeviceptr{0}, kVa, kVa + 2 * kMiB}) {
    EXPECT_EQ(rules::unmap_memory(refuse, at, 1ull << 62), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(rules::unmap_memory(refuse, at, UINT64_MAX - at), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(used(), 2 * kMiB);
  unmap(kVa, 2 * kMiB);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Vmm, UnmapFindsWhatLiesBehindALongGap) {
  constexpr std::uint64_t kGap = 8 * kMiB * 1024;
  for (const std::uint64_t at : {kGap, 2 * kGap, 3 * kGap}) {
    const Handle handle = create(2 * kMiB);
    map(kVa + at, 2 * kMiB, handle);
    release(handle);
  }
  EXPECT_EQ(used(), 6 * kMiB);
  unmap(kVa, 3 * kGap);
  EXPECT_EQ(used(), 2 * kMiB) << "the last one begins where it ends";
  unmap(kVa, 4 * kGap);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Vmm, ARetainedHandleIsChargedOnceAndReleasedTwice) {
  const Handle handle = create(2 * kMiB);
  map(kVa, 2 * kMiB, handle);
  Handle retained = 0;
  const auto retain = [&](Handle* out, void*) {
    *out = handle;
    return CUDA_SUCCESS;
  };
  rules::gain_handle(retain, &retained, static_cast<void*>(nullptr));
  EXPECT_EQ(used(), 2 * kMiB);
  release(handle);
  unmap(kVa, 2 * kMiB);
  EXPECT_EQ(used(), 2 * kMiB);
  release(retained);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Vmm, ImportedMemoryIsNotChargedButNamedWhileItIsMapped) {
  g_driver.cuMemGetAllocationPropertiesFromHandle = [](CUmemAllocationProp* out, Handle) {
    out->location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return CUDA_SUCCESS;
  };
  Handle imported = 0;
  const auto import = [](Handle* out, void*, CUmemAllocationHandleType) {
    *out = 4711;
    return CUDA_SUCCESS;
  };
  rules::import_handle(import, &imported, static_cast<void*>(nullptr),
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(stays(Stays::kIpcImported), 0u);
  map(kVa, 4 * kMiB, imported);
  EXPECT_EQ(stays(Stays::kIpcImported), 4 * kMiB);
  EXPECT_EQ(used(), 0u);
  release(imported);
  EXPECT_EQ(stays(Stays::kIpcImported), 4 * kMiB) << "it is mapped still";
  unmap(kVa, 4 * kMiB);
  EXPECT_EQ(stays(Stays::kIpcImported), 0u);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Vmm, ExportedMemoryIsNamedUntilItEnds) {
  const Handle handle = create(4 * kMiB);
  const auto give = [](void*, Handle, CUmemAllocationHandleType, unsigned long long) {
    return CUDA_SUCCESS;
  };
  const auto refuse = [](void*, Handle, CUmemAllocationHandleType, unsigned long long) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  constexpr auto kType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  EXPECT_EQ(rules::export_handle(refuse, nullptr, handle, kType, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(stays(Stays::kIpcExported), 0u);
  EXPECT_EQ(rules::export_handle(give, nullptr, handle, kType, 0), CUDA_SUCCESS);
  EXPECT_EQ(stays(Stays::kIpcExported), 4 * kMiB);
  map(kVa, 4 * kMiB, handle);
  release(handle);
  EXPECT_EQ(stays(Stays::kIpcExported), 4 * kMiB) << "once, though it is mapped";
  unmap(kVa, 4 * kMiB);
  EXPECT_EQ(stays(Stays::kIpcExported), 0u);
}

TEST_F(Vmm, WhatIsImportedFromOneselfIsOneMoreReference) {
  const Handle own = create(2 * kMiB);
  Handle again = 0;
  const auto import = [&](Handle* out, void*, CUmemAllocationHandleType) {
    *out = own;
    return CUDA_SUCCESS;
  };
  rules::import_handle(import, &again, static_cast<void*>(nullptr),
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  map(kVa, 2 * kMiB, again);
  EXPECT_EQ(stays(Stays::kIpcImported), 0u);
  unmap(kVa, 2 * kMiB);
  release(own);
  EXPECT_EQ(used(), 2 * kMiB);
  release(again);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Vmm, WhatTheDriverRefusesChangesNothing) {
  const Handle handle = create(2 * kMiB);
  const auto no_release = [](Handle) { return CUDA_ERROR_INVALID_VALUE; };
  EXPECT_EQ(rules::release_handle(no_release, handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(used(), 2 * kMiB);
  const auto no_map = [](CUdeviceptr, size_t, size_t, Handle, unsigned long long) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  rules::map_memory(no_map, kVa, 2 * kMiB, 0, handle, 0);
  const auto no_unmap = [](CUdeviceptr, size_t) { return CUDA_ERROR_INVALID_VALUE; };
  map(kVa, 2 * kMiB, handle);
  rules::unmap_memory(no_unmap, kVa, 2 * kMiB);
  release(handle);
  EXPECT_EQ(used(), 2 * kMiB);
  unmap(kVa, 2 * kMiB);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Vmm, PastTheQuotaCreateIsRefused) {
  set_quota(10 * kMiB);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  Handle handle = 0;
  const auto never = [](Handle*, size_t, const CUmemAllocationProp*, unsigned long long) {
    ADD_FAILURE() << "the driver was called";
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::create_memory(never, &handle, 12 * kMiB, &properties, 0ull),
            CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Vmm, NullPropertiesAreTheDriversToRefuse) {
  Handle handle = 0;
  const auto original = [](Handle*, size_t, const CUmemAllocationProp*, unsigned long long) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(rules::create_memory(original, &handle, 2 * kMiB, nullptr, 0ull),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace switchyard::shim
