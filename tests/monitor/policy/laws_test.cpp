// What holds for any snapshot.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/monitor/policy/policy_rig.h"
#include "tests/support/seeds.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Snapshot random_snapshot(std::mt19937_64& random) {
  const auto pick = [&random](std::uint64_t below) { return random() % below; };
  Snapshot out;
  out.rules.kind = static_cast<Kind>(pick(4));
  out.rules.slices = pick(4) != 0;
  out.rules.gates = pick(4) != 0;
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
    view.gateable = pick(20) != 0;
    view.paused = pick(10) == 0;
    view.slices_in_force = pick(3) != 0;
    view.limit = kinds[view.job - 1].second > 4 ? 0.3 : 0;
    view.deadline = seconds(pick(3) * 100 * view.job);
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
    for (ClientView& view : snapshot.clients) {
      view.work += random() % 3 == 0;
      view.progress += random() % 2;
      view.busy = random() % 2 == 0;
      view.held = random() % 2 == 0;
    }
    now += random() % 3 == 0 ? milliseconds(random() % 1500) : milliseconds(random() % 10);
    State twin = state;
    const Plan plan = decide(snapshot, now, state);
    const Plan again = decide(snapshot, now, twin);
    ASSERT_EQ(plan.clients.size(), snapshot.clients.size());
    std::size_t riders = 0;
    for (const ClientView& view : snapshot.clients)
      riders += !view.paused && view.contexts + view.compute_groups > 0;
    for (std::size_t i = 0; i < plan.clients.size(); ++i) {
      ASSERT_EQ(plan.clients[i].slices, again.clients[i].slices) << "same input, same plan";
      ASSERT_EQ(plan.clients[i].wake, again.clients[i].wake);
      ASSERT_EQ(plan.clients[i].closed, again.clients[i].closed);
      ASSERT_EQ(plan.clients[i].share_got, again.clients[i].share_got);
      ASSERT_EQ((plan.clients[i].closed & abi::kClosedByPause) != 0, snapshot.clients[i].paused);
      if (plan.clients[i].closed != 0) {
        ASSERT_TRUE(plan.clients[i].armed && plan.clients[i].watch);
      }
      if (riders < 2) {
        ASSERT_EQ(plan.clients[i].slices, kNothing) << "alone is left alone";
      }
      if (is_short(plan.clients[i].slices)) {
        ASSERT_TRUE(snapshot.rules.slices);
        if (snapshot.rules.kind == Kind::kPriority) {
          ASSERT_NE(snapshot.clients[i].priority, Priority::kHigh);
        }
        ASSERT_EQ(snapshot.clients[i].compute_groups, 1u);
      }
      ASSERT_LE(plan.clients[i].slices.compute_us, kLargestSliceUs);
    }
    ASSERT_LE(shorts(plan), 1u) << "step " << step;
  }
}

// Weights are exact inside a class. The shares of two active jobs, added up over their groups, have
// the ratio of their weights. Rounding to microseconds and the bounds of a slice are excepted.
TEST_P(PolicyLaws, WeightsAreExactInsideAClass) {
  std::mt19937_64 random(GetParam());
  for (int round = 0; round < 200; ++round) {
    EventLoop event_loop;
    event_loop.snapshot = random_snapshot(random);
    event_loop.snapshot.rules = {};
    for (ClientView& view : event_loop.snapshot.clients) {
      view.sliceable = true;
      view.paused = false;
      view.limit = 0;
    }
    event_loop.decide();
    for (ClientView& view : event_loop.snapshot.clients) ++view.work;
    const Plan plan = event_loop.decide();
    std::map<std::uint64_t, std::pair<double, double>> jobs;  // sum of slices, groups
    std::map<std::uint64_t, const ClientView*> views;
    bool bounded = false;
    for (std::size_t i = 0; i < plan.clients.size(); ++i) {
      const ClientView& view = event_loop.snapshot.clients[i];
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

INSTANTIATE_TEST_SUITE_P(Seeds, PolicyLaws,
                         testing::Range<std::uint64_t>(1, 1 + test_support::seeds(40)));

}  // namespace
}  // namespace switchyard::monitor::policy
