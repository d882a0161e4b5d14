// The arithmetic of one GPU's memory account.
#include "monitor/core/account.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/monitor/fake_gpus.h"

namespace switchyard::monitor {
namespace {

using test::kGiB;
using test::kMiB;

Account of(std::uint64_t capacity) {
  Account account;
  account.set_capacity(capacity);
  return account;
}

TEST(Accounts, AnEmptyGpuIsFree) {
  const Account account = of(10 * kGiB);
  EXPECT_EQ(account.free(), 10 * kGiB);
  EXPECT_EQ(account.reserved(), 0u);
}

TEST(Accounts, AQuotaIsHeldWhetherUsedOrNot) {
  Account account = of(10 * kGiB);
  account.set_quota(1, {6 * kGiB, true});
  EXPECT_EQ(account.free(), 4 * kGiB);
  EXPECT_EQ(account.headroom(1), 6 * kGiB);
  EXPECT_EQ(account.headroom(2), 4 * kGiB);
}

TEST(Accounts, QuotasThatDoNotFitTogetherAreSeen) {
  Account account = of(10 * kGiB);
  account.set_quota(1, {6 * kGiB, true});
  EXPECT_TRUE(account.fits(2, 4 * kGiB));
  EXPECT_FALSE(account.fits(2, 4 * kGiB + 1));
  EXPECT_TRUE(account.fits(1, 10 * kGiB)) << "its own old promise does not stand in its way";
}

TEST(Accounts, APromiseThatEndsIsFreeAtOnce) {
  Account account = of(10 * kGiB);
  account.set_quota(1, {6 * kGiB, true});
  ASSERT_EQ(account.free(), 4 * kGiB);
  account.clear_quota(1);
  EXPECT_EQ(account.free(), 10 * kGiB);
  EXPECT_EQ(account.headroom(2), 10 * kGiB);
  EXPECT_TRUE(account.fits(2, 10 * kGiB));
}

TEST(Accounts, WhatIsKeptForAJobIsNobodyElsesWhateverItHas) {
  Account account = of(10 * kGiB);
  account.keep(1, 6 * kGiB);
  EXPECT_EQ(account.held(1), 6 * kGiB);
  EXPECT_EQ(account.free(), 4 * kGiB);
  EXPECT_FALSE(account.fits(2, 5 * kGiB));
  EXPECT_TRUE(account.fits(1, 10 * kGiB));
  account.join(7, 1, 2 * kGiB);
  EXPECT_EQ(account.free(), 4 * kGiB) << "what it has is part of that";
  account.granted(7, 5 * kGiB);
  EXPECT_EQ(account.held(1), 7 * kGiB);
  account.keep(1, 0);
  EXPECT_EQ(account.held(1), 7 * kGiB);
  account.leave(7);
  EXPECT_EQ(account.free(), 10 * kGiB);
}

TEST(Accounts, WhatAClientHasGoesToAnotherGpuAsItIs) {
  Account from = of(10 * kGiB);
  Account to = of(10 * kGiB);
  from.join(7, 1, 4 * kGiB);
  from.set_overhead(7, kGiB);
  from.set_away(7, 3 * kGiB);
  from.set_detached(7, true);
  const auto holding = from.take_out(7);
  ASSERT_TRUE(holding.has_value());
  EXPECT_FALSE(from.take_out(7).has_value());
  EXPECT_EQ(from.held(1), 0u);
  to.put_in(7, *holding);
  EXPECT_EQ(to.charged(1), 5 * kGiB);
  EXPECT_EQ(to.holding(7)->away, 3 * kGiB);
  EXPECT_EQ(to.holding(7)->overhead_in_full(), kGiB);
}

TEST(Accounts, OutsideProcessesLessenWhatFits) {
  Account account = of(10 * kGiB);
  account.set_outside(3 * kGiB);
  EXPECT_EQ(account.free(), 7 * kGiB);
  EXPECT_FALSE(account.fits(1, 8 * kGiB));
}

TEST(Accounts, WhatIsParkedIsNotFreeAndMakesWayForEverything) {
  Account account = of(10 * kGiB);
  account.join(1, 1, 0);
  account.set_parked(1, 2 * kGiB, kGiB);
  EXPECT_EQ(account.parked(), 3 * kGiB) << "what may come counts as well";
  EXPECT_EQ(account.free(), 7 * kGiB);
  EXPECT_EQ(account.headroom(2), 7 * kGiB);
  EXPECT_EQ(account.charged(1), 0u);
  EXPECT_EQ(account.held(1), 0u) << "it is not the job's use of this GPU";
  EXPECT_TRUE(account.fits(2, 10 * kGiB));
  EXPECT_EQ(account.in_the_way(7 * kGiB), 0u);
  EXPECT_EQ(account.in_the_way(8 * kGiB), kGiB);
  EXPECT_EQ(account.in_the_way(20 * kGiB), 3 * kGiB) << "no more than there is";
  account.set_quota(2, {9 * kGiB, true});
  EXPECT_EQ(account.in_the_way(0), 2 * kGiB) << "a promise counts, used or not";
  EXPECT_EQ(account.overdrawn(), 0u);
  account.set_parked(1, 0, 0);
  EXPECT_EQ(account.in_the_way(kGiB), 0u);
  EXPECT_EQ(account.free(), kGiB);
}

TEST(Accounts, WhatAJobLeavesBehindIsWithinTheRoomThatIsKeptForIt) {
  Account account = of(10 * kGiB);
  account.join(1, 1, 0);
  account.join(2, 2, 0);
  account.keep(1, 4 * kGiB);
  account.set_parked(1, 3 * kGiB, kGiB);
  account.set_parked(2, kGiB, 0);
  EXPECT_EQ(account.parked(), kGiB);
  EXPECT_EQ(account.free(), 5 * kGiB);
  EXPECT_FALSE(account.fits(3, 7 * kGiB)) << "it does not make way";
  account.keep(1, 0);
  EXPECT_EQ(account.parked(), 5 * kGiB);
}

TEST(Accounts, AHugeAskDoesNotWrapAround) {
  Account account = of(10 * kGiB);
  account.set_outside(kGiB);
  EXPECT_FALSE(account.fits(1, ~0ull));
  account.join(1, 1, ~0ull);
  account.join(2, 1, ~0ull);
  EXPECT_EQ(account.charged(1), ~0ull);
  EXPECT_EQ(account.free(), 0u);
}

TEST(Accounts, ChargesAreGrantsAndOverhead) {
  Account account = of(10 * kGiB);
  account.set_quota(1, {4 * kGiB, true});
  account.join(7, 1, 0);
  account.granted(7, kGiB);
  account.set_overhead(7, 500 * kMiB);
  EXPECT_EQ(account.charged(1), kGiB + 500 * kMiB);
  EXPECT_EQ(account.headroom(1), 3 * kGiB - 500 * kMiB);
}

TEST(Accounts, AJobOverItsQuotaHoldsWhatItUses) {
  Account account = of(10 * kGiB);
  account.join(7, 1, 5 * kGiB);
  account.set_quota(1, {4 * kGiB, true});
  EXPECT_EQ(account.headroom(1), 0u);
  EXPECT_EQ(account.free(), 5 * kGiB);
}

TEST(Accounts, ACeilingWithoutAPromiseIsBoundByBoth) {
  Account account = of(10 * kGiB);
  account.set_quota(1, {8 * kGiB, true});
  account.set_quota(2, {5 * kGiB, false});
  EXPECT_EQ(account.headroom(2), 2 * kGiB);
  EXPECT_EQ(account.reserved(), 8 * kGiB);
}

TEST(Accounts, ChunksAreAQuarterWhileMuchIsLeft) {
  Account account = of(10 * kGiB);
  account.set_quota(1, {4 * kGiB, true});
  EXPECT_EQ(account.grant_size(1, 2 * kMiB), kGiB);
  EXPECT_EQ(account.grant_size(1, 2 * kGiB), 2 * kGiB);
  account.join(7, 1, 4 * kGiB - 100 * kMiB);
  EXPECT_EQ(account.grant_size(1, 2 * kMiB), 2 * kMiB);
}

TEST(Accounts, ChunksOfTheFreeAre256MiB) {
  Account account = of(kGiB);
  EXPECT_EQ(account.grant_size(1, 2 * kMiB), 256 * kMiB);
  account.join(7, 2, kGiB - 10 * kMiB);
  EXPECT_EQ(account.grant_size(1, 2 * kMiB), 10 * kMiB);
}

TEST(Accounts, OnlyThoseGiveBackWhoseCreditHelps) {
  Account account = of(10 * kGiB);
  account.set_quota(1, {4 * kGiB, true});
  for (const ClientId id : {1, 2}) account.join(id, 1, 0);
  account.join(3, 2, 0);
  account.join(4, 3, 0);
  for (const ClientId id : {1, 2, 3, 4}) account.granted(id, id * kMiB);
  EXPECT_EQ(account.givers(1, 1), (std::vector<ClientId>{2})) << "only siblings, inside a promise";
  EXPECT_EQ(account.givers(2, 3), (std::vector<ClientId>{4})) << "nobody inside another's promise";
  account.set_credit(4, 0);
  EXPECT_TRUE(account.givers(2, 3).empty()) << "used credit is no credit";
}

TEST(Accounts, CreditBelowAnUnreservedQuotaHelpsAnybody) {
  Account account = of(10 * kGiB);
  account.set_quota(2, {4 * kGiB, false});
  account.join(1, 1, 0);
  account.join(2, 2, 0);
  account.granted(2, kMiB);
  EXPECT_EQ(account.givers(1, 1), (std::vector<ClientId>{2}));
  account.set_quota(1, {4 * kGiB, false});
  EXPECT_EQ(account.givers(1, 1), (std::vector<ClientId>{2})) << "below a mere ceiling, too";
  account.set_quota(2, {4 * kGiB, true});
  EXPECT_TRUE(account.givers(1, 1).empty()) << "promised now";
}

TEST(Accounts, OthersUsedIsWhatSiblingsUseAndAllOverhead) {
  Account account = of(10 * kGiB);
  account.set_quota(1, {4 * kGiB, true});
  for (const ClientId id : {1, 2}) account.join(id, 1, 0);
  account.granted(1, 300 * kMiB);
  account.granted(2, 200 * kMiB);
  account.set_credit(2, 150 * kMiB);
  account.set_overhead(1, 8 * kMiB);
  account.set_overhead(2, 9 * kMiB);
  EXPECT_EQ(account.others_used(1), (50 + 8 + 9) * kMiB);
  // 4 GiB, less its own grant, less what its sibling uses, less overhead.
  EXPECT_EQ(account.available(1), 4 * kGiB - (300 + 50 + 17) * kMiB);
}

TEST(Accounts, AvailableWithoutAQuotaCountsIdleCreditOfOthers) {
  Account account = of(kGiB);
  account.join(1, 1, 0);
  account.join(2, 2, 0);
  account.granted(2, 256 * kMiB);
  EXPECT_EQ(account.available(1), kGiB);
  account.set_credit(2, 56 * kMiB);
  EXPECT_EQ(account.available(1), kGiB - 200 * kMiB);
}

TEST(Accounts, DeathReturnsExactlyWhatWasGranted) {
  Account account = of(10 * kGiB);
  account.join(1, 1, 0);
  account.granted(1, 3 * kGiB);
  account.set_overhead(1, kMiB);
  account.leave(1);
  EXPECT_EQ(account.free(), 10 * kGiB);
  EXPECT_EQ(account.charged(1), 0u);
}

TEST(Accounts, AnUnknownCapacityRefusesNothing) {
  const Account account;
  EXPECT_TRUE(account.fits(1, 100 * kGiB));
  EXPECT_EQ(account.overdrawn(), 0u);
  EXPECT_GT(account.headroom(1), 1000 * kGiB);
}

TEST(Accounts, CreditIsNeverMoreThanWasGranted) {
  Account account = of(kGiB);
  account.join(1, 1, 10 * kMiB);
  account.set_credit(1, ~0ull);
  EXPECT_EQ(account.holding(1)->used(), 0u);
}

TEST(Accounts, ARandomLifeEndsAtZero) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    Account account = of(8 * kGiB);
    account.set_quota(1, {3 * kGiB, true});
    for (ClientId id = 1; id <= 6; ++id) account.join(id, 1 + id % 3, 0);
    for (int step = 0; step < 2000; ++step) {
      const ClientId id = 1 + random() % 6;
      const JobKey job = 1 + id % 3;
      const std::uint64_t need = 2 * kMiB * (1 + random() % 200);
      if (random() % 2 == 0 && need <= account.headroom(job)) {
        account.granted(id, account.grant_size(job, need));
      } else {
        account.taken_back(id, std::min(need, account.holding(id)->credit));
      }
      account.set_credit(id, random() % (account.holding(id)->granted + 1));
      ASSERT_LE(account.charged(1), 3 * kGiB) << "seed " << seed;
      ASSERT_EQ(account.overdrawn(), 0u) << "seed " << seed;
    }
    for (ClientId id = 1; id <= 6; ++id) account.leave(id);
    account.clear_quota(1);
    EXPECT_EQ(account.free(), 8 * kGiB);
  }
}

TEST(Overhead, RisesAtOnceAndFallsWhenTwoReadingsAgree) {
  OverheadMeter meter;
  EXPECT_EQ(meter.reading(500), 500u);
  EXPECT_EQ(meter.reading(200), 500u) << "reserved, but not allocated yet";
  EXPECT_EQ(meter.reading(500), 500u);
  EXPECT_EQ(meter.reading(600), 600u);
  meter.reading(100);
  EXPECT_EQ(meter.reading(100), 100u);
}

TEST(WhatIsNobodys, ChangesWhenTwoReadingsAgree) {
  UnattributedMeter meter;
  meter.reading(500);
  EXPECT_EQ(meter.value(), 0u) << "of a process that has not joined yet, say";
  meter.reading(400);
  EXPECT_EQ(meter.value(), 400u);
  meter.reading(100);
  EXPECT_EQ(meter.value(), 400u) << "behind what is reserved and not there yet, say";
  meter.reading(450);
  EXPECT_EQ(meter.value(), 400u);
  meter.reading(300);
  meter.reading(200);
  EXPECT_EQ(meter.value(), 300u);
}

TEST(Accounts, AReleasedJobHoldsWhatIsThereOfIt) {
  Account account = of(10 * kGiB);
  account.join(1, 7, 4 * kGiB);
  account.set_credit(1, kGiB);
  account.set_overhead(1, 500 * kMiB);
  account.set_away(1, 2 * kGiB);
  EXPECT_EQ(account.held(7), 4 * kGiB + 500 * kMiB) << "not before it was released";
  account.set_released(7, true);
  EXPECT_EQ(account.held(7), 2 * kGiB + 500 * kMiB);
  EXPECT_EQ(account.free(), 8 * kGiB - 500 * kMiB);
  EXPECT_EQ(account.charged(7), 4 * kGiB + 500 * kMiB) << "what it may use is as before";
  EXPECT_EQ(account.holding(1)->resident(), kGiB);
  EXPECT_FALSE(account.fits(8, 8 * kGiB));
  account.set_released(7, false);
  EXPECT_EQ(account.held(7), 4 * kGiB + 500 * kMiB);
}

TEST(Accounts, ContextsThatAreAwayCountAgainBeforeTheyComeBack) {
  Account account = of(10 * kGiB);
  account.join(1, 7, 4 * kGiB);
  account.set_overhead(1, 500 * kMiB);
  account.set_released(7, true);
  account.set_away(1, 4 * kGiB);
  account.set_detached(1, true);
  EXPECT_EQ(account.held(7), 0u);
  account.set_overhead(1, 0);  // NVML sees nothing of it
  account.set_detached(1, true);
  EXPECT_EQ(account.in_full(7), 4 * kGiB + 500 * kMiB);
  EXPECT_EQ(account.charged(7), 4 * kGiB + 500 * kMiB);
  account.set_released(7, false);
  EXPECT_EQ(account.held(7), 4 * kGiB + 500 * kMiB) << "nobody else gets their room";
  account.set_detached(1, false);
  account.set_overhead(1, 0);
  EXPECT_EQ(account.held(7), 4 * kGiB + 500 * kMiB) << "until they are measured";
  account.set_overhead(1, 300 * kMiB);
  EXPECT_EQ(account.held(7), 4 * kGiB + 300 * kMiB);
}

TEST(Accounts, NoMoreIsAwayThanIsUsed) {
  Account account = of(10 * kGiB);
  account.join(1, 7, 4 * kGiB);
  account.set_released(7, true);
  account.set_away(1, ~0ull);
  EXPECT_EQ(account.held(7), 0u);
  EXPECT_EQ(account.free(), 10 * kGiB);
  account.set_credit(1, 3 * kGiB);
  EXPECT_EQ(account.holding(1)->away, kGiB);
  EXPECT_EQ(account.held(7), 3 * kGiB) << "credit may become memory at any time";
  account.taken_back(1, 4 * kGiB);
  EXPECT_EQ(account.holding(1)->resident(), 0u);
  EXPECT_EQ(account.held(7), 0u);
}

TEST(Accounts, AReleasedJobKeepsItsPromiseUntilThatIsTaken) {
  Account account = of(10 * kGiB);
  account.join(1, 7, 4 * kGiB);
  account.set_quota(7, {6 * kGiB, true});
  account.set_released(7, true);
  account.set_away(1, 4 * kGiB);
  EXPECT_EQ(account.held(7), 6 * kGiB);
  account.set_quota(7, {6 * kGiB, false});
  EXPECT_EQ(account.held(7), 0u);
  EXPECT_TRUE(account.fits(8, 10 * kGiB));
}

// The sums over jobs are kept between changes, and must follow each of them.
TEST(AccountSums, AreThoseOfTheHoldingsAfterAnyChange) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t most) { return random() % most; };
    Account account;
    account.set_capacity(1000);
    std::map<JobKey, std::uint64_t> kept;
    for (int i = 0; i < 300; ++i) {
      const ClientId client = below(8);
      const JobKey job = below(4);
      switch (below(13)) {
        case 0:
          account.join(client, job, below(200));
          break;
        case 1:
          account.leave(client);
          break;
        case 2:
          account.granted(client, below(100));
          break;
        case 3:
          account.taken_back(client, below(100));
          break;
        case 4:
          account.set_credit(client, below(200));
          break;
        case 5:
          account.set_away(client, below(200), below(100));
          break;
        case 6:
          account.set_overhead(client, below(50));
          break;
        case 7:
          account.set_parked(client, below(50), below(50));
          break;
        case 8:
          account.set_detached(client, below(2) != 0);
          break;
        case 9:
          account.set_released(job, below(2) != 0);
          break;
        case 10:
          account.believe(client, below(200));
          break;
        case 11:
          account.keep(job, kept[job] = below(2) * below(300));
          break;
        default:
          account.set_quota(job, {below(300), below(2) != 0});
          if (below(3) == 0) account.clear_quota(job);
      }
      Account fresh;
      fresh.set_capacity(1000);
      for (JobKey each = 0; each < 4; ++each) {
        if (const auto quota = account.quota(each)) fresh.set_quota(each, *quota);
        fresh.set_released(each, account.released(each));
        fresh.keep(each, kept[each]);
      }
      for (const auto& [id, holding] : account.holdings()) fresh.put_in(id, holding);
      ASSERT_EQ(account.free(), fresh.free()) << seed << " " << i;
      ASSERT_EQ(account.parked(), fresh.parked()) << seed << " " << i;
      ASSERT_EQ(account.overdrawn(), fresh.overdrawn()) << seed << " " << i;
      for (JobKey each = 0; each < 4; ++each) {
        ASSERT_EQ(account.charged(each), fresh.charged(each)) << seed << " " << i;
        ASSERT_EQ(account.held(each), fresh.held(each)) << seed << " " << i;
      }
    }
  }
}

TEST(AccountSums, ToAskTwiceIsNoWork) {
  Account account = of(10 * kGiB);
  for (ClientId client = 0; client < 100; ++client) account.join(client, client / 2, 10);
  EXPECT_EQ(account.free(), 10 * kGiB - 1000);
  const std::uint64_t walked = account.walked();
  for (JobKey job = 0; job < 50; ++job) EXPECT_EQ(account.held(job), 20u);
  account.free();
  EXPECT_EQ(account.walked(), walked);
}

}  // namespace
}  // namespace switchyard::monitor
