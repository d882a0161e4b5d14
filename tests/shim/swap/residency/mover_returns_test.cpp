// Memory comes back: when it may, in parts, without room, without a context, and without a monitor.
#include "tests/shim/swap/residency/mover_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class MoverReturns : public MoverTest {
 protected:
  void go_away() {
    limit(0);
    ASSERT_TRUE(run_until([&] { return is_away(); }));
  }
  // The device has room for so many chunks more.
  void leave_room_for(int chunks) {
    room = chunks;
    static const auto create = g_driver.cuMemCreate;
    g_driver.cuMemCreate = [](CUmemGenericAllocationHandle* out, size_t bytes,
                              const CUmemAllocationProp* properties, unsigned long long flags) {
      return room-- > 0 ? create(out, bytes, properties, flags) : CUDA_ERROR_OUT_OF_MEMORY;
    };
  }
  static int room;
};
int MoverReturns::room = 0;

TEST_F(MoverReturns, WhenTheLimitIsLiftedAllComesBackAndWorkGoesOn) {
  go_away();
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  EXPECT_EQ(resident(), kAll);
  EXPECT_EQ(error(), abi::kSwapFine);
  EXPECT_EQ(words().moves.load(), 2u);
  EXPECT_EQ(words().moved_bytes.load(), 2 * kAll);
  EXPECT_EQ(page().memories[0].moved_in_bytes.load(), kAll);
  expect_told_right();
}

TEST_F(MoverReturns, WorkIsHeldUntilTheLastByteIsBack) {
  go_away();
  static const auto map = g_driver.cuMemMap;
  g_driver.cuMemMap = [](CUdeviceptr at, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
    EXPECT_FALSE(admits());
    EXPECT_EQ(phase(), abi::kReturning);
    EXPECT_GE(resident(), kMiB2) << "counted before it comes";
    return map(at, bytes, offset, handle, flags);
  };
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
}

TEST_F(MoverReturns, UnderALimitWhatFitsComesAndWorkStaysHeld) {
  allocate_more(
      7);  // 52 MiB: more than one chunk of an allocation's, which is the least that comes
  go_away();
  limit(17 * kMiB2);
  ASSERT_TRUE(run_until([&] { return resident() == 17 * kMiB2; }));
  run_for(kSecond);
  EXPECT_EQ(resident(), 17 * kMiB2);
  EXPECT_EQ(phase(), abi::kAbsent);
  EXPECT_FALSE(admits());
  expect_told_right();
  limit(20 * kMiB2);
  run_for(kSecond);
  EXPECT_EQ(resident(), 17 * kMiB2) << "for so little it isn't worth to begin";
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  expect_told_right();
}

TEST_F(MoverReturns, TheRestComesUnderALimitWhenAllOfItFits) {
  go_away();
  limit(kAll - 1);
  run_for(kSecond);
  EXPECT_EQ(resident(), 0u);
  limit(kAll);
  ASSERT_TRUE(run_until([&] { return resident() == kAll; }));
  EXPECT_FALSE(admits());
  EXPECT_EQ(phase(), abi::kAbsent);
}

TEST_F(MoverReturns, ALimitThatFallsWhileItComesStopsWhatIsYetToCome) {
  go_away();
  static const auto map = g_driver.cuMemMap;
  g_driver.cuMemMap = [](CUdeviceptr at, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
    limit(2 * kMiB2);
    return map(at, bytes, offset, handle, flags);
  };
  limit(kAll);
  ASSERT_TRUE(run_until([&] { return resident() != 0; }));
  EXPECT_EQ(resident(), 2 * kMiB2);
  run_for(kSecond);
  EXPECT_EQ(resident(), 2 * kMiB2);
  expect_told_right();
}

TEST_F(MoverReturns, ALimitThatRisesWhileItWaitsBringsTheNextWithoutAnotherLook) {
  go_away();
  mover_.during_sleep = [&] { limit(kAll); };
  static const auto map = g_driver.cuMemMap;
  static bool first;
  first = true;
  g_driver.cuMemMap = [](CUdeviceptr at, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
    if (std::exchange(first, false)) limit(kMiB2);
    return map(at, bytes, offset, handle, flags);
  };
  limit(kAll);
  look();
  EXPECT_EQ(resident(), kAll);
}

TEST_F(MoverReturns, WithoutRoomOnTheDeviceWorkStaysHeldAndItIsTriedAgain) {
  go_away();
  leave_room_for(2);
  lift();
  run_for(10 * kMs);
  expect_held(abi::kReturning, abi::kSwapNoDeviceRoom, 2 * kMiB2);
  run_for(10 * kSecond);
  EXPECT_EQ(resident(), 2 * kMiB2) << "what has come stays: the monitor keeps order";
  room = 100;
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  EXPECT_EQ(error(), abi::kSwapFine);
  expect_told_right();
}

TEST_F(MoverReturns, UnderALimitWithoutRoomTheReasonIsToldAndItStaysAway) {
  go_away();
  leave_room_for(1);
  limit(kAll);
  run_for(10 * kMs);
  EXPECT_EQ(phase(), abi::kAbsent);
  EXPECT_EQ(error(), abi::kSwapNoDeviceRoom);
  EXPECT_FALSE(admits());
  room = 100;
  ASSERT_TRUE(run_until([&] { return resident() == kAll; }));
}

TEST_F(MoverReturns, WhatEndsTheContextLetsWorkOnForItsOwnError) {
  for (const CUresult failure : {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_CONTEXT}) {
    go_away();
    faults().fail(0, failure);
    lift();
    look();
    EXPECT_TRUE(admits());
    EXPECT_EQ(phase(), abi::kResident);
    EXPECT_EQ(error(), abi::kSwapFailed);
    EXPECT_EQ(words().swap_result.load(), static_cast<std::uint32_t>(failure));
    faults().none();
    swap::mover::context_made(0);
    EXPECT_FALSE(admits()) << "nobody works in the new one before all is back";
    ASSERT_TRUE(run_until([&] { return is_back(); }));
    EXPECT_EQ(error(), abi::kSwapFine);
    expect_told_right();
  }
}

TEST_F(MoverReturns, WithoutAnyContextWorkGoesOnAndTheNextContextBringsItBack) {
  go_away();
  end_primary();
  lift();
  ASSERT_TRUE(run_until([&] { return admits(); }));
  EXPECT_EQ(error(), abi::kSwapFailed);
  EXPECT_EQ(words().swap_result.load(), static_cast<std::uint32_t>(CUDA_ERROR_INVALID_CONTEXT));
  EXPECT_EQ(resident(), 0u);
  expect_told_right();
  make_context(0xB1);
  swap::mover::context_made(0);
  EXPECT_FALSE(admits());
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  EXPECT_EQ(resident(), kAll);
  EXPECT_EQ(error(), abi::kSwapFine);
  expect_told_right();
  end_context(0xB1);
}

TEST_F(MoverReturns, ANewContextHoldsNobodyWhereNothingWasLeftBehind) {
  swap::mover::context_made(0);
  EXPECT_TRUE(admits());
  go_away();
  swap::mover::context_made(0);
  EXPECT_TRUE(is_away());
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  swap::mover::context_made(0);
  EXPECT_TRUE(admits());
}

TEST_F(MoverReturns, WithoutAContextUnderALimitItStaysAwayAndSaysWhy) {
  go_away();
  end_primary();
  limit(kAll);
  run_for(kSecond);
  EXPECT_FALSE(admits());
  EXPECT_EQ(phase(), abi::kAbsent);
  EXPECT_EQ(error(), abi::kSwapFailed);
  world_.primary = true;
  EXPECT_TRUE(run_until([&] { return resident() == kAll; }));
}

TEST_F(MoverReturns, WhenTheMonitorDiesAllComesBackAndWorkGoesOn) {
  go_away();
  monitor_dies();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  EXPECT_EQ(resident(), kAll);
  expect_told_right();
}

TEST_F(MoverReturns, WithoutAMonitorWhatAPersonReleasedStaysOutUntilThePauseEnds) {
  pause(true);
  go_away();
  monitor_dies();
  run_for(10 * kSecond);
  EXPECT_TRUE(is_away());
  pause(false);
  EXPECT_TRUE(run_until([&] { return is_back(); }));
}

TEST_F(MoverReturns, WithoutAMonitorAndRoomItMakesWayNowAndThen) {
  go_away();
  leave_room_for(2);
  monitor_dies();
  look();
  EXPECT_EQ(error(), abi::kSwapNoDeviceRoom);
  std::set<std::uint64_t> seen;
  // It comes as far as there is room, and goes again, not each time.
  const auto watch = [&] {
    seen.insert(resident());
    room = 2 - static_cast<int>(resident() / kMiB2);
    EXPECT_FALSE(admits());
    return seen.size() == 2;
  };
  EXPECT_TRUE(run_until(watch, 1000 * kSecond));
  EXPECT_EQ(seen, (std::set<std::uint64_t>{0, 2 * kMiB2}));
  expect_told_right();
  room = 100;
  EXPECT_TRUE(run_until([&] { return is_back(); }));
}

TEST_F(MoverReturns, AFreshPageOfAnotherMonitorFindsTheTruth) {
  allow_host(512 * kMiB);
  limit(3 * kMiB2);
  ASSERT_TRUE(run_until([&] { return phase() == abi::kAbsent; }));
  leave_room_for(0);
  limit(kAll);
  ASSERT_TRUE(run_until([&] { return error() == abi::kSwapNoDeviceRoom; }));
  page().memories[0].spared_bytes.store(77);
  words().taken_bytes.store(99);
  const auto fresh = std::make_unique<abi::Page>();
  swap::residency_page::carry_over(*fresh);
  const abi::Residency& told = fresh->residencies[0];
  EXPECT_EQ(told.phase.load(), abi::kAbsent);
  EXPECT_EQ(told.error.load(), abi::kSwapNoDeviceRoom);
  EXPECT_EQ(told.total_bytes.load(), kAll);
  EXPECT_EQ(told.resident_bytes.load(), 3 * kMiB2);
  EXPECT_EQ(told.host_bytes.load(), swap::pinned_pool::pinned_bytes(0));
  EXPECT_EQ(told.moves.load(), 1u);
  EXPECT_EQ(told.moved_bytes.load(), 2 * kMiB2);
  EXPECT_EQ(told.taken_bytes.load(), 99u);
  EXPECT_EQ(told.limited.load(), 0u) << "it may come back by itself";
  EXPECT_EQ(told.host_limit_bytes.load(), 512 * kMiB);
  EXPECT_EQ(fresh->memories[0].moved_out_bytes.load(), 2 * kMiB2);
  EXPECT_EQ(fresh->memories[0].moved_in_bytes.load(), 0u);
  EXPECT_EQ(fresh->memories[0].spared_bytes.load(), 77u);
  EXPECT_EQ(fresh->memories[0].times_out.load(), 1u);
  EXPECT_NE(fresh->lanes[0].attention.load() & abi::kSwappable, 0u);
}

TEST_F(MoverReturns, AFreshPageHasTheLimitOfWhatAPersonPaused) {
  limit(3 * kMiB2);
  ASSERT_TRUE(run_until([&] { return phase() == abi::kAbsent; }));
  pause(true);
  const auto fresh = std::make_unique<abi::Page>();
  swap::residency_page::carry_over(*fresh);
  EXPECT_EQ(fresh->residencies[0].limited.load(), 1u) << "until the monitor has made up its mind";
  EXPECT_EQ(fresh->residencies[0].limit_bytes.load(), 3 * kMiB2);
}

// The mover goes on while the service thread joins another monitor.
TEST_F(MoverReturns, WhatWasSaidIntoTheOldPageIsSaidAgainInTheFreshOne) {
  words().order.store(7);
  go_away();
  EXPECT_EQ(words().answered.load(), 7u);
  const auto fresh = std::make_unique<abi::Page>();
  swap::residency_page::carry_over(*fresh);
  EXPECT_EQ(fresh->residencies[0].phase.load(), abi::kAbsent);
  EXPECT_EQ(fresh->residencies[0].answered.load(), abi::kAnswersNone);
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  words().phase.store(fresh->residencies[0].phase.load());  // the fresh page is in its place
  words().resident_bytes.store(fresh->residencies[0].resident_bytes.load());
  swap::residency_page::moved_to_fresh_page();
  EXPECT_EQ(phase(), abi::kResident);
  EXPECT_EQ(resident(), kAll);
  EXPECT_EQ(words().answered.load(), abi::kAnswersNone) << "the numbers were the other monitor's";
}

TEST_F(MoverReturns, APageOfWhoIsNotSwappableIsLeftAlone) {
  process().swappable.store(0);
  const auto fresh = std::make_unique<abi::Page>();
  swap::residency_page::carry_over(*fresh);
  EXPECT_EQ(fresh->residencies[0].total_bytes.load(), 0u);
  EXPECT_EQ(fresh->lanes[0].attention.load(), 0u);
}

TEST_F(MoverReturns, SumsOfAFreshPageAreRightAfterTheNextMoveToo) {
  go_away();
  // Another monitor's page: all of its words are zero, but for what is carried over.
  const auto fresh = std::make_unique<abi::Page>();
  swap::residency_page::carry_over(*fresh);
  words().total_bytes.store(0);
  words().resident_bytes.store(12345);
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  expect_told_right();
}

}  // namespace
}  // namespace switchyard::shim
