// Each row of the table of slices around a gang, with a made-up clock, and what it costs.
#include "monitor/policy/gang_slices.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace switchyard::monitor::gang_slices {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A gang whose rate depends on the slices around it.
class Played {
 public:
  std::function<double(bool slices_are_long)> rate = [](double) { return 300.0; };
  State state;
  unsigned changes = 0;
  double launched = 0;
  Time now = seconds(100);

  void pass(Time span) {
    for (const Time end = now + span; now < end;) {
      now += milliseconds(500);
      launched += rate(is_long()) / 2;
      changes += next(state, static_cast<std::uint64_t>(launched), now);
    }
  }
  bool is_long() const { return state.phase == Phase::kLong; }
  // For how long one phase lasts from now on, at most a minute and a half.
  Time lasts() {
    const Time begun = now;
    const bool before = is_long();
    while (is_long() == before && now - begun < seconds(90)) pass(milliseconds(500));
    return now - begun;
  }
};

TEST(GangSlices, AreShortUntilARateIsKnown) {
  Played gang;
  gang.pass(seconds(2));
  EXPECT_FALSE(gang.is_long());
  gang.pass(seconds(1));
  EXPECT_TRUE(gang.is_long());
  EXPECT_EQ(gang.state.expected, 300);
}

TEST(GangSlices, StayLongWhileTheRateDoes) {
  Played gang;
  gang.rate = [](bool is_long) { return is_long ? 320 : 300; };
  gang.pass(seconds(300));
  EXPECT_TRUE(gang.is_long());
  EXPECT_EQ(gang.changes, 1u);
  EXPECT_EQ(gang.state.expected, 320) << "a higher rate is the one to expect";
}

TEST(GangSlices, OfAGangThatFallsFromItsHigherRateAreShort) {
  Played gang;
  gang.rate = [](bool is_long) { return is_long ? 400 : 300; };
  gang.pass(seconds(30));
  gang.rate = [](bool) { return 290; };
  gang.pass(seconds(4));
  EXPECT_FALSE(gang.is_long()) << "290 is enough of 300, and not of 400";
}

TEST(GangSlices, AreShortAgainWithinTwoWindowsOfACollapse) {
  Played gang;
  gang.pass(seconds(30));
  gang.rate = [](bool is_long) { return is_long ? 200 : 300; };
  EXPECT_LE(gang.lasts(), 2 * kWindow);
  EXPECT_GT(gang.lasts(), 2 * kShortWindow);
}

TEST(GangSlices, AreShortAgainAtOnceWhereManyAreExpectedAndFewCome) {
  Played gang;
  gang.rate = [](bool is_long) { return is_long ? 50 : 300; };
  gang.pass(milliseconds(2500));
  ASSERT_TRUE(gang.is_long());
  EXPECT_EQ(gang.lasts(), kShortWindow);
}

TEST(GangSlices, OfWhichFewAreExpectedAreJudgedByWholeWindows) {
  Played gang;
  gang.rate = [](bool is_long) { return is_long ? 24 : 60; };
  gang.pass(milliseconds(2500));
  ASSERT_TRUE(gang.is_long());
  EXPECT_GE(gang.lasts(), kWindow);
}

TEST(GangSlices, ThatFailAtOnceAreTriedMoreAndMoreRarely) {
  Played gang;
  gang.rate = [](bool is_long) { return is_long ? 50 : 300; };
  gang.pass(milliseconds(2500));
  Time last{0};
  for (int trial = 0; trial < 7; ++trial) {
    ASSERT_TRUE(gang.is_long());
    EXPECT_LE(gang.lasts(), 2 * kWindow);
    const Time rest = gang.lasts();
    EXPECT_GE(rest, std::min(2 * last, kMostRest) - kWindow);
    EXPECT_LE(rest, kMostRest + 2 * kWindow);
    last = rest;
  }
  EXPECT_GE(last, kMostRest);
}

TEST(GangSlices, ThatWereLongForAWhileAreTriedAgainAtOnce) {
  Played gang;
  gang.pass(seconds(30));
  gang.rate = [](bool) { return 150; };  // another job has come
  gang.pass(seconds(4));
  ASSERT_FALSE(gang.is_long());
  EXPECT_LE(gang.lasts(), 2 * kWindow);
  EXPECT_EQ(gang.state.expected, 150);
}

TEST(GangSlices, AreNotJudgedByFewCollectives) {
  Played gang;
  gang.rate = [](bool) { return 45; };
  gang.pass(seconds(30));
  gang.rate = [](bool) { return 5; };  // it evaluates, or is held
  gang.pass(seconds(60));
  EXPECT_TRUE(gang.is_long());
  EXPECT_EQ(gang.state.expected, 45);
}

TEST(GangSlices, BeginAWindowAnewWhereCountsGoBack) {
  Played gang;
  gang.pass(seconds(30));
  gang.launched = 10;  // a rank has ended
  gang.pass(seconds(30));
  EXPECT_TRUE(gang.is_long());
  EXPECT_EQ(gang.changes, 1u);
}

TEST(GangSlices, OfAGangThatIsHeldAreTheSame) {
  Played gang;
  gang.pass(milliseconds(2500));
  ASSERT_TRUE(gang.is_long());
  gang.rate = [&](double) {
    interrupt(gang.state);
    return 0;
  };
  gang.pass(seconds(5));
  gang.rate = [](double) { return 300; };
  gang.pass(seconds(5));
  EXPECT_TRUE(gang.is_long());
  EXPECT_EQ(gang.changes, 1u);
  EXPECT_EQ(gang.state.expected, 300) << "no window has a part of the hold";
}

// The law: phases that turn at random cost at most three hundredths of what short slices bring.
TEST(GangSlices, CostLittleWhateverThePhasesAre) {
  std::mt19937 random(7);
  for (const double turns_per_s : {0.02, 0.1, 0.5, 2.0}) {
    Played gang;
    std::bernoulli_distribution turns(turns_per_s / 2);
    bool opposite = false;
    gang.rate = [&](bool is_long) {
      if (turns(random)) opposite = !opposite;
      return !is_long ? 300 : opposite ? 50 : 327;
    };
    gang.pass(seconds(600));
    EXPECT_GE(gang.launched / 600, 0.97 * 300) << turns_per_s;
  }
}

}  // namespace
}  // namespace switchyard::monitor::gang_slices
