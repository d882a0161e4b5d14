// Raise before lower: at no instant two clients that may have a short slice in force.
#include "monitor/scheduling/slice_applier.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>

#include "tests/support/seeds.h"

namespace switchyard::monitor {
namespace {

constexpr Slices kShort{20, 50};
constexpr Slices kLong{10'000, 10'000};
constexpr Slices kShared{2048, 2048};

class Applier : public testing::Test {
 protected:
  // Clients 1 to `last`, of which nothing is known yet.
  void join(ClientId last) {
    for (ClientId id = 1; id <= last; ++id) applier.join(id, false);
  }
  // Each of the writes that are due now is confirmed, or refused.
  void answer(bool refused) {
    for (const SliceWrite& write : applier.step()) {
      applier.heard(write.client, write.seq, refused);
    }
  }
  // Two clients: the first has the short slice in force, and now the second is to have it.
  void let_the_second_want_what_the_first_has() {
    join(2);
    applier.want(1, kShort);
    answer(false);
    applier.want(1, kShared);
    applier.want(2, kShort);
  }
  void expect_no_short_write() {
    for (const SliceWrite& write : applier.step()) EXPECT_FALSE(is_short(write.slices));
  }

  SliceApplier applier;
};

TEST_F(Applier, NothingWantedWritesNothing) {
  join(1);
  EXPECT_TRUE(applier.step().empty());
  EXPECT_FALSE(applier.waiting());
}

TEST_F(Applier, UnchangedValuesAreNotWrittenAgain) {
  join(1);
  applier.want(1, kLong);
  EXPECT_EQ(applier.step().size(), 1u);
  EXPECT_TRUE(applier.step().empty());
  applier.want(1, kLong);
  EXPECT_TRUE(applier.step().empty());
}

TEST_F(Applier, RaisesAndLowersInOneStepWhenNobodyWasShort) {
  join(2);
  applier.want(1, kShort);
  applier.want(2, kLong);
  const auto writes = applier.step();
  ASSERT_EQ(writes.size(), 2u);
  EXPECT_EQ(writes[0].client, 2u) << "the raise comes first";
  EXPECT_EQ(writes[1].slices, kShort);
}

TEST_F(Applier, TheSecondShortWaitsUntilTheFirstWasRaised) {
  let_the_second_want_what_the_first_has();
  const auto first = applier.step();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].slices, kShared);
  EXPECT_EQ(first[1].slices, kShared) << "it gets the default's length meanwhile";
  EXPECT_TRUE(applier.step().empty());
  applier.heard(1, first[0].seq, false);
  const auto second = applier.step();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].client, 2u);
  EXPECT_EQ(second[0].slices, kShort);
}

TEST_F(Applier, TwoWantedShortsGiveOne) {
  join(2);
  applier.want(1, kShort);
  applier.want(2, kShort);
  unsigned shorts = 0;
  for (int i = 0; i < 10; ++i) {
    for (const SliceWrite& write : applier.step()) {
      shorts += is_short(write.slices);
      applier.heard(write.client, write.seq, false);
    }
  }
  EXPECT_EQ(shorts, 1u);
}

TEST_F(Applier, AHungClientKeepsTheOnlyShortSlice) {
  let_the_second_want_what_the_first_has();  // but the first never confirms: it is stopped
  for (int i = 0; i < 100; ++i) {
    for (const SliceWrite& write : applier.step()) {
      if (write.client == 2) {
        EXPECT_FALSE(is_short(write.slices));
      }
    }
  }
  applier.died(1);
  const auto writes = applier.step();
  ASSERT_EQ(writes.size(), 1u);
  EXPECT_EQ(writes[0].slices, kShort);
}

TEST_F(Applier, OneThatLeftItsSocketKeepsWhatItHadUntilItDies) {
  join(2);
  applier.want(1, kShort);
  applier.step();  // written, not even confirmed
  applier.left(1);
  applier.want(2, kShort);
  EXPECT_TRUE(applier.possibly_short(1));
  expect_no_short_write();
  applier.died(1);
  EXPECT_EQ(applier.step().back().slices, kShort);
}

TEST_F(Applier, OneThatWasNeverShortIsForgottenWhenItLeaves) {
  join(1);
  applier.want(1, kLong);
  applier.step();
  applier.left(1);
  EXPECT_FALSE(applier.possibly_short(1));
  EXPECT_TRUE(applier.step().empty());
}

TEST_F(Applier, AClientOfAnotherMonitorIsPossiblyShortUntilItConfirms) {
  applier.join(1, true);
  applier.join(2, false);
  applier.want(2, kShort);
  const auto first = applier.step();
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(first[0].client, 1u) << "it is asked for the default so that it confirms something";
  for (const SliceWrite& write : first) EXPECT_FALSE(is_short(write.slices));
  applier.heard(1, first[0].seq, false);
  EXPECT_EQ(applier.step().back().slices, kShort);
}

TEST_F(Applier, IgnoresConfirmationsOfWhatWasNeverWritten) {
  join(2);
  applier.want(1, kShort);
  answer(false);
  applier.want(1, kShared);
  applier.step();
  applier.heard(1, 0xffffffff, false);
  applier.heard(1, 3, false);
  EXPECT_TRUE(applier.possibly_short(1));
  applier.heard(7, 1, false);
  applier.heard(1, 2, false);
  EXPECT_FALSE(applier.possibly_short(1));
  applier.heard(1, 1, false);
  EXPECT_FALSE(applier.possibly_short(1)) << "time does not run backwards";
}

TEST_F(Applier, ARefusedRaiseLeavesItPossiblyShort) {
  let_the_second_want_what_the_first_has();
  answer(true);
  EXPECT_TRUE(applier.possibly_short(1));
  expect_no_short_write();
}

TEST_F(Applier, ASingleRefusalIsAskedAgainManyAreNot) {
  join(1);
  applier.want(1, kLong);
  int writes = 0;
  for (int i = 0; i < 10; ++i) {
    for (const SliceWrite& write : applier.step()) {
      ++writes;
      applier.heard(1, write.seq, true);
      applier.heard(1, write.seq, true);  // the page says it at every look
    }
  }
  EXPECT_EQ(writes, 3);
  EXPECT_TRUE(applier.refuses(1));
  EXPECT_FALSE(applier.waiting());
  applier.groups_changed(1);
  EXPECT_FALSE(applier.refuses(1));
  ASSERT_EQ(applier.step().size(), 1u);
}

TEST_F(Applier, RefusalsWithASuccessBetweenThemAreSingleOnes) {
  join(1);
  for (int i = 0; i < 3; ++i) {
    applier.want(1, i % 2 == 0 ? kLong : kShared);
    answer(true);
    answer(false);
    EXPECT_TRUE(applier.in_force(1)) << i;
  }
  EXPECT_FALSE(applier.refuses(1));
}

TEST_F(Applier, ARefusalIsReadAgainUntilTheNextAnswerAndCountsOnce) {
  join(1);
  applier.want(1, kLong);
  answer(true);
  const auto again = applier.step();
  ASSERT_EQ(again.size(), 1u);
  for (int look = 0; look < 5; ++look) {
    applier.heard(1, again[0].seq - 1, true);
    EXPECT_TRUE(applier.step().empty());
  }
  EXPECT_FALSE(applier.refuses(1));
  applier.heard(1, again[0].seq, false);
  EXPECT_TRUE(applier.in_force(1));
}

TEST_F(Applier, TakingTheDefaultBackDoesNotMakeARefuserSliceableAgain) {
  join(1);
  applier.want(1, kLong);
  for (int i = 0; i < 3; ++i) answer(true);
  applier.want(1, {});
  answer(false);
  EXPECT_TRUE(applier.refuses(1));
}

// A process with a channel group, as the hardware has it. It reads its page late or never, applies
// the values, and answers late or never. The page may hold newer values under an older number.
struct Process {
  std::vector<SliceWrite> page;  // every version that was ever written
  std::uint32_t seen = 0;        // index + 1 of the version in force
  std::uint32_t confirmed = 0;
  bool stopped = false;
  bool attached = true;
  Slices in_force;
};

class ApplierLaw : public testing::TestWithParam<std::uint64_t> {};

TEST_P(ApplierLaw, NeverTwoShortOverRandomJoinsLeavesKillsAndSets) {
  std::mt19937_64 random(GetParam());
  const auto chance = [&random](unsigned of) { return random() % of == 0; };
  SliceApplier applier;
  std::map<ClientId, Process> processes;
  ClientId next = 1;
  unsigned ever_short = 0;
  const auto any = [&]() {
    auto it = processes.begin();
    std::advance(it, static_cast<long>(random() % processes.size()));
    return it;
  };
  for (int step = 0; step < 1000; ++step) {
    if (processes.size() < 8 && chance(3)) {
      const bool from_elsewhere = chance(4) && processes.empty();
      applier.join(next, from_elsewhere);
      processes[next].in_force = from_elsewhere ? kShort : Slices{};
      ++next;
    }
    if (!processes.empty() && chance(4)) applier.want(any()->first, kShort);
    if (!processes.empty() && chance(3)) applier.want(any()->first, chance(2) ? kLong : kShared);
    if (!processes.empty() && chance(12)) any()->second.stopped ^= true;
    if (!processes.empty() && chance(10)) {
      const auto it = any();
      it->second.attached = false;
      applier.left(it->first);
    }
    if (!processes.empty() && chance(10)) {
      const auto it = any();
      applier.left(it->first);
      applier.died(it->first);
      processes.erase(it);
    }
    for (const SliceWrite& write : applier.step()) {
      ASSERT_TRUE(processes.contains(write.client));
      ASSERT_TRUE(processes[write.client].attached) << "wrote to one that left";
      processes[write.client].page.push_back(write);
      ever_short += is_short(write.slices);
    }
    for (auto& [id, process] : processes) {
      if (process.stopped || chance(2)) continue;
      // It takes any version that it has not passed yet, also after its socket closed.
      const auto newest = static_cast<std::uint32_t>(process.page.size());
      if (newest > process.seen) {
        process.seen += 1 + static_cast<std::uint32_t>(random() % (newest - process.seen));
        process.in_force = process.page[process.seen - 1].slices;
      }
      if (process.attached && chance(2)) process.confirmed = process.seen;
      if (process.attached && process.confirmed > 0) {
        applier.heard(id, process.page[process.confirmed - 1].seq, false);
      }
    }
    unsigned in_force = 0;
    unsigned possible = 0;
    for (const auto& [id, process] : processes) {
      in_force += is_short(process.in_force);
      possible += applier.possibly_short(id);
    }
    ASSERT_LE(in_force, 1u) << "seed " << GetParam() << " step " << step;
    ASSERT_LE(possible, 1u) << "seed " << GetParam() << " step " << step;
  }
  EXPECT_GT(ever_short, 0u) << "the test must have tried";
}

INSTANTIATE_TEST_SUITE_P(Seeds, ApplierLaw,
                         testing::Range<std::uint64_t>(1, 1 + test_support::seeds(40)));

}  // namespace
}  // namespace switchyard::monitor
