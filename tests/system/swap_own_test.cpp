// Memory that the job makes itself is moved under it: expandable segments of pieces side by side,
// and one large piece, which is several chunks.
#include <string>

#include "tests/system/swap_scene.h"

namespace switchyard::system_tests {
namespace {

// Memory that the job makes itself: expandable segments of pieces side by side, and one large
// piece, which is several chunks.
class SwapOfOwnMemory : public Swap {
 protected:
  static std::string own(std::uint64_t bytes, std::uint64_t piece) {
    return std::to_string(bytes) + "/" + std::to_string(piece);
  }
  void begin_own(const Changes& changes = {}) {
    begin_with({own(46 * kMiB, 20 * kMiB), own(6 * kMiB, 2 * kMiB), own(80 * kMiB, 80 * kMiB)},
               132 * kMiB, changes);
  }
};

TEST_F(SwapOfOwnMemory, OutAndInUnderARunningJobKeepsEveryWord) {
  begin_own();
  out_and_in_under_work(132 * kMiB);
}

TEST_F(SwapOfOwnMemory, MovesBesideAllocationsOfTheDrivers) {
  begin_with({std::to_string(34 * kMiB), own(44 * kMiB, 20 * kMiB)}, 78 * kMiB);
  ask("launch 4");
  out_and_in();
}

TEST_F(SwapOfOwnMemory, WhatWasAwayIsUnmappedAndMappedAgain) {
  begin_own();
  ask("launch 6");
  ASSERT_TRUE(swapped_out());
  ASSERT_TRUE(swapped_in());
  for (const char* index : {"0", "1", "2"}) {
    EXPECT_EQ(ask(std::string("remap ") + index), "did remap");
  }
  for (unsigned why = 0; why < kStays; ++why) EXPECT_EQ(stays(static_cast<Stays>(why)), 0u) << why;
  EXPECT_EQ(words().total_bytes.load(), 132 * kMiB);
  EXPECT_EQ(ask("check"), "right");
  ASSERT_TRUE(swapped_out());
  ASSERT_TRUE(swapped_in());
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(SwapOfOwnMemory, UnmappingWhatIsAwayWaitsForItsContents) {
  begin_own();
  EXPECT_EQ(said_once_it_is_back("remap 2"), "did remap");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(SwapOfOwnMemory, WhatIsAwayAndHasNoHandleEndsAtOnce) {
  begin_own();
  for (const char* index : {"0", "1", "2"}) {
    EXPECT_EQ(ask(std::string("drop ") + index), "did drop");
  }
  ASSERT_TRUE(swapped_out());
  EXPECT_EQ(ask("free 0"), "did free");
  EXPECT_EQ(ask("free 2"), "did free");
  EXPECT_EQ(words().total_bytes.load(), 6 * kMiB);
  EXPECT_EQ(words().phase.load(), abi::kAbsent);
  ASSERT_TRUE(swapped_in());
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(SwapOfOwnMemory, HandlesAreReleasedWhileTheMemoryIsAway) {
  begin_own();
  ASSERT_TRUE(swapped_out());
  EXPECT_EQ(ask("drop 0"), "did drop");
  ASSERT_TRUE(swapped_in());
  EXPECT_EQ(ask("check"), "right");
  EXPECT_EQ(ask("free 0"), "did free");
  EXPECT_EQ(words().total_bytes.load(), 86 * kMiB);
}

TEST_F(SwapOfOwnMemory, ANewAllocationWaitsWhileMemoryIsAway) {
  begin_own();
  EXPECT_EQ(said_once_it_is_back("alloc " + own(4 * kMiB, 2 * kMiB)), "did alloc 3");
  EXPECT_EQ(ask("check"), "right");
}

// It belongs to no context, and so it survives them all.
TEST_F(SwapOfOwnMemory, WithoutAnyContextNobodyIsHeldForEver) {
  begin_own();
  ask("begin");
  ASSERT_TRUE(swapped_out());
  EXPECT_TRUE(one_is_held());
  EXPECT_EQ(ask("reset"), "did reset");
  in();
  EXPECT_EQ(ask("end").rfind("failed end", 0), 0u);
  EXPECT_EQ(words().resident_bytes.load(), 0u);
  EXPECT_EQ(ask("renew"), "did renew");
  EXPECT_EQ(ask("check"), "right");
  EXPECT_EQ(words().resident_bytes.load(), 132 * kMiB);
  EXPECT_EQ(ask("launch 6"), "did launch");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(SwapOfOwnMemory, AnyContextMovesIt) {
  begin_own();
  for (const char* makes : {"renew", "create"}) {
    EXPECT_EQ(ask("reset"), "did reset");
    EXPECT_EQ(ask(makes), std::string("did ") + makes);
    EXPECT_EQ(ask("launch 6"), "did launch");
    ASSERT_TRUE(swapped_out());
    ASSERT_TRUE(swapped_in());
    EXPECT_EQ(ask("check"), "right");
  }
}

// The first nine pieces of memory are the job's making.
constexpr const char* kOwnMemoryFailures[] = {
    "cuMemCreate:11=2",       "cuMemMap:11",
    "cuMemSetAccess:5",       "cuMemUnmap:2",
    "cuMemcpyDtoHAsync_v2:3", "cuMemcpyHtoDAsync_v2:5",
};

class FailingSwapOfOwnMemory : public SwapOfOwnMemory,
                               public ::testing::WithParamInterface<const char*> {};

TEST_P(FailingSwapOfOwnMemory, LosesNothing) {
  begin_own({{"FAKECUDA_FAIL", GetParam()}, {"FAKECUDA_FAILED", in_folder("failed")}});
  expect_nothing_lost();
}

INSTANTIATE_TEST_SUITE_P(Driver, FailingSwapOfOwnMemory, ::testing::ValuesIn(kOwnMemoryFailures),
                         name_of);

}  // namespace
}  // namespace switchyard::system_tests
