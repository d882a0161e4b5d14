// The pipeline: whatever fails, each chunk's contents are on the device or in the host.
#include "shim/swap/pipeline.h"

#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "shim/swap/host_pool.h"
#include "shim/swap/ranges.h"
#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

using swap::Held;
using swap::Stop;
constexpr std::uint64_t kMiB2 = swap::kSmallestChunk;

// A driver whose device memory is ordinary memory. Memory that comes is full of rubbish.
struct Driven {
  int calls_until_failure = -1;  // of those that may fail; -1: none does
  CUresult failure = CUDA_ERROR_OUT_OF_MEMORY;
  int live_handles = 0;
  std::uint64_t most_out = 0;

  CUresult next() {
    if (calls_until_failure < 0 || calls_until_failure-- > 0) return CUDA_SUCCESS;
    return failure;
  }
};
Driven* g_driven = nullptr;

std::int64_t g_resident = 0;
std::int64_t g_lowest = 0;
void note_resident(unsigned, std::int64_t bytes) {
  g_resident += bytes;
  g_lowest = std::min(g_lowest, g_resident);
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                unsigned long long) {
  if (const CUresult result = g_driven->next()) return result;
  *handle = static_cast<CUmemGenericAllocationHandle>(++g_driven->live_handles);
  return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle) {
  --g_driven->live_handles;
  return CUDA_SUCCESS;
}
CUresult map(CUdeviceptr address, size_t bytes, size_t, CUmemGenericAllocationHandle,
             unsigned long long) {
  if (const CUresult result = g_driven->next()) return result;
  std::memset(reinterpret_cast<void*>(address), 0xEE, bytes);
  return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr address, size_t bytes) {
  std::memset(reinterpret_cast<void*>(address), 0xDD, bytes);
  return CUDA_SUCCESS;
}
CUresult access(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return g_driven->next(); }
CUresult to_host(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  if (const CUresult result = g_driven->next()) return result;
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}
CUresult to_device(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
  if (const CUresult result = g_driven->next()) return result;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}

class Pipeline : public testing::EngineTest {
 protected:
  Pipeline() {
    g_driven = &driven_;
    g_driver.cuMemCreate = create;
    g_driver.cuMemRelease = release;
    g_driver.cuMemMap = map;
    g_driver.cuMemUnmap = unmap;
    g_driver.cuMemSetAccess = access;
    g_driver.cuMemcpyDtoHAsync_v2 = to_host;
    g_driver.cuMemcpyHtoDAsync_v2 = to_device;
    g_driver.cuStreamCreate = [](CUstream* out, unsigned) {
      *out = reinterpret_cast<CUstream>(0x50);
      return g_driven->next();
    };
    g_driver.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
    g_driver.cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
    g_driver.cuEventCreate = [](CUevent* out, unsigned) {
      *out = reinterpret_cast<CUevent>(0x60);
      return CUDA_SUCCESS;
    };
    g_driver.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
    g_driver.cuEventRecord = [](CUevent, CUstream) { return g_driven->next(); };
    g_driver.cuEventSynchronize = [](CUevent) { return g_driven->next(); };
    g_driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) { return CUDA_SUCCESS; };
    while (swap::host_pool::free_bytes() < 64 * testing::kMiB) {
      if (!swap::host_pool::grow(UINT64_MAX)) break;
    }
    add({kMiB2, kMiB2, kMiB2});
    add({kMiB2, kMiB2});
    g_resident = g_lowest = static_cast<std::int64_t>(5 * kMiB2);
  }
  ~Pipeline() override {
    {
      const Held held;
      while (swap::count() != 0) {
        const swap::Range range = swap::take(0);
        for (unsigned c = 0; c < range.count; ++c) swap::host_pool::give_back(range.chunks[c].host);
        std::free(range.chunks);
      }
    }
    for (void* memory : memories_) ::munmap(memory, 3 * kMiB2);
    g_driven = nullptr;
  }

  void add(const std::vector<std::uint64_t>& chunks) {
    void* memory =
        ::mmap(nullptr, 3 * kMiB2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memories_.push_back(memory);
    swap::Range range{.address = reinterpret_cast<CUdeviceptr>(memory)};
    range.count = static_cast<unsigned>(chunks.size());
    range.chunks = static_cast<swap::Chunk*>(std::calloc(chunks.size(), sizeof(swap::Chunk)));
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      range.chunks[i].bytes = chunks[i];
      range.bytes += chunks[i];
      const Held held;
      ASSERT_EQ(swap::bring(range.chunks[i], range.address + i * kMiB2, range.properties),
                CUDA_SUCCESS);
    }
    range.asked = range.bytes;
    std::uint64_t key = 1 + memories_.size();
    for (std::uint64_t at = 0; at < range.bytes; at += 8, key = key * 6364136223846793005u + 1) {
      *reinterpret_cast<std::uint64_t*>(range.address + at) = key;
    }
    const Held held;
    ASSERT_TRUE(swap::add(range));
    contents_.emplace_back(reinterpret_cast<const char*>(range.address), range.bytes);
  }

  // Each chunk's contents are where it says that they are.
  void expect_nothing_lost() {
    const Held held;
    std::int64_t resident = 0;
    for (std::size_t i = 0; i < memories_.size(); ++i) {
      swap::Range* range = swap::find(reinterpret_cast<CUdeviceptr>(memories_[i]));
      ASSERT_NE(range, nullptr);
      for (unsigned c = 0; c < range->count; ++c) {
        const swap::Chunk& chunk = range->chunks[c];
        const char* there = chunk.handle != 0
                                ? reinterpret_cast<const char*>(range->address) + c * kMiB2
                                : static_cast<const char*>(chunk.host.at);
        ASSERT_NE(there, nullptr) << "range " << i << " chunk " << c << " is nowhere";
        EXPECT_EQ(std::memcmp(there, contents_[i].data() + c * kMiB2, chunk.bytes), 0)
            << "range " << i << " chunk " << c;
        if (chunk.handle != 0) {
          EXPECT_FALSE(chunk.host) << "a copy is kept for nothing";
          resident += static_cast<std::int64_t>(chunk.bytes);
        }
      }
    }
    EXPECT_EQ(resident, g_resident);
  }
  swap::Moved out(std::uint64_t bytes = UINT64_MAX) {
    const Held held;
    return swap::move_out(0, bytes, note_resident);
  }
  swap::Moved in() {
    const Held held;
    return swap::move_in(0, note_resident);
  }

  Driven driven_;
  std::vector<void*> memories_;
  std::vector<std::string> contents_;
};

TEST_F(Pipeline, OutAndInKeepsEveryByte) {
  const swap::Moved left = out();
  EXPECT_EQ(left.stop, Stop::kNothing);
  EXPECT_EQ(left.copied, 5 * kMiB2);
  EXPECT_EQ(driven_.live_handles, 0);
  EXPECT_EQ(g_resident, 0);
  expect_nothing_lost();
  EXPECT_EQ(in().copied, 5 * kMiB2);
  EXPECT_EQ(driven_.live_handles, 5);
  expect_nothing_lost();
}

TEST_F(Pipeline, OnlyTheExcessGoes) {
  EXPECT_EQ(out(kMiB2 + 1).copied, 2 * kMiB2);
  EXPECT_EQ(driven_.live_handles, 3);
  expect_nothing_lost();
  EXPECT_EQ(in().copied, 2 * kMiB2);
}

TEST_F(Pipeline, WithoutRoomInTheHostTheRestStays) {
  std::vector<swap::host_pool::Piece> taken;
  while (swap::host_pool::free_bytes() > 2 * kMiB2) {
    taken.push_back(swap::host_pool::take(kMiB2));
    ASSERT_TRUE(taken.back());
  }
  EXPECT_EQ(out().stop, Stop::kNoHostRoom);
  expect_nothing_lost();
  for (auto& piece : taken) swap::host_pool::give_back(piece);
  EXPECT_EQ(in().stop, Stop::kNothing);
  expect_nothing_lost();
}

TEST_F(Pipeline, WithoutRoomOnTheDeviceTheRestIsTriedAgain) {
  out();
  driven_.calls_until_failure = 2 * 4 + 1;  // two chunks' calls, and the stream's
  EXPECT_EQ(in().stop, Stop::kNoDeviceRoom);
  EXPECT_EQ(driven_.live_handles, 2);
  expect_nothing_lost();
  driven_.calls_until_failure = -1;
  EXPECT_EQ(in().stop, Stop::kNothing);
  expect_nothing_lost();
}

TEST_F(Pipeline, WhatTheDriverDoesNotUnmapStays) {
  g_driver.cuMemUnmap = [](CUdeviceptr, size_t) { return CUDA_ERROR_UNKNOWN; };
  EXPECT_EQ(out().stop, Stop::kDriver);
  EXPECT_EQ(driven_.live_handles, 5);
  expect_nothing_lost();
  g_driver.cuMemUnmap = unmap;
  EXPECT_EQ(out().stop, Stop::kNothing);
  expect_nothing_lost();
}

TEST_F(Pipeline, EachCallFailingInTurnLosesNothing) {
  for (const CUresult failure : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    driven_.failure = failure;
    for (int n = 0; n < 40; ++n) {
      driven_.calls_until_failure = n;
      out();
      expect_nothing_lost();
      driven_.calls_until_failure = -1;
      EXPECT_EQ(in().stop, Stop::kNothing);
      EXPECT_EQ(driven_.live_handles, 5);
      out();
      driven_.calls_until_failure = n;
      in();
      expect_nothing_lost();
      driven_.calls_until_failure = -1;
      EXPECT_EQ(in().stop, Stop::kNothing);
      expect_nothing_lost();
    }
  }
}

}  // namespace
}  // namespace switchyard::shim
