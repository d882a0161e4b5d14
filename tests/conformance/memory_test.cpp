// Plain, pinned, managed memory; copies and sets; what is known of pointers.
#include <string.h>

#include <numeric>
#include <random>

#include "driver.h"

namespace conformance {
namespace {

using Memory = Gpu;
using Copies = Gpu;

TEST_F(Memory, IsAlignedAndFreedToWhereItWas) {
  CUdeviceptr warm = 0;
  ASSERT_CU(CU(cuMemAlloc)(&warm, 1));
  const std::uint64_t before = free_bytes();
  CUdeviceptr memory = 0;
  ASSERT_CU(CU(cuMemAlloc)(&memory, 64 * kMiB));
  EXPECT_EQ(0u, memory % 256);
  EXPECT_LE(free_bytes() + 64 * kMiB, before);
  EXPECT_OK(CU(cuMemFree)(memory));
  EXPECT_EQ(before, free_bytes());
  EXPECT_OK(CU(cuMemFree)(warm));
  EXPECT_OK(CU(cuMemFree)(0));
}

// Per piece, of so many that the rest of a page counts for nothing.
TEST_F(Memory, TakesOfTheDeviceWhatPagesOfTwoMebibytesHold) {
  constexpr std::size_t kKiB = 1 << 10, kPieces = 96;
  const struct {
    std::size_t asked, taken;
  } kSizes[] = {{256 * kKiB, 256 * kKiB},   {512 * kKiB, 512 * kKiB}, {513 * kKiB, 2 * kMiB / 3},
                {640 * kKiB, 2 * kMiB / 3}, {768 * kKiB, kMiB},       {kMiB, kMiB},
                {kMiB + 512, 2 * kMiB},     {2 * kMiB, 2 * kMiB},     {2 * kMiB + 512, 4 * kMiB}};
  for (const auto& size : kSizes) {
    std::vector<CUdeviceptr> pieces(kPieces);
    const std::uint64_t before = free_bytes();
    for (CUdeviceptr& piece : pieces) ASSERT_CU(CU(cuMemAlloc)(&piece, size.asked));
    const std::uint64_t taken = before - free_bytes();
    for (const CUdeviceptr piece : pieces) EXPECT_OK(CU(cuMemFree)(piece));
    EXPECT_EQ(free_bytes(), before) << size.asked;
    const auto expected = static_cast<double>(size.taken * kPieces);
    EXPECT_NEAR(static_cast<double>(taken), expected, expected / 20) << size.asked;
  }
}

TEST_F(Memory, RefusesWhatMakesNoSense) {
  CUdeviceptr memory = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, CU(cuMemAlloc)(&memory, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, CU(cuMemAlloc)(nullptr, 4096));
  memory = alloc(4096);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree)(memory + 256));
}

TEST_F(Memory, OutOfMemoryIsSaidAndHarmless) {
  std::size_t free = 0, total = 0;
  ASSERT_CU(CU(cuMemGetInfo)(&free, &total));
  CUdeviceptr memory = 0;
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAlloc)(&memory, total + kMiB));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAlloc)(&memory, free + 64 * kMiB));
  memory = alloc(kMiB);
  EXPECT_OK(CU(cuMemsetD8)(memory, 1, kMiB));
}

TEST_F(Memory, GetInfoTakesNulls) {
  std::size_t free = 0, total = 0;
  EXPECT_OK(CU(cuMemGetInfo)(&free, nullptr));
  EXPECT_OK(CU(cuMemGetInfo)(nullptr, &total));
  EXPECT_GT(free, 0u);
  EXPECT_GE(total, free);
}

TEST_F(Memory, KnowsTheRangeOfAnAddress) {
  CUdeviceptr memory = alloc(3 * kMiB), base = 0;
  std::size_t bytes = 0;
  EXPECT_OK(CU(cuMemGetAddressRange)(&base, &bytes, memory + 12345));
  EXPECT_EQ(memory, base);
  EXPECT_EQ(3 * kMiB, bytes);
  CUdeviceptr start = 0;
  EXPECT_OK(
      CU(cuPointerGetAttribute)(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 12345));
  EXPECT_EQ(memory, start);
  unsigned type = 0;
  EXPECT_OK(CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  EXPECT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_DEVICE), type);
  int ordinal = -1;
  EXPECT_OK(CU(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
  EXPECT_EQ(0, ordinal);
  int local = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      reinterpret_cast<CUdeviceptr>(&local)));
}

TEST_F(Memory, PointersTellTheirContextAndWhatTheyAreGoodFor) {
  const CUdeviceptr memory = alloc(64 * kMiB);
  const CUdeviceptr inside = memory + kMiB;
  EXPECT_EQ(context_, attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside));
  EXPECT_EQ(64 * kMiB, attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
  EXPECT_EQ(memory, attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside));
  EXPECT_EQ(64 * kMiB, attribute<std::size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside));
  EXPECT_EQ(1u, attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside));
  EXPECT_EQ(0u, attribute<std::uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside));
  EXPECT_EQ(2 * kMiB, attribute<std::size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, alloc(4096)));
  int rdma = 0;
  ASSERT_CU(
      CU(cuDeviceGetAttribute)(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, device_));
  EXPECT_EQ(static_cast<unsigned>(rdma),
            attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, inside));
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device_;
  unsigned long long flags = 9;
  EXPECT_OK(CU(cuMemGetAccess)(&flags, &location, memory));
  EXPECT_EQ(0u, flags);
  const unsigned yes = 1;
  EXPECT_OK(CU(cuPointerSetAttribute)(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
  EXPECT_EQ(1u, attribute<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
}

TEST_F(Memory, PitchedRowsAreApart) {
  CUdeviceptr memory = 0;
  std::size_t pitch = 0;
  ASSERT_CU(CU(cuMemAllocPitch)(&memory, &pitch, 1000, 10, 4));
  EXPECT_GE(pitch, 1000u);
  EXPECT_OK(CU(cuMemsetD2D8)(memory, pitch, 7, 1000, 10));
  std::vector<unsigned char> row(1000);
  EXPECT_OK(CU(cuMemcpyDtoH)(row.data(), memory + 9 * pitch, 1000));
  EXPECT_EQ(std::vector<unsigned char>(1000, 7), row);
  EXPECT_OK(CU(cuMemFree)(memory));
}

TEST_F(Memory, PinnedMemoryIsSeenByKernels) {
  std::uint32_t* host = pinned(1024);
  CUdeviceptr device = 0;
  ASSERT_CU(CU(cuMemHostGetDevicePointer)(&device, host, 0));
  ASSERT_CU(launch(nullptr, "fill", device, 9u, std::uint64_t{1024}));
  ASSERT_CU(CU(cuCtxSynchronize)());
  EXPECT_EQ(std::vector<std::uint32_t>(1024, 9), std::vector<std::uint32_t>(host, host + 1024));
}

TEST_F(Memory, RegisteredMemoryIsSeenByKernels) {
  void* host = nullptr;
  ASSERT_EQ(0, posix_memalign(&host, 4096, 8192));
  ASSERT_CU(CU(cuMemHostRegister)(host, 8192, CU_MEMHOSTREGISTER_DEVICEMAP));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            CU(cuMemHostRegister)(host, 8192, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr device = 0;
  ASSERT_CU(CU(cuMemHostGetDevicePointer)(&device, host, 0));
  ASSERT_CU(launch(nullptr, "fill", device, 3u, std::uint64_t{2048}));
  ASSERT_CU(CU(cuCtxSynchronize)());
  EXPECT_EQ(3u, static_cast<std::uint32_t*>(host)[2047]);
  EXPECT_OK(CU(cuMemHostUnregister)(host));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, CU(cuMemHostUnregister)(host));
  free(host);
}

TEST_F(Memory, ManagedMemoryIsSeenByBoth) {
  CUdeviceptr memory = 0;
  ASSERT_CU(CU(cuMemAllocManaged)(&memory, kMiB, CU_MEM_ATTACH_GLOBAL));
  unsigned managed = 0;
  EXPECT_OK(CU(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory));
  EXPECT_EQ(1u, managed & 1);
  ASSERT_CU(launch(nullptr, "fill", memory, 5u, std::uint64_t{1024}));
  ASSERT_CU(CU(cuCtxSynchronize)());
  EXPECT_EQ(5u, reinterpret_cast<std::uint32_t*>(memory)[1023]);
  EXPECT_OK(CU(cuMemFree)(memory));
}

TEST_F(Memory, ThousandRandomAllocationsEndWhereTheyBegan) {
  CUdeviceptr warm = alloc(1);
  ASSERT_NE(0u, warm);
  const std::uint64_t before = free_bytes();
  std::mt19937 random(1);
  std::vector<CUdeviceptr> live;
  for (int i = 0; i < 1000; ++i) {
    if (live.size() > 40 || (!live.empty() && random() % 2)) {
      const std::size_t which = random() % live.size();
      ASSERT_CU(CU(cuMemFree)(live[which]));
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      CUdeviceptr memory = 0;
      ASSERT_CU(CU(cuMemAlloc)(&memory, 1 + random() % (random() % 4 ? 10'000 : 8 * kMiB)));
      live.push_back(memory);
    }
  }
  for (CUdeviceptr memory : live) ASSERT_CU(CU(cuMemFree)(memory));
  EXPECT_EQ(before, free_bytes());
}

TEST_F(Copies, EveryDirectionKeepsTheBytes) {
  constexpr std::size_t kWords = 100'000;
  std::vector<std::uint32_t> in(kWords), out(kWords);
  std::iota(in.begin(), in.end(), 0u);
  CUdeviceptr a = alloc(4 * kWords), b = alloc(4 * kWords);
  CUstream s = stream();
  ASSERT_CU(CU(cuMemcpyHtoD)(a, in.data(), 4 * kWords));
  ASSERT_CU(CU(cuMemcpyDtoD)(b, a, 4 * kWords));
  ASSERT_CU(CU(cuMemsetD8)(a, 0, 4 * kWords));
  ASSERT_CU(CU(cuCtxSynchronize)());
  ASSERT_CU(CU(cuMemcpyAsync)(a, b, 4 * kWords, s));
  ASSERT_CU(CU(cuMemcpyDtoHAsync)(out.data(), a, 4 * kWords, s));
  ASSERT_CU(CU(cuStreamSynchronize)(s));
  EXPECT_EQ(in, out);
  ASSERT_CU(CU(cuMemcpy)(reinterpret_cast<CUdeviceptr>(out.data()), b, 4 * kWords));
  EXPECT_EQ(in, out);
}

TEST_F(Copies, KernelsComputeOnThem) {
  CUdeviceptr a = alloc(kMiB), b = alloc(kMiB), sum = alloc(8);
  constexpr std::uint64_t kWords = kMiB / 4;
  ASSERT_CU(launch(nullptr, "fill", a, 5u, kWords));
  ASSERT_CU(launch(nullptr, "copy_words", a, b, kWords));
  ASSERT_CU(launch(nullptr, "add_words", b, 2u, kWords));
  ASSERT_CU(launch(nullptr, "sum_words", b, kWords, sum));
  std::uint64_t result = 0;
  ASSERT_CU(CU(cuMemcpyDtoH)(&result, sum, 8));
  EXPECT_EQ(7 * kWords, result);
}

TEST_F(Copies, SetsOfEveryWidth) {
  CUdeviceptr memory = alloc(4096);
  ASSERT_CU(CU(cuMemsetD8)(memory, 0x11, 4096));
  ASSERT_CU(CU(cuMemsetD16)(memory, 0x2222, 1024));
  ASSERT_CU(CU(cuMemsetD32)(memory, 0x33333333, 256));
  ASSERT_CU(CU(cuCtxSynchronize)());
  const auto words = read(memory, 1024);
  EXPECT_EQ(0x33333333u, words[255]);
  EXPECT_EQ(0x22222222u, words[256]);
  EXPECT_EQ(0x22222222u, words[511]);
  EXPECT_EQ(0x11111111u, words[512]);
}

// A copy of so many rows, and its end in the host.
CUDA_MEMCPY2D rows(std::size_t bytes, std::size_t count) {
  CUDA_MEMCPY2D copy{};
  copy.WidthInBytes = bytes;
  copy.Height = count;
  return copy;
}
void from_host(CUDA_MEMCPY2D& copy, const std::vector<std::uint32_t>& words, std::size_t pitch) {
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = words.data();
  copy.srcPitch = pitch;
}
void to_host(CUDA_MEMCPY2D& copy, std::vector<std::uint32_t>& words, std::size_t pitch) {
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = words.data();
  copy.dstPitch = pitch;
}

TEST_F(Copies, TwoDimensionsGoRowByRow) {
  std::vector<std::uint32_t> in(16 * 16), out(8 * 8);
  std::iota(in.begin(), in.end(), 0u);
  CUdeviceptr memory = alloc(64 * 16);
  CUDA_MEMCPY2D up = rows(64, 16);
  from_host(up, in, 64);
  up.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  up.dstDevice = memory;
  up.dstPitch = 64;
  ASSERT_CU(CU(cuMemcpy2D)(&up));
  CUDA_MEMCPY2D down = rows(32, 8);
  down.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  down.srcDevice = memory;
  down.srcPitch = 64;
  down.srcXInBytes = 16;
  down.srcY = 2;
  to_host(down, out, 32);
  ASSERT_CU(CU(cuMemcpy2D)(&down));
  EXPECT_EQ(2u * 16 + 4, out[0]);
  EXPECT_EQ(9u * 16 + 11, out[63]);
}

TEST_F(Copies, ArraysKeepTheirTexels) {
  const CUDA_ARRAY_DESCRIPTOR shape = {32, 16, CU_AD_FORMAT_UNSIGNED_INT32, 1};
  CUarray array = nullptr;
  ASSERT_CU(CU(cuArrayCreate)(&array, &shape));
  std::vector<std::uint32_t> in(32 * 16), out(32 * 16);
  std::iota(in.begin(), in.end(), 0u);
  CUDA_MEMCPY2D up = rows(128, 16);
  from_host(up, in, 128);
  up.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  up.dstArray = array;
  ASSERT_CU(CU(cuMemcpy2D)(&up));
  CUDA_MEMCPY2D down = rows(128, 16);
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  down.srcArray = array;
  to_host(down, out, 128);
  ASSERT_CU(CU(cuMemcpy2D)(&down));
  EXPECT_EQ(in, out);
  CUDA_ARRAY_DESCRIPTOR told{};
  EXPECT_OK(CU(cuArrayGetDescriptor)(&told, array));
  EXPECT_EQ(32u, told.Width);
  EXPECT_OK(CU(cuArrayDestroy)(array));
}

TEST_F(Copies, MipmappedArraysHaveLevels) {
  const CUDA_ARRAY3D_DESCRIPTOR shape = {256, 256, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUmipmappedArray mipmapped = nullptr;
  ASSERT_CU(CU(cuMipmappedArrayCreate)(&mipmapped, &shape, 3));
  CUarray level = nullptr;
  ASSERT_CU(CU(cuMipmappedArrayGetLevel)(&level, mipmapped, 1));
  CUDA_ARRAY_DESCRIPTOR told{};
  EXPECT_OK(CU(cuArrayGetDescriptor)(&told, level));
  EXPECT_EQ(128u, told.Width);
  EXPECT_OK(CU(cuMipmappedArrayDestroy)(mipmapped));
}

}  // namespace
}  // namespace conformance
