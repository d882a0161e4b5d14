// The mover takes memory away: what it was told, what it waits for, and what it tells.
#include "shim/swap/memory/pool_cache.h"
#include "shim/swap/residency/residency_page.h"
#include "tests/shim/swap/residency/mover_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class MoverLeaves : public MoverTest {
 protected:
  // The monitor says what is handed over when its turn ends, and the mover offers it.
  void offer_what_leaves_soon() {
    words().gives.store(77);
    words().soon_bytes.store(3 * kMiB2);
    run_for(100 * kMs);
  }
  // Offered once, and no longer.
  void expect_withdrawn() {
    ASSERT_EQ(mover_.told.size(), 2u);
    EXPECT_EQ(mover_.told[1].first, wire::kEndShare);
  }
};

TEST_F(MoverLeaves, NothingMovesUntilItIsTold) {
  run_for(kSecond);
  EXPECT_TRUE(is_back());
  EXPECT_EQ(resident(), kAll);
  EXPECT_TRUE(world_.waits.empty());
  EXPECT_EQ(words().moves.load(), 0u);
}

TEST_F(MoverLeaves, ToldToLeaveAllOfItLeavesAndWorkIsHeld) {
  limit(0);
  world_.wakes.store(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(error(), abi::kSwapFine);
  EXPECT_EQ(words().moves.load(), 1u);
  EXPECT_EQ(words().moved_bytes.load(), kAll);
  EXPECT_EQ(page().memories[0].moved_out_bytes.load(), kAll);
  EXPECT_EQ(page().memories[0].moved_in_bytes.load(), 0u);
  EXPECT_EQ(page().memories[0].times_out.load(), 1u);
  EXPECT_EQ(driven_.live_handles, 0);
  EXPECT_GE(world_.wakes.load(), 5) << "the monitor is rung for each chunk";
  expect_told_right();
  run_for(kSecond);
  EXPECT_TRUE(is_away());
  EXPECT_EQ(words().moves.load(), 1u);
}

TEST_F(MoverLeaves, WithoutAMonitorTheServiceThreadHearsThatNothingLeavesAnyMore) {
  limit(0);
  page().gates[0].paused.store(1);
  world_.during_wait = [&] {
    monitor_dies();
    world_.pokes.store(0);
  };
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_GE(world_.pokes.load(), 1) << "it closes the gate of a pause";
}

TEST_F(MoverLeaves, WorkIsHeldAndItSaysSoWhileTheAcceptedWorkEnds) {
  world_.during_wait = [&] {
    EXPECT_EQ(phase(), abi::kLeaving);
    EXPECT_FALSE(admits());
    EXPECT_EQ(resident(), kAll) << "what is accepted may touch it";
  };
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(world_.waits, (std::vector{kPrimary}));
}

TEST_F(MoverLeaves, TheWorkOfEveryContextIsWaitedFor) {
  make_context(0xB1);
  make_context(0xB2);
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  const std::set<CUcontext> waits(world_.waits.begin(), world_.waits.end());
  EXPECT_EQ(waits, (std::set{kPrimary, context_number(0xB1), context_number(0xB2)}));
  end_context(0xB1);
  end_context(0xB2);
}

TEST_F(MoverLeaves, WhatIsOnlyCachedIsGivenBackAndNeedsNoHostMemory) {
  g_driver.cuMemAddressFree = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  empty_host_pool();
  allow_host(0);
  {
    const swap::RangesLock held;
    for (std::size_t i = 0; i < swap::count(); ++i) swap::cache::put(swap::at(i), {});
  }
  limit(0);
  ASSERT_TRUE(run_until([&] { return resident() == 0; }));
  EXPECT_EQ(words().total_bytes.load(), 0u);
  EXPECT_EQ(page().memories[0].moved_out_bytes.load(), 0u);
  EXPECT_FALSE(swap::cache::any());
}

TEST_F(MoverLeaves, OnlyWhatIsBeyondTheLimitLeaves) {
  limit(3 * kMiB2);
  ASSERT_TRUE(run_until([&] { return phase() == abi::kAbsent; }));
  EXPECT_EQ(resident(), 3 * kMiB2);
  EXPECT_FALSE(admits());
  EXPECT_EQ(driven_.live_handles, 3);
  expect_told_right();
}

TEST_F(MoverLeaves, MoreLeavesWhenTheLimitFallsWithoutAnotherWait) {
  limit(3 * kMiB2);
  ASSERT_TRUE(run_until([&] { return phase() == abi::kAbsent; }));
  const std::size_t waits = world_.waits.size();
  limit(kMiB2);
  ASSERT_TRUE(run_until([&] { return resident() == kMiB2; }));
  EXPECT_EQ(world_.waits.size(), waits) << "work is held already";
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(page().memories[0].times_out.load(), 1u) << "one absence";
  EXPECT_EQ(words().moves.load(), 3u);
  expect_told_right();
}

TEST_F(MoverLeaves, ALimitThatAllFitsUnderHoldsWorkAndMovesNothing) {
  limit(kAll);
  ASSERT_TRUE(run_until([&] { return phase() == abi::kAbsent; }));
  EXPECT_FALSE(admits());
  EXPECT_EQ(resident(), kAll);
  EXPECT_EQ(words().moved_bytes.load(), 0u);
}

TEST_F(MoverLeaves, AnOrderThatIsWithdrawnDuringTheWaitMovesNothing) {
  world_.during_wait = [&] { lift(); };
  limit(0);
  ASSERT_TRUE(run_until([&] { return !world_.waits.empty() && is_back(); }));
  EXPECT_EQ(resident(), kAll);
  EXPECT_EQ(words().moved_bytes.load(), 0u);
  EXPECT_EQ(page().memories[0].times_out.load(), 0u);
  EXPECT_EQ(error(), abi::kSwapFine);
  run_for(kSecond);
  EXPECT_EQ(world_.waits.size(), 1u);
}

TEST_F(MoverLeaves, ALimitThatChangesDuringTheWaitIsTheOneThatHolds) {
  world_.during_wait = [&] { limit(2 * kMiB2); };
  limit(0);
  ASSERT_TRUE(run_until([&] { return phase() == abi::kAbsent; }));
  EXPECT_EQ(resident(), 2 * kMiB2);
  EXPECT_EQ(page().memories[0].moved_out_bytes.load(), 3 * kMiB2);
}

TEST_F(MoverLeaves, WhoIsInsideACallIsWaitedFor) {
  auto entry = std::make_unique<WorkGuard>();
  int naps = 0;
  mover_.during_sleep = [&] {
    if (!entry) return;
    EXPECT_TRUE(world_.waits.empty()) << "the call may still put work";
    if (++naps == 10) entry.reset();
  };
  limit(0);
  ASSERT_TRUE(run_until([&] { return !entry; }, kSecond));
  mover_.during_sleep = nullptr;
  ASSERT_TRUE(run_until([&] { return is_away(); }, kSecond));
  EXPECT_EQ(error(), abi::kSwapFine);
}

TEST_F(MoverLeaves, NothingIsHeldWhileAnybodyCaptures) {
  process().captures.store(1);
  mover_.during_sleep = [&] { EXPECT_TRUE(admits()); };
  limit(0);
  run_for(3 * kSecond);
  EXPECT_EQ(resident(), kAll);
  mover_.during_sleep = nullptr;
  process().captures.store(0);
  EXPECT_TRUE(run_until([&] { return is_away(); }, 10 * kSecond));
}

TEST_F(MoverLeaves, ACaptureThatBeginsInsideACallEndsTheAttempt) {
  auto entry = std::make_unique<WorkGuard>();
  mover_.during_sleep = [&] {
    if (!entry) {
      EXPECT_TRUE(admits()) << "the capture's next call may stand outside";
      return;
    }
    process().captures.store(1);
    entry.reset();
  };
  limit(0);
  look();
  EXPECT_TRUE(admits());
  EXPECT_TRUE(world_.waits.empty()) << "a wait for the context would end the capture";
  EXPECT_EQ(resident(), kAll);
}

TEST_F(MoverLeaves, ItFindsAContextThatTheProgramMadeWhereThePrimaryIsNotActive) {
  end_primary();
  make_context(0xB1);
  make_context(0xB2);
  world_.refused.insert(context_number(0xB1));
  world_.refused.insert(context_number(0xB2));
  limit(0);
  run_for(kSecond);
  EXPECT_EQ(resident(), kAll);
  EXPECT_EQ(error(), abi::kSwapFailed);
  world_.refused.clear();
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(world_.retained, 0) << "to retain the primary context would make one";
  end_context(0xB1);
  end_context(0xB2);
}

TEST_F(MoverLeaves, WhatIsHandedOverIsOfferedDuringTheWaitAndNoLongerAfterTheMove) {
  world_.during_wait = [&] {
    ASSERT_EQ(mover_.told.size(), 1u);
    EXPECT_EQ(mover_.told[0].first, wire::kShare);
    EXPECT_EQ(mover_.told[0].second, 1 + 3) << "a board, and what leaves";
  };
  words().gives.store(77);
  limit(2 * kMiB2);
  ASSERT_TRUE(run_until([&] { return phase() == abi::kAbsent; }));
  EXPECT_EQ(world_.waits.size(), 1u);
  expect_withdrawn();
}

TEST_F(MoverLeaves, WhatLeavesSoonIsOfferedWhileWorkGoesOnAndWithdrawnWhenItStays) {
  offer_what_leaves_soon();
  ASSERT_EQ(mover_.told.size(), 1u);
  EXPECT_EQ(mover_.told[0], (std::pair{wire::kShare, 1 + 3}));
  EXPECT_TRUE(admits());
  EXPECT_EQ(resident(), kAll);
  words().soon_bytes.store(0);
  run_for(kSecond);
  expect_withdrawn();
}

TEST_F(MoverLeaves, WhatWasOfferedIsNotOfferedAgainWhenItLeaves) {
  offer_what_leaves_soon();
  limit(2 * kMiB2);
  ASSERT_TRUE(run_until([&] { return phase() == abi::kAbsent; }));
  expect_withdrawn();
}

TEST_F(MoverLeaves, WithoutAMonitorNothingIsOffered) {
  words().gives.store(77);
  words().soon_bytes.store(3 * kMiB2);
  monitor_dies();
  run_for(kSecond);
  EXPECT_TRUE(mover_.told.empty());
}

// The numbers stand in the page of a monitor that has gone: nobody else was told them.
TEST_F(MoverLeaves, WithoutAMonitorNoHandOverIsUnderWay) {
  words().gives.store(77);
  words().takes.store(78);
  words().soon_bytes.store(kMiB2);
  EXPECT_EQ(swap::residency_page::gives(0), 77u);
  EXPECT_EQ(swap::residency_page::takes(0), 78u);
  EXPECT_EQ(swap::residency_page::soon(0), kMiB2);
  monitor_dies();
  EXPECT_EQ(swap::residency_page::gives(0), 0u);
  EXPECT_EQ(swap::residency_page::takes(0), 0u);
  EXPECT_EQ(swap::residency_page::soon(0), 0u);
}

}  // namespace
}  // namespace switchyard::shim
