// Chunks that leave for another GPU, come back from it, or move on from there to the host.
#include "shim/swap/memory/parking.h"

#include "shim/swap/transfer/digest.h"
#include "tests/shim/swap/transfer/pipeline_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using swap::Stop;
namespace parking = swap::parking;
namespace pinned_pool = swap::pinned_pool;

class ParkedChunks : public PipelineTest {
 protected:
  ParkedChunks() { parking::clear(); }
  // A range of one chunk.
  void add_resident() {
    add({kMiB2});
    g_resident += static_cast<std::int64_t>(kMiB2);
  }
  static std::uint64_t parked() { return parking::parked(0).bytes; }
};

TEST_F(ParkedChunks, OutAndInKeepsEveryByteAndLeavesNothingThere) {
  const std::uint64_t room = pinned_pool::free_bytes(0);
  const swap::Moved left = out_parking(UINT64_MAX);
  EXPECT_EQ(left.stop, Stop::kNothing);
  EXPECT_EQ(left.copied, 5 * kMiB2);
  EXPECT_EQ(left.parked, 5 * kMiB2);
  EXPECT_EQ(pinned_pool::free_bytes(0), room) << "none of it is in the host";
  EXPECT_EQ(parked(), 5 * kMiB2);
  EXPECT_EQ(parking::parked(0).on, 1u);
  EXPECT_EQ(driven_.live_handles, 3) << "one for the first chunk, then one for two at a time";
  EXPECT_EQ(g_resident, 0);
  expect_nothing_lost();
  const swap::Moved back = in();
  EXPECT_EQ(back.copied, 5 * kMiB2);
  EXPECT_EQ(back.parked, 5 * kMiB2);
  EXPECT_EQ(parked(), 0u);
  EXPECT_EQ(driven_.live_handles, 5) << "its own, and nothing there";
  expect_nothing_lost();
}

TEST_F(ParkedChunks, ManyChunksLeaveInMemoryThatIsMadeInOneGo) {
  for (unsigned i = 0; i < 4; ++i) add_resident();
  EXPECT_EQ(out_parking(UINT64_MAX).parked, 9 * kMiB2);
  EXPECT_EQ(driven_.live_handles, 4) << "1, 2, 4 and the rest";
  expect_nothing_lost();
}

TEST_F(ParkedChunks, ItsOwnMemoryLeavesAfterTheLastCopy) {
  static Driven* driven;
  static int copies;
  static decltype(g_driver.cuMemUnmap) unmap;
  driven = &driven_;
  copies = -1;
  unmap = g_driver.cuMemUnmap;
  g_driver.cuMemUnmap = [](CUdeviceptr address, size_t bytes) {
    if (copies < 0) copies = driven->copies_beside;
    return unmap(address, bytes);
  };
  out_parking(UINT64_MAX);
  EXPECT_EQ(copies, 5);
  EXPECT_EQ(driven_.unmapped.size(), 5u);
  EXPECT_EQ(g_resident, 0);
  expect_nothing_lost();
}

TEST_F(ParkedChunks, WhatTheDriverDoesNotUnmapStaysAndHoldsNoRoomThere) {
  driven_.unmaps = false;
  EXPECT_EQ(out_parking(UINT64_MAX).stop, Stop::kDriver);
  EXPECT_EQ(g_resident, static_cast<std::int64_t>(5 * kMiB2));
  expect_nothing_lost();
}

TEST_F(ParkedChunks, WhatCouldNeitherComeNorBeTakenAwayKeepsWhatIsParked) {
  out_parking(UINT64_MAX);
  const auto copy = g_driver.cuMemcpyDtoDAsync_v2;
  g_driver.cuMemcpyDtoDAsync_v2 = [](CUdeviceptr, CUdeviceptr, size_t, CUstream) {
    return CUDA_ERROR_UNKNOWN;
  };
  driven_.unmaps = false;
  EXPECT_EQ(in().stop, Stop::kDriver);
  EXPECT_EQ(out_parking(UINT64_MAX).stop, Stop::kDriver);
  expect_nothing_lost();
  driven_.unmaps = true;
  g_driver.cuMemcpyDtoDAsync_v2 = copy;
  EXPECT_EQ(in().stop, Stop::kNothing);
  expect_nothing_lost();
}

TEST_F(ParkedChunks, WhatTheyCameFromIsGivenBackAfterTheMove) {
  out_parking(UINT64_MAX);
  driven_.unmapped.clear();
  const auto note = [](unsigned, std::int64_t bytes) { g_resident += bytes; };
  const auto always = [](unsigned, std::uint64_t, bool) { return true; };
  {
    const swap::RangesLock held;
    EXPECT_EQ(swap::move_in(0, always, note).parked, 5 * kMiB2);
  }
  expect_nothing_lost();
  EXPECT_TRUE(driven_.unmapped.empty());
  EXPECT_EQ(parked(), 5 * kMiB2) << "it counts";
  EXPECT_TRUE(parking::sweep(0));
  EXPECT_EQ(parked(), 0u);
  EXPECT_EQ(driven_.live_handles, 5);
  EXPECT_FALSE(parking::sweep(0));
}

TEST_F(ParkedChunks, WhatMayNotBeParkedGoesToTheHost) {
  EXPECT_EQ(out_parking(2 * kMiB2).parked, 2 * kMiB2);
  EXPECT_EQ(parked(), 2 * kMiB2);
  EXPECT_EQ(g_resident, 0);
  expect_nothing_lost();
  in();
  expect_nothing_lost();
}

TEST_F(ParkedChunks, ZeroAndUnchangedChunksAreNotParkedOnceTheGpuIsTrusted) {
  out();
  in();
  zero(1, 0);
  change(0, 1);
  const swap::Moved left = out_parking(UINT64_MAX);
  EXPECT_EQ(left.skipped, 4 * kMiB2);
  EXPECT_EQ(left.parked, kMiB2);
  expect_nothing_lost();
  in();
  expect_nothing_lost();
}

TEST_F(ParkedChunks, WhatWasParkedFirstMakesTheGpuTrusted) {
  zero(0, 0);
  const swap::Moved left = out_parking(UINT64_MAX);
  EXPECT_EQ(left.skipped, kMiB2) << "the last to leave is known to be zero by then";
  EXPECT_EQ(left.parked, 4 * kMiB2);
  in();
  expect_nothing_lost();
}

TEST_F(ParkedChunks, AGpuThatComputesWronglyIsFoundOutThereToo) {
  driven_.computes_wrongly = true;
  zero(0, 0);
  EXPECT_EQ(out_parking(UINT64_MAX).parked, 5 * kMiB2);
  in();
  expect_nothing_lost();
}

TEST_F(ParkedChunks, MovingOnKeepsEveryByteAndGivesTheRoomBack) {
  out_parking(UINT64_MAX);
  EXPECT_EQ(move_on(2 * kMiB2).copied, 2 * kMiB2);
  EXPECT_EQ(parked(), 3 * kMiB2);
  EXPECT_EQ(driven_.live_handles, 2);
  expect_nothing_lost();
  EXPECT_EQ(move_on(kMiB2).copied, 2 * kMiB2) << "two chunks share a slab";
  EXPECT_EQ(parked(), kMiB2);
  EXPECT_EQ(driven_.live_handles, 1);
  expect_nothing_lost();
  EXPECT_EQ(move_on().copied, kMiB2);
  EXPECT_EQ(parked(), 0u);
  EXPECT_EQ(driven_.live_handles, 0);
  expect_nothing_lost();
  in();
  expect_nothing_lost();
}

TEST_F(ParkedChunks, MoveOnToMemoryThatIsPinnedAgain) {
  g_driver.cuMemHostUnregister = [](void*) { return CUDA_SUCCESS; };
  out_parking(UINT64_MAX);
  ASSERT_TRUE(swap::pinned_pool::unpin(0, 0));
  move_on();
  EXPECT_FALSE(swap::pinned_pool::is_unpinned(0, 0));
  expect_nothing_lost();
  in();
}

TEST_F(ParkedChunks, WhatMovedOnIsAKeptCopyOnceItIsBack) {
  out_parking(UINT64_MAX);
  move_on();
  in();
  EXPECT_EQ(kept(), 5 * kMiB2);
  EXPECT_EQ(out_parking(UINT64_MAX).skipped, 5 * kMiB2) << "it has not changed";
  expect_nothing_lost();
}

TEST_F(ParkedChunks, WhatFindsNoRoomInTheHostStaysParked) {
  out_parking(UINT64_MAX);
  take_host_room_but(2 * kMiB2);
  const swap::Moved on = move_on();
  EXPECT_EQ(on.stop, Stop::kNoHostRoom);
  EXPECT_EQ(on.copied, 2 * kMiB2) << "what was begun ends";
  EXPECT_EQ(parked(), 3 * kMiB2);
  expect_nothing_lost();
}

TEST_F(ParkedChunks, WhereTheDriverGivesNoMemoryTheRestGoesToTheHost) {
  static int left;
  left = 2;
  static decltype(g_driver.cuMemCreate) create;
  create = g_driver.cuMemCreate;
  g_driver.cuMemCreate = [](CUmemGenericAllocationHandle* out, size_t bytes,
                            const CUmemAllocationProp* properties, unsigned long long flags) {
    return left-- > 0 ? create(out, bytes, properties, flags) : CUDA_ERROR_OUT_OF_MEMORY;
  };
  const swap::Moved out = out_parking(UINT64_MAX);
  EXPECT_EQ(out.stop, Stop::kNothing);
  EXPECT_EQ(out.parked, 3 * kMiB2);
  EXPECT_EQ(out.unparked, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(parked(), 3 * kMiB2) << "those that failed are counted off";
  expect_nothing_lost();
}

// The first chunk leaves alone, and the next waits for another one to share a piece with it. Then
// the driver does not unmap one that needs no copy. The last chunks of the higher range leave
// first, and the kernel decides which range that is.
TEST_F(ParkedChunks, WhatWaitedWhenAMoveFailedCountsNoMore) {
  out();
  in();
  const std::size_t first = chunk_at(0, 0) > chunk_at(1, 0) ? 0 : 1;
  const unsigned last = first == 0 ? 2 : 1;
  for (const unsigned chunk : {last, last - 1}) change(first, chunk);
  driven_.unmaps = false;
  EXPECT_EQ(out_parking(UINT64_MAX).stop, Stop::kDriver);
  driven_.unmaps = true;
  parking::sweep(0);
  EXPECT_EQ(parked(), 0u);
  expect_nothing_lost();
}

TEST_F(ParkedChunks, WhateverCallFailsNothingIsLostAndNothingIsKeptThere) {
  for (int call = 1; call < 80; ++call) {
    SCOPED_TRACE(call);
    faults().fail(call);
    out_parking(3 * kMiB2);
    expect_nothing_lost();
    move_on(kMiB2);
    expect_nothing_lost();
    in();
    expect_nothing_lost();
    faults().none();
    out_parking(UINT64_MAX);
    expect_nothing_lost();
    EXPECT_EQ(in().stop, Stop::kNothing);
    expect_nothing_lost();
    EXPECT_EQ(parked(), 0u);
    EXPECT_EQ(driven_.live_handles, 5);
    for (unsigned range : {0u, 1u}) change(range, 1);
  }
}

TEST_F(ParkedChunks, MemoryThatIsFreedWhileItIsParkedGivesTheRoomBack) {
  out_parking(UINT64_MAX);
  const swap::RangesLock held;
  for (std::size_t i = 0; i < swap::count(); ++i) {
    for (unsigned c = 0; c < swap::at(i).count; ++c) swap::drop_copies(swap::at(i).chunks[c]);
  }
  EXPECT_EQ(parked(), 0u);
  EXPECT_EQ(driven_.live_handles, 0);
}

}  // namespace
}  // namespace switchyard::shim
