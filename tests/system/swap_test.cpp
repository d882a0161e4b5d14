// Memory is moved under a running job: every word is where the job left it, and no kernel runs
// without its memory. The monitor is played.
#include <string>
#include <thread>

#include "tests/system/swap_scene.h"

namespace switchyard::system_tests {
namespace {

TEST_F(Swap, OutAndInUnderARunningJobKeepsEveryWord) {
  begin();
  ask("begin");
  for (int round = 0; round < 3; ++round) {
    out();
    ASSERT_TRUE(becomes(abi::kAbsent));
    EXPECT_EQ(words().resident_bytes.load(), 0u);
    EXPECT_GE(words().host_bytes.load(), 38 * kMiB);
    const std::string held = count();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(count(), held) << "a kernel was admitted while its memory was away";
    in();
    ASSERT_TRUE(becomes(abi::kResident));
    EXPECT_EQ(words().resident_bytes.load(), 38 * kMiB);
    EXPECT_TRUE(eventually([&] { return count() != held; }));
  }
  EXPECT_EQ(ask("end"), "did end");
  EXPECT_EQ(ask("check"), "right");
  EXPECT_EQ(words().moves.load(), 6u);
  EXPECT_EQ(words().moved_bytes.load(), 6 * 38 * kMiB);
}

TEST_F(Swap, AGraphGoesOnOverMemoryThatCameBack) {
  begin();
  EXPECT_EQ(ask("graph"), "did graph");
  EXPECT_EQ(ask("replay 3"), "did replay");
  out();
  ASSERT_TRUE(becomes(abi::kAbsent));
  in();
  ASSERT_TRUE(becomes(abi::kResident));
  EXPECT_EQ(ask("replay 2"), "did replay");
  EXPECT_EQ(ask("sync"), "did sync");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, OnlyTheExcessLeaves) {
  begin();
  out(34 * kMiB);
  ASSERT_TRUE(becomes(abi::kAbsent));
  EXPECT_LE(words().resident_bytes.load(), 34 * kMiB);
  EXPECT_GT(words().resident_bytes.load(), 0u);
  in();
  ASSERT_TRUE(becomes(abi::kResident));
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, WhatIsAwayCanBeFreedAndANewAllocationWaits) {
  begin();
  out();
  ASSERT_TRUE(becomes(abi::kAbsent));
  EXPECT_EQ(ask("free 1"), "did free");
  EXPECT_EQ(words().total_bytes.load(), 34 * kMiB);
  ASSERT_TRUE(child_->write_line("alloc " + std::to_string(4 * kMiB)));
  EXPECT_TRUE(eventually([&] { return words().held_threads.load() == 1; }));
  in();
  EXPECT_EQ(line(), "did alloc 3");
  EXPECT_EQ(ask("check"), "right");
  EXPECT_EQ(words().total_bytes.load(), 38 * kMiB);
}

TEST_F(Swap, AJobWhoseMemoryIsAwayCanEnd) {
  begin();
  out();
  ASSERT_TRUE(becomes(abi::kAbsent));
  ASSERT_TRUE(child_->write_line("quit"));
  EXPECT_EQ(child_->finish(kLimit).status, 0);
}

TEST_F(Swap, WithoutRoomInTheHostTheJobGoesOn) {
  begin({{"FAKECUDA_PINNED", "1MiB"}});
  out();
  ASSERT_TRUE(fails(abi::kSwapNoHostRoom));
  EXPECT_EQ(words().phase.load(), abi::kResident);
  EXPECT_EQ(words().resident_bytes.load(), 38 * kMiB);
  EXPECT_EQ(ask("launch 10"), "did launch");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, WhenTheMonitorDiesMemoryComesBackByItself) {
  begin();
  out();
  ASSERT_TRUE(becomes(abi::kAbsent));
  ASSERT_TRUE(child_->write_line("launch 10"));
  monitor_->vanish();
  EXPECT_EQ(line(), "did launch");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, WhenTheMonitorDiesWhatAPersonReleasedStaysAway) {
  begin();
  out();
  ASSERT_TRUE(becomes(abi::kAbsent));
  monitor_->gate().pause_until_ns.store(0);
  monitor_->close(abi::kClosedByPause);
  ASSERT_TRUE(child_->write_line("launch 10"));
  monitor_->vanish();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(words().phase.load(), abi::kAbsent);
  EXPECT_EQ(words().resident_bytes.load(), 0u);
}

// What only we ask of the driver.
constexpr const char* kFailures[] = {
    "cuMemcpyDtoHAsync_v2:1", "cuMemcpyDtoHAsync_v2:2", "cuMemcpyHtoDAsync_v2:1",
    "cuMemcpyHtoDAsync_v2:3", "cuMemCreate:6=2",        "cuMemMap:6",
    "cuMemSetAccess:6",       "cuMemHostRegister_v2:1", "cuEventRecord:2",
    "cuStreamCreate:2",
};

class FailingSwap : public Swap, public ::testing::WithParamInterface<const char*> {};

TEST_P(FailingSwap, LosesNothing) {
  begin({{"FAKECUDA_FAIL", GetParam()}, {"FAKECUDA_FAILED", in_folder("failed")}});
  expect_nothing_lost();
}

INSTANTIATE_TEST_SUITE_P(Driver, FailingSwap, ::testing::ValuesIn(kFailures), name_of);

}  // namespace
}  // namespace switchyard::system_tests
