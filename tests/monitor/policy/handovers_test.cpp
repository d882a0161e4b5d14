// The table at the head of policy/handovers.h: each row is a case here; and laws over random plays.
#include "monitor/policy/handovers.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>

namespace switchyard::monitor::policy {
namespace {

using Phase = Handover::Phase;

constexpr std::uint64_t kA = 1, kB = 2, kC = 3, kD = 4;
constexpr std::uint64_t kBytes = 1u << 30;

Handover planned(std::uint64_t donor, std::uint64_t recipient, std::uint64_t soon_bytes,
                 std::uint64_t number = 7) {
  return {.donor = donor, .recipient = recipient, .number = number, .soon_bytes = soon_bytes};
}
Handover prepared() {
  Handover out = planned(kA, kB, kBytes);
  out.phase = Phase::kPrepared;
  return out;
}
Handover begun() { return planned(kA, kB, 0); }

// Of a to b.
Handovers one(std::uint64_t soon_bytes) {
  Handovers out;
  out.plan(planned(kA, kB, soon_bytes));
  return out;
}
void expect_ended(const Handovers& all) {
  EXPECT_TRUE(all.all().empty());
  EXPECT_EQ(all.gives(0, kA), 0u);
  EXPECT_EQ(all.takes(0, kB), 0u);
}

TEST(HandOverTable, WhatLeavesSoonIsPrepared) {
  const Handovers all = one(kBytes);
  ASSERT_NE(all.given_by(0, kA), nullptr);
  EXPECT_EQ(all.given_by(0, kA)->phase, Phase::kPrepared);
  EXPECT_EQ(all.given_by(0, kA)->soon_bytes, kBytes);
  EXPECT_EQ(all.gives(0, kA), 7u);
  EXPECT_EQ(all.takes(0, kB), 7u);
  EXPECT_EQ(all.gives(0, kB), 0u);
  EXPECT_EQ(all.takes(0, kA), 0u);
}

TEST(HandOverTable, WhatLeavesNowHasBegun) {
  const Handovers all = one(0);
  ASSERT_NE(all.given_by(0, kA), nullptr);
  EXPECT_EQ(all.given_by(0, kA)->phase, Phase::kBegun);
  EXPECT_EQ(all.takes(0, kB), 7u);
}

TEST(HandOverTable, OnAnotherGpuNobodyHasAPartInIt) {
  const Handovers all = one(0);
  EXPECT_EQ(all.gives(1, kA), 0u);
  EXPECT_EQ(all.takes(1, kB), 0u);
}

TEST(HandOverTable, TheSamePairOnAnotherGpuHasOneOfItsOwn) {
  for (const std::uint64_t soon_bytes : {kBytes, std::uint64_t{0}}) {
    Handovers all = one(soon_bytes);
    Handover other = planned(kA, kB, soon_bytes, 8);
    other.gpu = 1;
    all.plan(other);
    ASSERT_EQ(all.all().size(), 2u);
    EXPECT_EQ(all.gives(0, kA), 7u);
    EXPECT_EQ(all.takes(0, kB), 7u);
    EXPECT_EQ(all.gives(1, kA), 8u);
    EXPECT_EQ(all.takes(1, kB), 8u);
  }
}

TEST(HandOverTable, PreparedThatIsPlannedAgainKeepsItsNumber) {
  Handovers all = one(kBytes);
  all.plan(planned(kA, kB, kBytes / 2, 8));
  ASSERT_EQ(all.all().size(), 1u);
  EXPECT_EQ(all.gives(0, kA), 7u);
  EXPECT_EQ(all.given_by(0, kA)->soon_bytes, kBytes / 2);
  all.plan(planned(kA, kB, 0, 9));
  ASSERT_EQ(all.all().size(), 1u);
  EXPECT_EQ(all.gives(0, kA), 7u);
  EXPECT_EQ(all.takes(0, kB), 7u);
  EXPECT_EQ(all.given_by(0, kA)->phase, Phase::kBegun);
  EXPECT_EQ(all.given_by(0, kA)->soon_bytes, 0u);
}

TEST(HandOverTable, PreparedBeginsWhenItsDonorLeaves) {
  Handovers all = one(kBytes);
  all.leaves(0, kA);
  ASSERT_NE(all.given_by(0, kA), nullptr);
  EXPECT_EQ(all.given_by(0, kA)->phase, Phase::kBegun);
  EXPECT_EQ(all.given_by(0, kA)->soon_bytes, 0u);
  EXPECT_EQ(all.takes(0, kB), 7u);
}

TEST(HandOverTable, PreparedEndsWhenItIsWithdrawn) {
  Handovers all = one(kBytes);
  all.withdraw(1);
  EXPECT_EQ(all.all().size(), 1u) << "that is another GPU";
  all.withdraw(0);
  expect_ended(all);
}

TEST(HandOverTable, PreparedEndsWhenItIsPlannedForOthers) {
  for (const Handover& other : {planned(kA, kC, kBytes, 8), planned(kC, kB, kBytes, 8)}) {
    Handovers all = one(kBytes);
    all.plan(other);
    ASSERT_EQ(all.all().size(), 1u);
    EXPECT_EQ(all.gives(0, other.donor), 8u);
    EXPECT_EQ(all.takes(0, other.recipient), 8u);
  }
  for (const std::uint64_t soon : {kBytes, std::uint64_t{0}}) {
    Handovers all = one(kBytes);
    all.plan(planned(kC, kD, soon, 8));
    EXPECT_EQ(all.gives(0, kA), 0u) << "another gives instead, to yet another";
    EXPECT_EQ(all.takes(0, kB), 0u);
    EXPECT_EQ(all.gives(0, kC), 8u);
  }
  Handovers all = one(kBytes);
  all.plan(planned(kA, 0, kBytes, 8));
  expect_ended(all);
}

TEST(HandOverTable, PreparedOutlivesThatItsDonorGivesAnew) {
  Handovers all = one(kBytes);
  all.gives_anew(0, kA);
  EXPECT_EQ(all.gives(0, kA), 7u) << "it may be this one";
}

TEST(HandOverTable, BegunEndsWhenItsDonorGivesAnew) {
  Handovers all = one(0);
  all.gives_anew(1, kA);
  all.gives_anew(0, kB);
  EXPECT_EQ(all.all().size(), 1u);
  all.gives_anew(0, kA);
  expect_ended(all);
}

TEST(HandOverTable, BegunIsNotWithdrawn) {
  Handovers all = one(0);
  all.withdraw(0);
  EXPECT_EQ(all.gives(0, kA), 7u);
}

TEST(HandOverTable, BegunGoesOnWhileItsDonorLeaves) {
  Handovers all = one(0);
  all.leaves(0, kA);
  EXPECT_EQ(all.gives(0, kA), 7u);
  EXPECT_EQ(all.takes(0, kB), 7u);
}

TEST(HandOverTable, BegunIsReplacedByOneOfTheSameDonorOrRecipient) {
  for (const Handover& other :
       {planned(kA, kC, 0, 8), planned(kC, kB, 0, 8), planned(kA, kB, 0, 8)}) {
    Handovers all = one(0);
    all.plan(other);
    ASSERT_EQ(all.all().size(), 1u);
    EXPECT_EQ(all.gives(0, other.donor), 8u);
    EXPECT_EQ(all.takes(0, other.recipient), 8u);
  }
}

TEST(HandOverTable, OneMayGiveWhatItHasWhileItTakesMore) {
  Handovers all = one(0);
  all.plan(planned(kB, kC, 0, 8));
  EXPECT_EQ(all.takes(0, kB), 7u);
  EXPECT_EQ(all.gives(0, kB), 8u);
}

TEST(HandOverTable, BothEndWhenTheRecipientLeaves) {
  for (const std::uint64_t soon : {kBytes, std::uint64_t{0}}) {
    Handovers all = one(soon);
    all.leaves(1, kB);
    EXPECT_EQ(all.gives(0, kA), 7u);
    all.leaves(0, kB);
    expect_ended(all);
  }
}

// Whether it is prepared or begun: `unrelated` changes nothing, `either` of a or of b ends it.
void expect_ended_by_either(const std::function<void(Handovers&)>& unrelated,
                            const std::function<void(Handovers&, std::uint64_t who)>& either) {
  for (const std::uint64_t soon : {kBytes, std::uint64_t{0}}) {
    for (const std::uint64_t who : {kA, kB}) {
      Handovers all = one(soon);
      unrelated(all);
      EXPECT_EQ(all.all().size(), 1u);
      either(all, who);
      expect_ended(all);
    }
  }
}

TEST(HandOverTable, BothEndWhenEitherComesBackForGood) {
  expect_ended_by_either([](Handovers& all) { all.returns(1, kA), all.returns(1, kB); },
                         [](Handovers& all, std::uint64_t who) { all.returns(0, who); });
}

TEST(HandOverTable, BothEndWhenEitherHasGone) {
  const auto goes = [](Handovers& all, std::uint64_t who) {
    all.keep_those_of([&](std::uint64_t client) { return client != who; });
  };
  expect_ended_by_either([&](Handovers& all) { goes(all, kC); }, goes);
}

TEST(HandOverTable, WhatHasEndedStaysSo) {
  for (const Handover& from : {prepared(), begun()}) {
    Handover ended = next(from, HandoverEvent::kGone);
    ASSERT_EQ(ended.phase, Phase::kEnded);
    for (unsigned event = 0; event < kHandoverEvents; ++event) {
      EXPECT_EQ(next(ended, static_cast<HandoverEvent>(event), kBytes).phase, Phase::kEnded);
    }
  }
}

TEST(HandOverTable, NothingThatHasBegunIsPreparedAgain) {
  for (unsigned event = 0; event < kHandoverEvents; ++event) {
    const Handover to = next(begun(), static_cast<HandoverEvent>(event), kBytes);
    EXPECT_NE(to.phase, Phase::kPrepared);
    EXPECT_EQ(to.soon_bytes, 0u);
  }
}

// Whatever happens in whatever order.
TEST(HandOverLaws, EachHasOneDonorOneRecipientAndOneNumberAndOneIsPreparedAtMost) {
  std::mt19937 random(1);
  const auto roll = [&](unsigned sides) { return static_cast<unsigned>(random() % sides); };
  Handovers all;
  for (std::uint64_t i = 1; i < 20'000; ++i) {
    const std::size_t gpu = roll(2);
    const std::uint64_t client = 1 + roll(5);
    switch (roll(8)) {
      case 0:
        all.withdraw(gpu);
        break;
      case 1:
        all.gives_anew(gpu, client);
        break;
      case 2:
        all.leaves(gpu, client);
        break;
      case 3:
        all.returns(gpu, client);
        break;
      case 4:
        all.keep_those_of([&](std::uint64_t each) { return each != client; });
        break;
      default:
        all.plan({.gpu = gpu,
                  .donor = client,
                  .recipient = roll(6) == 0 ? 0 : 1 + (client + roll(4)) % 5,
                  .number = i,
                  .soon_bytes = roll(2) * kBytes});
        break;
    }
    std::set<std::uint64_t> numbers;
    std::set<std::pair<std::size_t, std::uint64_t>> donors, recipients;
    unsigned prepared_on[2] = {};
    for (const Handover& each : all.all()) {
      ASSERT_NE(each.phase, Phase::kEnded);
      ASSERT_EQ(each.phase == Phase::kPrepared, each.soon_bytes != 0);
      ASSERT_TRUE(numbers.insert(each.number).second);
      ASSERT_TRUE(donors.insert({each.gpu, each.donor}).second);
      ASSERT_TRUE(recipients.insert({each.gpu, each.recipient}).second);
      ASSERT_EQ(all.gives(each.gpu, each.donor), all.takes(each.gpu, each.recipient));
      if (each.phase == Phase::kPrepared) ++prepared_on[each.gpu];
    }
    ASSERT_LE(prepared_on[0], 1u);
    ASSERT_LE(prepared_on[1], 1u);
  }
}

}  // namespace
}  // namespace switchyard::monitor::policy
