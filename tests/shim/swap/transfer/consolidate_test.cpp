// Memory of several chunks becomes one handle of the driver's when others are given it. It keeps
// its contents and its places, and a failure loses nothing.
#include "shim/swap/transfer/consolidate.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "shim/rules/questions.h"
#include "shim/swap/memory/consolidation_request.h"
#include "shim/swap/transfer/digest.h"
#include "tests/shim/swap/calls/handles_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

constexpr auto kTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr std::uint64_t kBytes = 80 * kMiB;

int g_arrived = 0;

// The mover holds work and calls make(). A copy to the host says in its first word where it is
// from, and may go nowhere else.
class Whole : public HandlesTest {
 protected:
  Whole() {
    g_arrived = 0;
    swap::clear_digests();
    g_driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) { return CUDA_SUCCESS; };
    g_driver.cuStreamCreate = [](CUstream* out, unsigned) {
      *out = reinterpret_cast<CUstream>(0x50);
      return CUDA_SUCCESS;
    };
    g_driver.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
    g_driver.cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
    g_driver.cuEventCreate = [](CUevent*, unsigned) { return CUDA_SUCCESS; };
    g_driver.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
    g_driver.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    g_driver.cuEventSynchronize = [](CUevent) { return CUDA_SUCCESS; };
    g_driver.cuLibraryLoadData = nullptr;
    g_driver.cuMemcpyDtoHAsync_v2 = [](void* to, CUdeviceptr from, size_t, CUstream) {
      *static_cast<CUdeviceptr*>(to) = from;
      return CUDA_SUCCESS;
    };
    g_driver.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr to, const void* from, size_t, CUstream) {
      EXPECT_EQ(*static_cast<const CUdeviceptr*>(from), to);
      ++g_arrived;
      return CUDA_SUCCESS;
    };
    while (swap::pinned_pool::free_bytes(0) < 128 * kMiB) {
      if (!swap::pinned_pool::grow(0, UINT64_MAX)) break;
    }
    swap_.make_whole = [](Handle number) {
      EXPECT_FALSE(swap::admission::inside());
      const swap::RangesLock held;
      return swap::consolidation::make(*swap::vmm_allocations::find(number),
                                       [](unsigned, std::int64_t bytes) {
                                         g_swap->resident += static_cast<std::uint64_t>(bytes);
                                       });
    };
  }

  // Where it is mapped, and not accessible yet.
  CUdeviceptr mapped(Handle number) {
    const CUdeviceptr at = reserve(kBytes);
    EXPECT_EQ(map(at, kBytes, number), CUDA_SUCCESS);
    return at;
  }

  // One handle of the kind that was asked for, mapped at `at`; 0: nowhere.
  void expect_whole(CUdeviceptr at) {
    ASSERT_EQ(swap_.handles.size(), 1u);
    EXPECT_EQ(swap_.handles.begin()->second, kBytes);
    EXPECT_EQ(swap_.handles.begin()->first, lent_);
    EXPECT_EQ(swap_.kinds.at(lent_).requestedHandleTypes, kTypes);
    ASSERT_EQ(swap_.mapped.size(), at != 0 ? 1u : 0u);
    if (at != 0) {
      EXPECT_EQ(swap_.mapped.at(at).handle, lent_);
    }
    EXPECT_EQ(swap_.total, 0u) << "it stays";
    EXPECT_EQ(swap_.resident, 0u);
    EXPECT_EQ(used(), kBytes);
  }

  // Each chunk of the range is on the device or in the host.
  void expect_nothing_lost(CUdeviceptr at) {
    EXPECT_EQ(swap_.total, kBytes);
    const swap::RangesLock held;
    const swap::Range* range = swap::find(at);
    ASSERT_NE(range, nullptr);
    ASSERT_EQ(range->count, 3u);
    EXPECT_EQ(swap_.resident, swap::resident_bytes(*range));
    std::size_t there = 0;
    CUdeviceptr address = at;
    for (unsigned i = 0; i < range->count; ++i) {
      const swap::Chunk& chunk = range->chunks[i];
      EXPECT_FALSE(chunk.contents_pending);
      if (chunk.handle != 0) {
        ++there;
        EXPECT_EQ(swap_.mapped.at(address).handle, chunk.handle);
        EXPECT_TRUE(swap_.mapped.at(address).accessible);
      } else {
        ASSERT_TRUE(chunk.host);
        EXPECT_EQ(*static_cast<const CUdeviceptr*>(chunk.host.at), address);
      }
      address += chunk.bytes;
    }
    EXPECT_EQ(swap_.handles.size(), there);
  }
};

// Memory that a card may be told of without a CUDA call.
TEST_F(Whole, WhatWasAskedForRdmaMovesOnlyWhileNoCardCanRegisterIt) {
  CUmemAllocationProp asked = properties();
  asked.allocFlags.gpuDirectRDMACapable = 1;
  g_driver.cuMemGetAllocationPropertiesFromHandle = [](CUmemAllocationProp* out, Handle handle) {
    *out = g_swap->kinds.at(handle);
    return CUDA_SUCCESS;
  };
  for (const std::uint64_t bytes : {4 * kMiB, kBytes}) {
    Handle number = 0;
    ASSERT_EQ(rules::create_memory(g_driver.cuMemCreate, &number, size_t{bytes}, &asked, 0ull),
              CUDA_SUCCESS);
    const CUdeviceptr at = reserve(bytes);
    ASSERT_EQ(map(at, bytes, number), CUDA_SUCCESS);
    ASSERT_EQ(access(at, bytes), CUDA_SUCCESS);
    EXPECT_EQ(swap_.total, bytes) << "it can leave";
    take_away(at);
    bring_back(at);
    for (const auto& [handle, size] : swap_.handles) {
      EXPECT_EQ(swap_.kinds.at(handle).allocFlags.gpuDirectRDMACapable, 0) << size;
    }
    CUmemAllocationProp known{};
    ASSERT_EQ(swap::handles::properties_of(number, &known), CUDA_SUCCESS);
    EXPECT_EQ(known.allocFlags.gpuDirectRDMACapable, 0) << "a program that asks is told";

    // As a dma-buf a card is told of it by a CUDA call.
    int fd = -1;
    const auto give = [](void*, CUdeviceptr, size_t, int) { return CUDA_SUCCESS; };
    ASSERT_EQ(rules::range_handle(give, &fd, at, size_t{bytes}, 0), CUDA_SUCCESS);
    EXPECT_EQ(swap_.total, 0u) << "it stays";
    ASSERT_EQ(swap_.handles.size(), 1u);
    const Handle whole = swap_.handles.begin()->first;
    EXPECT_EQ(swap_.kinds.at(whole).allocFlags.gpuDirectRDMACapable, 1);
    ASSERT_EQ(swap::handles::properties_of(number, &known), CUDA_SUCCESS);
    EXPECT_EQ(known.allocFlags.gpuDirectRDMACapable, 1);
    ASSERT_EQ(unmap(at, bytes), CUDA_SUCCESS);
    ASSERT_EQ(release(number), CUDA_SUCCESS);
    EXPECT_TRUE(swap_.handles.empty());
    EXPECT_EQ(used(), 0u);
  }
}

TEST_F(Whole, WhereItCannotBeRemadeForRdmaItMovesAsBefore) {
  CUmemAllocationProp asked = properties();
  asked.allocFlags.gpuDirectRDMACapable = 1;
  Handle number = 0;
  ASSERT_EQ(rules::create_memory(g_driver.cuMemCreate, &number, size_t{4 * kMiB}, &asked, 0ull),
            CUDA_SUCCESS);
  const CUdeviceptr at = reserve(4 * kMiB);
  ASSERT_EQ(map(at, 4 * kMiB, number), CUDA_SUCCESS);
  ASSERT_EQ(access(at, 4 * kMiB), CUDA_SUCCESS);
  int fd = -1;
  const auto give = [](void*, CUdeviceptr, size_t, int) { return CUDA_SUCCESS; };
  faults().fail(0);
  EXPECT_NE(rules::range_handle(give, &fd, at, size_t{4 * kMiB}, 0), CUDA_SUCCESS);
  faults().none();
  EXPECT_EQ(swap_.total, 4 * kMiB);
  ASSERT_EQ(swap_.handles.size(), 1u);
  EXPECT_EQ(swap_.kinds.at(swap_.handles.begin()->first).allocFlags.gpuDirectRDMACapable, 0);
  ASSERT_EQ(unmap(at, 4 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(release(number), CUDA_SUCCESS);
}

TEST_F(Whole, ExportedItIsOneHandleWithAllItsContents) {
  const std::uint64_t free = swap::pinned_pool::free_bytes(0);
  const CUdeviceptr at = make(kBytes, kTypes);
  EXPECT_EQ(lend(last(1), CUDA_SUCCESS), CUDA_SUCCESS);
  expect_whole(at);
  EXPECT_TRUE(swap_.mapped.at(at).accessible);
  EXPECT_EQ(g_arrived, 3);
  EXPECT_EQ(swap::pinned_pool::free_bytes(0), free);
  EXPECT_EQ(lend(last(1), CUDA_SUCCESS), CUDA_SUCCESS) << "again";
  EXPECT_EQ(unmap(at, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(map(at, kBytes, last(1)), CUDA_SUCCESS);
  EXPECT_EQ(access(at, kBytes), CUDA_SUCCESS);
  expect_whole(at);
}

TEST_F(Whole, WhoIsNotAnsweredInTimeWithdraws) {
  make(kBytes, kTypes);
  swap_.make_whole = nullptr;
  EXPECT_EQ(swap::consolidation_request::ask(last(1), 0, 1'000'000), CUDA_ERROR_NOT_READY);
  EXPECT_FALSE(swap::consolidation_request::take(0));
  // Nor while work is being held; what comes of that is nobody's.
  std::thread mover([] {
    while (!swap::consolidation_request::take(0)) std::this_thread::yield();
    while (swap::consolidation_request::is_taken()) std::this_thread::yield();
    EXPECT_FALSE(swap::consolidation_request::begin());
  });
  EXPECT_EQ(swap::consolidation_request::ask(last(1), 0, 50'000'000), CUDA_ERROR_NOT_READY);
  mover.join();
  EXPECT_EQ(swap_.handles.size(), 3u);
}

TEST_F(Whole, WhatIsBegunIsWaitedFor) {
  make(kBytes, kTypes);
  swap_.make_whole = nullptr;
  std::atomic<bool> late{false};
  std::thread mover([&] {
    while (!swap::consolidation_request::take(0)) std::this_thread::yield();
    EXPECT_TRUE(swap::consolidation_request::begin());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    late = true;
    swap::consolidation_request::answer(CUDA_ERROR_UNKNOWN);
  });
  EXPECT_EQ(swap::consolidation_request::ask(last(1), 0, 5'000'000'000), CUDA_ERROR_UNKNOWN);
  EXPECT_TRUE(late);
  mover.join();
}

TEST_F(Whole, NobodyWaitsWhileAStreamIsCapturedOrInsideACall) {
  make(kBytes, kTypes);
  process().captures.store(1);
  EXPECT_EQ(lend(last(1), CUDA_SUCCESS), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  process().captures.store(0);
  {
    const swap::WorkGuard entry;
    EXPECT_EQ(lend(last(1), CUDA_SUCCESS), CUDA_ERROR_NOT_READY);
  }
  EXPECT_EQ(swap_.handles.size(), 3u);
  EXPECT_EQ(swap_.total, kBytes);
}

TEST_F(Whole, WhatTheDriverRefusesToExportStaysInParts) {
  make(kBytes);
  EXPECT_EQ(lend(last(1), CUDA_ERROR_INVALID_VALUE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(swap_.handles.size(), 3u);
  EXPECT_EQ(swap_.total, kBytes);
}

TEST_F(Whole, NeverMappedItHasNothingToCopy) {
  const Handle number = create(kBytes, kTypes);
  EXPECT_EQ(lend(number, CUDA_SUCCESS), CUDA_SUCCESS);
  expect_whole(0);
  const CUdeviceptr at = mapped(number);
  EXPECT_EQ(access(at, kBytes), CUDA_SUCCESS);
  expect_whole(at);
  EXPECT_EQ(g_arrived, 0);
}

TEST_F(Whole, NeverAccessibleItKeepsItsPlaces) {
  const Handle number = create(kBytes, kTypes);
  const CUdeviceptr at = mapped(number);
  EXPECT_EQ(lend(number, CUDA_SUCCESS), CUDA_SUCCESS);
  expect_whole(at);
  EXPECT_EQ(g_arrived, 0);
}

TEST_F(Whole, EachCallFailingInTurnLeavesWhatWasNeverAccessibleInParts) {
  const Handle number = create(kBytes, kTypes);
  const CUdeviceptr at = mapped(number);
  for (int call = 0; call < 2; ++call) {
    faults().fail(call);
    EXPECT_EQ(lend(number, CUDA_SUCCESS), CUDA_ERROR_OUT_OF_MEMORY) << call;
    EXPECT_EQ(swap_.handles.size(), 3u);
    EXPECT_EQ(swap_.mapped.size(), 3u);
  }
  faults().none();
  EXPECT_EQ(lend(number, CUDA_SUCCESS), CUDA_SUCCESS);
  expect_whole(at);
}

TEST_F(Whole, UnmappedAgainItKeepsItsContents) {
  const CUdeviceptr at = make(kBytes, kTypes);
  EXPECT_EQ(unmap(at, kBytes), CUDA_SUCCESS);
  for (int call = 0; call < 5; ++call) {
    faults().fail(call);
    EXPECT_EQ(lend(last(1), CUDA_SUCCESS), CUDA_ERROR_OUT_OF_MEMORY) << call;
    EXPECT_EQ(swap_.handles.size(), 3u);
    EXPECT_TRUE(swap_.mapped.empty());
    EXPECT_EQ(swap_.total, 0u);
  }
  faults().none();
  EXPECT_EQ(lend(last(1), CUDA_SUCCESS), CUDA_SUCCESS);
  expect_whole(0);
  EXPECT_EQ(g_arrived, 3);
}

TEST_F(Whole, EachCallFailingInTurnLosesNothing) {
  for (int call = 0; call < 3; ++call) {  // to create, to map, to give access
    const CUdeviceptr at = make(kBytes, kTypes);
    faults().fail(call);
    EXPECT_EQ(lend(last(1), CUDA_SUCCESS), CUDA_ERROR_OUT_OF_MEMORY);
    faults().none();
    expect_nothing_lost(at);
    EXPECT_EQ(swap_.resident, kBytes) << "all has come back at once";
    EXPECT_EQ(unmap(at, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(release(last(1)), CUDA_SUCCESS);
  }
}

TEST_F(Whole, EachCopyFailingInTurnLosesNothing) {
  SWITCHYARD_WATCH(faults(), cuMemcpyDtoHAsync_v2);
  SWITCHYARD_WATCH(faults(), cuMemcpyHtoDAsync_v2);
  for (int copy = 0; copy < 6; ++copy) {
    const CUdeviceptr at = make(kBytes, kTypes);
    faults().fail("cuMemcpy", copy, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(lend(last(1), CUDA_SUCCESS), CUDA_ERROR_LAUNCH_FAILED);
    faults().none();
    expect_nothing_lost(at);
    EXPECT_EQ(swap_.resident, kBytes);
    EXPECT_EQ(unmap(at, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(release(last(1)), CUDA_SUCCESS);
  }
}

// Each place with the access that it had, whether it came to be one handle or not.
TEST_F(Whole, EachCallFailingInTurnLosesNoPlaceOfWhatIsMappedTwice) {
  const CUdeviceptr at = make(kBytes, kTypes);
  const CUdeviceptr other = reserve(kBytes);
  EXPECT_EQ(map(other, kBytes, last(1)), CUDA_SUCCESS);
  EXPECT_EQ(access(other, kBytes, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_SUCCESS);
  EXPECT_EQ(access(other, kBytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 2), CUDA_SUCCESS);
  int failed = 0;
  for (CUresult result = CUDA_ERROR_UNKNOWN; result != CUDA_SUCCESS; ++failed) {
    faults().fail(failed);
    result = lend(last(1), CUDA_SUCCESS);
    faults().none();
    ASSERT_LT(failed, 100);
    const std::size_t chunks = result == CUDA_SUCCESS ? 1 : 3;
    EXPECT_EQ(swap_.handles.size(), chunks) << failed;
    EXPECT_EQ(swap_.mapped.size(), 2 * chunks) << failed;
    EXPECT_EQ(swap_.reserved.size(), 2u);
    EXPECT_EQ(swap_.total, 0u);
    ASSERT_TRUE(swap_.mapped.contains(at) && swap_.mapped.contains(other));
    EXPECT_TRUE(swap_.mapped.at(at).accessible);
  }
  EXPECT_EQ(failed, 9) << "those that take it from its places and back could fail";
  const std::vector<CUmemAccessDesc>& now = swap_.mapped.at(other).access;
  ASSERT_EQ(now.size(), 2u);
  EXPECT_EQ(now[0].location.id, 0);
  EXPECT_EQ(now[0].flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(now[1].location.id, 2);
  EXPECT_EQ(now[1].flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(lend(last(1), CUDA_SUCCESS), CUDA_SUCCESS);
  EXPECT_EQ(unmap(other, kBytes), CUDA_SUCCESS);
  expect_whole(at);
}

// Access of what has no number can't be given again.
TEST_F(Whole, WhatIsKnownToWhoCannotBeNamedIsRefused) {
  const CUdeviceptr at = make(kBytes, kTypes);
  EXPECT_EQ(access(at, kBytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 200), CUDA_SUCCESS);
  EXPECT_EQ(lend(last(1), CUDA_SUCCESS), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(swap_.handles.size(), 3u);
  EXPECT_EQ(swap_.mapped.size(), 3u);
}

TEST_F(Whole, WhatIsBoundByItsAddressIsMadeWholeToo) {
  const CUdeviceptr at = make(kBytes);
  EXPECT_EQ(release(last(1)), CUDA_SUCCESS);
  int fd = -1;
  const auto give = [](void*, CUdeviceptr, size_t, int) { return CUDA_SUCCESS; };
  EXPECT_EQ(rules::range_handle(give, &fd, at + 40 * kMiB, size_t{2 * kMiB}, 0), CUDA_SUCCESS);
  EXPECT_EQ(swap_.mapped.at(at).bytes, kBytes);
  EXPECT_EQ(swap_.total, 0u);
  EXPECT_EQ(unmap(at, kBytes), CUDA_SUCCESS);
  EXPECT_TRUE(swap_.handles.empty());
}

TEST_F(Whole, TypesThatTheDriverRefusesAreRefusedAtTheMaking) {
  swap_.refused_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  Handle number = 0;
  EXPECT_EQ(try_create(number, kBytes, kTypes), CUDA_ERROR_NOT_PERMITTED);
  expect_nothing_left();
  EXPECT_EQ(try_create(number, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(release(number), CUDA_SUCCESS);
}

TEST_F(Whole, TheApplicationSeesTheTypesThatItAskedFor) {
  g_driver.cuMemGetAllocationPropertiesFromHandle = [](CUmemAllocationProp* out, Handle handle) {
    *out = g_swap->kinds.at(handle);
    return CUDA_SUCCESS;
  };
  const CUdeviceptr at = make(kBytes, kTypes);
  take_away(at);
  bring_back(at);
  CUmemAllocationProp known{};
  EXPECT_EQ(swap::handles::properties_of(last(1), &known), CUDA_SUCCESS);
  EXPECT_EQ(known.requestedHandleTypes, kTypes);
  const auto driver = [](void* out, CUpointer_attribute, CUdeviceptr) {
    *static_cast<int*>(out) = 0;
    return CUDA_SUCCESS;
  };
  int types = -1;
  EXPECT_EQ(rules::pointer_attribute(driver, &types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                     at + 70 * kMiB),
            CUDA_SUCCESS);
  EXPECT_EQ(types, kTypes);
  g_driver.cuMemGetAllocationPropertiesFromHandle = nullptr;
}

}  // namespace
}  // namespace switchyard::shim
