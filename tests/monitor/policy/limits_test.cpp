// Ceilings: what of several processes decides, and what a job that is closed saves up.
#include <gtest/gtest.h>

#include "tests/monitor/policy/policy_rig.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class PolicyLimits : public ::testing::Test {
 protected:
  static constexpr double kLimit = 0.3;
  // Of a job that always works, 50 ms * 0.3 * 0.7; open for 15 ms.
  static constexpr Time kOpenFor = milliseconds(15);

  void SetUp() override {
    loop.snapshot.clients = {client(1, Priority::kNormal), client(2, Priority::kNormal)};
    for (const std::size_t i : {0u, 1u}) {
      loop[i].job = 1;
      loop[i].limit = kLimit;
      loop[i].busy = true;
    }
    loop.work({0, 1});
  }
  Plan later(Time span) {
    loop.now += span;
    return loop.decide();
  }
  void works(bool first, bool second) {
    loop[0].busy = first;
    loop[1].busy = second;
  }

  EventLoop loop;
};

// The end of the work that still runs is looked for soon, whichever process it is of.
TEST_F(PolicyLimits, WhileAnyProcessDrainsItIsLookedAtSoon) {
  ASSERT_EQ(later(kOpenFor + milliseconds(1)).clients[0].closed, abi::kClosedByLimit);
  for (const bool first : {true, false}) {
    works(first, !first);
    const Plan plan = later(microseconds(100));
    EXPECT_LE(plan.look_again - loop.now, microseconds(500)) << first;
  }
  works(false, false);
  later(milliseconds(1));
  EXPECT_GT(later(microseconds(100)).look_again - loop.now, microseconds(500));
}

// Nobody's turn keeps it from its part: it is closed because it has had it.
TEST_F(PolicyLimits, WhatIsClosedByItsLimitSavesNothingBeyondAFullBudget) {
  ASSERT_EQ(later(kOpenFor + milliseconds(1)).clients[0].closed, abi::kClosedByLimit);
  works(false, false);
  loop[0].held = loop[1].held = true;
  EXPECT_EQ(later(milliseconds(200)).clients[0].closed, 0u);
  works(true, true);
  loop[0].held = loop[1].held = false;
  EXPECT_EQ(later(kOpenFor - milliseconds(1)).clients[0].closed, 0u);
  EXPECT_EQ(later(milliseconds(2)).clients[0].closed, abi::kClosedByLimit);
}

}  // namespace
}  // namespace switchyard::monitor::policy
