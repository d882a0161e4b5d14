// A move that fails: no byte is lost, work goes on, the page says why, and it is tried again later
// and later.
#include "shim/swap/transfer/digest.h"
#include "tests/shim/swap/residency/mover_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class MoverFails : public MoverTest {
 protected:
  // The service thread's part: the accepted work did not end in time.
  void overrule_late() {
    EXPECT_TRUE(swap::admission::overrule(now() + 9 * kSecond)) << "not before its time";
    mover_.now_ns.fetch_add(10 * kSecond);
    EXPECT_FALSE(swap::admission::overrule(now()));
  }
  // The times between attempts to leave, of so many.
  std::vector<std::uint64_t> rests(std::size_t attempts) {
    std::vector<std::uint64_t> times;
    world_.during_wait = [&] { times.push_back(now()); };
    EXPECT_TRUE(run_until([&] { return times.size() >= attempts; }));
    world_.during_wait = nullptr;
    std::vector<std::uint64_t> out;
    for (std::size_t i = 1; i < times.size(); ++i) out.push_back(times[i] - times[i - 1]);
    return out;
  }
  static CUresult no_unmap(CUdeviceptr, size_t) { return CUDA_ERROR_UNKNOWN; }
};

// The error is the same each time, so only the number tells that it is a new answer.
TEST_F(MoverFails, EachOrderIsAnsweredByItsNumber) {
  empty_host_pool();
  allow_host(0);
  for (std::uint32_t order = 1; order < 7; order += 2) {
    words().order.store(order);
    limit(0);
    ASSERT_TRUE(run_until([&] { return words().answered.load() == order; }));
    EXPECT_EQ(error(), abi::kSwapNoHostRoom);
    EXPECT_EQ(phase(), abi::kResident);
    words().order.store(order + 1);
    lift();
    run_for(kSecond);
  }
}

TEST_F(MoverFails, WorkThatDoesNotEndInTimeGoesOnAndItIsTriedAgain) {
  world_.during_wait = [&] { overrule_late(); };
  limit(0);
  look();
  EXPECT_TRUE(is_back());
  EXPECT_EQ(error(), abi::kSwapBusy);
  EXPECT_EQ(resident(), kAll);
  world_.during_wait = nullptr;
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(error(), abi::kSwapFine);
  expect_told_right();
}

TEST_F(MoverFails, OnceWorkGoesOnNoOtherContextIsWaitedFor) {
  make_context(0xB1);
  make_context(0xB2);
  world_.during_wait = [&] { overrule_late(); };
  limit(0);
  look();
  EXPECT_EQ(world_.waits.size(), 1u) << "somebody may capture again, which a wait would end";
  EXPECT_EQ(error(), abi::kSwapBusy);
  end_context(0xB1);
  end_context(0xB2);
}

TEST_F(MoverFails, WhoStaysInsideACallIsNotWaitedForForEver) {
  auto entry = std::make_unique<WorkGuard>();
  limit(0);
  const std::uint64_t begun = now();
  look();
  EXPECT_LT(now() - begun, 6 * kSecond);
  EXPECT_TRUE(is_back());
  EXPECT_EQ(error(), abi::kSwapBusy);
  EXPECT_TRUE(world_.waits.empty());
  entry.reset();
  EXPECT_TRUE(run_until([&] { return is_away(); }));
}

TEST_F(MoverFails, AnErrorOfTheAcceptedWorkIsToldAndNothingMoves) {
  world_.wait_result = CUDA_ERROR_ILLEGAL_ADDRESS;
  limit(0);
  look();
  EXPECT_TRUE(is_back());
  EXPECT_EQ(error(), abi::kSwapFailed);
  EXPECT_EQ(words().swap_result.load(), static_cast<std::uint32_t>(CUDA_ERROR_ILLEGAL_ADDRESS));
  EXPECT_EQ(resident(), kAll);
  expect_told_right();
}

TEST_F(MoverFails, MoreContextsThanCanBeWaitedForMoveNothing) {
  for (std::uintptr_t i = 0; i < 65; ++i) make_context(0xB00 + i);
  limit(0);
  run_for(kSecond);
  EXPECT_EQ(error(), abi::kSwapFailed);
  EXPECT_EQ(resident(), kAll);
  EXPECT_TRUE(admits());
  end_context(0xB00);
  EXPECT_TRUE(run_until([&] { return is_away(); }));
  for (std::uintptr_t i = 1; i < 65; ++i) end_context(0xB00 + i);
}

TEST_F(MoverFails, WithoutHostRoomNobodyIsHeld) {
  empty_host_pool();
  allow_host(0);
  limit(0);
  run_for(kSecond);
  EXPECT_EQ(error(), abi::kSwapNoHostRoom);
  EXPECT_TRUE(is_back());
  EXPECT_EQ(resident(), kAll);
  EXPECT_TRUE(world_.waits.empty());
  allow_host(swap::pinned_pool::kSlab);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(error(), abi::kSwapFine);
  expect_told_right();
}

TEST_F(MoverFails, RoomThatALowerLimitTookIsNotAskedForTwiceLater) {
  empty_host_pool();
  allow_host(swap::pinned_pool::kSlab);
  world_.during_wait = [&] {
    allow_host(0);
    empty_host_pool();
  };
  limit(0);
  ASSERT_TRUE(run_until([&] { return error() == abi::kSwapNoHostRoom; }));
  world_.during_wait = nullptr;
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  allow_host(swap::pinned_pool::kSlab);
  limit(0);
  EXPECT_TRUE(run_until([&] { return is_away(); }));
  expect_told_right();
}

TEST_F(MoverFails, WhatIsKeptInTheHostIsRoom) {
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  ASSERT_EQ(kept(), kAll);
  std::vector<swap::pinned_pool::HostPiece> taken;
  while (swap::pinned_pool::free_bytes(0) != 0) taken.push_back(swap::pinned_pool::take(0, kMiB2));
  allow_host(0);
  limit(0);
  EXPECT_TRUE(run_until([&] { return is_away(); }, 20 * kSecond));
  expect_told_right();
  for (auto& piece : taken) swap::pinned_pool::give_back(piece);
}

TEST_F(MoverFails, WhenAMoveFailsAllOfItComesBackAndTheReasonIsKept) {
  // The room that was there when the wait began is another's when it is over.
  std::vector<swap::pinned_pool::HostPiece> taken;
  world_.during_wait = [&] {
    while (swap::pinned_pool::free_bytes(0) > 3 * kMiB2) {
      taken.push_back(swap::pinned_pool::take(0, kMiB2));
    }
  };
  limit(0);
  look();
  EXPECT_TRUE(is_back());
  EXPECT_EQ(error(), abi::kSwapNoHostRoom);
  EXPECT_EQ(resident(), kAll);
  const std::uint64_t left = page().memories[0].moved_out_bytes.load();
  EXPECT_GT(left, 0u);
  EXPECT_LT(left, kAll);
  EXPECT_EQ(page().memories[0].moved_in_bytes.load(), left);
  EXPECT_EQ(page().memories[0].times_out.load(), 0u);
  expect_told_right();
  run_for(10 * kMs);
  EXPECT_EQ(error(), abi::kSwapNoHostRoom);
  for (auto& piece : taken) swap::pinned_pool::give_back(piece);
}

TEST_F(MoverFails, WhereFreePiecesOfTheHostAreTooSmallTheNextAttemptFindsMore) {
  add({2 * kMiB2});  // one chunk that needs two pieces in a row
  swap::mover::allocated(0, 2 * kMiB2);
  std::vector<swap::pinned_pool::HostPiece> taken;
  while (swap::pinned_pool::free_bytes(0) != 0) taken.push_back(swap::pinned_pool::take(0, kMiB2));
  for (std::size_t i = 0; i < taken.size(); i += 2) swap::pinned_pool::give_back(taken[i]);
  limit(0);
  look();
  EXPECT_EQ(error(), abi::kSwapNoHostRoom);
  EXPECT_TRUE(is_back());
  allow_host(2 * swap::pinned_pool::kSlab);
  EXPECT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(swap::pinned_pool::pinned_bytes(0), 2 * swap::pinned_pool::kSlab);
  expect_told_right();
  for (std::size_t i = 1; i < taken.size(); i += 2) swap::pinned_pool::give_back(taken[i]);
}

TEST_F(MoverFails, ARestAfterAFailureIsTwiceTheOneBeforeUpToTwoSeconds) {
  const auto unmap = g_driver.cuMemUnmap;
  g_driver.cuMemUnmap = no_unmap;
  limit(0);
  const std::vector<std::uint64_t> grown = rests(12);
  EXPECT_EQ(error(), abi::kSwapFailed);
  std::uint64_t expected = 20 * kMs;
  for (const std::uint64_t rest : grown) {
    EXPECT_GE(rest, expected);
    EXPECT_LE(rest, expected + 20 * kMs);
    expected = std::min(2 * expected, 2 * kSecond);
  }
  expect_told_right();
  g_driver.cuMemUnmap = unmap;
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(error(), abi::kSwapFine);
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  g_driver.cuMemUnmap = no_unmap;
  limit(0);
  EXPECT_LE(rests(2).at(0), 40 * kMs) << "from the beginning, once one came to its end";
  g_driver.cuMemUnmap = unmap;
}

TEST_F(MoverFails, AFailureWhileAPartIsAwayKeepsWorkHeldAndIsTold) {
  limit(3 * kMiB2);
  ASSERT_TRUE(run_until([&] { return phase() == abi::kAbsent; }));
  const auto unmap = g_driver.cuMemUnmap;
  g_driver.cuMemUnmap = no_unmap;
  limit(0);
  run_for(10 * kMs);
  expect_held(abi::kAbsent, abi::kSwapFailed, 3 * kMiB2);
  g_driver.cuMemUnmap = unmap;
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(error(), abi::kSwapFine);
}

TEST_F(MoverFails, WhereThereIsNoContextNothingLeavesUntilOneIsMade) {
  end_primary();
  limit(0);
  run_for(kSecond);
  EXPECT_EQ(error(), abi::kSwapFailed);
  EXPECT_EQ(words().swap_result.load(), static_cast<std::uint32_t>(CUDA_ERROR_INVALID_CONTEXT));
  EXPECT_TRUE(is_back());
  world_.primary = true;
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(error(), abi::kSwapFine);
}

TEST_F(MoverFails, EachCallFailingInTurnLosesNothingAndEndsWell) {
  for (int n = 0; n < 60; n += 3) {
    swap::clear_digests();
    faults().fail(n, CUDA_ERROR_UNKNOWN);
    limit(0);
    look();
    expect_told_right();
    faults().none();
    ASSERT_TRUE(run_until([&] { return is_away(); })) << n;
    expect_told_right();
    faults().fail(n, CUDA_ERROR_UNKNOWN);
    lift();
    look();
    expect_told_right();
    faults().none();
    ASSERT_TRUE(run_until([&] { return is_back(); })) << n;
    EXPECT_EQ(error(), abi::kSwapFine);
    expect_told_right();
    change(0, 1, static_cast<std::uint64_t>(n));
  }
}

}  // namespace
}  // namespace switchyard::shim
