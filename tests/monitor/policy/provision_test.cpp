// Each row of the table of `--share auto`, with a made-up clock.
#include "monitor/policy/provision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "tests/support/seeds.h"

namespace switchyard::monitor::provision {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A job whose rate depends on its weight.
class Played {
 public:
  std::function<double(double weight)> rate = [](double) { return 10.0; };
  bool held = false, contended = true;
  double most = 1000;
  double jitter = 0;
  State state;
  std::set<int> levels;  // that it has had
  unsigned changes = 0;

  void pass(Time span) {
    for (const Time end = now_ + span; now_ < end;) look();
  }
  bool settles(Time span = seconds(60)) {
    for (const Time end = now_ + span; now_ < end;) {
      look();
      if (state.phase == Phase::kSettled) return true;
    }
    return false;
  }
  double weight() const { return weight_of(state.level); }
  double rate_now() const { return rate(weight()); }
  Time takes{0};  // a weight, to be in force
  Time now() const { return now_; }

 private:
  void look() {
    now_ += milliseconds(100);
    Look look{.began = {}, .broken = false, .held = held, .contended = contended, .most = most};
    std::uniform_real_distribution<double> off(1 - jitter, 1 + jitter);
    for (;;) {
      const double in_force = rate(last_ < changed_ + takes ? weight_of(before_) : weight());
      const Time then = last_ + Time(static_cast<Time::rep>(1e9 * off(random_) / in_force));
      if (then > now_) break;
      last_ = then;
      look.began.push_back(then);
    }
    const int before = state.level;
    next(state, look, now_);
    if (state.level != before) {
      ++changes;
      before_ = before;
      changed_ = now_;
    }
    levels.insert(state.level);
  }
  std::mt19937_64 random_{1};
  int before_ = 0;
  Time changed_{0};
  Time now_ = seconds(100), last_ = seconds(100);
};

// The rest beside a job of weight 1 that always works.
double part(double weight) { return weight / (weight + 1); }

class ShareAuto : public ::testing::Test {
 protected:
  Played job;
};

TEST_F(ShareAuto, AKneeAboveTheFirstWeightIsFound) {
  job.rate = [](double weight) { return 10 * std::min(part(weight), 0.8); };
  ASSERT_TRUE(job.settles());
  EXPECT_NEAR(job.weight(), 4, 0.01);
}

TEST_F(ShareAuto, WhatIsNotInForceYetIsNotMeasured) {
  job.takes = milliseconds(490);
  // With a fifth of the better rate, the second would be enough.
  job.rate = [](double weight) { return weight > 3.9 ? 20 : weight > 1.9 ? 19.53 : 10; };
  ASSERT_TRUE(job.settles());
  EXPECT_NEAR(job.weight(), 4, 0.01);
}

TEST_F(ShareAuto, AKneeBelowTheFirstWeightIsFound) {
  job.rate = [](double weight) { return 10 * std::min(part(weight), 0.2); };
  ASSERT_TRUE(job.settles());
  EXPECT_NEAR(job.weight(), 0.25, 0.01);
}

TEST_F(ShareAuto, WhatBringsNothingIsGivenBack) {
  ASSERT_TRUE(job.settles());
  EXPECT_EQ(job.state.level, kLeast);
}

TEST_F(ShareAuto, WhatAlwaysBringsSomethingGoesUpToTheMost) {
  job.rate = [](double weight) { return weight; };
  ASSERT_TRUE(job.settles());
  EXPECT_EQ(job.state.level, kMost);
}

TEST_F(ShareAuto, NoMoreThanItMayHave) {
  job.rate = [](double weight) { return weight; };
  job.most = 3;
  ASSERT_TRUE(job.settles());
  EXPECT_LE(job.weight(), 3);
  EXPECT_EQ(job.state.level, 3);
  job.most = 0.5;
  job.pass(seconds(1));
  EXPECT_LE(job.weight(), 0.5);
  EXPECT_LE(*job.levels.rbegin(), 3);
}

TEST_F(ShareAuto, AloneNothingIsLookedFor) {
  job.contended = false;
  job.pass(seconds(60));
  EXPECT_EQ(job.changes, 0u);
  EXPECT_EQ(job.state.level, 0);
}

TEST_F(ShareAuto, WhileItIsHeldNothingIsMeasured) {
  job.pass(seconds(3));
  job.held = true;
  job.pass(milliseconds(200));
  job.changes = 0;
  job.pass(seconds(60));
  EXPECT_EQ(job.changes, 0u);
}

TEST_F(ShareAuto, ASearchThatIsInterruptedBeginsAnew) {
  job.rate = [](double weight) { return 10 * part(weight); };
  job.pass(seconds(5));
  ASSERT_EQ(job.state.phase, Phase::kUp);
  job.contended = false;
  job.pass(milliseconds(100));
  EXPECT_EQ(job.state.phase, Phase::kStart);
}

TEST_F(ShareAuto, AKneeThatMovesUpIsFollowed) {
  double most = 0.5;
  job.rate = [&](double weight) { return 10 * std::min(part(weight), most); };
  ASSERT_TRUE(job.settles());
  EXPECT_NEAR(job.weight(), 1, 0.01);
  // At the present weight nothing tells it.
  most = 0.8;
  job.pass(seconds(60));
  EXPECT_GE(job.rate_now(), 0.97 * 8);
}

TEST_F(ShareAuto, AKneeThatMovesDownIsFollowed) {
  double most = 0.8;
  job.rate = [&](double weight) { return 10 * std::min(part(weight), most); };
  ASSERT_TRUE(job.settles());
  most = 0.2;
  job.pass(seconds(60));
  EXPECT_LE(job.weight(), 0.5);
  EXPECT_GE(job.rate_now(), 0.97 * 2);
}

TEST_F(ShareAuto, ARateThatChangesIsASignToLook) {
  job.rate = [](double weight) { return 10 * std::min(part(weight), 0.5); };
  ASSERT_TRUE(job.settles());
  job.pass(seconds(5));
  ASSERT_EQ(job.state.phase, Phase::kSettled);
  job.rate = [](double weight) { return 5 * std::min(part(weight), 0.5); };
  job.pass(seconds(6));
  EXPECT_NE(job.state.phase, Phase::kSettled) << "long before kProbeEvery";
}

TEST_F(ShareAuto, SettledItIsLookedForAnewAfterAWhile) {
  ASSERT_TRUE(job.settles());
  job.pass(kProbeEvery - seconds(3));
  EXPECT_EQ(job.state.phase, Phase::kSettled);
  job.pass(seconds(5));
  EXPECT_NE(job.state.phase, Phase::kSettled);
}

// The laws, for random curves.
class ShareAutoLaws : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(ShareAutoLaws, WithinAMinuteItIsNearTheBestAtNearTheSmallestWeight) {
  std::mt19937_64 random(GetParam());
  const auto in = [&](double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(random);
  };
  Played job;
  const double most = in(0.05, 1), others = in(0.5, 4), iterations = std::exp(in(1, 5));
  job.jitter = in(0, 0.005);
  job.rate = [=](double weight) { return iterations * std::min(weight / (weight + others), most); };
  ASSERT_TRUE(job.settles(seconds(60)));
  const double best = job.rate(weight_of(kMost));
  EXPECT_GE(job.rate_now(), 0.97 * best);
  double smallest = weight_of(kLeast);
  while (job.rate(smallest) < 0.97 * best) smallest *= std::sqrt(2);
  EXPECT_LE(job.weight(), 2.01 * smallest);
}

TEST_P(ShareAutoLaws, ItDoesNotChangeForEver) {
  std::mt19937_64 random(GetParam());
  std::uniform_real_distribution<double> any(0, 1);
  Played job;
  const double most = any(random);
  job.jitter = 0.01;
  job.rate = [=](double weight) { return 20 * std::min(part(weight), most); };
  job.pass(seconds(60));
  job.changes = 0;
  job.pass(seconds(600));
  // Each search goes up once, down and back; they are kProbeEvery apart.
  EXPECT_LE(job.changes, 20 * 12u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ShareAutoLaws,
                         ::testing::Range<std::uint64_t>(1, 1 + test_support::seeds(40)));

}  // namespace
}  // namespace switchyard::monitor::provision
