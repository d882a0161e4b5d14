#include "shim/memory/account.h"

#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tests/shim/engine/world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class Account : public EngineTest {};

TEST_F(Account, CreditIsTakenByAReserveAndGivenBackByARelease) {
  set_quota(100 * kMiB);
  EXPECT_EQ(account::reserve(&lane(), 30 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(used(), 30 * kMiB);
  EXPECT_EQ(lane().peak_bytes.load(), 30 * kMiB);
  expect_balanced();
  account::release(&lane(), 30 * kMiB);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(credit(), 30 * kMiB);
  EXPECT_EQ(lane().peak_bytes.load(), 30 * kMiB);
  expect_balanced();
}

TEST_F(Account, CreditThatIsThereNeedsNoQuestion) {
  set_quota(100 * kMiB);
  account::reserve(&lane(), 30 * kMiB, nullptr);
  account::release(&lane(), 30 * kMiB);
  const int asked = world_.charges;
  EXPECT_EQ(account::reserve(&lane(), 20 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(world_.charges, asked);
}

TEST_F(Account, ARefusalTakesNothingAndIsCounted) {
  set_quota(100 * kMiB);
  account::reserve(&lane(), 90 * kMiB, nullptr);
  EXPECT_EQ(account::reserve(&lane(), 11 * kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used(), 90 * kMiB);
  EXPECT_EQ(lane().refusals.load(), 1u);
  expect_balanced();
  EXPECT_EQ(account::reserve(&lane(), 10 * kMiB, nullptr), CUDA_SUCCESS);
}

// The program's stderr is looked at in a process of its own: it has not opened the log yet.
void refuse_and_end(abi::Lane& lane) {
  ::setenv("SWITCHYARD_LOG", "warn", 1);
  const CUresult result = account::reserve(&lane, 11 * kMiB, nullptr);
  ::_exit(result == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 1);
}

TEST_F(Account, ARefusalSaysWhatLacksAndWhatToDo) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  set_quota(10 * kMiB);
  EXPECT_EXIT(refuse_and_end(lane()), ::testing::ExitedWithCode(0),
              "refused 11 MiB on GPU 0: 0 B used here, 0 B more by its job, quota 10 MiB.*"
              "free some, or 'switchyard set NAME --memory SIZE', as far as root allows");
  world_.lacks = wire::kHostPoolLacks;
  EXPECT_EXIT(refuse_and_end(lane()), ::testing::ExitedWithCode(0),
              "the host pool is too small .* a larger 'switchyardd --host-pool SIZE'");
  lane().quota_bytes.store(0);
  EXPECT_EXIT(refuse_and_end(lane()), ::testing::ExitedWithCode(0),
              "the host pool is too small .* a larger 'switchyardd --host-pool SIZE'");
  world_.lacks = wire::kDeviceLacks;
  EXPECT_EXIT(refuse_and_end(lane()), ::testing::ExitedWithCode(0),
              "no more is free.*end another job, or start them with --oversubscribe");
  constexpr char kTakesTurns[] = "oversubscribe=yes";
  std::memcpy(page().card.text, kTakesTurns, sizeof(kTakesTurns));
  EXPECT_EXIT(refuse_and_end(lane()), ::testing::ExitedWithCode(0),
              "no more is free.*end another job, for what can't be swapped out leaves too little");
}

TEST_F(Account, ALastResortIsTriedOnceBeforeARefusal) {
  static int tried;
  tried = 0;
  set_quota(10 * kMiB);
  account::reserve(&lane(), 8 * kMiB, nullptr);
  const auto frees = [] {
    ++tried;
    account::release(&page().lanes[0], 8 * kMiB);
  };
  EXPECT_EQ(account::reserve(&lane(), 10 * kMiB, frees), CUDA_SUCCESS);
  EXPECT_EQ(account::reserve(&lane(), 10 * kMiB, [] { ++tried; }), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(tried, 2);
  expect_balanced();
}

TEST_F(Account, UnderWaitItAsksUntilMemoryComes) {
  set_quota(10 * kMiB);
  account::reserve(&lane(), 8 * kMiB, nullptr);
  world_.waits_first = 1000;
  int asked = 0;
  world_.before_answer = [&] {
    if (++asked == 3) account::release(&lane(), 8 * kMiB);
  };
  EXPECT_EQ(account::reserve(&lane(), 10 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(lane().refusals.load(), 0u);
}

TEST_F(Account, UnderWaitTheMonitorEndsAWaitInVain) {
  set_quota(10 * kMiB);
  account::reserve(&lane(), 8 * kMiB, nullptr);
  world_.waits_first = 2;
  EXPECT_EQ(account::reserve(&lane(), 10 * kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  expect_balanced();
}

// A chunk of 32 MiB leaves another GPU in less than a millisecond.
TEST_F(Account, WhoWaitsForParkedMemoryAsksOften) {
  set_quota(10 * kMiB);
  world_.waits_first = 20;
  world_.lacks = wire::kParkedMakesWay;
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(account::reserve(&lane(), 11 * kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(1)) << "20 times 5 ms";
}

TEST_F(Account, ANullLaneAndZeroBytesAreFree) {
  EXPECT_EQ(account::reserve(nullptr, kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(account::reserve(&lane(), 0, nullptr), CUDA_SUCCESS);
  account::release(nullptr, kMiB);
  EXPECT_EQ(world_.charges, 0);
}

TEST_F(Account, AChargeBeyondTheCreditIsADebtThatTheNextReleasePays) {
  set_quota(10 * kMiB);
  EXPECT_TRUE(account::charge(&lane(), 8 * kMiB));
  EXPECT_FALSE(account::charge(&lane(), 8 * kMiB));
  EXPECT_EQ(used(), 16 * kMiB);
  EXPECT_EQ(debt(), 8 * kMiB);
  EXPECT_EQ(account::available_bytes(lane()), 0u);
  expect_balanced();
  EXPECT_EQ(account::reserve(&lane(), kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  account::release(&lane(), 6 * kMiB);
  EXPECT_EQ(debt(), 2 * kMiB);
  EXPECT_EQ(credit(), 0u);
  account::release(&lane(), 10 * kMiB);
  EXPECT_EQ(debt(), 0u);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Account, ADebtIsPaidBeforeNewMemoryIsTaken) {
  set_quota(10 * kMiB);
  account::charge(&lane(), 14 * kMiB);
  EXPECT_EQ(debt(), 14 * kMiB);  // nothing was granted
  set_quota(20 * kMiB);
  EXPECT_EQ(account::reserve(&lane(), 7 * kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(account::reserve(&lane(), 6 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(debt(), 0u);
  EXPECT_EQ(used(), 20 * kMiB);
  expect_balanced();
}

TEST_F(Account, AProcessThatNeverJoinedIsNotLimited) {
  process().joined.store(0);
  EXPECT_EQ(account::reserve(&lane(), 1ull << 50, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(account::available_bytes(lane()), UINT64_MAX);
  EXPECT_EQ(world_.charges, 0);
  account::release(&lane(), 1ull << 50);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(debt(), 0u);
}

TEST_F(Account, WithoutTheMonitorTheLastQuotaHolds) {
  set_quota(100 * kMiB);
  account::reserve(&lane(), 40 * kMiB, nullptr);
  lane().others_used_bytes.store(20 * kMiB);
  world_.present = false;
  EXPECT_EQ(account::reserve(&lane(), 41 * kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(account::reserve(&lane(), 40 * kMiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(account::reserve(&lane(), 1, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  process().joined.store(0);
  EXPECT_EQ(account::available_bytes(lane()), 0u);
}

TEST_F(Account, ANewPageIsPutRightByWhatHappenedSinceItWasToldOf) {
  set_quota(100 * kMiB);
  account::reserve(&lane(), 30 * kMiB, nullptr);
  abi::Lane fresh{};
  {
    const account::Frozen frozen;
    account::carry_over(0, 20 * kMiB, fresh);  // told of 20, 10 more since
  }
  EXPECT_EQ(debt(), 10 * kMiB);
  EXPECT_EQ(fresh.used_bytes.load(), 30 * kMiB);
  abi::Lane another{};
  {
    const account::Frozen frozen;
    account::carry_over(0, 45 * kMiB, another);  // told of 45, 15 freed since
  }
  EXPECT_EQ(debt(), 0u);
  EXPECT_EQ(another.credit_bytes.load(), 15 * kMiB);
}

TEST_F(Account, ManyThreadsNeverTakeMoreThanTheQuota) {
  constexpr std::uint64_t kQuota = 64 * kMiB;
  set_quota(kQuota);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&, seed] {
      std::uint64_t random = seed * 7919 + 1;
      for (int i = 0; i < 2000; ++i) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const std::uint64_t bytes = (random >> 40) % (16 * kMiB) + 1;
        if (account::reserve(&lane(), bytes, nullptr) != CUDA_SUCCESS) continue;
        if (used() > kQuota) over = true;
        account::release(&lane(), bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(over);
  EXPECT_LE(world_.largest_granted, kQuota);
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Account, TheMonitorMayTakeCreditBackAtAnyMoment) {
  set_quota(64 * kMiB);
  std::atomic<bool> stop{false};
  std::thread monitor([&] {
    while (!stop) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      const std::lock_guard hold(world_.lock);
      std::uint64_t has = credit();
      const std::uint64_t taken = has / 2;
      if (taken != 0 && lane().credit_bytes.compare_exchange_strong(has, has - taken)) {
        world_.granted -= taken;
      }
    }
  });
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t bytes = (static_cast<std::uint64_t>(i) % 60 + 1) * kMiB;
    if (account::reserve(&lane(), bytes, nullptr) != CUDA_SUCCESS) {
      ADD_FAILURE() << "refused " << bytes << " of a quota that nobody else uses";
      break;
    }
    account::release(&lane(), bytes);
  }
  stop = true;
  monitor.join();
  EXPECT_EQ(used(), 0u);
  expect_balanced();
}

TEST_F(Account, SizesAreRoundedAsTheDriverDoes) {
  EXPECT_EQ(account::rounded(0), 0u);
  EXPECT_EQ(account::rounded(1), 512u);
  EXPECT_EQ(account::rounded(kMiB), kMiB);
  EXPECT_EQ(account::rounded(kMiB / 2), kMiB / 2);
  EXPECT_EQ(account::rounded(kMiB * 3 / 4), kMiB) << "two in a page";
  EXPECT_EQ(account::rounded(kMiB + 1), 2 * kMiB) << "one in a page";
  EXPECT_EQ(account::rounded(2 * kMiB), 2 * kMiB);
  EXPECT_EQ(account::rounded(2 * kMiB + 1), 4 * kMiB);
  EXPECT_EQ(account::rounded(UINT64_MAX), UINT64_MAX);
  const std::uint64_t third = account::rounded(kMiB / 2 + 1);
  EXPECT_GE(3 * third, 2 * kMiB) << "three in a page";
  EXPECT_LT(3 * third, 2 * kMiB + 3 * 512);
}

}  // namespace
}  // namespace switchyard::shim
