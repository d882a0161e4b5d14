#include "tests/shim/swap/calls/handles_world.h"

#include "shim/rules/vmm.h"
#include "shim/work_guard.h"

namespace switchyard::shim::testing {

HandlesTest::~HandlesTest() {
  faults().none();
  swap::admission::open(0);
  for (const auto& [at, bytes] : sizes_) {
    for (CUdeviceptr address = at; address < at + bytes; address += swap::kSmallestChunk) {
      size_t mapped = 0;
      if (swap::handles::mapping_of(address, nullptr, &mapped)) unmap(address, mapped);
    }
  }
  for (const Handle number : created_) {
    while (release(number) == CUDA_SUCCESS) {
    }
  }
}

CUmemAllocationProp HandlesTest::properties(CUmemAllocationHandleType types) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.requestedHandleTypes = types;
  return properties;
}

CUresult HandlesTest::try_create(Handle& handle, std::uint64_t bytes,
                                 CUmemAllocationHandleType types) {
  const auto never = [](Handle*, size_t, const CUmemAllocationProp*, unsigned long long) {
    ADD_FAILURE() << "the driver was asked for memory that could leave";
    return CUDA_ERROR_UNKNOWN;
  };
  const CUmemAllocationProp wanted = properties(types);
  return rules::create_memory(never, &handle, size_t{bytes}, &wanted, 0ull);
}

swap::Handle HandlesTest::create(std::uint64_t bytes, CUmemAllocationHandleType types) {
  Handle number = 0;
  EXPECT_EQ(try_create(number, bytes, types), CUDA_SUCCESS);
  const std::lock_guard hold(lock_);
  created_.push_back(number);
  return number;
}

CUdeviceptr HandlesTest::reserve(std::uint64_t bytes) {
  CUdeviceptr at = 0;
  EXPECT_EQ(g_driver.cuMemAddressReserve(&at, bytes, 0, 0, 0), CUDA_SUCCESS);
  const std::lock_guard hold(lock_);
  sizes_[at] = bytes;
  return at;
}

CUresult HandlesTest::map(CUdeviceptr at, std::uint64_t bytes, Handle handle,
                          std::uint64_t offset) {
  return rules::map_memory(g_driver.cuMemMap, at, bytes, offset, handle, 0);
}

CUresult HandlesTest::access(CUdeviceptr at, std::uint64_t bytes, CUmemAccess_flags flags,
                             int device) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  return rules::set_access(g_driver.cuMemSetAccess, at, bytes, &access, 1);
}

CUresult HandlesTest::unmap(CUdeviceptr at, std::uint64_t bytes) {
  return rules::unmap_memory(g_driver.cuMemUnmap, at, bytes);
}

CUresult HandlesTest::release(Handle handle) {
  return rules::release_handle(g_driver.cuMemRelease, handle);
}

CUresult HandlesTest::free_addresses(CUdeviceptr at) {
  return rules::free_addresses(g_driver.cuMemAddressFree, at, sizes_.at(at));
}

CUresult HandlesTest::lend(Handle handle, CUresult result) {
  const auto original = [&](void*, Handle real, CUmemAllocationHandleType, unsigned long long) {
    EXPECT_TRUE(swap::admission::inside());
    lent_ = real;
    return result;
  };
  return rules::export_handle(original, nullptr, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              0);
}

CUdeviceptr HandlesTest::make(std::uint64_t bytes, CUmemAllocationHandleType types) {
  const Handle number = create(bytes, types);
  const CUdeviceptr at = reserve(bytes);
  EXPECT_EQ(map(at, bytes, number), CUDA_SUCCESS);
  EXPECT_EQ(access(at, bytes), CUDA_SUCCESS);
  return at;
}

void HandlesTest::bring_back(CUdeviceptr at) {
  const swap::RangesLock held;
  const swap::Range& range = *swap::find(at);
  CUdeviceptr address = at;
  for (unsigned i = 0; i < range.count; ++i) {
    EXPECT_EQ(swap::bring(range.chunks[i], address, range.properties), CUDA_SUCCESS);
    EXPECT_EQ(swap::permit(address, range.chunks[i].bytes, {.location = range.properties.location}),
              CUDA_SUCCESS);
    address += range.chunks[i].bytes;
    swap_.resident += range.chunks[i].bytes;
  }
}

}  // namespace switchyard::shim::testing
