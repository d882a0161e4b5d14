// Each row of the table of a rank's pace.
#include "monitor/policy/pace.h"

#include <gtest/gtest.h>

namespace switchyard::monitor::guard {
namespace {

using std::chrono::milliseconds;

class OfARank : public ::testing::Test {
 protected:
  void rounds(int count, int period_ms, bool learn = true) {
    for (int i = 0; i < count; ++i) {
      now += milliseconds(period_ms);
      pace.add(now, 0.05, learn);
    }
  }
  double usual_ms() const { return pace.usual_ns() * 1e-6; }
  Time now = milliseconds(1000);
  Pace pace;
};

TEST_F(OfARank, NothingIsSlowBeforeTheUsualIsKnown) {
  rounds(kFewestUsual, 100);  // one fewer than that has ended
  EXPECT_FALSE(pace.known());
  rounds(1, 300);
  EXPECT_TRUE(pace.known());
  EXPECT_FALSE(pace.begins_to_be_slow());
}

TEST_F(OfARank, TheUsualIsAMedian) {
  rounds(9, 100);
  rounds(1, 1000);
  rounds(3, 101);
  EXPECT_NEAR(usual_ms(), 100, 0.01);
}

TEST_F(OfARank, TwoLongRoundsInARowAreSlow) {
  rounds(10, 100);
  rounds(1, 110);
  EXPECT_TRUE(pace.begins_to_be_slow());
  EXPECT_FALSE(pace.slow());
  rounds(1, 110);
  EXPECT_TRUE(pace.slow());
  EXPECT_NEAR(pace.slowdown(), 1 - 100.0 / 110, 1e-9);
  rounds(1, 100);
  EXPECT_FALSE(pace.begins_to_be_slow());
}

TEST_F(OfARank, WithinTheGuardNothingIsSlow) {
  rounds(10, 100);
  rounds(4, 104, false);
  EXPECT_FALSE(pace.begins_to_be_slow());
}

TEST_F(OfARank, WhatScattersAnywayIsNotSlow) {
  for (int i = 0; i < 16; ++i) rounds(1, i % 2 == 0 ? 90 : 110);
  rounds(4, 115);
  EXPECT_FALSE(pace.begins_to_be_slow());
  EXPECT_GT(pace.accident(), 0.05);
}

TEST_F(OfARank, ExcusedRoundsAreLearnt) {
  rounds(9, 100);
  for (int i = 0; i < 20; ++i) {
    rounds(2, 200);
    pace.excuse();
  }
  EXPECT_NEAR(usual_ms(), 200, 0.01);
}

TEST_F(OfARank, ForgivenRoundsAreNot) {
  rounds(9, 100);
  for (int i = 0; i < 20; ++i) {
    rounds(2, 200);
    pace.forgive();
  }
  EXPECT_NEAR(usual_ms(), 100, 0.01);
}

TEST_F(OfARank, NothingIsLearntWhileSomethingIsDone) {
  rounds(9, 100);
  rounds(40, 50, false);
  EXPECT_NEAR(usual_ms(), 100, 0.01);
}

TEST_F(OfARank, ShortIterationsMakeUpARound) {
  rounds(10 * 9 + 1, 3);
  EXPECT_EQ(pace.rounds(), 10u);
  EXPECT_NEAR(usual_ms(), 3, 0.01);
}

TEST_F(OfARank, AnInterruptedRoundDoesNotCount) {
  rounds(10, 100);
  pace.interrupt();
  rounds(1, 5000);
  EXPECT_FALSE(pace.begins_to_be_slow());
}

TEST_F(OfARank, TheFirstTwoRoundsAfterAMeasureAreMeasured) {
  rounds(10, 100);
  pace.measure(now + milliseconds(50));
  rounds(1, 200);  // it began before
  EXPECT_FALSE(pace.measured());
  rounds(1, 120);
  EXPECT_FALSE(pace.measured());
  rounds(1, 130);
  ASSERT_TRUE(pace.measured());
  EXPECT_NEAR(*pace.measured(), 1 - 100.0 / 125, 1e-9);
  rounds(1, 500);
  EXPECT_NEAR(*pace.measured(), 1 - 100.0 / 125, 1e-9);
}

}  // namespace
}  // namespace switchyard::monitor::guard
