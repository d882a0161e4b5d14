// Virtual memory management and stream-ordered pools.
#include <unistd.h>

#include "driver.h"

namespace conformance {
namespace {

class Vmm : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (!context_) return;
    prop_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop_.location.id = device_;
    access_.location = prop_.location;
    access_.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    ASSERT_CU(CU(cuMemGetAllocationGranularity)(&unit_, &prop_, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  }
  CUmemAllocationProp prop_{};
  CUmemAccessDesc access_{};
  std::size_t unit_ = 0;
};

TEST_F(Vmm, MemoryMovesUnderAnAddress) {
  EXPECT_EQ(2 * kMiB, unit_);
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle first = 0, second = 0;
  ASSERT_CU(CU(cuMemAddressReserve)(&at, 4 * unit_, 0, 0, 0));
  ASSERT_CU(CU(cuMemCreate)(&first, unit_, &prop_, 0));
  ASSERT_CU(CU(cuMemCreate)(&second, unit_, &prop_, 0));
  ASSERT_CU(CU(cuMemMap)(at, unit_, 0, first, 0));
  ASSERT_CU(CU(cuMemMap)(at + unit_, unit_, 0, second, 0));
  ASSERT_CU(CU(cuMemSetAccess)(at, 2 * unit_, &access_, 1));
  ASSERT_CU(CU(cuMemsetD32)(at, 1, unit_ / 4));
  ASSERT_CU(CU(cuMemsetD32)(at + unit_, 2, unit_ / 4));
  ASSERT_CU(CU(cuCtxSynchronize)());
  ASSERT_CU(CU(cuMemUnmap)(at, 2 * unit_));
  ASSERT_CU(CU(cuMemMap)(at, unit_, 0, second, 0));
  ASSERT_CU(CU(cuMemSetAccess)(at, unit_, &access_, 1));
  EXPECT_EQ(2u, read(at, 1)[0]);
  ASSERT_CU(CU(cuMemUnmap)(at, unit_));
  EXPECT_OK(CU(cuMemRelease)(first));
  EXPECT_OK(CU(cuMemRelease)(second));
  EXPECT_OK(CU(cuMemAddressFree)(at, 4 * unit_));
}

TEST_F(Vmm, ReleasedMemoryLivesWhileItIsMapped) {
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle memory = 0, again = 0;
  ASSERT_CU(CU(cuMemAddressReserve)(&at, 32 * unit_, 0, 0, 0));
  const std::uint64_t before = free_bytes();
  ASSERT_CU(CU(cuMemCreate)(&memory, 32 * unit_, &prop_, 0));
  ASSERT_CU(CU(cuMemMap)(at, 32 * unit_, 0, memory, 0));
  ASSERT_CU(CU(cuMemSetAccess)(at, 32 * unit_, &access_, 1));
  ASSERT_CU(CU(cuMemRelease)(memory));
  ASSERT_CU(CU(cuMemsetD8)(at, 5, 32 * unit_));
  EXPECT_LE(free_bytes() + 32 * unit_, before);
  ASSERT_CU(CU(cuMemRetainAllocationHandle)(&again, reinterpret_cast<void*>(at)));
  ASSERT_CU(CU(cuMemUnmap)(at, 32 * unit_));
  EXPECT_LE(free_bytes() + 32 * unit_, before);
  ASSERT_CU(CU(cuMemRelease)(again));
  EXPECT_EQ(before, free_bytes());
  EXPECT_OK(CU(cuMemAddressFree)(at, 32 * unit_));
}

TEST_F(Vmm, RefusesWhatMakesNoSense) {
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle memory = 0, none = 0;
  ASSERT_CU(CU(cuMemAddressReserve)(&at, 2 * unit_, 0, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, CU(cuMemCreate)(&none, unit_ / 2, &prop_, 0));
  ASSERT_CU(CU(cuMemCreate)(&memory, unit_, &prop_, 0));
  ASSERT_CU(CU(cuMemMap)(at, unit_, 0, memory, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, CU(cuMemMap)(at, unit_, 0, memory, 0));
  ASSERT_CU(CU(cuMemUnmap)(at, unit_));
  EXPECT_OK(CU(cuMemUnmap)(at, unit_));  // nothing is mapped there any more
  EXPECT_OK(CU(cuMemRelease)(memory));
  EXPECT_OK(CU(cuMemAddressFree)(at, 2 * unit_));
  std::size_t total = 0;
  ASSERT_CU(CU(cuMemGetInfo)(nullptr, &total));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY,
            CU(cuMemCreate)(&none, (total / unit_ + 16) * unit_, &prop_, 0));
}

TEST_F(Vmm, HandlesAreMappedWholeOrNotAtAll) {
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_CU(CU(cuMemAddressReserve)(&at, 4 * unit_, 0, 0, 0));
  ASSERT_CU(CU(cuMemCreate)(&memory, 2 * unit_, &prop_, 0));
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, CU(cuMemMap)(at, unit_, 0, memory, 0));
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, CU(cuMemMap)(at, unit_, unit_, memory, 0));
  ASSERT_CU(CU(cuMemMap)(at, 2 * unit_, 0, memory, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, CU(cuMemSetAccess)(at, unit_, &access_, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, CU(cuMemSetAccess)(at, 4 * unit_, &access_, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, CU(cuMemUnmap)(at, unit_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, CU(cuMemAddressFree)(at, 4 * unit_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree)(at));
  ASSERT_CU(CU(cuMemUnmap)(at, 2 * unit_));
  EXPECT_OK(CU(cuMemRelease)(memory));
  EXPECT_OK(CU(cuMemAddressFree)(at, 4 * unit_));
}

TEST_F(Vmm, PointersTellTheReservationAndTheMapping) {
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle memory[2] = {};
  ASSERT_CU(CU(cuMemAddressReserve)(&at, 6 * unit_, 0, 0, 0));
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_CU(CU(cuMemCreate)(&memory[i], 2 * unit_, &prop_, 0));
    ASSERT_CU(CU(cuMemMap)(at + 2 * i * unit_, 2 * unit_, 0, memory[i], 0));
  }
  ASSERT_CU(CU(cuMemSetAccess)(at, 4 * unit_, &access_, 1));
  const CUdeviceptr inside = at + 3 * unit_;
  EXPECT_EQ(0u, attribute<std::uint64_t>(CU_POINTER_ATTRIBUTE_CONTEXT, inside));
  EXPECT_EQ(at, attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
  EXPECT_EQ(6 * unit_, attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
  EXPECT_EQ(at + 2 * unit_, attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside));
  EXPECT_EQ(2 * unit_, attribute<std::size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside));
  EXPECT_EQ(0u, attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside));
  EXPECT_EQ(0u, attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, inside));
  EXPECT_EQ(0u, attribute<std::uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside));
  const unsigned yes = 1;
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED,
            CU(cuPointerSetAttribute)(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, inside));
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  EXPECT_OK(CU(cuMemGetAddressRange)(&base, &bytes, inside));
  EXPECT_EQ(at + 2 * unit_, base);
  EXPECT_EQ(2 * unit_, bytes);
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, CU(cuMemGetAddressRange)(&base, &bytes, at + 5 * unit_));
  unsigned type = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 5 * unit_));
  ASSERT_CU(CU(cuMemUnmap)(at, 4 * unit_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
  for (CUmemGenericAllocationHandle each : memory) EXPECT_OK(CU(cuMemRelease)(each));
  EXPECT_OK(CU(cuMemAddressFree)(at, 6 * unit_));
}

TEST_F(Vmm, HandlesAreGoodForWhatTheyWereAskedFor) {
  int rdma = 0;
  ASSERT_CU(CU(cuDeviceGetAttribute)(
      &rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device_));
  prop_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop_.allocFlags.gpuDirectRDMACapable = static_cast<unsigned char>(rdma);
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_CU(CU(cuMemAddressReserve)(&at, unit_, 0, 0, 0));
  ASSERT_CU(CU(cuMemCreate)(&memory, unit_, &prop_, 0));
  ASSERT_CU(CU(cuMemMap)(at, unit_, 0, memory, 0));
  ASSERT_CU(CU(cuMemSetAccess)(at, unit_, &access_, 1));
  EXPECT_EQ(static_cast<std::uint64_t>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            attribute<std::uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at));
  EXPECT_EQ(static_cast<unsigned>(rdma),
            attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, at));
  ASSERT_CU(CU(cuMemUnmap)(at, unit_));
  EXPECT_OK(CU(cuMemRelease)(memory));
  EXPECT_OK(CU(cuMemAddressFree)(at, unit_));
}

TEST_F(Vmm, ReleasedMemoryLivesWhileADescriptorIsOpen) {
  CUmemGenericAllocationHandle memory = 0;
  int fd = -1;
  prop_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const std::uint64_t before = free_bytes();
  ASSERT_CU(CU(cuMemCreate)(&memory, 32 * unit_, &prop_, 0));
  ASSERT_CU(
      CU(cuMemExportToShareableHandle)(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const int copy = dup(fd);
  ASSERT_CU(CU(cuMemRelease)(memory));
  close(fd);
  EXPECT_EQ(before - 32 * unit_, free_bytes());
  close(copy);
  EXPECT_EQ(before, free_bytes());
}

TEST_F(Vmm, DescriptorsCarryMemory) {
  prop_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle made = 0, imported = 0;
  ASSERT_CU(CU(cuMemAddressReserve)(&at, 2 * unit_, 0, 0, 0));
  ASSERT_CU(CU(cuMemCreate)(&made, unit_, &prop_, 0));
  int fd = -1;
  ASSERT_CU(
      CU(cuMemExportToShareableHandle)(&fd, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASSERT_CU(CU(cuMemImportFromShareableHandle)(
      &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  ASSERT_CU(CU(cuMemMap)(at, unit_, 0, made, 0));
  ASSERT_CU(CU(cuMemMap)(at + unit_, unit_, 0, imported, 0));
  ASSERT_CU(CU(cuMemSetAccess)(at, 2 * unit_, &access_, 1));
  ASSERT_CU(CU(cuMemsetD32)(at, 77, 1024));
  ASSERT_CU(CU(cuCtxSynchronize)());
  EXPECT_EQ(77u, read(at + unit_, 1024)[1023]);
  ASSERT_CU(CU(cuMemUnmap)(at, unit_));
  ASSERT_CU(CU(cuMemUnmap)(at + unit_, unit_));
  EXPECT_OK(CU(cuMemRelease)(made));
  EXPECT_OK(CU(cuMemRelease)(imported));
  EXPECT_OK(CU(cuMemAddressFree)(at, 2 * unit_));
}

TEST_F(Vmm, TellsAccessAndProperties) {
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_CU(CU(cuMemAddressReserve)(&at, unit_, 0, 0, 0));
  ASSERT_CU(CU(cuMemCreate)(&memory, unit_, &prop_, 0));
  ASSERT_CU(CU(cuMemMap)(at, unit_, 0, memory, 0));
  unsigned long long flags = 9;
  EXPECT_OK(CU(cuMemGetAccess)(&flags, &access_.location, at));
  EXPECT_EQ(static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_NONE), flags);
  ASSERT_CU(CU(cuMemSetAccess)(at, unit_, &access_, 1));
  EXPECT_OK(CU(cuMemGetAccess)(&flags, &access_.location, at));
  EXPECT_EQ(static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE), flags);
  CUmemAllocationProp told{};
  EXPECT_OK(CU(cuMemGetAllocationPropertiesFromHandle)(&told, memory));
  EXPECT_EQ(CU_MEM_LOCATION_TYPE_DEVICE, told.location.type);
  ASSERT_CU(CU(cuMemUnmap)(at, unit_));
  EXPECT_OK(CU(cuMemRelease)(memory));
  EXPECT_OK(CU(cuMemAddressFree)(at, unit_));
}

// Another device that can reach the memory of this one.
struct Peer {
  CUmemAccessDesc access{};
  CUcontext context = nullptr;
};

std::vector<Peer> peers_of(CUdevice device) {
  std::vector<Peer> peers;
  int count = 0;
  EXPECT_OK(CU(cuDeviceGetCount)(&count));
  for (CUdevice other = 0; other < count; ++other) {
    int can = 0;
    EXPECT_OK(CU(cuDeviceCanAccessPeer)(&can, other, device));
    if (can == 0) continue;
    Peer peer;
    peer.access.location = {CU_MEM_LOCATION_TYPE_DEVICE, other};
    peer.access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_OK(CU(cuDevicePrimaryCtxRetain)(&peer.context, other));
    peers.push_back(peer);
  }
  return peers;
}

unsigned long long access_of(const CUmemLocation& location, CUdeviceptr at) {
  unsigned long long flags = 9;
  EXPECT_OK(CU(cuMemGetAccess)(&flags, &location, at));
  return flags;
}

// As what is parked there.
TEST_F(Vmm, MemoryOfAnotherDeviceIsReachedWithoutAContextThere) {
  int count = 0;
  ASSERT_CU(CU(cuDeviceGetCount)(&count));
  const CUdeviceptr own = alloc(unit_);
  ASSERT_CU(CU(cuMemsetD32)(own, 7, unit_ / 4));
  for (CUdevice other = 0; other < count; ++other) {
    int can = 0;
    ASSERT_CU(CU(cuDeviceCanAccessPeer)(&can, device_, other));
    if (can == 0) continue;
    CUmemAllocationProp prop = prop_;
    prop.location.id = other;
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle memory = 0;
    ASSERT_CU(CU(cuMemAddressReserve)(&at, unit_, 0, 0, 0));
    ASSERT_CU(CU(cuMemCreate)(&memory, unit_, &prop, 0));
    ASSERT_CU(CU(cuMemMap)(at, unit_, 0, memory, 0));
    ASSERT_CU(CU(cuMemSetAccess)(at, unit_, &access_, 1));
    ASSERT_CU(CU(cuMemcpyDtoDAsync)(at, own, unit_, nullptr));
    ASSERT_CU(CU(cuCtxSynchronize)());
    EXPECT_EQ(7u, read(at, 1)[0]);
    unsigned flags = 0;
    int active = 1;
    EXPECT_OK(CU(cuDevicePrimaryCtxGetState)(other, &flags, &active));
    EXPECT_EQ(0, active);
    ASSERT_CU(CU(cuMemUnmap)(at, unit_));
    EXPECT_OK(CU(cuMemRelease)(memory));
    EXPECT_OK(CU(cuMemAddressFree)(at, unit_));
  }
}

TEST_F(Vmm, EachDeviceHasAnAccessOfItsOwn) {
  constexpr unsigned long long kNone = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  constexpr unsigned long long kBoth = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_CU(CU(cuMemAddressReserve)(&at, unit_, 0, 0, 0));
  ASSERT_CU(CU(cuMemCreate)(&memory, unit_, &prop_, 0));
  for (const Peer& peer : peers_of(device_)) {
    ASSERT_CU(CU(cuMemMap)(at, unit_, 0, memory, 0));
    ASSERT_CU(CU(cuMemSetAccess)(at, unit_, &access_, 1));
    EXPECT_EQ(kNone, access_of(peer.access.location, at));
    // Given later, it takes nothing from who has it.
    ASSERT_CU(CU(cuMemSetAccess)(at, unit_, &peer.access, 1));
    EXPECT_EQ(kBoth, access_of(peer.access.location, at));
    EXPECT_EQ(kBoth, access_of(access_.location, at));
    ASSERT_CU(CU(cuCtxSetCurrent)(peer.context));
    ASSERT_CU(CU(cuMemsetD32)(at, 5, unit_ / 4));
    ASSERT_CU(CU(cuCtxSynchronize)());
    ASSERT_CU(CU(cuCtxSetCurrent)(context_));
    EXPECT_EQ(5u, read(at, 1)[0]);
    // A new mapping gives access to no device at first, and one call gives it to both.
    ASSERT_CU(CU(cuMemUnmap)(at, unit_));
    ASSERT_CU(CU(cuMemMap)(at, unit_, 0, memory, 0));
    EXPECT_EQ(kNone, access_of(peer.access.location, at));
    const CUmemAccessDesc both[] = {access_, peer.access};
    ASSERT_CU(CU(cuMemSetAccess)(at, unit_, both, 2));
    EXPECT_EQ(kBoth, access_of(peer.access.location, at));
    EXPECT_EQ(5u, read(at, 1)[0]);
    ASSERT_CU(CU(cuMemUnmap)(at, unit_));
    EXPECT_OK(CU(cuDevicePrimaryCtxRelease)(peer.access.location.id));
  }
  EXPECT_OK(CU(cuMemRelease)(memory));
  EXPECT_OK(CU(cuMemAddressFree)(at, unit_));
}

class Pools : public Gpu {
 protected:
  cuuint64_t get(CUmemoryPool pool, CUmemPool_attribute which) {
    cuuint64_t value = 0;
    EXPECT_OK(CU(cuMemPoolGetAttribute)(pool, which, &value));
    return value;
  }
  CUmemoryPool create() {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = device_;
    CUmemoryPool pool = nullptr;
    EXPECT_OK(CU(cuMemPoolCreate)(&pool, &props));
    return pool;
  }
};

TEST_F(Pools, AllocateInStreamOrder) {
  CUstream s = stream();
  CUdeviceptr memory = 0, out = alloc(4096);
  ASSERT_CU(CU(cuMemAllocAsync)(&memory, kMiB, s));
  ASSERT_CU(launch(s, "fill", memory, 8u, std::uint64_t{1024}));
  ASSERT_CU(CU(cuMemcpyDtoDAsync)(out, memory, 4096, s));
  ASSERT_CU(CU(cuMemFreeAsync)(memory, s));
  ASSERT_CU(CU(cuStreamSynchronize)(s));
  EXPECT_EQ(std::vector<std::uint32_t>(1024, 8), read(out, 1024));
}

TEST_F(Pools, CountWhatTheyReserveAndUse) {
  CUmemoryPool pool = create();
  CUstream s = stream();
  cuuint64_t keep = ~cuuint64_t{0};
  ASSERT_CU(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  CUdeviceptr memory = 0;
  ASSERT_CU(CU(cuMemAllocFromPoolAsync)(&memory, 48 * kMiB, pool, s));
  EXPECT_EQ(48 * kMiB, get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  EXPECT_GE(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 48 * kMiB);
  ASSERT_CU(CU(cuMemFreeAsync)(memory, s));
  ASSERT_CU(CU(cuStreamSynchronize)(s));
  EXPECT_EQ(0u, get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  EXPECT_EQ(48 * kMiB, get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
  EXPECT_GE(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 48 * kMiB);
  ASSERT_CU(CU(cuMemPoolTrimTo)(pool, 0));
  EXPECT_EQ(0u, get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  EXPECT_OK(CU(cuMemPoolDestroy)(pool));
}

TEST_F(Pools, GiveBackAboveTheThresholdWhenWaitedFor) {
  CUmemoryPool pool = create();
  CUstream s = stream();
  CUdeviceptr memory = 0;
  ASSERT_CU(CU(cuMemAllocFromPoolAsync)(&memory, 64 * kMiB, pool, s));
  ASSERT_CU(CU(cuMemFreeAsync)(memory, s));
  ASSERT_CU(CU(cuStreamSynchronize)(s));
  EXPECT_EQ(0u, get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  EXPECT_OK(CU(cuMemPoolDestroy)(pool));
}

TEST_F(Pools, OneIsTheDevicesOwn) {
  CUmemoryPool own = nullptr, now = nullptr, mine = create();
  ASSERT_CU(CU(cuDeviceGetDefaultMemPool)(&own, device_));
  ASSERT_CU(CU(cuDeviceGetMemPool)(&now, device_));
  EXPECT_EQ(own, now);
  ASSERT_CU(CU(cuDeviceSetMemPool)(device_, mine));
  ASSERT_CU(CU(cuDeviceGetMemPool)(&now, device_));
  EXPECT_EQ(mine, now);
  ASSERT_CU(CU(cuDeviceSetMemPool)(device_, own));
  EXPECT_OK(CU(cuMemPoolDestroy)(mine));
}

TEST_F(Pools, FreeTakesPooledMemoryToo) {
  CUstream s = stream();
  CUdeviceptr memory = 0;
  ASSERT_CU(CU(cuMemAllocAsync)(&memory, kMiB, s));
  ASSERT_CU(CU(cuStreamSynchronize)(s));
  EXPECT_OK(CU(cuMemFree)(memory));
}

TEST_F(Pools, OutOfMemoryIsSaid) {
  std::size_t total = 0;
  ASSERT_CU(CU(cuMemGetInfo)(nullptr, &total));
  CUdeviceptr memory = 0;
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAllocAsync)(&memory, total + kMiB, stream()));
}

}  // namespace
}  // namespace conformance
