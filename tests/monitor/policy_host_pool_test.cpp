// The host's pinned memory, divided. No clock, no page.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "monitor/policy/host_pool.h"

namespace switchyard::monitor::policy {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;

using Users = std::vector<HostUser>;
using Limits = std::vector<std::uint64_t>;

std::uint64_t sum(const Limits& limits) {
  return std::accumulate(limits.begin(), limits.end(), std::uint64_t{0});
}

TEST(PolicyHostPool, NobodyIsLimitedBelowWhatItCanUseWhereThereIsEnough) {
  const Users users = {{83 * kGiB, 0}, {10 * kGiB, 10 * kGiB}, {kGiB, 0}};
  const Limits limits = divide_host_pool(users, 200 * kGiB);
  for (std::size_t i = 0; i < users.size(); ++i) {
    EXPECT_EQ(limits[i], usable_host_bytes(users[i].total_bytes)) << i;
  }
}

// What the library pins for its memory, and more than one slab of what it pins after a move that
// did not fit (mover.cpp: spare).
TEST(PolicyHostPool, WhatOneCanUseHasRoomForWhatIsWasted) {
  for (const std::uint64_t total : {std::uint64_t{1}, kHostSlab, 83 * kGiB, 141 * kGiB + 1}) {
    EXPECT_GE(usable_host_bytes(total), total + total / 16 + 3 * kHostSlab) << total;
  }
}

TEST(PolicyHostPool, OfTwoThatNeedAsMuchEachGetsHalf) {
  const Users users = {{83 * kGiB, 0}, {83 * kGiB, 0}};
  EXPECT_EQ(divide_host_pool(users, 60 * kGiB), (Limits{30 * kGiB, 30 * kGiB}));
}

TEST(PolicyHostPool, SharesAreInProportionToWhatIsUsable) {
  const Users users = {{100 * kGiB, 0}, {50 * kGiB, 0}, {25 * kGiB, 0}};
  const Limits limits = divide_host_pool(users, 70 * kGiB);
  EXPECT_EQ(sum(limits), 70 * kGiB);
  const Limits about = {40 * kGiB, 20 * kGiB, 10 * kGiB};
  for (std::size_t i = 0; i < about.size(); ++i) {
    EXPECT_GE(limits[i], about[i] - kGiB) << i;
    EXPECT_LE(limits[i], about[i] + kGiB) << i;
  }
}

TEST(PolicyHostPool, ASmallOneBesideALargeOneGetsASlab) {
  const Users users = {{100 * kGiB, 0}, {kGiB / 64, 0}};
  EXPECT_GE(divide_host_pool(users, 60 * kGiB)[1], kHostSlab);
}

TEST(PolicyHostPool, WithoutMemoryThereIsNothingToPin) {
  const Users users = {{0, 0}, {83 * kGiB, 0}};
  EXPECT_EQ(divide_host_pool(users, 60 * kGiB), (Limits{0, 60 * kGiB}));
  EXPECT_TRUE(divide_host_pool({}, 60 * kGiB).empty());
}

TEST(PolicyHostPool, LessThanASlabIsNothing) {
  const Users users = {{kGiB, 0}, {kGiB, 0}};
  EXPECT_EQ(sum(divide_host_pool(users, kHostSlab - 1)), 0u);
  EXPECT_EQ(sum(divide_host_pool(users, kHostSlab)), kHostSlab) << "one slab is one client's";
}

TEST(PolicyHostPool, TheOthersGetOnlyWhatIsNotPinnedYet) {
  Users users = {{83 * kGiB, 60 * kGiB}, {83 * kGiB, 0}};
  EXPECT_EQ(divide_host_pool(users, 60 * kGiB), (Limits{30 * kGiB, 0}));
  users[0].pinned_bytes = 50 * kGiB;
  EXPECT_EQ(divide_host_pool(users, 60 * kGiB), (Limits{30 * kGiB, 10 * kGiB}));
  users[1].pinned_bytes = 10 * kGiB;
  EXPECT_EQ(divide_host_pool(users, 60 * kGiB), (Limits{30 * kGiB, 10 * kGiB}));
  users[0].pinned_bytes = 30 * kGiB;
  EXPECT_EQ(divide_host_pool(users, 60 * kGiB), (Limits{30 * kGiB, 30 * kGiB}));
}

TEST(PolicyHostPool, WhatNobodyNeedsIsKept) {
  Users users = {{0, 20 * kGiB}, {30 * kGiB, 0}};
  EXPECT_EQ(divide_host_pool(users, 60 * kGiB)[0], 20 * kGiB);
  users[1].total_bytes = 83 * kGiB;
  EXPECT_EQ(divide_host_pool(users, 60 * kGiB), (Limits{0, 40 * kGiB}));
}

// Whatever clients say: what is pinned, and what may be pinned yet, is within the budget.
TEST(PolicyHostPool, TheBudgetIsKeptWhateverClientsSay) {
  std::mt19937_64 random(7);
  const auto bytes = [&] { return random() % 8 == 0 ? random() : random() % (100 * kGiB); };
  for (int round = 0; round < 2000; ++round) {
    Users users(random() % 9);
    for (HostUser& user : users) user = {bytes(), bytes()};
    const std::uint64_t budget = bytes();
    const Limits limits = divide_host_pool(users, budget);
    ASSERT_EQ(limits.size(), users.size());
    EXPECT_LE(sum(limits), budget);
    std::uint64_t left = budget;
    for (const HostUser& user : users) left -= std::min(left, user.pinned_bytes);
    std::uint64_t more = 0;
    for (std::size_t i = 0; i < users.size(); ++i) {
      more += limits[i] - std::min(limits[i], users[i].pinned_bytes);
      EXPECT_LE(limits[i], std::max(usable_host_bytes(users[i].total_bytes),
                                    users[i].pinned_bytes + kHostSlab - 1));
    }
    EXPECT_LE(more, left + users.size() * kHostSlab);
  }
}

}  // namespace
}  // namespace switchyard::monitor::policy
