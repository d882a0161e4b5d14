// Memory that the application makes itself: what its handles are, and when it may leave the device.
// Also the calls that are allowed while it is away.
#include "shim/swap/calls/handles.h"

#include <cstdlib>
#include <thread>

#include "shim/memory/owner.h"
#include "shim/rules/vmm.h"
#include "shim/work_guard.h"
#include "tests/shim/swap/calls/handles_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class Handles : public HandlesTest {};

TEST_F(Handles, ANumberStandsForChunksOfItsOwn) {
  const Handle number = create(80 * kMiB);
  EXPECT_TRUE(swap::handles::ours(number));
  ASSERT_EQ(swap_.handles.size(), 3u);
  EXPECT_EQ(used(), 80 * kMiB);
  EXPECT_EQ(swap_.started.load(), 1);
  const CUdeviceptr at = reserve(80 * kMiB);
  EXPECT_EQ(map(at, 80 * kMiB, number), CUDA_SUCCESS);
  EXPECT_EQ(swap_.mapped.at(at).bytes, 32 * kMiB);
  EXPECT_EQ(swap_.mapped.at(at + 32 * kMiB).bytes, 32 * kMiB);
  EXPECT_EQ(swap_.mapped.at(at + 64 * kMiB).bytes, 16 * kMiB);
}

TEST_F(Handles, TheEndOfAContextLeavesWhatTheApplicationMapped) {
  const CUdeviceptr at = make(32 * kMiB);
  memory::primary_gone(0);
  EXPECT_TRUE(swap_.mapped.contains(at)) << "it belongs to no context";
  EXPECT_EQ(used(), 32 * kMiB);
}

TEST_F(Handles, WhatCanBeExportedIsChunksToo) {
  swap_.rdma = true;  // the device can all
  g_driver.cuMemExportToShareableHandle = [](void*, Handle, CUmemAllocationHandleType,
                                             unsigned long long) { return CUDA_SUCCESS; };
  create(32 * kMiB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  ASSERT_EQ(swap_.handles.size(), 1u);
  EXPECT_EQ(swap_.properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  constexpr auto kTwoTypes = static_cast<CUmemAllocationHandleType>(
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_WIN32);
  create(80 * kMiB, kTwoTypes);
  ASSERT_EQ(swap_.handles.size(), 4u);
  EXPECT_EQ(swap_.properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      << "they can be handed over, and no more";
}

TEST_F(Handles, OtherKindsOfMemoryAreTheDrivers) {
  Handle number = 0;
  CUmemAllocationProp host = properties();
  host.location.type = static_cast<CUmemLocationType>(3);  // of the host: older headers lack it
  CUmemAllocationProp tiles = properties();
  tiles.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
  CUmemAllocationProp odd = properties();
  odd.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  EXPECT_FALSE(swap::handles::takes(&number, 2 * kMiB, &host, 0));
  EXPECT_FALSE(swap::handles::takes(&number, 2 * kMiB, &tiles, 0));
  EXPECT_FALSE(swap::handles::takes(&number, 2 * kMiB, &odd, 0));
  const CUmemAllocationProp plain = properties();
  EXPECT_TRUE(swap::handles::takes(&number, 2 * kMiB, &plain, 0));
  EXPECT_FALSE(swap::handles::takes(nullptr, 2 * kMiB, &plain, 0));
  EXPECT_FALSE(swap::handles::takes(&number, 0, &plain, 0));
  EXPECT_FALSE(swap::handles::takes(&number, 2 * kMiB, nullptr, 0));
  EXPECT_FALSE(swap::handles::takes(&number, 2 * kMiB, &plain, 1));
  process().swappable.store(0);
  EXPECT_FALSE(swap::handles::takes(&number, 2 * kMiB, &plain, 0));
}

TEST_F(Handles, ForeignOnesGoToTheDriverAsTheyAre) {
  Handle asked = 0;
  const auto driver_release = [&](Handle handle) {
    asked = handle;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::release_handle(driver_release, Handle{4711}), CUDA_SUCCESS);
  EXPECT_EQ(asked, 4711u);
}

TEST_F(Handles, EachCallFailingInTurnLeavesNothing) {
  for (int call = 0; call < 3; ++call) {
    faults().fail(call);
    Handle number = 0;
    EXPECT_EQ(try_create(number, 80 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
    faults().none();
    expect_nothing_left();
  }
  const Handle number = create(80 * kMiB);
  const CUdeviceptr at = reserve(80 * kMiB);
  for (int call = 0; call < 3; ++call) {
    faults().fail(call);
    EXPECT_EQ(map(at, 80 * kMiB, number), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_TRUE(swap_.mapped.empty());
  }
}

TEST_F(Handles, PartsAreRefusedAsTheDriverRefusesThem) {
  for (const std::uint64_t bytes : {16 * kMiB, 80 * kMiB}) {
    const Handle number = create(bytes);
    const CUdeviceptr at = reserve(2 * bytes);
    EXPECT_EQ(map(at, bytes / 2, number), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(map(at, bytes / 2, number, bytes / 2), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(map(at, bytes, number, bytes), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(map(at, 2 * bytes, number), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(map(at, 0, number), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(map(at + kMiB, bytes, number), CUDA_ERROR_INVALID_VALUE);
    EXPECT_TRUE(swap_.mapped.empty());
  }
  // Nor is one of its chunks a mapping to the application.
  const CUdeviceptr at = make(80 * kMiB);
  EXPECT_EQ(unmap(at, 32 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(access(at, 64 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(swap_.mapped.size(), 3u);
}

TEST_F(Handles, MemoryMayLeaveWhileItsDeviceAloneUsesItAtOnePlace) {
  const Handle number = create(40 * kMiB);
  const CUdeviceptr at = reserve(40 * kMiB);
  const CUdeviceptr other = reserve(40 * kMiB);
  EXPECT_EQ(swap_.total, 0u);
  EXPECT_EQ(stays(Stays::kNotMapped), 40 * kMiB);
  map(at, 40 * kMiB, number);
  EXPECT_EQ(swap_.total, 0u) << "nobody may use it yet";
  EXPECT_EQ(stays(Stays::kNotMapped), 40 * kMiB);
  access(at, 40 * kMiB);
  EXPECT_EQ(swap_.total, 40 * kMiB);
  EXPECT_EQ(swap_.resident, 40 * kMiB);
  EXPECT_EQ(stays(Stays::kNotMapped), 0u);
  access(at, 40 * kMiB, CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(swap_.total, 0u) << "what is read only would come back writable";
  EXPECT_EQ(stays(Stays::kNotMapped), 40 * kMiB);
  access(at, 40 * kMiB);
  access(at, 40 * kMiB, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 1);
  EXPECT_EQ(swap_.total, 0u) << "a peer has it mapped";
  EXPECT_EQ(stays(Stays::kPeerMapped), 40 * kMiB);
  access(at, 40 * kMiB, CU_MEM_ACCESS_FLAGS_PROT_NONE, 1);
  EXPECT_EQ(swap_.total, 40 * kMiB);
  map(other, 40 * kMiB, number);
  EXPECT_EQ(swap_.total, 0u) << "it is mapped twice";
  EXPECT_EQ(stays(Stays::kMultiplyMapped), 40 * kMiB);
  access(other, 40 * kMiB);
  EXPECT_EQ(swap_.total, 0u);
  unmap(at, 40 * kMiB);
  EXPECT_EQ(swap_.total, 40 * kMiB) << "the other place is the only one";
  for (const Stays why : {Stays::kNotMapped, Stays::kPeerMapped, Stays::kMultiplyMapped}) {
    EXPECT_EQ(stays(why), 0u);
  }
  take_away(other);
  EXPECT_EQ(swap_.resident, 0u);
}

TEST_F(Handles, WhatIsReleasedStaysNoLonger) {
  EXPECT_EQ(release(create(40 * kMiB)), CUDA_SUCCESS);
  EXPECT_EQ(stays(Stays::kNotMapped), 0u) << "it was never mapped";
  const CUdeviceptr at = make(8 * kMiB);
  EXPECT_EQ(unmap(at, 8 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(stays(Stays::kNotMapped), 8 * kMiB);
  EXPECT_EQ(release(last(1)), CUDA_SUCCESS);
  EXPECT_EQ(stays(Stays::kNotMapped), 0u);
}

TEST_F(Handles, AWholePoolThatCanBeExportedMayLeave) {
  make(15000 * kMiB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(swap_.total, 15000 * kMiB);
}

TEST_F(Handles, NeighboursAreGivenAccessAndUnmappedAtOnce) {
  const CUdeviceptr at = reserve(64 * kMiB);
  const Handle large = create(40 * kMiB);
  const Handle small = create(2 * kMiB);
  map(at, 40 * kMiB, large);
  map(at + 40 * kMiB, 2 * kMiB, small);
  EXPECT_EQ(access(at, 42 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(swap_.total, 42 * kMiB);
  EXPECT_EQ(access(at, 41 * kMiB), CUDA_ERROR_INVALID_VALUE);
  release(large);
  EXPECT_EQ(used(), 42 * kMiB);
  EXPECT_EQ(unmap(at, 42 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(), 2 * kMiB) << "the other has a reference";
  EXPECT_EQ(swap_.total, 0u);
  EXPECT_EQ(map(at, 2 * kMiB, small), CUDA_SUCCESS);
}

TEST_F(Handles, WhatCameBackIsAsItWasMade) {
  const CUdeviceptr at = make(30 * kMiB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  take_away(at);
  swap_.properties = {};
  bring_back(at);
  EXPECT_EQ(swap_.properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_TRUE(swap_.mapped.at(at).accessible);
}

TEST_F(Handles, LastReferencesOfWhatIsAwayGoWithoutWaiting) {
  const CUdeviceptr at = make(40 * kMiB);
  const CUdeviceptr next = make(4 * kMiB);
  take_away_and_shut(at);
  EXPECT_EQ(release(last(2)), CUDA_SUCCESS);
  EXPECT_EQ(unmap(at, 40 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(free_addresses(at), CUDA_SUCCESS);
  EXPECT_EQ(swap_.total, 4 * kMiB);
  EXPECT_EQ(unmap(next, 4 * kMiB), CUDA_SUCCESS) << "this one is there";
  EXPECT_EQ(release(last(1)), CUDA_SUCCESS);
  EXPECT_EQ(free_addresses(next), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(Handles, OneUnmapEndsWhatIsAwayBesideWhatIsThere) {
  const CUdeviceptr at = reserve(64 * kMiB);
  for (const std::uint64_t place : {std::uint64_t{0}, 40 * kMiB, 44 * kMiB}) {
    const std::uint64_t bytes = place == 0 ? 40 * kMiB : 4 * kMiB;
    map(at + place, bytes, create(bytes));
    access(at + place, bytes);
    release(last(1));
  }
  take_away(at + 40 * kMiB);
  ASSERT_TRUE(swap::admission::shut(0));
  EXPECT_EQ(unmap(at, 48 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(free_addresses(at), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(Handles, UnmappingWhatIsAwayAndStillReferredToWaitsUntilItIsBack) {
  const CUdeviceptr at = make(40 * kMiB);
  take_away_and_shut(at);
  std::thread other([&] { EXPECT_EQ(unmap(at, 40 * kMiB), CUDA_SUCCESS); });
  while (page().residencies[0].held_threads.load() == 0) std::this_thread::yield();
  EXPECT_EQ(swap_.total, 40 * kMiB);
  bring_back(at);
  swap::admission::open(0);
  other.join();
  EXPECT_EQ(swap_.handles.size(), 2u) << "its contents stay";
  EXPECT_EQ(swap_.total, 0u);
  EXPECT_EQ(map(at, 40 * kMiB, last(1)), CUDA_SUCCESS);
}

TEST_F(Handles, WhatWasNotAskedForIsExportedToNobody) {
  make(4 * kMiB);
  lent_ = 0;
  EXPECT_EQ(lend(last(1), CUDA_SUCCESS), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(lent_, 0u) << "the driver would do it, once its memory has been away";
}

// Without a context the mover lets everybody go on (mover.h).
TEST_F(Handles, WhatNoContextCouldBringBackIsUnmappedEmptyAndMappedAnew) {
  const CUdeviceptr at = make(40 * kMiB);
  take_away(at);
  EXPECT_EQ(unmap(at, 40 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(swap_.total, 0u);
  EXPECT_TRUE(swap_.handles.empty());
  EXPECT_EQ(map(at, 40 * kMiB, last(1)), CUDA_SUCCESS);
  EXPECT_EQ(access(at, 40 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(swap_.resident, 40 * kMiB);
}

TEST_F(Handles, CallsThatNeedTheMemoryWaitUntilItIsBack) {
  const CUdeviceptr at = make(4 * kMiB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUdeviceptr second = reserve(4 * kMiB);
  const Handle number = last(1);
  const std::function<void()> calls[] = {
      [&] { EXPECT_TRUE(swap::handles::ours(create(2 * kMiB))); },
      [&] { EXPECT_EQ(map(second, 4 * kMiB, number), CUDA_SUCCESS); },
      [&] { EXPECT_EQ(access(at, 4 * kMiB), CUDA_SUCCESS); },
      [&] { EXPECT_EQ(lend(number, CUDA_SUCCESS), CUDA_SUCCESS); },
  };
  for (const auto& call : calls) {
    ASSERT_TRUE(swap::admission::shut(0));
    std::thread other(call);
    while (page().residencies[0].held_threads.load() == 0) std::this_thread::yield();
    { const swap::RangesLock held; }  // it waits with nothing held
    swap::admission::open(0);
    other.join();
  }
}

TEST_F(Handles, AddressesAreNotFreedWhileAnythingIsMappedAtThem) {
  const CUdeviceptr at = make(4 * kMiB);
  take_away(at);
  EXPECT_EQ(free_addresses(at), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Handles, AContextsEndLeavesThemAlone) {
  make(4 * kMiB);
  memory::primary_gone(0);
  EXPECT_EQ(swap_.total, 4 * kMiB);
  EXPECT_EQ(used(), 4 * kMiB);
  EXPECT_FALSE(swap_.mapped.empty());
}

TEST_F(Handles, AForkedChildKnowsNone) {
  const Handle number = create(2 * kMiB);
  const auto in_child = [&] {
    swap::vmm_allocations::clear();
    std::_Exit(release(number) == CUDA_ERROR_INVALID_VALUE ? 0 : 1);
  };
  EXPECT_EXIT(in_child(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(release(number), CUDA_SUCCESS);
}

}  // namespace
}  // namespace switchyard::shim
