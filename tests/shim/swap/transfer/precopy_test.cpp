// Memory that is copied to the host while it stays on the device, so that the move copies less.
#include "shim/swap/transfer/digest.h"
#include "tests/shim/swap/transfer/pipeline_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using swap::Moved;
using swap::Stop;
namespace pinned_pool = swap::pinned_pool;

class Precopy : public PipelineTest {
 protected:
  // From where the last one ended.
  Moved precopy(std::uint64_t bytes = UINT64_MAX) {
    const swap::RangesLock held;
    return swap::precopy(0, below_, bytes);
  }
  Moved precopy_anew() {
    below_ = UINT64_MAX;
    return precopy();
  }
  // In parts of two chunks.
  static std::uint64_t to_copy() {
    static std::uint64_t bytes;
    bytes = 0;
    const swap::RangesLock held;
    unsigned parts = 0;
    for (CUdeviceptr below = UINT64_MAX; below != 0; ++parts) {
      swap::each_to_copy(0, below, 2 * kMiB2,
                         [](unsigned, const swap::Chunk& chunk) { bytes += chunk.bytes; });
    }
    EXPECT_EQ(parts, 3u);
    return bytes;
  }

  CUdeviceptr below_ = UINT64_MAX;
};

TEST_F(Precopy, OnlyWhatHasChangedSinceIsCopiedInTheMove) {
  EXPECT_EQ(precopy().copied, 5 * kMiB2);
  EXPECT_EQ(below_, 0u);
  EXPECT_EQ(driven_.live_handles, 5) << "it stays";
  EXPECT_EQ(kept(), 5 * kMiB2);
  EXPECT_EQ(g_resident, static_cast<std::int64_t>(5 * kMiB2));
  change(0, 2);
  const Moved left = out();
  EXPECT_EQ(left.copied, kMiB2);
  EXPECT_EQ(left.skipped, 4 * kMiB2);
  EXPECT_EQ(driven_.live_handles, 0);
  expect_nothing_lost();
  EXPECT_EQ(in().stop, Stop::kNothing);
  expect_nothing_lost();
}

TEST_F(Precopy, APartAtATimeTheLastRangesFirst) {
  EXPECT_EQ(precopy(2 * kMiB2).copied, 2 * kMiB2);
  EXPECT_NE(below_, 0u);
  change(1, 0);
  EXPECT_EQ(precopy(2 * kMiB2).copied, 2 * kMiB2);
  EXPECT_EQ(precopy(2 * kMiB2).copied, kMiB2);
  EXPECT_EQ(below_, 0u);
  expect_nothing_lost();
  out();
  expect_nothing_lost();
}

TEST_F(Precopy, WhatTheHostHasIsNotCopiedAgain) {
  precopy();
  EXPECT_EQ(precopy_anew().copied, 0u);
  change(0, 0);
  const std::uint64_t room = pinned_pool::free_bytes(0);
  EXPECT_EQ(precopy_anew().copied, kMiB2);
  EXPECT_EQ(pinned_pool::free_bytes(0), room) << "in its own place";
  EXPECT_EQ(out().copied, 0u);
  expect_nothing_lost();
}

TEST_F(Precopy, ZerosTakeNoRoomAndCountAsAwayOnlyOnceTheyAre) {
  precopy();
  zero(0, 1);
  EXPECT_EQ(precopy_anew().copied, 0u);
  EXPECT_EQ(kept(), 4 * kMiB2);
  expect_nothing_lost();
  change(0, 1);
  EXPECT_EQ(out().copied, kMiB2);
  expect_nothing_lost();
}

TEST_F(Precopy, WithoutRoomNoOtherCopyGivesWayAndItEnds) {
  take_host_room_but(2 * kMiB2);
  EXPECT_EQ(precopy().stop, Stop::kNoHostRoom);
  EXPECT_EQ(below_, 0u);
  EXPECT_EQ(kept(), kMiB2) << "but for what was in flight then";
  EXPECT_EQ(driven_.live_handles, 5);
  expect_nothing_lost();
}

TEST_F(Precopy, WithoutDigestsNothingIsCopied) {
  SWITCHYARD_WATCH(faults(), cuLaunchKernel);
  faults().refuse("cuLaunchKernel", CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(precopy().copied, 0u);
  EXPECT_EQ(kept(), 0u);
}

TEST_F(Precopy, WhatAPoolMayHandOutAgainIsLeftOut) {
  {
    const swap::RangesLock held;
    swap::at(0).use = swap::Use::kCached;
  }
  const std::uint64_t cached = [] {
    const swap::RangesLock held;
    return swap::at(0).bytes;
  }();
  EXPECT_EQ(precopy().copied, 5 * kMiB2 - cached);
  const swap::RangesLock held;
  swap::at(0).use = swap::Use::kLive;
}

TEST_F(Precopy, OnlyWhatHasChangedSinceIsStillToBeCopied) {
  EXPECT_EQ(to_copy(), 5 * kMiB2);
  precopy();
  EXPECT_EQ(to_copy(), 0u);
  zero(0, 1);
  EXPECT_EQ(to_copy(), 0u);
  change(0, 2);
  change(1, 0);
  EXPECT_EQ(to_copy(), 2 * kMiB2);
  expect_nothing_lost();
  SWITCHYARD_WATCH(faults(), cuLaunchKernel);
  faults().refuse("cuLaunchKernel", CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(to_copy(), 5 * kMiB2) << "nobody knows";
}

TEST_F(Precopy, EachCallFailingInTurnLosesNothing) {
  for (int n = 0; n < 30; ++n) {
    swap::clear_digests();
    faults().fail(n, CUDA_ERROR_UNKNOWN);
    precopy_anew();
    faults().none();
    EXPECT_EQ(driven_.live_handles, 5);
    expect_nothing_lost();
    change(0, 1, static_cast<std::uint64_t>(n));
    change(1, 0, static_cast<std::uint64_t>(n));
    EXPECT_EQ(out().stop, Stop::kNothing);
    expect_nothing_lost();
    EXPECT_EQ(in().stop, Stop::kNothing);
    change(1, 1, static_cast<std::uint64_t>(n));
  }
}

}  // namespace
}  // namespace switchyard::shim
