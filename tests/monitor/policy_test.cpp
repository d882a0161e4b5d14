// The policy with made-up clients and a made-up clock.
#include "monitor/policy/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ClientView client(std::uint64_t id, Priority priority, double weight = 1) {
  ClientView view;
  view.client = id;
  view.job = id;
  view.priority = priority;
  view.weight = weight;
  view.contexts = 1;
  view.compute_groups = 1;
  return view;
}

// Clients that can be made to work, and a clock that only we move.
struct Yard {
  Snapshot snapshot;
  State state;
  Time now = seconds(100);

  ClientView& operator[](std::size_t at) { return snapshot.clients[at]; }
  Plan decide() { return policy::decide(snapshot, now, state); }
  // All of `who` work, and the monitor looks.
  Plan work(std::initializer_list<std::size_t> who) {
    decide();  // it has seen everybody before they work
    for (const std::size_t at : who) snapshot.clients[at].work += 10;
    return decide();
  }
};

unsigned shorts(const Plan& plan) {
  return static_cast<unsigned>(std::count_if(plan.clients.begin(), plan.clients.end(),
                                             [](const auto& c) { return is_short(c.slices); }));
}

constexpr Slices kNothing{0, 0};

TEST(Policy, NobodyIsThere) { EXPECT_TRUE(Yard{}.decide().clients.empty()); }

TEST(Policy, AClientAloneIsLeftAlone) {
  for (const Priority priority : {Priority::kHigh, Priority::kNormal, Priority::kLow}) {
    Yard yard{{{client(1, priority)}}, {}};
    const Plan plan = yard.work({0});
    EXPECT_EQ(plan.clients[0].slices, kNothing);
    EXPECT_FALSE(plan.clients[0].wake) << "a client alone never rings";
    EXPECT_TRUE(plan.clients[0].active);
  }
}

TEST(Policy, AClientWithoutAContextDoesNotCount) {
  Yard yard{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  yard[1].contexts = 0;
  yard[1].compute_groups = 0;
  const Plan plan = yard.work({0});
  EXPECT_EQ(plan.clients[0].slices, kNothing);
  EXPECT_EQ(plan.clients[1].slices, kNothing);
}

TEST(Policy, LowBesideHighGetsTheShortSlice) {
  Yard yard{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  const Plan plan = yard.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices, (Slices{10'000, 10'000}));
  EXPECT_EQ(plan.clients[1].slices, (Slices{20, 50}));
}

TEST(Policy, NormalBesideHighGetsTheShortSlice) {
  Yard yard{{{client(1, Priority::kNormal), client(2, Priority::kHigh)}}, {}};
  const Plan plan = yard.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices, kYieldShort);
}

TEST(Policy, SeveralActiveYieldersShareEqualSlicesOfTheDefaultLength) {
  Yard yard{{{client(1, Priority::kHigh), client(2, Priority::kLow), client(3, Priority::kNormal),
              client(4, Priority::kLow)}},
            {}};
  const Plan plan = yard.work({0, 1, 2, 3});
  EXPECT_EQ(shorts(plan), 0u);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(plan.clients[i].slices, kYieldShared);
}

TEST(Policy, AnIdleYielderDoesNotKeepTheActiveOneFromTheShortSlice) {
  Yard yard{{{client(1, Priority::kHigh), client(2, Priority::kLow), client(3, Priority::kLow)}},
            {}};
  const Plan plan = yard.work({0, 2});
  EXPECT_EQ(plan.clients[1].slices, kYieldShared);
  EXPECT_TRUE(plan.clients[1].wake);
  EXPECT_EQ(plan.clients[2].slices, kYieldShort);
}

TEST(Policy, TheShortSliceMovesToTheYielderThatBecomesTheOnlyActiveOne) {
  Yard yard{{{client(1, Priority::kHigh), client(2, Priority::kLow), client(3, Priority::kLow)}},
            {}};
  yard.work({0, 1});
  yard.now += seconds(3);
  const Plan plan = yard.work({0, 2});
  EXPECT_EQ(plan.clients[1].slices, kYieldShared);
  EXPECT_EQ(plan.clients[2].slices, kYieldShort);
}

TEST(Policy, APauseOfTheOnlyYielderChangesNothing) {
  Yard yard{{{client(1, Priority::kHigh), client(2, Priority::kLow), client(3, Priority::kLow)}},
            {}};
  yard.work({0, 2});
  yard.now += seconds(5);
  const Plan plan = yard.work({0});
  EXPECT_EQ(plan.clients[2].slices, kYieldShort);
  EXPECT_TRUE(plan.clients[2].wake);
}

TEST(Policy, AProcessWithTwoComputeGroupsIsNeverShort) {
  Yard yard{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  yard[1].compute_groups = 2;
  EXPECT_EQ(yard.work({0, 1}).clients[1].slices, kYieldShared);
}

TEST(Policy, AClientWhoseSlicesAreRefusedGetsNone) {
  Yard yard{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  yard[1].sliceable = false;
  const Plan plan = yard.work({0, 1});
  EXPECT_EQ(plan.clients[1].slices, kNothing);
  EXPECT_EQ(plan.clients[0].slices.compute_us, kHighSliceUs);
}

TEST(Policy, HighsShareByWeightWithTenMillisecondsForTheSmallest) {
  Yard yard{{{client(1, Priority::kHigh, 1), client(2, Priority::kHigh, 3),
              client(3, Priority::kNormal)}},
            {}};
  const Plan plan = yard.work({0, 1, 2});
  EXPECT_EQ(plan.clients[0].slices.compute_us, 10'000u);
  EXPECT_EQ(plan.clients[1].slices.compute_us, 30'000u);
  EXPECT_EQ(plan.clients[2].slices, kYieldShort);
}

TEST(Policy, ASleepingHighKeepsItsLongSliceAndItsProtection) {
  Yard yard{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  yard.work({0, 1});
  yard.now += seconds(10);
  const Plan plan = yard.work({1});
  EXPECT_EQ(plan.clients[0].slices.compute_us, kHighSliceUs);
  EXPECT_TRUE(plan.clients[0].wake);
  EXPECT_EQ(plan.clients[1].slices, kYieldShort);
}

TEST(Policy, BesideASleepingHighTwoActiveNormalsShareByWeight) {
  Yard yard{{{client(1, Priority::kHigh), client(2, Priority::kNormal, 3),
              client(3, Priority::kNormal, 1)}},
            {}};
  yard.work({0, 1, 2});
  yard.now += seconds(10);
  const Plan plan = yard.work({1, 2});
  EXPECT_EQ(plan.clients[1].slices.compute_us, 3 * plan.clients[2].slices.compute_us);
  EXPECT_EQ(plan.clients[1].slices.compute_us + plan.clients[2].slices.compute_us, 50'000u);
}

TEST(Policy, TwoEqualNormalsGetLongEqualSlices) {
  Yard yard{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  const Plan plan = yard.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices, (Slices{25'000, 25'000}));
  EXPECT_EQ(plan.clients[1].slices, (Slices{25'000, 25'000}));
}

TEST(Policy, WeightsFourToOne) {
  Yard yard{{{client(1, Priority::kNormal, 4), client(2, Priority::kNormal, 1)}}, {}};
  const Plan plan = yard.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices.compute_us, 40'000u);
  EXPECT_EQ(plan.clients[1].slices.compute_us, 10'000u);
  EXPECT_DOUBLE_EQ(plan.clients[0].share_asked, 0.8);
  EXPECT_DOUBLE_EQ(plan.clients[1].share_asked, 0.2);
}

TEST(Policy, SeventyTwentyTen) {
  Yard yard{{{client(1, Priority::kNormal, 70), client(2, Priority::kNormal, 20),
              client(3, Priority::kNormal, 10)}},
            {}};
  const Plan plan = yard.work({0, 1, 2});
  EXPECT_EQ(plan.clients[0].slices.compute_us, 52'500u);
  EXPECT_EQ(plan.clients[1].slices.compute_us, 15'000u);
  EXPECT_EQ(plan.clients[2].slices.compute_us, 7'500u);
}

TEST(Policy, LowCountsATenthBesideAnActiveNormal) {
  Yard yard{{{client(1, Priority::kNormal), client(2, Priority::kLow)}}, {}};
  const Plan plan = yard.work({0, 1});
  EXPECT_NEAR(plan.clients[0].slices.compute_us, 10.0 * plan.clients[1].slices.compute_us, 10);
  EXPECT_NEAR(plan.clients[1].share_asked, 1.0 / 11, 1e-9);
}

TEST(Policy, LowsAmongThemselvesShareByWeight) {
  Yard yard{{{client(1, Priority::kLow, 1), client(2, Priority::kLow, 2)}}, {}};
  const Plan plan = yard.work({0, 1});
  EXPECT_EQ(2 * plan.clients[0].slices.compute_us, plan.clients[1].slices.compute_us + 1);
  EXPECT_EQ(shorts(plan), 0u);
}

TEST(Policy, AJobWithTenProcessesGetsNoMoreThanOne) {
  Yard yard;
  yard.snapshot.clients.push_back(client(1, Priority::kNormal));
  for (std::uint64_t i = 2; i < 12; ++i) {
    yard.snapshot.clients.push_back(client(i, Priority::kNormal));
    yard.snapshot.clients.back().job = 99;
  }
  const Plan plan = yard.work({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  std::uint64_t ten = 0;
  for (std::size_t i = 1; i < 11; ++i) ten += plan.clients[i].slices.compute_us;
  EXPECT_NEAR(static_cast<double>(ten), plan.clients[0].slices.compute_us, 10);
  EXPECT_DOUBLE_EQ(plan.clients[0].share_asked, 0.5);
  EXPECT_DOUBLE_EQ(plan.clients[1].share_asked, 0.5);
}

TEST(Policy, IdleProcessesOfAJobLeaveItsWeightToTheActiveOnes) {
  Yard yard{
      {{client(1, Priority::kNormal), client(2, Priority::kNormal), client(3, Priority::kNormal)}},
      {}};
  yard[2].job = 2;
  const Plan plan = yard.work({0, 1});
  EXPECT_EQ(plan.clients[0].slices, plan.clients[1].slices);
}

TEST(Policy, ActivityEndsTwoSecondsAfterTheLastWork) {
  Yard yard{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  const Plan first = yard.work({0, 1});
  EXPECT_EQ(first.look_again, yard.now + kActiveFor);
  yard.now += milliseconds(1999);
  EXPECT_TRUE(yard.decide().clients[0].active);
  yard.now += milliseconds(1);
  const Plan after = yard.decide();
  EXPECT_FALSE(after.clients[0].active);
  EXPECT_TRUE(after.clients[0].wake);
  EXPECT_EQ(after.look_again, Time{0});
}

TEST(Policy, AClientThatHasNeverWorkedIsIdle) {
  Yard yard{{{client(1, Priority::kNormal), client(2, Priority::kNormal)}}, {}};
  EXPECT_FALSE(yard.decide().clients[0].active);
}

TEST(Policy, ForgetsClientsThatAreGone) {
  Yard yard{{{client(1, Priority::kHigh), client(2, Priority::kLow)}}, {}};
  yard.work({0, 1});
  EXPECT_EQ(yard.state.short_holder, 2u);
  yard.snapshot.clients.pop_back();
  yard.decide();
  EXPECT_EQ(yard.state.short_holder, 0u);
  EXPECT_EQ(yard.state.activity.size(), 1u);
}

Snapshot random_snapshot(std::mt19937_64& random) {
  const auto pick = [&random](std::uint64_t below) { return random() % below; };
  Snapshot out;
  const std::uint64_t clients = pick(12);
  const std::uint64_t jobs = 1 + pick(8);
  std::vector<std::pair<Priority, double>> kinds;
  for (std::uint64_t i = 0; i < jobs; ++i) {
    // Ratios up to 20 : 1, beside low's tenth, fit between the smallest and the largest slice.
    kinds.emplace_back(static_cast<Priority>(pick(3)), 0.5 * static_cast<double>(1 + pick(10)));
  }
  for (std::uint64_t i = 0; i < clients; ++i) {
    ClientView view;
    view.client = i + 1;
    view.job = 1 + pick(jobs);
    view.priority = kinds[view.job - 1].first;
    view.weight = kinds[view.job - 1].second;
    view.contexts = static_cast<std::uint32_t>(pick(3));
    view.compute_groups = view.contexts == 0 ? 0 : static_cast<std::uint32_t>(pick(3));
    view.work = pick(3);
    view.sliceable = pick(10) != 0;
    out.clients.push_back(view);
  }
  return out;
}

class PolicyLaws : public testing::TestWithParam<std::uint64_t> {};

TEST_P(PolicyLaws, HoldOverRandomLoads) {
  std::mt19937_64 random(GetParam());
  State state;
  Time now = seconds(1);
  Snapshot snapshot = random_snapshot(random);
  for (int step = 0; step < 200; ++step) {
    if (random() % 10 == 0) snapshot = random_snapshot(random);
    for (ClientView& view : snapshot.clients) view.work += random() % 3 == 0;
    now += milliseconds(random() % 1500);
    State twin = state;
    const Plan plan = decide(snapshot, now, state);
    const Plan again = decide(snapshot, now, twin);
    ASSERT_EQ(plan.clients.size(), snapshot.clients.size());
    std::size_t riders = 0;
    for (const ClientView& view : snapshot.clients)
      riders += view.contexts + view.compute_groups > 0;
    for (std::size_t i = 0; i < plan.clients.size(); ++i) {
      ASSERT_EQ(plan.clients[i].slices, again.clients[i].slices) << "same input, same plan";
      ASSERT_EQ(plan.clients[i].wake, again.clients[i].wake);
      if (riders < 2) {
        ASSERT_EQ(plan.clients[i].slices, kNothing) << "alone is left alone";
      }
      if (is_short(plan.clients[i].slices)) {
        ASSERT_NE(snapshot.clients[i].priority, Priority::kHigh);
        ASSERT_EQ(snapshot.clients[i].compute_groups, 1u);
      }
      ASSERT_LE(plan.clients[i].slices.compute_us, kLargestSliceUs);
    }
    ASSERT_LE(shorts(plan), 1u) << "step " << step;
  }
}

// Weights are exact inside a class: what two active jobs get, added up over their groups, is in the
// ratio of their weights, but for the rounding to microseconds and the bounds of a slice.
TEST_P(PolicyLaws, WeightsAreExactInsideAClass) {
  std::mt19937_64 random(GetParam());
  for (int round = 0; round < 200; ++round) {
    Yard yard;
    yard.snapshot = random_snapshot(random);
    for (ClientView& view : yard.snapshot.clients) view.sliceable = true;
    yard.decide();
    for (ClientView& view : yard.snapshot.clients) ++view.work;
    const Plan plan = yard.decide();
    std::map<std::uint64_t, std::pair<double, double>> jobs;  // sum of slices, groups
    std::map<std::uint64_t, const ClientView*> views;
    bool bounded = false;
    for (std::size_t i = 0; i < plan.clients.size(); ++i) {
      const ClientView& view = yard.snapshot.clients[i];
      const double us = plan.clients[i].slices.compute_us;
      if (us == 0 || us == abi::kDefaultSliceUs || is_short(plan.clients[i].slices)) continue;
      bounded = bounded || us == kSmallestSliceUs || us == kLargestSliceUs;
      const double groups = std::max(1u, view.compute_groups);
      jobs[view.job].first += us * groups;
      jobs[view.job].second += groups;
      views[view.job] = &view;
    }
    if (bounded) continue;
    for (const auto& [a, mine] : jobs) {
      for (const auto& [b, theirs] : jobs) {
        if (views[a]->priority != views[b]->priority) continue;
        // Each slice is rounded by half a microsecond at most.
        const double scale = mine.first / views[a]->weight;
        EXPECT_NEAR(theirs.first, scale * views[b]->weight,
                    theirs.second + mine.second * views[b]->weight / views[a]->weight);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PolicyLaws, testing::Range<std::uint64_t>(1, 41));

}  // namespace
}  // namespace switchyard::monitor::policy
