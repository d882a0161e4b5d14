#include "shim/swap/memory/range_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "tests/shim/swap/swap_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using swap::Chunk;
using swap::Range;
using swap::RangesLock;

class Ranges : public SwapTest {
 protected:
  static constexpr CUdeviceptr kBase = 0x10000000;
  static Range range(CUdeviceptr address, std::uint64_t bytes) {
    return {.address = address, .asked = bytes, .bytes = bytes};
  }
  // A reservation to bring chunks into.
  CUdeviceptr reserve(std::uint64_t bytes) {
    CUdeviceptr at = 0;
    EXPECT_EQ(g_driver.cuMemAddressReserve(&at, bytes, 0, 0, 0), CUDA_SUCCESS);
    return at;
  }
  // The driver exports memory under this number.
  static void exports_as(int descriptor) {
    static int exported;
    exported = descriptor;
    g_driver.cuMemExportToShareableHandle = [](void* out, CUmemGenericAllocationHandle,
                                               CUmemAllocationHandleType, unsigned long long) {
      *static_cast<int*>(out) = exported;
      return CUDA_SUCCESS;
    };
  }
  RangesLock held_;
};

TEST_F(Ranges, AreFoundByEveryAddressInThem) {
  ASSERT_TRUE(swap::add(range(kBase, 4 * kMiB)));
  ASSERT_TRUE(swap::add(range(kBase + 8 * kMiB, 2 * kMiB)));
  EXPECT_EQ(swap::find(kBase - 1), nullptr);
  EXPECT_EQ(swap::find(kBase)->address, kBase);
  EXPECT_EQ(swap::find(kBase + 4 * kMiB - 1)->address, kBase);
  EXPECT_EQ(swap::find(kBase + 4 * kMiB), nullptr);
  EXPECT_EQ(swap::find(kBase + 9 * kMiB)->address, kBase + 8 * kMiB);
  EXPECT_EQ(swap::find(kBase + 10 * kMiB), nullptr);
}

// A program that the job starts would keep the memory.
TEST_F(Ranges, AnExportedDescriptorEndsWithExec) {
  exports_as(::memfd_create("memory", 0));
  int fd = -1;
  ASSERT_EQ(swap::export_chunk({}, fd), CUDA_SUCCESS);
  EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
  ::close(fd);
}

TEST_F(Ranges, AnExportWhoseDescriptorWouldOutliveExecFails) {
  exports_as(1'000'000);  // open nowhere: nothing can be set on it
  int fd = -1;
  EXPECT_EQ(swap::export_chunk({}, fd), CUDA_ERROR_OPERATING_SYSTEM);
}

TEST_F(Ranges, AnEmptyTableFindsNothing) { EXPECT_EQ(swap::find(kBase), nullptr); }

TEST_F(Ranges, ManyStayInOrderAsTheyComeAndGo) {
  std::vector<std::uint64_t> places(1000);
  for (std::uint64_t i = 0; i < places.size(); ++i) places[i] = i;
  std::mt19937 random(7);
  std::shuffle(places.begin(), places.end(), random);
  for (const std::uint64_t place : places) {
    ASSERT_TRUE(swap::add(range(kBase + place * 4 * kMiB, 2 * kMiB)));
  }
  std::shuffle(places.begin(), places.end(), random);
  for (std::size_t gone = 0; gone < places.size(); ++gone) {
    const CUdeviceptr address = kBase + places[gone] * 4 * kMiB;
    const swap::Range* found = swap::find(address + kMiB);
    ASSERT_NE(found, nullptr);
    const auto index = static_cast<std::size_t>(found - &swap::at(0));
    EXPECT_EQ(swap::take(index).address, address);
    EXPECT_EQ(swap::find(address), nullptr);
    EXPECT_EQ(swap::count(), places.size() - gone - 1);
  }
}

TEST_F(Ranges, AChunkIsMappedWholeForItsDevice) {
  const CUdeviceptr at = reserve(32 * kMiB);
  Chunk chunk{.bytes = 32 * kMiB};
  ASSERT_EQ(swap::bring(chunk, at, swap::plain_memory(3)), CUDA_SUCCESS);
  EXPECT_EQ(swap_.mapped[at].handle, chunk.handle);
  EXPECT_FALSE(swap_.mapped[at].accessible);
  ASSERT_EQ(swap::permit(at, chunk.bytes, {.location = swap_.properties.location}), CUDA_SUCCESS);
  EXPECT_TRUE(swap_.mapped[at].accessible);
  EXPECT_EQ(swap_.properties.location.id, 3);
  EXPECT_EQ(swap_.properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
  EXPECT_EQ(swap_.properties.allocFlags.gpuDirectRDMACapable, 0);
  swap::send_away(chunk, at);
  EXPECT_EQ(chunk.handle, 0u);
  EXPECT_TRUE(swap_.mapped.empty());
  EXPECT_TRUE(swap_.handles.empty());
}

TEST_F(Ranges, MemoryThatMayLeaveIsNotForRdmaAlsoWhereTheDeviceIsCapable) {
  swap_.rdma = true;
  const CUdeviceptr at = reserve(2 * kMiB);
  Chunk chunk{.bytes = 2 * kMiB};
  ASSERT_EQ(swap::bring(chunk, at, swap::plain_memory(0)), CUDA_SUCCESS);
  EXPECT_EQ(swap_.properties.allocFlags.gpuDirectRDMACapable, 0);
}

TEST_F(Ranges, EachCallFailingInTurnLeavesNothingOfAChunk) {
  const CUdeviceptr at = reserve(2 * kMiB);
  Chunk chunk{.bytes = 2 * kMiB};
  for (int call = 0; call < 2; ++call) {
    faults().fail(call);
    EXPECT_EQ(swap::bring(chunk, at, swap::plain_memory(0)), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(chunk.handle, 0u);
    EXPECT_TRUE(swap_.mapped.empty());
    EXPECT_TRUE(swap_.handles.empty());
  }
  faults().fail(2);
  EXPECT_EQ(swap::bring(chunk, at, swap::plain_memory(0)), CUDA_SUCCESS);
}

using Forks = SwapTest;

// An exit handler of the child may free what the parent had allocated.
TEST_F(Forks, AForkedChildIsNotHeldByALockOfItsParent) {
  begin_process();
  std::atomic<int> step{0};
  std::thread holder([&] {
    const RangesLock held;
    step = 1;
    while (step == 1) std::this_thread::yield();
  });
  while (step == 0) std::this_thread::yield();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const RangesLock held;
    ::_exit(swap::count() == 0 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  step = 2;
  holder.join();
}

}  // namespace
}  // namespace switchyard::shim
