// The restraints on a job for the sake of one that guards itself, in a plan.
#include <gtest/gtest.h>

#include "tests/monitor/policy/policy_rig.h"

namespace switchyard::monitor::policy {
namespace {

class Restraints : public ::testing::Test {
 protected:
  void SetUp() override {
    loop.snapshot.clients = {client(1, Priority::kNormal), client(2, Priority::kNormal)};
  }
  Plan work() {
    loop.now += std::chrono::milliseconds(10);
    return loop.work({0, 1});
  }
  std::uint32_t closed() { return work().clients[1].closed; }
  // Of a thousand: how often the second has work on the GPU. All have some at once when their gates
  // are open, and wait before them otherwise.
  int looks_at_work() {
    int out = 0;
    for (int i = 0; i < 1000; ++i) {
      const Plan plan = work();
      out += plan.clients[1].closed == 0 ? 1 : 0;
      for (std::size_t each = 0; each < plan.clients.size(); ++each) {
        const bool open = plan.clients[each].closed == 0;
        loop[each].busy = open;
        loop[each].held = !open;
        loop[each].progress += open ? 1 : 0;
      }
    }
    return out;
  }
  // At some look within two seconds.
  bool closes(std::uint32_t why) {
    for (int i = 0; i < 200; ++i) {
      if (closed() == why) return true;
    }
    return false;
  }
  EventLoop loop;
};

TEST_F(Restraints, ShortCopiesAreAsShortAsMayBe) {
  const Plan before = work();
  loop[1].short_copies = true;
  const Plan plan = work();
  EXPECT_EQ(plan.clients[1].slices.copy_us, kLeavingCopySliceUs);
  EXPECT_EQ(plan.clients[1].slices.compute_us, before.clients[1].slices.compute_us);
  EXPECT_EQ(plan.clients[0].slices, before.clients[0].slices);
}

TEST_F(Restraints, TheSlicesOfTheOnlyOneThatIsHeldBackAreShort) {
  loop[1].weight = 0.005;
  EXPECT_EQ(work().clients[1].slices.compute_us, kSmallestSliceUs);
  loop[1].restrained = true;
  const Plan plan = work();
  EXPECT_EQ(shorts(plan), 1u);
  EXPECT_LT(plan.clients[1].slices.compute_us, abi::kShortBelowUs);
  EXPECT_NEAR(plan.clients[0].slices.compute_us, 2 * kUsualSliceUs, 500);
}

TEST_F(Restraints, TheSlicesOfTwoThatAreHeldBackAreNotBothShort) {
  loop[0].weight = loop[1].weight = 0.005;
  loop[0].restrained = loop[1].restrained = true;
  EXPECT_EQ(shorts(work()), 0u);
}

TEST_F(Restraints, OfOneWithTwoComputeGroupsNoSliceIsShort) {
  loop[1].weight = 0.005;
  loop[1].restrained = true;
  loop[1].compute_groups = 2;
  EXPECT_EQ(shorts(work()), 0u);
}

TEST_F(Restraints, ShortCopiesOfTwoJobsAreNotBothShort) {
  loop[0].short_copies = loop[1].short_copies = true;
  EXPECT_EQ(shorts(work()), 1u);
}

TEST_F(Restraints, ACeilingOfAGuardSaysSo) {
  loop[1].limit = 0.02;
  loop[1].busy = true;
  EXPECT_TRUE(closes(abi::kClosedByLimit));
  loop[1].limited_by_guard = true;
  EXPECT_TRUE(closes(abi::kClosedByGuard));
}

// By its slices it has a tenth of the time in which both work.
TEST_F(Restraints, BelowACeilingOfAGuardAllTheTimeOfItsWorkCounts) {
  loop[1].limit = 0.1;
  EXPECT_GT(looks_at_work(), 500);
  loop[1].limited_by_guard = true;
  EXPECT_NEAR(looks_at_work(), 100, 20);
}

TEST_F(Restraints, BelowACeilingOfAGuardTheTimeOfSeveralProcessesCountsOnce) {
  loop.snapshot.clients.push_back(client(3, Priority::kNormal));
  loop[2].job = loop[1].job;
  for (const std::size_t each : {1u, 2u}) {
    loop[each].limit = 0.1;
    loop[each].limited_by_guard = true;
  }
  EXPECT_NEAR(looks_at_work(), 100, 20);
}

TEST_F(Restraints, AHoldLastsAndEndsAtOnce) {
  loop[1].limit = 0.1;
  loop[1].busy = loop[1].limited_by_guard = true;
  for (int i = 0; i < 5; ++i) work();
  loop[1].busy = false;
  loop[1].held_by_guard = true;
  for (int i = 0; i < 500; ++i) ASSERT_EQ(closed(), abi::kClosedByGuard) << i;
  EXPECT_EQ(work().clients[0].closed, 0u);
  loop[1].held_by_guard = false;
  EXPECT_EQ(closed(), 0u) << "its budget is full";
  loop[1].limit = 0;
  loop[1].limited_by_guard = false;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(closed(), 0u);
}

TEST_F(Restraints, AJobThatIsHeldTakesNoTurns) {
  loop.snapshot.rules.slices = false;
  loop[1].weight = 4;
  loop[1].limit = 0.5;
  loop[1].limited_by_guard = loop[1].held_by_guard = true;
  loop[0].busy = loop[1].held = true;
  for (int i = 0; i < 20; ++i) work();
  for (int i = 0; i < 300; ++i) ASSERT_EQ(work().clients[0].closed, 0u) << i;
}

TEST_F(Restraints, AGangIsHeldOnAllItsGpusAtOnce) {
  loop[1].limit = 0.02;
  loop[1].gang = loop[1].limited_by_guard = loop[1].held_by_guard = true;
  loop[1].grant = Grant::kOpen;
  const Plan open = work();
  EXPECT_EQ(open.clients[1].closed, 0u);
  ASSERT_EQ(open.claims.size(), 1u);
  EXPECT_TRUE(open.claims[0].spent) << "so it is asked to stop";
  loop[1].grant = Grant::kClosed;
  EXPECT_NE(closed() & abi::kClosedByGuard, 0u);
}

}  // namespace
}  // namespace switchyard::monitor::policy
