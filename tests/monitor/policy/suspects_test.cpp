// Each row of the table of who has grown.
#include "monitor/policy/suspects.h"

#include <gtest/gtest.h>

namespace switchyard::monitor::guard {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kJob = 1;
constexpr Time kLook = milliseconds(100);

class WhoHasGrown : public ::testing::Test {
 protected:
  // So many looks, at which the guarded job goes at its usual pace, or not.
  void does(const Activity& rate, int looks, bool usual = true) {
    for (int i = 0; i < looks; ++i) {
      now += kLook;
      Activity& sums = all[kJob];
      sums.worked_s += rate.worked_s * seconds(kLook);
      sums.kernels += rate.kernels * seconds(kLook);
      sums.copies += rate.copies * seconds(kLook);
      sums.moving_s += rate.moving_s * seconds(kLook);
      sums.link_bytes += rate.link_bytes * seconds(kLook);
      if (usual) suspects.usual(all, but, now);
    }
  }
  auto grown() { return suspects.grown(kJob, all, now); }

  Time now = milliseconds(1000);
  Suspects suspects;
  Suspects::Activities all;
  std::set<std::uint64_t> but;
};

TEST_F(WhoHasGrown, OneThatBegins) {
  does({}, 10);
  does({1, 100, 0}, 2, false);
  ASSERT_TRUE(grown());
  EXPECT_NEAR(grown()->score(), 1, 0.01);
  EXPECT_TRUE(grown()->kernels);
  EXPECT_FALSE(grown()->copies);
}

TEST_F(WhoHasGrown, OneThatHasJustJoined) {
  suspects.usual(all, but, now);
  does({1, 0, 100}, 2, false);
  ASSERT_TRUE(grown());
  EXPECT_TRUE(grown()->copies);
  EXPECT_FALSE(grown()->kernels);
}

TEST_F(WhoHasGrown, NotOneThatDoesWhatItDid) {
  does({1, 100, 100}, 10);
  does({1, 100, 100}, 2, false);
  EXPECT_FALSE(grown());
}

TEST_F(WhoHasGrown, NotOneThatGetsOnFasterForThereIsRoom) {
  does({1, 100, 100}, 10);
  does({1, 300, 300}, 2, false);
  EXPECT_FALSE(grown());
}

TEST_F(WhoHasGrown, OneThatLaunchesManyTimesAsMuch) {
  does({1, 100, 100}, 10);
  does({1, 100, 500}, 2, false);
  ASSERT_TRUE(grown());
  EXPECT_TRUE(grown()->copies);
  EXPECT_FALSE(grown()->kernels);
}

TEST_F(WhoHasGrown, NotOneThatDoesNextToNothing) {
  does({}, 10);
  does({0.04, 10, 10}, 2, false);
  EXPECT_FALSE(grown());
}

TEST_F(WhoHasGrown, OneWhoseFewCopiesMoveForFourTimesAsLong) {
  does({1, 100, 10, 0.1, 5e9}, 10);
  does({1, 100, 10, 0.39, 19.5e9}, 2, false);
  EXPECT_FALSE(grown()) << "it may get on faster, for there is room";
  does({1, 100, 10, 0.6, 30e9}, 20, false);
  ASSERT_TRUE(grown());
  EXPECT_TRUE(grown()->copies);
  EXPECT_FALSE(grown()->kernels);
  EXPECT_GT(grown()->now.link_bytes, 25e9);
  EXPECT_NEAR(grown()->before.link_bytes, 5e9, 1e9);
}

TEST_F(WhoHasGrown, NotOneWhoseCopiesMoveNextToNothing) {
  does({1, 100, 10, 0}, 10);
  does({1, 100, 10, 0.04}, 2, false);
  EXPECT_FALSE(grown());
}

TEST_F(WhoHasGrown, WhatItMovedIsForgottenLikeTheRest) {
  does({1, 100, 10, 0.5}, 10);
  does({1, 100, 10, 0}, 600);
  does({1, 100, 10, 0.5}, 2, false);
  EXPECT_TRUE(grown());
}

// Of two that begin at once: what each one does, by its score.
double score_of(const Activity& rate) {
  return Growth{.before = {}, .now = rate, .kernels = false, .copies = false}.score();
}

TEST(HowMuchItHasGrown, OfKernelsIsTheTimeWithWork) {
  EXPECT_DOUBLE_EQ(score_of({0.7, 1000, 0}), 0.7);
  EXPECT_DOUBLE_EQ(score_of({0.7, 0, 0}), 0.7) << "one kernel that takes long";
}

TEST(HowMuchItHasGrown, OfCopiesIsTheTimeForWhichTheyMove) {
  const double tiny = score_of({1, 0, 10000, moving_seconds(10000 * 4e3, 0)});
  const double large = score_of({0.2, 0, 10, moving_seconds(10 * 1e9, 0)});
  EXPECT_LT(tiny, 0.01);
  EXPECT_DOUBLE_EQ(large, 0.2);
}

TEST(HowMuchItHasGrown, OfSomeKernelsAmongManyCopiesIsTheirPart) {
  EXPECT_DOUBLE_EQ(score_of({1, 10, 990, 0.1}), 0.01 + 0.1);
}

TEST(HowMuchItHasGrown, BytesInsideTheGpuTakeLessThanThoseOverALink) {
  EXPECT_DOUBLE_EQ(moving_seconds(kLinkBytesPerSecond, 0), 1);
  EXPECT_DOUBLE_EQ(moving_seconds(0, kDeviceBytesPerSecond), 1);
  EXPECT_LT(moving_seconds(0, 1e9), moving_seconds(1e9, 0));
}

TEST_F(WhoHasGrown, OneThatHasWorkForHalfAsLongAgain) {
  does({0.4, 100, 0}, 10);
  does({0.5, 100, 0}, 2, false);
  EXPECT_FALSE(grown());
  does({0.7, 100, 0}, 20, false);
  EXPECT_TRUE(grown());
}

TEST_F(WhoHasGrown, TheLastTwoRoundsAreNotUsualYet) {
  does({}, 10);
  does({1, 100, 0}, 2);
  suspects.disturbed();
  does({1, 100, 0}, 2, false);
  EXPECT_TRUE(grown());
}

TEST_F(WhoHasGrown, TheMostOfWhatItDidIsForgottenSlowly) {
  does({1, 100, 0}, 10);
  does({}, 100);
  does({1, 100, 0}, 2, false);
  EXPECT_FALSE(grown());
  does({}, 400);
  does({1, 100, 0}, 2, false);
  EXPECT_TRUE(grown());
}

TEST_F(WhoHasGrown, WhatItDoesWhileItIsAnsweredIsNotUsual) {
  does({}, 10);
  but = {kJob};
  does({1, 100, 0}, 20);
  but = {};
  does({1, 100, 0}, 2, false);
  EXPECT_TRUE(grown());
}

TEST_F(WhoHasGrown, WhatIsAcceptedIsUsual) {
  does({}, 10);
  does({1, 100, 0}, 2, false);
  suspects.accept(kJob, all, now);
  EXPECT_FALSE(grown());
  suspects.forget(kJob);
  EXPECT_TRUE(grown());
}

}  // namespace
}  // namespace switchyard::monitor::guard
