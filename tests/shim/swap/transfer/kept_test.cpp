// Memory that is in the host already, or all zero, is not copied; and a kept copy is in no one's
// way.
#include "shim/swap/transfer/digest.h"
#include "tests/shim/swap/transfer/pipeline_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using swap::Stop;
namespace pinned_pool = swap::pinned_pool;

class Kept : public PipelineTest {
 protected:
  // The chunk that leaves first, as if it had never left.
  static void forget_last() {
    const swap::RangesLock held;
    const swap::Range& range = swap::at(swap::count() - 1);
    pinned_pool::give_back(range.chunks[range.count - 1].host);
  }
};

TEST_F(Kept, CleanIsNotCopied) {
  EXPECT_EQ(out().copied, 5 * kMiB2);
  EXPECT_EQ(kept(), 0u) << "what is away is not kept but needed";
  EXPECT_EQ(in().copied, 5 * kMiB2);
  EXPECT_EQ(kept(), 5 * kMiB2);
  for (int round = 0; round < 2; ++round) {
    const swap::Moved left = out();
    EXPECT_EQ(left.copied, 0u);
    EXPECT_EQ(left.skipped, 5 * kMiB2);
    EXPECT_EQ(driven_.live_handles, 0);
    expect_nothing_lost();
    EXPECT_EQ(in().copied, 5 * kMiB2);
    expect_nothing_lost();
  }
}

TEST_F(Kept, ZeroIsNotCopied) {
  zero(0, 1);
  zero(1, 0);
  const std::uint64_t room = pinned_pool::free_bytes(0);
  const swap::Moved left = out();
  EXPECT_EQ(left.copied, 3 * kMiB2);
  EXPECT_EQ(left.skipped, 2 * kMiB2);
  EXPECT_EQ(pinned_pool::free_bytes(0), room - 3 * kMiB2);
  expect_nothing_lost();
  const swap::Moved back = in();
  EXPECT_EQ(back.copied, 3 * kMiB2);
  EXPECT_EQ(back.skipped, 2 * kMiB2);
  EXPECT_EQ(driven_.sets, 2);
  expect_nothing_lost();
  change(0, 1);
  EXPECT_EQ(out().copied, kMiB2);
  expect_nothing_lost();
}

TEST_F(Kept, NothingIsLeftOutBeforeTheGpuWasSeenToComputeRight) {
  zero(0, 2);  // the last of either range: one of them leaves first
  zero(1, 1);
  EXPECT_EQ(out().copied, 4 * kMiB2) << "zeros tell nothing, but what comes next does";
  expect_nothing_lost();
  in();
  zero(1, 0);
  EXPECT_EQ(out().copied, 0u);
  expect_nothing_lost();
}

TEST_F(Kept, AGpuThatComputesWronglyIsNotBelieved) {
  driven_.computes_wrongly = true;
  zero(0, 1);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(out().copied, 5 * kMiB2);
    expect_nothing_lost();
    in();
    expect_nothing_lost();
  }
  EXPECT_EQ(driven_.launches, 1) << "nor asked again";
}

TEST_F(Kept, WhatBecameZeroGivesItsCopyBack) {
  out();
  in();
  zero(0, 0);
  EXPECT_EQ(out().copied, 0u);
  in();
  EXPECT_EQ(kept(), 4 * kMiB2);
  expect_nothing_lost();
}

TEST_F(Kept, ChangedAfterComingInIsCopied) {
  out();
  in();
  change(0, 2, kMiB2 - 1);
  EXPECT_EQ(out().copied, kMiB2);
  expect_nothing_lost();
  in();
  expect_nothing_lost();
  EXPECT_EQ(out().copied, 0u);
}

TEST_F(Kept, OfWhatWentInPartAndCameInPartEachIsRight) {
  EXPECT_EQ(out(2 * kMiB2).copied, 2 * kMiB2);
  EXPECT_EQ(in(kMiB2).copied, kMiB2);
  EXPECT_EQ(kept(), kMiB2);
  EXPECT_EQ(out().copied, 3 * kMiB2);
  expect_nothing_lost();
  in();
  expect_nothing_lost();
}

TEST_F(Kept, WhatChangedNeedsNoOtherRoomThanItsOwn) {
  out();
  in();
  take_host_room_but(0);
  for (const unsigned chunk : {0u, 1u, 2u}) change(0, chunk);
  EXPECT_EQ(out().copied, 3 * kMiB2);
  expect_nothing_lost();
}

TEST_F(Kept, HostRoomIsTakenFromCleanCopiesFirst) {
  out();
  in();
  forget_last();
  take_host_room_but(0);
  EXPECT_EQ(kept(), 4 * kMiB2);
  EXPECT_EQ(out(kMiB2).stop, Stop::kNothing);
  EXPECT_EQ(kept(), 3 * kMiB2);
  expect_nothing_lost();
  EXPECT_EQ(out().stop, Stop::kNoHostRoom) << "one piece less than chunks";
  expect_nothing_lost();
  EXPECT_EQ(in().stop, Stop::kNothing);
  expect_nothing_lost();
}

TEST_F(Kept, WithoutTheKernelAllIsCopied) {
  g_driver.cuLibraryLoadData = nullptr;
  zero(0, 0);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(out().copied, 5 * kMiB2);
    EXPECT_EQ(in().copied, 5 * kMiB2);
    EXPECT_EQ(kept(), 0u);
  }
  expect_nothing_lost();
}

TEST_F(Kept, AKernelThatDoesNothingMakesNothingZero) {
  driven_.kernels_write = false;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(out().copied, 5 * kMiB2);
    EXPECT_EQ(in().copied, 5 * kMiB2);
  }
  EXPECT_GT(driven_.launches, 0);
  expect_nothing_lost();
}

// The calls of a digest, the last that a move makes before its own.
TEST_F(Kept, WithoutADigestAllIsCopied) {
  for (int n = 0; n < 8; ++n) {
    out();
    in();
    swap::clear_digests();
    faults().fail(n);
    const swap::Moved moved = out(2 * kMiB2);
    EXPECT_EQ(moved.stop, Stop::kNothing) << "call " << n;
    EXPECT_EQ(moved.copied, 2 * kMiB2) << "call " << n;
    faults().none();
    expect_nothing_lost();
    in();
  }
}

}  // namespace
}  // namespace switchyard::shim
