// Memory is moved under a running job: every word is where the job left it, and no kernel runs
// without its memory. The monitor is played.
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "tests/system/swap_scene.h"

namespace switchyard::system_tests {
namespace {

TEST_F(Swap, OutAndInUnderARunningJobKeepsEveryWord) {
  begin();
  ask("begin");
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(swapped_out());
    EXPECT_EQ(words().resident_bytes.load(), 0u);
    EXPECT_GE(words().host_bytes.load(), 38 * kMiB);
    const std::string held = count();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(count(), held) << "a kernel was admitted while its memory was away";
    ASSERT_TRUE(swapped_in());
    EXPECT_EQ(words().resident_bytes.load(), 38 * kMiB);
    EXPECT_TRUE(eventually([&] { return count() != held; }));
  }
  expect_right_in_the_end();
  EXPECT_EQ(words().moves.load(), 6u);
  EXPECT_LE(words().moved_bytes.load(), 6 * 38 * kMiB);
}

TEST_F(Swap, MemoryThatStaysAsItWasIsCopiedOutOnce) {
  begin();
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(swapped_out());
    EXPECT_EQ(words().resident_bytes.load(), 0u);
    EXPECT_EQ(words().moved_bytes.load(), static_cast<unsigned>(1 + round) * 38 * kMiB);
    EXPECT_EQ(memory().times_out.load(), static_cast<unsigned>(1 + round));
    ASSERT_TRUE(swapped_in());
    EXPECT_EQ(ask("check"), "right");
  }
  EXPECT_EQ(words().moved_bytes.load(), 3 * 38 * kMiB) << "once out, twice in";
  EXPECT_EQ(memory().moved_out_bytes.load(), 38 * kMiB);
  EXPECT_EQ(memory().moved_in_bytes.load(), 2 * 38 * kMiB);
  EXPECT_EQ(memory().spared_bytes.load(), 38 * kMiB);
  EXPECT_EQ(ask("launch 3"), "did launch");
  ASSERT_TRUE(swapped_out());
  EXPECT_EQ(words().moved_bytes.load(), 4 * 38 * kMiB);
  ASSERT_TRUE(swapped_in());
  EXPECT_EQ(ask("check"), "right");
}

// All files that a program may open are its own, but for five at most. The simulated GPU has four.
TEST_F(Swap, AJobThatMayOpenTwelveFilesMoves) {
  within_ = {"bash", "-c",
             "for file in /proc/self/fd/*; do n=${file##*/}; [ $n -le 2 ] || eval \"exec $n>&-\"; "
             "done; ulimit -n 12; exec \"$@\"",
             "bash"};
  begin_with({std::to_string(2 * kMiB)}, 2 * kMiB);
  EXPECT_EQ(ask("launch 3"), "did launch");
  out_and_in();
}

TEST_F(Swap, WhatIsTooSmallIsToldToStay) {
  begin();
  EXPECT_EQ(stays(Stays::kSmall), kMiB);
  EXPECT_EQ(ask("alloc " + std::to_string(kMiB / 2)), "did alloc 3");
  EXPECT_EQ(stays(Stays::kSmall), kMiB + kMiB / 2);
  EXPECT_EQ(ask("free 2"), "did free");
  EXPECT_EQ(stays(Stays::kSmall), kMiB / 2);
  EXPECT_EQ(monitor_->lane().used_bytes.load(), 38 * kMiB + stays(Stays::kSmall));
}

TEST_F(Swap, ACaptureForbidsToAllocateAndToFreeAsWithoutTheLibrary) {
  begin();
  for (int index : {0, 2}) {  // of ours, and the driver's own
    EXPECT_EQ(ask("captured-free " + std::to_string(index)), "failed captured-free 900");
  }
  for (const std::uint64_t bytes : {8 * kMiB, kMiB / 2}) {
    EXPECT_EQ(ask("captured-alloc " + std::to_string(bytes)), "failed captured-alloc 900");
  }
  EXPECT_EQ(words().total_bytes.load(), 38 * kMiB);
  EXPECT_EQ(ask("launch 3"), "did launch");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, ZerosAreNotCopied) {
  begin();
  for (const char* before : {"sync", "zero 0"}) {  // at first nothing is believed
    EXPECT_NE(ask(before), "");
    ASSERT_TRUE(swapped_out());
    ASSERT_TRUE(swapped_in());
  }
  EXPECT_EQ(words().moved_bytes.load(), 2 * 38 * kMiB + 4 * kMiB);
  EXPECT_EQ(memory().moved_out_bytes.load() + memory().moved_in_bytes.load(),
            words().moved_bytes.load());
  EXPECT_EQ(memory().spared_bytes.load(), 4 * 38 * kMiB - words().moved_bytes.load());
  EXPECT_EQ(ask("launch 2"), "did launch");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, WithoutDigestsAllIsCopied) {
  begin({{"SWITCHYARD_SWAP_DIGEST", "0"}});
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(swapped_out());
    ASSERT_TRUE(swapped_in());
  }
  EXPECT_EQ(words().moved_bytes.load(), 4 * 38 * kMiB);
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, WhatIsKeptInTheHostIsRoomForTheNextMove) {
  begin();
  words().host_limit_bytes.store(256 * kMiB);
  EXPECT_EQ(ask("alloc " + std::to_string(150 * kMiB)), "did alloc 3");
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(swapped_out());
    EXPECT_EQ(words().host_bytes.load(), 256 * kMiB);
    ASSERT_TRUE(swapped_in());
    EXPECT_EQ(ask("launch 1"), "did launch");
  }
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, HostMemoryBeyondTheLimitIsGivenBackWhileTheJobWorks) {
  begin();
  EXPECT_EQ(ask("alloc " + std::to_string(250 * kMiB)), "did alloc 3");
  EXPECT_TRUE(eventually([&] { return words().host_bytes.load() == 512 * kMiB; }));
  ask("begin");
  words().host_limit_bytes.store(256 * kMiB);
  EXPECT_TRUE(eventually([&] { return words().host_bytes.load() == 256 * kMiB; }));
  EXPECT_EQ(words().phase.load(), abi::kResident);
  expect_right_in_the_end();
  EXPECT_EQ(words().error.load(), abi::kSwapFine);
}

TEST_F(Swap, OfHostMemoryBeyondTheLimitWhatIsAwayStays) {
  begin();
  EXPECT_TRUE(eventually([&] { return words().host_bytes.load() == 256 * kMiB; }));
  ASSERT_TRUE(swapped_out());
  words().host_limit_bytes.store(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(words().host_bytes.load(), 256 * kMiB);
  ASSERT_TRUE(swapped_in());
  EXPECT_TRUE(eventually([&] { return words().host_bytes.load() == 0; }))
      << "its copies were only kept";
  EXPECT_EQ(ask("launch 1"), "did launch");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, AGraphGoesOnOverMemoryThatCameBack) {
  begin();
  EXPECT_EQ(ask("graph"), "did graph");
  EXPECT_EQ(ask("replay 3"), "did replay");
  ASSERT_TRUE(swapped_out());
  ASSERT_TRUE(swapped_in());
  EXPECT_EQ(ask("replay 2"), "did replay");
  EXPECT_EQ(ask("sync"), "did sync");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, OnlyTheExcessLeaves) {
  begin();
  ASSERT_TRUE(swapped_out(34 * kMiB));
  EXPECT_LE(words().resident_bytes.load(), 34 * kMiB);
  EXPECT_GT(words().resident_bytes.load(), 0u);
  ASSERT_TRUE(swapped_in());
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, WithALimitAboveAllItIsHeldAndNothingLeaves) {
  begin();
  ASSERT_TRUE(swapped_out(1024 * kMiB));
  EXPECT_EQ(words().resident_bytes.load(), 38 * kMiB);
  EXPECT_EQ(said_after_the_wait("launch 10"), "did launch");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, ItComesInPartsAndGoesOnOnceThereIsNoLimit) {
  begin();
  ASSERT_TRUE(swapped_out());
  ASSERT_TRUE(child_->write_line("launch 10"));
  const auto there = [&](std::uint64_t bytes) {
    return eventually([&] { return words().resident_bytes.load() == bytes; });
  };
  for (const std::uint64_t limit : {33, 35, 37, 34, 38}) {
    words().limit_bytes.store(limit * kMiB);
    // Of 32, 2 and 4 MiB what fits, in the order of addresses.
    EXPECT_TRUE(eventually([&] { return words().resident_bytes.load() <= limit * kMiB; }));
  }
  EXPECT_TRUE(there(38 * kMiB));
  EXPECT_EQ(words().phase.load(), abi::kAbsent);
  EXPECT_EQ(words().held_threads.load(), 1u);
  in();
  EXPECT_EQ(line(), "did launch");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, WhatIsAwayCanBeFreedAndANewAllocationWaits) {
  begin();
  ASSERT_TRUE(swapped_out());
  EXPECT_EQ(ask("free 1"), "did free");
  EXPECT_EQ(words().total_bytes.load(), 34 * kMiB);
  EXPECT_EQ(said_after_the_wait("alloc " + std::to_string(4 * kMiB)), "did alloc 3");
  EXPECT_EQ(ask("check"), "right");
  EXPECT_EQ(words().total_bytes.load(), 38 * kMiB);
}

TEST_F(Swap, AJobWhoseMemoryIsAwayCanEnd) {
  begin();
  ASSERT_TRUE(swapped_out());
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
  ASSERT_TRUE(swapped_out());
  ASSERT_TRUE(child_->write_line("launch 10"));
  monitor_->vanish();
  EXPECT_EQ(line(), "did launch");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(Swap, WhenTheMonitorDiesWhatAPersonReleasedStaysAway) {
  begin();
  ASSERT_TRUE(swapped_out());
  monitor_->gate().pause_until_ns.store(0);
  monitor_->close(abi::kClosedByPause);
  ASSERT_TRUE(child_->write_line("launch 10"));
  monitor_->vanish();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(words().phase.load(), abi::kAbsent);
  EXPECT_EQ(words().resident_bytes.load(), 0u);
}

// What only we ask of the driver.
constexpr const char* kSwapFailures[] = {
    "cuMemcpyDtoHAsync_v2:1", "cuMemcpyDtoHAsync_v2:2",
    "cuMemcpyHtoDAsync_v2:1", "cuMemcpyHtoDAsync_v2:3",
    "cuMemCreate:6=2",        "cuMemMap:6",
    "cuMemSetAccess:6",       "cuMemHostRegister_v2:1",
    "cuEventRecord:2",        "cuStreamCreate:2",
    "cuStreamCreate:3",       "cuMemHostRegister_v2:2",
    "cuMemHostUnregister:1",  "cuMemHostGetDevicePointer_v2:1",
};

class FailingSwap : public Swap, public ::testing::WithParamInterface<const char*> {};

TEST_P(FailingSwap, LosesNothing) {
  begin({{"FAKECUDA_FAIL", GetParam()}, {"FAKECUDA_FAILED", in_folder("failed")}});
  expect_nothing_lost();
}

// On a full GPU one may follow the other: the second must not make the first one look mended.
TEST_F(Swap, TwoFailuresInOneMoveLoseNothing) {
  const std::string bytes = std::to_string(6 * kMiB);
  begin_with({bytes, bytes, bytes, bytes}, 24 * kMiB,
             {{"FAKECUDA_FAIL", "cuMemcpyHtoDAsync_v2:2=2,cuMemSetAccess:7=2"},
              {"FAKECUDA_FAILED", in_folder("failed")}});
  expect_nothing_lost();
}

// What the driver answers in a process that ends while its memory moves.
struct Ending {
  const char* name;
  const char* calls;
};
constexpr Ending kEndings[] = {
    {"WithoutADriver", "cuMemUnmap:1+=4"},
    {"WithoutAContext", "cuMemcpyDtoHAsync_v2:1+=201"},
};

class EndingSwap : public Swap, public ::testing::WithParamInterface<Ending> {};

TEST_P(EndingSwap, WarnsOfNothing) {
  begin({{"FAKECUDA_FAIL", GetParam().calls}, {"SWITCHYARD_LOG", "warn:" + in_folder("log")}});
  out();
  ASSERT_TRUE(fails(abi::kSwapFailed));
  std::ostringstream said;
  said << std::ifstream(in_folder("log")).rdbuf();
  EXPECT_EQ(said.str(), "");
}

INSTANTIATE_TEST_SUITE_P(Driver, EndingSwap, ::testing::ValuesIn(kEndings),
                         [](const auto& each) { return std::string(each.param.name); });

INSTANTIATE_TEST_SUITE_P(Driver, FailingSwap, ::testing::ValuesIn(kSwapFailures), name_of);

}  // namespace
}  // namespace switchyard::system_tests
