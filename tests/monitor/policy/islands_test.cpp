// Islands: one client for the others, jobs among themselves.
#include "monitor/policy/islands.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/monitor/policy/policy_rig.h"
#include "tests/support/seeds.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kKey = std::uint64_t{1} << 63;

ClientView member(std::uint64_t id, std::uint64_t island, Priority priority = Priority::kNormal,
                  double weight = 1) {
  ClientView view = client(id, priority, weight);
  view.island = kKey | island;
  view.compute_groups = 0;
  view.sliceable = false;
  return view;
}

ClientView server(std::uint64_t id, std::uint64_t island) {
  ClientView view = client(id, Priority::kNormal);
  view.island = kKey | island;
  view.serves = true;
  view.contexts = 0;
  return view;
}

// Clients that work as told, and a clock that only we move.
struct World {
  Snapshot snapshot;
  State state;
  IslandStates islands;
  Time now = seconds(100);

  Plan decide() { return decide_with_islands(snapshot, now, state, islands); }
  // All of `who` work for so long, with work on the GPU at each look unless their gates are closed.
  Plan work(const std::vector<std::size_t>& who, Time span) {
    Plan plan = decide();
    for (const Time end = now + span; now < end;) {
      now += milliseconds(1);
      for (const std::size_t at : who) {
        ClientView& view = snapshot.clients[at];
        const bool shut = plan.clients[at].closed != 0;
        view.numbered = true;
        view.held = shut;
        view.busy = !shut;
        if (!shut) ++view.work, ++view.progress;
      }
      plan = decide();
    }
    return plan;
  }
};

TEST(Islands, AnIslandIsOneJobBesideAnother) {
  World world;
  world.snapshot.clients = {client(1, Priority::kNormal), member(2, 1), member(3, 1), server(4, 1)};
  const Plan plan = world.work({0, 1, 2}, milliseconds(100));
  EXPECT_EQ(plan.clients[3].client, 4u);
  // Two members count twice.
  EXPECT_NEAR(plan.clients[3].slices.compute_us, 2 * plan.clients[0].slices.compute_us, 1);
  EXPECT_EQ(plan.clients[1].slices, kNothing);
  EXPECT_EQ(plan.clients[2].slices, kNothing);
  for (const ClientPlan& each : plan.clients) EXPECT_EQ(each.closed, 0u);
}

TEST(Islands, OfAMemberWhoseTimeIsNotKnownNoneIsDivided) {
  World world;
  world.snapshot.clients = {client(1, Priority::kNormal), member(2, 1), member(3, 1), server(4, 1)};
  for (int i = 0; i < 100; ++i) {
    for (const ClientPlan& each : world.work({0, 1, 2}, milliseconds(1)).clients) {
      EXPECT_TRUE(each.had_ns >= 0 || !each.divided) << each.client;
    }
  }
}

TEST(Islands, AMemberThatSleepsCountsForNothing) {
  World world;
  world.snapshot.clients = {client(1, Priority::kNormal), member(2, 1), member(3, 1), server(4, 1)};
  const Plan plan = world.work({0, 1}, milliseconds(100));
  EXPECT_EQ(plan.clients[3].slices, plan.clients[0].slices);
}

TEST(Islands, TheServerHasTheShortSliceBesideAHighJob) {
  World world;
  world.snapshot.clients = {client(1, Priority::kHigh), member(2, 1, Priority::kLow),
                            member(3, 1, Priority::kLow), server(4, 1)};
  const Plan plan = world.work({0, 1, 2}, milliseconds(100));
  EXPECT_TRUE(is_short(plan.clients[3].slices));
  EXPECT_GE(plan.clients[0].slices.compute_us, kHighSliceUs);
  EXPECT_EQ(plan.clients[1].closed, 0u);
  EXPECT_EQ(plan.clients[2].closed, 0u);
}

TEST(Islands, TheServerHasTheShortSliceWhileTheHighJobRests) {
  World world;
  world.snapshot.clients = {client(1, Priority::kHigh), member(2, 1, Priority::kLow),
                            member(3, 1, Priority::kLow), server(4, 1)};
  const Plan plan = world.work({1, 2}, milliseconds(3000));
  EXPECT_TRUE(is_short(plan.clients[3].slices)) << plan.clients[3].slices.compute_us;
}

TEST(Islands, TwoBesideAHighJobTakeTurnsAndOneAtATimeIsShort) {
  World world;
  world.snapshot.clients = {client(1, Priority::kHigh),   member(2, 1, Priority::kLow),
                            member(3, 1, Priority::kLow), server(4, 1),
                            member(5, 2, Priority::kLow), server(6, 2)};
  bool had[2] = {false, false};
  for (int i = 0; i < 400; ++i) {
    const Plan plan = world.work({0, 1, 2, 4}, milliseconds(5));
    ASSERT_LE(shorts(plan), 1u);
    const bool first = plan.clients[1].closed == 0;
    ASSERT_EQ(first, plan.clients[2].closed == 0) << "an island's gates close together";
    ASSERT_FALSE(first && plan.clients[4].closed == 0) << "one has its turn";
    had[0] = had[0] || first;
    had[1] = had[1] || plan.clients[4].closed == 0;
  }
  EXPECT_TRUE(had[0] && had[1]);
}

TEST(Islands, TwoServersOfOneIslandAreNeverShort) {
  World world;
  world.snapshot.clients = {client(1, Priority::kHigh), member(2, 1, Priority::kLow), server(3, 1),
                            server(4, 1)};
  EXPECT_EQ(shorts(world.work({0, 1}, milliseconds(100))), 0u);
}

TEST(Islands, AnIslandWithoutAServerHasNoSlicesAndIsHeldByGates) {
  World world;
  world.snapshot.clients = {client(1, Priority::kNormal), member(2, 1), member(3, 1)};
  const Plan plan = world.work({0, 1, 2}, milliseconds(100));
  EXPECT_EQ(plan.clients[1].slices, kNothing);
  EXPECT_EQ(plan.clients[2].slices, kNothing);
}

TEST(Islands, AMemberWithChannelGroupsOfItsOwnIsAJobBesideIt) {
  World world;
  world.snapshot.clients = {client(1, Priority::kHigh), member(2, 1, Priority::kLow),
                            member(3, 1, Priority::kLow), server(4, 1)};
  world.snapshot.clients[2].compute_groups = 1;
  world.snapshot.clients[2].sliceable = true;
  for (int i = 0; i < 400; ++i) {
    const Plan plan = world.work({0, 1, 2}, milliseconds(5));
    ASSERT_LE(shorts(plan), 1u);
    ASSERT_NE(plan.clients[2].slices, kNothing);
    ASSERT_FALSE(plan.clients[1].closed == 0 && plan.clients[2].closed == 0) << "they take turns";
  }
}

TEST(Islands, EqualMembersWaitForNobody) {
  World world;
  world.snapshot.clients = {member(1, 1), member(2, 1), server(3, 1)};
  for (int i = 0; i < 100; ++i) {
    const Plan plan = world.work({0, 1}, milliseconds(5));
    ASSERT_EQ(plan.clients[0].closed | plan.clients[1].closed, 0u);
    ASSERT_FALSE(plan.clients[0].armed);
  }
}

TEST(Islands, UnequalMembersHaveTheIslandInTurns) {
  World world;
  world.snapshot.clients = {member(1, 1, Priority::kNormal, 1), member(2, 1, Priority::kNormal, 3),
                            server(3, 1)};
  int open[2] = {0, 0};
  for (int i = 0; i < 8000; ++i) {
    const Plan plan = world.work({0, 1}, milliseconds(1));
    ASSERT_FALSE(plan.clients[0].closed == 0 && plan.clients[1].closed == 0 && i > 100);
    for (int who : {0, 1}) open[who] += plan.clients[static_cast<std::size_t>(who)].closed == 0;
  }
  EXPECT_NEAR(static_cast<double>(open[1]) / open[0], 3, 0.3);
}

TEST(Islands, ALimitShutsItsMemberAloneAndIsKept) {
  World world;
  world.snapshot.clients = {member(1, 1), member(2, 1), server(3, 1)};
  world.snapshot.clients[0].limit = 0.2;
  int open = 0;
  constexpr int kLooks = 4000;
  for (int i = 0; i < kLooks; ++i) {
    const Plan plan = world.work({0, 1}, milliseconds(1));
    ASSERT_EQ(plan.clients[1].closed, 0u);
    if (plan.clients[0].closed == 0) ++open;
  }
  // While both work each is charged a half of the time.
  EXPECT_NEAR(static_cast<double>(open) / kLooks, 0.4, 0.04);
}

TEST(Islands, ALimitCountsWhatTheIslandHasOfTheGpu) {
  World world;
  world.snapshot.clients = {member(1, 1), member(2, 1), server(3, 1), client(4, Priority::kNormal)};
  world.snapshot.clients[0].limit = 0.2;
  int open = 0;
  constexpr int kLooks = 4000;
  for (int i = 0; i < kLooks; ++i) {
    if (world.work({0, 1, 3}, milliseconds(1)).clients[0].closed == 0) ++open;
  }
  // The island has two thirds, of which it is charged a half while it works.
  EXPECT_NEAR(static_cast<double>(open) / kLooks, 0.6, 0.06);
}

TEST(Islands, AnIslandWhoseMembersHaveHadTheirLimitsGivesItsTurnAway) {
  World world;
  world.snapshot.rules.kind = Kind::kExclusive;
  world.snapshot.clients = {member(1, 1), member(2, 1), server(3, 1), client(4, Priority::kNormal)};
  world.snapshot.clients[0].limit = world.snapshot.clients[1].limit = 0.05;
  int other = 0;
  constexpr int kLooks = 3000;
  for (int i = 0; i < kLooks; ++i) {
    const Plan plan = world.work({0, 1, 3}, milliseconds(1));
    if (plan.clients[3].closed == 0) ++other;
  }
  // The two have a tenth at most.
  EXPECT_GT(other, kLooks * 8 / 10);
}

TEST(Islands, APausedMemberIsHeldAlone) {
  World world;
  world.snapshot.clients = {member(1, 1), member(2, 1), server(3, 1), client(4, Priority::kNormal)};
  world.snapshot.clients[0].paused = true;
  const Plan plan = world.work({1, 3}, milliseconds(100));
  EXPECT_EQ(plan.clients[0].closed, abi::kClosedByPause);
  EXPECT_EQ(plan.clients[1].closed, 0u);
  EXPECT_EQ(plan.clients[2].slices, plan.clients[3].slices);
}

TEST(Islands, MembersAreToldWhatTheyMayExpectOfTheWholeGpu) {
  World world;
  world.snapshot.clients = {client(1, Priority::kNormal), member(2, 1), member(3, 1), server(4, 1)};
  const Plan plan = world.work({0, 1, 2}, milliseconds(100));
  for (const std::size_t at : {0u, 1u, 2u})
    EXPECT_NEAR(plan.clients[at].share_asked, 1.0 / 3, 1e-9);
}

class IslandLaws : public testing::TestWithParam<std::uint64_t> {};

ClientView random_view(std::mt19937_64& random, std::uint64_t id) {
  const auto pick = [&random](std::uint64_t below) { return random() % below; };
  ClientView view =
      client(id, static_cast<Priority>(pick(3)), 0.5 * static_cast<double>(1 + pick(8)));
  view.contexts = static_cast<std::uint32_t>(pick(3));
  view.compute_groups = static_cast<std::uint32_t>(pick(3));
  view.sliceable = pick(10) != 0;
  view.gateable = pick(20) != 0;
  view.paused = pick(10) == 0;
  view.deadline = seconds(pick(3) * 100 * id);
  return view;
}

void random_step(std::mt19937_64& random, ClientView& view) {
  view.work += random() % 3 == 0;
  view.progress += random() % 2;
  view.busy = random() % 2 == 0;
  view.numbered = random() % 2 == 0;
  view.held = random() % 2 == 0;
  view.slices_in_force = random() % 3 != 0;
}

Rules random_rules(std::mt19937_64& random) {
  Rules rules;
  rules.kind = static_cast<Kind>(random() % 4);
  rules.slices = random() % 4 != 0;
  rules.gates = random() % 4 != 0;
  rules.foresee = random() % 2 == 0;
  return rules;
}

// The same client as a job alone, and as the only member of an island.
TEST_P(IslandLaws, AnIslandOfOneIsAJobAlone) {
  std::mt19937_64 random(GetParam());
  World plain, world;
  plain.snapshot.rules = world.snapshot.rules = random_rules(random);
  for (std::uint64_t id = 1; id <= 1 + random() % 5; ++id) {
    plain.snapshot.clients.push_back(random_view(random, id));
  }
  ClientView alone = random_view(random, 9);
  alone.client = alone.job = kKey | 1;  // their order counts
  alone.contexts = 1;
  plain.snapshot.clients.push_back(alone);
  const std::size_t at = plain.snapshot.clients.size() - 1;
  for (int step = 0; step < 150; ++step) {
    for (ClientView& view : plain.snapshot.clients) random_step(random, view);
    const ClientView& now = plain.snapshot.clients[at];
    world.snapshot.clients = plain.snapshot.clients;
    ClientView one = now, serves = server(8, 1);
    one.client = one.job = 7;
    one.island = kKey | 1;
    one.compute_groups = 0;
    one.sliceable = false;
    serves.compute_groups = now.compute_groups;
    serves.sliceable = now.sliceable;
    serves.slices_in_force = now.slices_in_force;
    world.snapshot.clients[at] = one;
    world.snapshot.clients.push_back(serves);
    plain.now += milliseconds(random() % 10 == 0 ? random() % 1500 : random() % 10);
    world.now = plain.now;
    const Plan expected = plain.decide();
    const Plan plan = world.decide();
    ASSERT_EQ(plan.look_again, expected.look_again);
    for (std::size_t i = 0; i < at; ++i) {
      ASSERT_EQ(plan.clients[i].slices, expected.clients[i].slices);
      ASSERT_EQ(plan.clients[i].closed, expected.clients[i].closed);
      ASSERT_EQ(plan.clients[i].share_got, expected.clients[i].share_got);
    }
    const ClientPlan& mine = plan.clients[at];
    const ClientPlan& wanted = expected.clients[at];
    ASSERT_EQ(plan.clients[at + 1].slices, wanted.slices);
    ASSERT_EQ(mine.closed, wanted.closed);
    ASSERT_EQ(mine.armed, wanted.armed);
    ASSERT_EQ(mine.watch, wanted.watch);
    ASSERT_EQ(mine.linger, wanted.linger);
    ASSERT_EQ(mine.active, wanted.active);
    ASSERT_EQ(mine.wake, wanted.wake);
    ASSERT_EQ(mine.spacing_us, wanted.spacing_us);
    ASSERT_NEAR(mine.share_asked, wanted.share_asked, 1e-9);
  }
}

TEST_P(IslandLaws, HoldOverRandomLoads) {
  std::mt19937_64 random(GetParam());
  World world;
  world.snapshot.rules = random_rules(random);
  for (std::uint64_t id = 1; id <= 10; ++id) {
    ClientView view = random_view(random, id);
    const std::uint64_t island = random() % 3;
    if (island != 0) {
      view.island = kKey | island;
      view.serves = random() % 3 == 0;
      (view.serves ? view.contexts : view.compute_groups) = 0;
      view.priority = static_cast<Priority>(island % 3);
    }
    world.snapshot.clients.push_back(view);
  }
  for (int step = 0; step < 150; ++step) {
    for (ClientView& view : world.snapshot.clients) {
      if (!view.serves) random_step(random, view);
    }
    world.now += milliseconds(random() % 10 == 0 ? random() % 1500 : random() % 10);
    World twin = world;
    const Plan plan = world.decide();
    const Plan again = twin.decide();
    ASSERT_LE(shorts(plan), 1u);
    ASSERT_EQ(plan.clients.size(), world.snapshot.clients.size());
    for (std::size_t i = 0; i < plan.clients.size(); ++i) {
      const ClientView& view = world.snapshot.clients[i];
      const ClientPlan& each = plan.clients[i];
      ASSERT_EQ(each.client, view.client);
      ASSERT_EQ(each.slices, again.clients[i].slices) << "same input, same plan";
      ASSERT_EQ(each.closed, again.clients[i].closed);
      if (!view.sliceable || (view.island != 0 && !view.serves)) {
        ASSERT_EQ(each.slices, kNothing);
      }
      if (view.serves) {
        ASSERT_EQ(each.closed, 0u);
        continue;
      }
      ASSERT_EQ((each.closed & abi::kClosedByPause) != 0, view.paused);
      if (each.closed != 0) {
        ASSERT_TRUE(each.armed && each.watch);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, IslandLaws,
                         testing::Range<std::uint64_t>(0, test_support::seeds(60)));

}  // namespace
}  // namespace switchyard::monitor::policy
