// The pipeline: whatever fails, each chunk's contents are on the device or in the host.
#include "shim/swap/transfer/digest.h"
#include "tests/shim/swap/transfer/pipeline_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using swap::Stop;

using Pipeline = PipelineTest;

TEST_F(Pipeline, NoMoreComesBackThanIsAllowed) {
  out();
  EXPECT_EQ(in(3 * kMiB2 - 1).copied, 2 * kMiB2);
  EXPECT_EQ(g_resident, static_cast<std::int64_t>(2 * kMiB2));
  expect_nothing_lost();
  EXPECT_EQ(in(kMiB2 - 1).copied, 0u);
  EXPECT_EQ(in(kMiB2).copied, kMiB2);
  EXPECT_EQ(in().copied, 2 * kMiB2);
  expect_nothing_lost();
}

TEST_F(Pipeline, BehindOneThatMayNotComeNoneComes) {
  out();
  static int asked;
  asked = 0;
  const auto not_the_first = [](unsigned, std::uint64_t, bool) { return asked++ != 0; };
  const auto note = [](unsigned, std::int64_t bytes) { g_resident += bytes; };
  {
    const swap::RangesLock held;
    EXPECT_EQ(swap::move_in(0, not_the_first, note).copied, 0u);
  }
  EXPECT_EQ(driven_.live_handles, 0);
  expect_nothing_lost();
}

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

TEST_F(Pipeline, AccessIsPermittedToMoreAndMoreChunksInOneGo) {
  out();
  driven_.permitted.clear();
  in();
  // Of two ranges, the lower one of two chunks: what doesn't follow is a run of its own.
  EXPECT_EQ(driven_.permitted, (std::vector{kMiB2, kMiB2, 2 * kMiB2, kMiB2}));
}

TEST_F(Pipeline, MemoryIsMadeWhileTheCopiesBeforeRun) {
  out();
  driven_.beside.clear();
  in();
  EXPECT_EQ(driven_.beside, (std::vector<std::size_t>{0, 1, 2, 4}));
}

TEST_F(Pipeline, WherePinningComesFirstMemoryIsMadeBeforeAnyCopy) {
  out();
  swap::pinned_pool::unpin_all(0);
  driven_.beside.clear();
  EXPECT_EQ(in().copied, 5 * kMiB2);
  EXPECT_EQ(driven_.beside, (std::vector<std::size_t>{0, 0, 0, 0}));
  EXPECT_FALSE(swap::pinned_pool::any_unpinned(0));
  expect_nothing_lost();
}

TEST_F(Pipeline, WhoWaitsForRoomHasBegunTheCopiesBefore) {
  out();
  swap::pinned_pool::unpin_all(0);
  static Driven* driven;
  static int begun;
  driven = &driven_;
  const auto three_without_waiting = [](unsigned, std::uint64_t, bool waits) {
    if (waits) begun = driven->copies_in;
    return driven->live_handles < 3;
  };
  {
    const swap::RangesLock held;
    swap::move_in(0, three_without_waiting, [](unsigned, std::int64_t) {});
  }
  EXPECT_EQ(begun, 3);
}

TEST_F(Pipeline, WhereAccessIsRefusedWhatCameBeforeIsKept) {
  out();
  faults().fail(5 + 4 + 4);  // stream and events; a chunk; two are brought
  EXPECT_EQ(in().stop, Stop::kNoDeviceRoom);
  EXPECT_EQ(driven_.live_handles, 2) << "but for the one between";
  expect_nothing_lost();
  faults().none();
  EXPECT_EQ(in().stop, Stop::kNothing);
  expect_nothing_lost();
}

TEST_F(Pipeline, OnlyTheExcessGoes) {
  EXPECT_EQ(out(kMiB2 + 1).copied, 2 * kMiB2);
  EXPECT_EQ(driven_.live_handles, 3);
  expect_nothing_lost();
  EXPECT_EQ(in().copied, 2 * kMiB2);
}

TEST_F(Pipeline, WithoutRoomInTheHostTheRestStays) {
  take_host_room_but(2 * kMiB2);
  EXPECT_EQ(out().stop, Stop::kNoHostRoom);
  expect_nothing_lost();
  give_host_room_back();
  EXPECT_EQ(in().stop, Stop::kNothing);
  expect_nothing_lost();
}

TEST_F(Pipeline, WithoutRoomOnTheDeviceTheRestIsTriedAgain) {
  out();
  faults().fail(5 + 4 + 3);  // stream and events; a chunk; most of the second
  EXPECT_EQ(in().stop, Stop::kNoDeviceRoom);
  EXPECT_EQ(driven_.live_handles, 2);
  expect_nothing_lost();
  faults().none();
  EXPECT_EQ(in().stop, Stop::kNothing);
  expect_nothing_lost();
}

TEST_F(Pipeline, WhatTheDriverDoesNotUnmapStays) {
  SWITCHYARD_WATCH(faults(), cuMemUnmap);
  faults().refuse("cuMemUnmap", CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(out().stop, Stop::kDriver);
  EXPECT_EQ(driven_.live_handles, 5);
  expect_nothing_lost();
  faults().none();
  EXPECT_EQ(out().stop, Stop::kNothing);
  expect_nothing_lost();
}

TEST_F(Pipeline, ZerosThatTheDriverDoesNotUnmapAreOnTheDevice) {
  out();
  in();  // the digests have been seen to be right
  for (const unsigned chunk : {0, 1, 2}) zero(0, chunk);
  for (const unsigned chunk : {0, 1}) zero(1, chunk);
  SWITCHYARD_WATCH(faults(), cuMemUnmap);
  faults().refuse("cuMemUnmap", CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(out().stop, Stop::kDriver);
  expect_nothing_lost();
  faults().none();
  EXPECT_EQ(out().skipped, 5 * kMiB2);
  EXPECT_EQ(in().stop, Stop::kNothing);
  expect_nothing_lost();
}

TEST_F(Pipeline, WhatNeverArrivedLeavesAsItWas) {
  out();
  SWITCHYARD_WATCH(faults(), cuMemUnmap);
  faults().refuse("cuMemUnmap", CUDA_ERROR_UNKNOWN);
  faults().fail("cuMemcpyHtoDAsync_v2", 0, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(in().stop, Stop::kDriver);
  EXPECT_EQ(driven_.live_handles, 1);
  expect_nothing_lost();
  faults().none();
  EXPECT_EQ(out().copied, 0u) << "rubbish over the only copy";
  EXPECT_EQ(driven_.live_handles, 0);
  expect_nothing_lost();
  EXPECT_EQ(in().stop, Stop::kNothing);
  expect_nothing_lost();
}

class EachCallFailingInTurn : public Pipeline, public ::testing::WithParamInterface<bool> {};

TEST_P(EachCallFailingInTurn, LosesNothing) {
  zero(0, 0);
  for (const CUresult failure : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    for (int n = 0; n < 40; ++n) {
      swap::clear_digests();
      faults().fail(n, failure);
      out();
      expect_nothing_lost();
      faults().none();
      EXPECT_EQ(in().stop, Stop::kNothing);
      EXPECT_EQ(driven_.live_handles, 5);
      change(0, 2, static_cast<std::uint64_t>(n));
      change(1, 0, static_cast<std::uint64_t>(n));
      out();
      if (GetParam()) swap::pinned_pool::unpin_all(0);
      faults().fail(n, failure);
      in();
      expect_nothing_lost();
      faults().none();
      EXPECT_EQ(in().stop, Stop::kNothing);
      expect_nothing_lost();
      change(1, 1, static_cast<std::uint64_t>(n));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pipeline, EachCallFailingInTurn, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "AndPinsAgain" : "OnTheWay"; });

}  // namespace
}  // namespace switchyard::shim
