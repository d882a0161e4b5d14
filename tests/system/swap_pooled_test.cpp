#include <string>

#include "tests/system/swap_scene.h"

namespace switchyard::system_tests {
namespace {

std::string ordered(std::uint64_t bytes) { return std::to_string(bytes) + "@"; }

// Memory that is allocated in stream order: several chunks, one, and one too small to be moved.
class SwapOfPooledMemory : public Swap {
 protected:
  void begin_pooled(const Changes& changes = {}) {
    begin_with({ordered(34 * kMiB), ordered(3 * kMiB + 12), ordered(kMiB)}, 38 * kMiB, changes);
  }
};

TEST_F(SwapOfPooledMemory, OutAndInUnderARunningJobKeepsEveryWord) {
  begin_pooled();
  out_and_in_under_work(38 * kMiB);
}

TEST_F(SwapOfPooledMemory, MovesBesideTheOtherKinds) {
  begin_with({std::to_string(4 * kMiB), ordered(6 * kMiB),
              std::to_string(4 * kMiB) + "/" + std::to_string(2 * kMiB)},
             14 * kMiB);
  ask("launch 6");
  out_and_in();
}

TEST_F(SwapOfPooledMemory, WhatIsAwayIsFreedAtOnceAndANewAllocationWaits) {
  begin_pooled();
  ASSERT_TRUE(swapped_out());
  EXPECT_EQ(ask("free 0"), "did free");
  EXPECT_EQ(words().total_bytes.load(), 4 * kMiB);
  EXPECT_EQ(said_after_the_wait("alloc " + ordered(8 * kMiB)), "did alloc 3");
  EXPECT_EQ(ask("check"), "right");
  EXPECT_EQ(words().total_bytes.load(), 12 * kMiB);
}

TEST_F(SwapOfPooledMemory, WhatIsCachedIsGivenBackAndNotMoved) {
  begin_pooled();
  EXPECT_EQ(ask("free 0"), "did free");
  EXPECT_EQ(words().total_bytes.load(), 38 * kMiB) << "nothing was synchronised";
  ASSERT_TRUE(swapped_out());
  EXPECT_EQ(words().total_bytes.load(), 4 * kMiB);
  EXPECT_EQ(words().moved_bytes.load(), 4 * kMiB);
  ASSERT_TRUE(swapped_in());
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(SwapOfPooledMemory, IsUsedAgainAfterItCameBack) {
  begin_pooled();
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(ask("free " + std::to_string(round == 0 ? 0 : 2 + round)), "did free");
    EXPECT_EQ(ask("alloc " + ordered(34 * kMiB)), "did alloc " + std::to_string(3 + round));
    EXPECT_EQ(words().total_bytes.load(), 38 * kMiB);
    ask("launch 3");
    ASSERT_TRUE(swapped_out());
    ASSERT_TRUE(swapped_in());
    EXPECT_EQ(ask("check"), "right");
  }
}

TEST_F(SwapOfPooledMemory, TheAccountIsAtZeroInTheEnd) {
  begin_pooled();
  EXPECT_GE(monitor_->lane().used_bytes.load(), 39 * kMiB);
  for (const char* index : {"0", "1", "2"}) {
    EXPECT_EQ(ask(std::string("free ") + index), "did free");
  }
  EXPECT_EQ(ask("sync"), "did sync");
  EXPECT_EQ(monitor_->lane().used_bytes.load(), 0u);
  EXPECT_EQ(words().total_bytes.load(), 0u);
}

constexpr const char* kPooledMemoryFailures[] = {
    "cuMemCreate:4=2",        "cuMemMap:4",   "cuMemSetAccess:4",
    "cuMemcpyDtoHAsync_v2:2", "cuMemUnmap:2", "cuMemcpyHtoDAsync_v2:2",
};

class FailingSwapOfPooledMemory : public SwapOfPooledMemory,
                                  public ::testing::WithParamInterface<const char*> {};

TEST_P(FailingSwapOfPooledMemory, LosesNothing) {
  begin_pooled({{"FAKECUDA_FAIL", GetParam()}, {"FAKECUDA_FAILED", in_folder("failed")}});
  expect_nothing_lost();
}

INSTANTIATE_TEST_SUITE_P(Driver, FailingSwapOfPooledMemory,
                         ::testing::ValuesIn(kPooledMemoryFailures), name_of);

// What an application sees of its pool.
class PoolOfASwappableJob : public Swap {
 protected:
  void begin_pool(const Changes& changes = {}) {
    Changes all = {{"LD_PRELOAD", built("libswitchyard.so")},
                   {"SWITCHYARD_JOB", "pooled"},
                   {"SWITCHYARD_SWAPPABLE", "yes"},
                   {"FAKECUDA_PATTERN", "1"}};
    all.insert(all.end(), changes.begin(), changes.end());
    child_.emplace(start({built("tests/jobs/job_pool")}, all));
    ASSERT_EQ(line(), "ready");
    ASSERT_TRUE(monitor_->joined());
    words().host_limit_bytes.store(1024 * kMiB);
  }
  // The address, behind the index.
  std::string alloc(int mib, int stream) {
    const std::string answer = ask("alloc " + std::to_string(mib) + " " + std::to_string(stream));
    return answer.substr(answer.find(' ') + 1);
  }
  void sync(int stream) { EXPECT_EQ(ask("sync " + std::to_string(stream)), "did sync"); }
  std::uint64_t used() { return monitor_->lane().used_bytes.load(); }
};

TEST_F(PoolOfASwappableJob, TheSameStreamHasAFreedPieceAgainAtOnce) {
  begin_pool();
  const std::string first = alloc(8, 0);
  EXPECT_EQ(ask("hold 0"), "did hold");
  EXPECT_EQ(ask("fill 0 5 0"), "did fill");
  EXPECT_EQ(ask("free 0 0"), "did free");
  const std::string other = alloc(8, 1);
  EXPECT_NE(other, first) << "another stream doesn't, while it is in use";
  EXPECT_EQ(ask("fill 1 9 1"), "did fill");
  EXPECT_EQ(alloc(8, 0), first);
  EXPECT_EQ(ask("fill 2 6 0"), "did fill");
  EXPECT_EQ(used(), 16 * kMiB);
  EXPECT_EQ(ask("let"), "did let");
  sync(0);
  sync(1);
  EXPECT_EQ(ask("check 1 9"), "right");
  EXPECT_EQ(ask("check 2 6"), "right");
  EXPECT_EQ(ask("free 1 0"), "did free");
  EXPECT_EQ(ask("free 2 3"), "did free");
  sync(0);
  sync(3);
  EXPECT_EQ(used(), 0u);
}

TEST_F(PoolOfASwappableJob, KeepsWhatItsThresholdSays) {
  begin_pool();
  EXPECT_EQ(ask("keep 8"), "did keep");
  for (const int mib : {8, 4, 4}) alloc(mib, 0);
  EXPECT_EQ(ask("pool"), "16 16 16 16");
  for (const char* index : {"0", "1", "2"}) ask(std::string("free ") + index + " 0");
  EXPECT_EQ(ask("pool"), "0 16 16 16");
  EXPECT_EQ(used(), 16 * kMiB);
  sync(0);
  EXPECT_LE(used(), 8 * kMiB);
  EXPECT_GT(used(), 0u);
  EXPECT_EQ(ask("reset"), "did reset");
  EXPECT_EQ(ask("trim 0"), "did trim");
  EXPECT_EQ(ask("pool").substr(0, 3), "0 0");
  EXPECT_EQ(used(), 0u);
}

TEST_F(PoolOfASwappableJob, IsTheOneThatTheDriverNames) {
  begin_pool();
  alloc(8, 0);
  EXPECT_EQ(ask("whose 0"), "ours");
  EXPECT_EQ(ask("create"), "did create");
  EXPECT_EQ(ask("whose 0"), "theirs");
  alloc(4, 0);
  EXPECT_EQ(ask("whose 1"), "ours");
  EXPECT_EQ(ask("destroy"), "did destroy");
  EXPECT_EQ(used(), 12 * kMiB);
  EXPECT_EQ(ask("fill 1 3 0"), "did fill") << "it lives on";
  sync(0);
  EXPECT_EQ(ask("check 1 3"), "right");
  EXPECT_EQ(ask("free 1 0"), "did free");
  EXPECT_EQ(ask("drop 0"), "did drop");
  sync(0);
  EXPECT_EQ(used(), 0u);
}

TEST_F(PoolOfASwappableJob, ACaptureBesideWhatIsCachedGoesOn) {
  begin_pool();
  const std::string first = alloc(4, 0);
  EXPECT_EQ(ask("free 0 0"), "did free");
  EXPECT_EQ(ask("capture 0"), "did capture");
  EXPECT_EQ(ask("replay 0"), "did replay");
  EXPECT_EQ(ask("begin 0"), "did begin");
  const std::string other = alloc(4, 1);
  EXPECT_NE(other, first) << "nothing is asked of the driver in a capture";
  EXPECT_EQ(ask("fill 1 8 1"), "did fill");
  EXPECT_EQ(ask("free 1 1"), "did free");
  EXPECT_EQ(alloc(4, 1), other);
  EXPECT_EQ(ask("end 0"), "did end");
  EXPECT_EQ(ask("free 2 1"), "did free");
  sync(0);
  sync(1);
  EXPECT_EQ(words().total_bytes.load(), 0u);
}

TEST_F(PoolOfASwappableJob, WhereTheDeviceHasNoRoomItWaitsForWhatWasFreed) {
  begin_pool({{"FAKECUDA_MEMORY", "256MiB"}});
  EXPECT_EQ(ask("keep 4096"), "did keep");
  const std::string first = alloc(128, 0);
  EXPECT_EQ(ask("fill 0 5 0"), "did fill");
  EXPECT_EQ(ask("free 0 0"), "did free");
  EXPECT_EQ(alloc(160, 1).rfind("0x", 0), 0u);
  EXPECT_EQ(used(), 160 * kMiB);
  EXPECT_EQ(ask("alloc 128 0"), "failed alloc 2");
  EXPECT_EQ(used(), 160 * kMiB);
  EXPECT_EQ(ask("free 1 0"), "did free");
  EXPECT_EQ(ask("alloc 1 0").rfind("2 0x", 0), 0u);
}

}  // namespace
}  // namespace switchyard::system_tests
