// Between moves: the host pool grows and shrinks, and allocations are made whole.
#include <cstdio>
#include <thread>

#include "shim/clock.h"
#include "shim/inside.h"
#include "shim/swap/memory/consolidation_request.h"
#include "tests/shim/swap/residency/mover_world.h"
#include "tests/support/card.h"

namespace switchyard::shim {
namespace {

using namespace testing;

namespace pinned_pool = swap::pinned_pool;
constexpr std::uint64_t kSlab = pinned_pool::kSlab;

class MoverBetween : public MoverTest {
 protected:
  // The answer to a thread that wants the allocation `number` whole.
  CUresult wants(swap::Handle number) {
    std::atomic<bool> answered{false};
    CUresult result = CUDA_SUCCESS;
    std::thread asks([&] {
      result = swap::consolidation_request::ask(number, 0, 1000 * kSecond);
      answered.store(true);
    });
    while (!answered.load()) {
      if (swap::consolidation_request::is_asked(0)) look();
      std::this_thread::yield();
    }
    asks.join();
    return result;
  }
};

TEST_F(MoverBetween, MemoryIsSwappableWhereTheJobSaysSoAndTheProcessSeesOneGpu) {
  const auto chosen = [](const char* card, unsigned gpus) {
    process().swappable.store(0);
    page().lanes[0].attention.store(0);
    write_card(page(), &JobCard::swappable, card);
    swap::residency_page::choose_swappable(gpus);
    const bool attends = (page().lanes[0].attention.load() & abi::kSwappable) != 0;
    EXPECT_EQ(attends, process().swappable.load() != 0);
    return attends;
  };
  EXPECT_TRUE(chosen("yes", 1));
  EXPECT_FALSE(chosen("yes", 2));
  EXPECT_FALSE(chosen("yes", 0));
  g_driver.cuDeviceCanAccessPeer = [](int* can, CUdevice, CUdevice) {
    *can = 1;
    return CUDA_SUCCESS;
  };
  EXPECT_TRUE(chosen("yes", 2));
  EXPECT_FALSE(chosen("yes", abi::kMaxGpus + 1)) << "work there would not be waited for";
  EXPECT_FALSE(chosen("no", 1));
  EXPECT_FALSE(chosen("", 1));
}

// Its contexts are not known as peers, so memory that moves would be out of their reach.
TEST_F(MoverBetween, AProcessThatHasBegunWithoutAMonitorStaysAsItIs) {
  const auto chosen = [](unsigned swappable) {
    process().swappable.store(swappable);
    page().lanes[0].attention.store(0);
    write_card(page(), &JobCard::swappable, "yes");
    swap::residency_page::choose_swappable(1);
    return process().swappable.load() != 0;
  };
  page().lanes[0].contexts.store(1);
  EXPECT_FALSE(chosen(0));
  EXPECT_TRUE(chosen(1)) << "it was managed before";
  EXPECT_NE(page().lanes[0].attention.load() & abi::kSwappable, 0u);
  page().lanes[0].contexts.store(0);
  EXPECT_TRUE(chosen(0));
}

TEST_F(MoverBetween, UnderADriverWithUnknownCallsNoMemoryIsSwappable) {
  static int version;
  g_driver.cuDriverGetVersion = [](int* out) {
    *out = version;
    return CUDA_SUCCESS;
  };
  const auto chosen = [](int of_the_driver) {
    version = of_the_driver;
    process().swappable.store(0);
    page().lanes[0].attention.store(0);
    write_card(page(), &JobCard::swappable, "yes");
    swap::residency_page::choose_swappable(1);
    EXPECT_EQ((page().lanes[0].attention.load() & abi::kSwappable) != 0,
              process().swappable.load() != 0);
    return process().swappable.load() != 0;
  };
  EXPECT_TRUE(chosen(kKnownVersion));
  EXPECT_FALSE(chosen(kKnownVersion + 10));
  EXPECT_TRUE(chosen(kKnownVersion - 10));
}

TEST_F(MoverBetween, WhatIsFreedIsNoMoreToBeMoved) {
  swap::mover::allocated(0, 3 * kMiB2);
  EXPECT_EQ(words().total_bytes.load(), kAll + 3 * kMiB2);
  EXPECT_EQ(resident(), kAll + 3 * kMiB2);
  swap::mover::freed(0, 3 * kMiB2, kMiB2);  // two of its chunks were away
  EXPECT_EQ(words().total_bytes.load(), kAll);
  EXPECT_EQ(resident(), kAll + 2 * kMiB2);
  swap::residency_page::resident_changes(0, -static_cast<std::int64_t>(2 * kMiB2));
  expect_told_right();
}

TEST_F(MoverBetween, ThePoolGrowsToWhatCanLeaveAndNotBeyond) {
  empty_host_pool();
  allow_host(4 * kSlab);
  run_for(2 * kSecond);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), kSlab);
  EXPECT_EQ(words().host_bytes.load(), kSlab);
  EXPECT_TRUE(world_.waits.empty()) << "nobody is held for that";
}

TEST_F(MoverBetween, ThePoolGrowsNotBeyondItsShare) {
  empty_host_pool();
  allow_host(kSlab - 1);
  run_for(2 * kSecond);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), 0u);
}

TEST_F(MoverBetween, ThePoolGrowsNotWhileMemoryIsAway) {
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  swap::mover::allocated(0, kSlab);  // more to leave than the pool has
  swap::residency_page::resident_changes(0, -static_cast<std::int64_t>(kSlab));
  allow_host(4 * kSlab);
  run_for(2 * kSecond);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), kSlab);
  swap::mover::freed(0, kSlab, 0);
}

TEST_F(MoverBetween, WhatIsBeyondTheShareIsGivenBackWhileWorkIsHeldForAMoment) {
  allow_host(0);
  world_.during_wait = [&] { EXPECT_FALSE(admits()); };
  run_for(kSecond);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), 0u);
  EXPECT_EQ(words().host_bytes.load(), 0u);
  EXPECT_EQ(world_.waits.size(), 1u);
  EXPECT_TRUE(is_back());
  EXPECT_EQ(resident(), kAll);
}

TEST_F(MoverBetween, WhatTheDriverDoesNotLetGoOfIsTriedAgainSeldom) {
  g_driver.cuMemHostUnregister = [](void*) { return CUDA_ERROR_UNKNOWN; };
  allow_host(0);
  run_for(9 * kSecond);
  EXPECT_EQ(world_.waits.size(), 1u);
  EXPECT_TRUE(is_back());
  EXPECT_EQ(pinned_pool::pinned_bytes(0), kSlab);
  g_driver.cuMemHostUnregister = [](void*) { return CUDA_SUCCESS; };
  run_for(3 * kSecond);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), 0u);
}

TEST_F(MoverBetween, NothingIsGivenBackWhileAPersonPauses) {
  pause(true);
  allow_host(0);
  run_for(3 * kSecond);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), kSlab);
  EXPECT_TRUE(world_.waits.empty());
  pause(false);
  run_for(kSecond);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), 0u);
}

TEST_F(MoverBetween, WhatHoldsMemoryThatIsAwayIsNotGivenBack) {
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  const std::size_t waits = world_.waits.size();
  allow_host(0);
  run_for(3 * kSecond);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), kSlab);
  EXPECT_EQ(world_.waits.size(), waits);
  expect_told_right();
}

TEST_F(MoverBetween, WhoWantsABodyWholeIsAnsweredWithWorkHeldAndGoesOn) {
  world_.during_wait = [&] { EXPECT_FALSE(admits()); };
  EXPECT_EQ(wants(4711), CUDA_ERROR_INVALID_VALUE) << "there is none of that number";
  EXPECT_EQ(world_.waits.size(), 1u);
  EXPECT_TRUE(admits());
  EXPECT_EQ(resident(), kAll);
}

TEST_F(MoverBetween, WhatIsOfferedIsWithdrawnBeforeABodyIsMadeWhole) {
  words().gives.store(77);
  words().soon_bytes.store(3 * kMiB2);
  run_for(100 * kMs);
  ASSERT_EQ(mover_.told.size(), 1u);
  world_.during_wait = [&] {
    EXPECT_EQ(mover_.told.size(), 2u) << "what is offered is not free once it has left";
    EXPECT_EQ(mover_.told.back().first, wire::kEndShare);
  };
  wants(4711);
  EXPECT_EQ(world_.waits.size(), 1u);
}

TEST_F(MoverBetween, WithoutAContextWhoWantsABodyWholeIsToldSo) {
  end_primary();
  EXPECT_EQ(wants(4711), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_TRUE(admits());
}

TEST_F(MoverBetween, WhoWantsABodyWholeHearsTheErrorOfTheAcceptedWork) {
  world_.wait_result = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(wants(4711), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(admits());
}

// Both may wait long, and each call that waits is inside the driver for those who close it.
TEST_F(MoverBetween, NoneOfTwoWhoWantABodyWholeKeepsTheContexts) {
  std::atomic<int> inside_it = 0, answered = 0;
  const auto asks = [&] {
    const Inside inside;
    ++inside_it;
    EXPECT_EQ(swap::consolidation_request::ask(4711, 0, 1'000'000 * kSecond),
              CUDA_ERROR_INVALID_VALUE);
    ++answered;
  };
  std::thread first(asks);
  while (!swap::consolidation_request::is_asked(0)) std::this_thread::yield();
  std::thread second(asks);
  while (inside_it != 2) std::this_thread::yield();
  EXPECT_TRUE(inside::close(0, monotonic_ns() + 1000 * kSecond));
  inside::open();
  while (answered != 2) {
    if (swap::consolidation_request::is_asked(0)) look();
    std::this_thread::yield();
  }
  first.join();
  second.join();
}

TEST_F(MoverBetween, NothingIsMadeWholeWhileAPersonPauses) {
  pause(true);
  std::atomic<bool> answered{false};
  // Each sleep of this thread moves the clock, so a short limit may end before the mover looks.
  std::thread asks([&] {
    EXPECT_EQ(swap::consolidation_request::ask(4711, 0, 1'000'000 * kSecond),
              CUDA_ERROR_INVALID_VALUE);
    answered.store(true);
  });
  while (!swap::consolidation_request::is_asked(0)) std::this_thread::yield();
  for (int i = 0; i < 50; ++i) look();
  EXPECT_FALSE(answered.load());
  EXPECT_TRUE(world_.waits.empty());
  pause(false);
  while (!answered.load()) {
    if (swap::consolidation_request::is_asked(0)) look();
    std::this_thread::yield();
  }
  asks.join();
}

}  // namespace
}  // namespace switchyard::shim
