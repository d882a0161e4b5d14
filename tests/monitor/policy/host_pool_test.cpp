// The host's pinned memory, divided. No clock, no page.
#include "monitor/policy/host_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <vector>

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

// The slabs that the library pins for its memory. More than one is left of those that it pins after
// a move that did not fit (executor.cpp: spare_).
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

// The client itself says how much is away. At most all of its memory is.
TEST(PolicyHostPool, ToClaimMoreAwayThanItHasBringsNothing) {
  for (const bool takes_turns : {false, true}) {
    Users users = {{10 * kGiB, 0, 10 * kGiB, takes_turns}, {83 * kGiB, 0, 0, takes_turns}};
    const Limits honest = divide_host_pool(users, 60 * kGiB);
    users[0].away_bytes = 1000 * kGiB;
    EXPECT_EQ(divide_host_pool(users, 60 * kGiB), honest) << takes_turns;
  }
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

HostUser in_turns(std::uint64_t total, std::uint64_t away, std::uint64_t pinned) {
  return {total, pinned, away, true, false};
}

TEST(PolicyHostPool, OfTwoThatTakeTurnsWhoIsThereMayPinWhatTheOtherHasLeft) {
  const Users users = {in_turns(10 * kGiB, 7 * kGiB, 8 * kGiB), in_turns(10 * kGiB, 0, 0)};
  const Limits limits = divide_host_pool(users, 12 * kGiB);
  EXPECT_EQ(sum(limits), 12 * kGiB);
  EXPECT_GE(usable_part(limits[0]), 7 * kGiB);
  EXPECT_LE(limits[0], 9 * kGiB) << "no more of it can leave, but for what is there";
}

TEST(PolicyHostPool, WhatIsLeftIsForOneThatMayHaveToLeave) {
  Users users = {in_turns(10 * kGiB, 3 * kGiB, 15 * kHostSlab), in_turns(10 * kGiB, 0, 0)};
  users[0].comes = true;
  EXPECT_EQ(divide_host_pool(users, 15 * kHostSlab), (Limits{14 * kHostSlab, 0}));
  users[0].pinned_bytes = 14 * kHostSlab;
  EXPECT_EQ(divide_host_pool(users, 15 * kHostSlab), (Limits{14 * kHostSlab, kHostSlab}));
}

TEST(PolicyHostPool, WhoComesNeedsNoSlabWhicheverOfThemItIs) {
  Users users = {in_turns(10 * kGiB, 0, 0), in_turns(10 * kGiB, 3 * kGiB, 14 * kHostSlab)};
  users[1].comes = true;
  EXPECT_EQ(divide_host_pool(users, 15 * kHostSlab), (Limits{kHostSlab, 14 * kHostSlab}));
}

// Owners that want more than their part have as much as each other, but for a slab.
TEST(PolicyHostPool, AnOwnerGetsAllThatItWantsOrAsMuchAsAnyOther) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 2000; ++round) {
    Users users(1 + random() % 6);
    std::map<unsigned, std::uint64_t> wants, gets;
    for (HostUser& user : users) {
      user = {.total_bytes = random() % (16 * kGiB), .owner = static_cast<unsigned>(random() % 4)};
      wants[user.owner] += usable_host_bytes(user.total_bytes);
    }
    const std::uint64_t pool = random() % 128 * kHostSlab;
    const Limits limits = divide_host_pool(users, pool);
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < users.size(); ++i) gets[users[i].owner] += limits[i];
    for (const auto& [owner, want] : wants) all += want;
    EXPECT_EQ(sum(limits), std::min(pool, all)) << round;
    for (const auto& [owner, got] : gets) {
      EXPECT_LE(got, wants[owner]) << round;
      if (got == wants[owner]) continue;
      for (const auto& [other, its] : gets) EXPECT_LE(its, got + kHostSlab) << round;
    }
  }
}

// However what is away is spread, for whoever comes: another one finds room for some of what it
// has.
TEST(PolicyHostPool, SomebodyCanLeaveWhileNoMoreIsAwayThanThePoolHolds) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 2000; ++round) {
    Users users;
    for (std::size_t i = 2 + random() % 4; i > 0; --i) {
      users.push_back(in_turns(1 + random() % (8 * kGiB), 0, 0));
    }
    const std::uint64_t budget = (1 + random() % 64) * kHostSlab;
    std::uint64_t may_leave = turns_hold(users, budget);
    if (may_leave == 0) continue;
    for (std::size_t i = 1; i < users.size(); ++i) {
      HostUser& user = users[i];
      user.away_bytes = std::min(may_leave, random() % (user.total_bytes + 1));
      may_leave -= user.away_bytes;
      const std::uint64_t needs = user.away_bytes + user.away_bytes / 7;
      user.pinned_bytes = (needs + kHostSlab - 1) / kHostSlab * kHostSlab;
    }
    users.back().comes = true;
    const Limits limits = divide_host_pool(users, budget);
    EXPECT_LE(sum(limits), budget);
    bool leaves = false;
    for (std::size_t i = 0; i < users.size(); ++i) {
      const HostUser& user = users[i];
      EXPECT_GE(limits[i], user.pinned_bytes) << "what is away is there: " << round;
      leaves = leaves || (!user.comes && user.away_bytes < user.total_bytes &&
                          usable_part(limits[i]) > user.away_bytes);
    }
    EXPECT_TRUE(leaves) << round;
  }
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

TEST(PolicyHostPool, WhatOthersHaveAwayBeyondTheirShareIsNotForTurns) {
  const Users even = {{.total_bytes = 20 * kGiB, .takes_turns = true}, {.total_bytes = 20 * kGiB}};
  Users more = even;
  more[1].away_bytes = 18 * kGiB;
  EXPECT_GT(turns_hold(even, 20 * kGiB), 8 * kGiB);
  EXPECT_LT(turns_hold(more, 20 * kGiB), 3 * kGiB);
}

}  // namespace
}  // namespace switchyard::monitor::policy
