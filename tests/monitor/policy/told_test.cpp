// The policy's account of the GPU time that each client had since the last look.
#include <gtest/gtest.h>

#include "tests/monitor/policy/policy_rig.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;

// Two clients that are watched, because one has a limit that it never reaches.
class Told : public ::testing::Test {
 protected:
  void SetUp() override {
    loop.snapshot.rules.slices = loop.snapshot.rules.gates = true;
    for (const std::uint64_t id : {1, 2}) {
      loop.snapshot.clients.push_back(client(id, Priority::kNormal));
      loop.snapshot.clients.back().numbered = true;
      loop.snapshot.clients.back().limit = 0.99;
    }
    loop.work({0, 1});
  }
  // 10 ms on, in which the GPU gets on with the work of `moves`; `busy` have work.
  Plan pass(std::initializer_list<std::size_t> busy, std::initializer_list<std::size_t> moves) {
    loop.now += milliseconds(10);
    for (ClientView& view : loop.snapshot.clients) view.busy = false;
    for (const std::size_t at : busy) loop[at].busy = true;
    for (const std::size_t at : moves) ++loop[at].progress;
    return loop.decide();
  }

  EventLoop loop;
};

TEST_F(Told, OneAloneHasAllOfIt) {
  for (int i = 0; i < 5; ++i) pass({0}, {0});
  const Plan plan = pass({0}, {0});
  EXPECT_NEAR(plan.clients[0].had_ns, 10e6, 1);
  EXPECT_NEAR(plan.dt_ns, 10e6, 1);
  EXPECT_FALSE(plan.clients[0].divided);
  EXPECT_EQ(plan.clients[0].lost_ns, 0);
  EXPECT_NEAR(plan.clients[1].had_ns, 0, 1);
}

TEST_F(Told, TwoAreAllottedAndEachLosesWhatTheOtherHas) {
  for (int i = 0; i < 5; ++i) pass({0, 1}, {0, 1});
  const Plan plan = pass({0, 1}, {0, 1});
  for (const std::size_t at : {0u, 1u}) {
    EXPECT_TRUE(plan.clients[at].divided);
    EXPECT_GT(plan.clients[at].had_ns, 0);
    EXPECT_NEAR(plan.clients[at].lost_ns, plan.clients[1 - at].had_ns, 1);
  }
  EXPECT_NEAR(plan.clients[0].had_ns + plan.clients[1].had_ns, 10e6, 1);
}

TEST_F(Told, WorkThatDoesNotGetOnIsToldOfOnceItDoes) {
  for (int i = 0; i < 5; ++i) pass({0}, {0});
  for (int i = 0; i < 20; ++i) ASSERT_EQ(pass({0}, {}).clients[0].had_ns, 0);
  // Of these 210 ms its limit may have shut the gate for some.
  const double told = pass({0}, {0}).clients[0].had_ns;
  EXPECT_GT(told, 100e6);
  EXPECT_LE(told, 210e6 + 1);
}

TEST_F(Told, WhatHasNoNumbersIsToldOfAtOnce) {
  for (int i = 0; i < 5; ++i) pass({0}, {0});
  loop[0].numbered = false;
  EXPECT_NEAR(pass({0}, {}).clients[0].had_ns, 10e6, 1);
}

// Its ring is what makes the monitor look. A time without work before that is not billed.
TEST_F(Told, ThatWhichRingsHadNothingBeforeItRang) {
  for (int i = 0; i < 5; ++i) pass({0}, {0});
  ASSERT_TRUE(pass({}, {0}).clients[0].wake);
  EXPECT_EQ(pass({0}, {}).clients[0].had_ns, 0);
  EXPECT_NEAR(pass({0}, {0}).clients[0].had_ns, 10e6, 1);
  EXPECT_NEAR(pass({}, {0}).clients[0].had_ns, 5e6, 1) << "nothing tells when it ended";
}

}  // namespace
}  // namespace switchyard::monitor::policy
