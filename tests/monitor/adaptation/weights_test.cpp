// `--share auto`, from the words of pages to slices.
#include "monitor/adaptation/weights.h"

#include <gtest/gtest.h>

#include "tests/monitor/adaptation/played_work.h"

namespace switchyard::monitor::test {
namespace {

Settings capped() {
  Settings out;
  out.caps.share = 2;
  return out;
}

class Weighed : public PlayedWork {
 protected:
  explicit Weighed(Settings settings = {}) : PlayedWork(std::move(settings)) {}

  json set(const char* field, const char* value) {
    return rig.ask({{"op", "set"}, {"target", "train"}, {field, value}});
  }
  // Beside a hog, more than `most` of the GPU brings the training nothing.
  void begin(double most) {
    present = {&train, &hog};
    others = [this] { work(hog); };
    period = [this, most] {
      const double mine = std::max(1u, train.lane().compute_slice_us.load());
      const double its = std::max(1u, hog.lane().compute_slice_us.load());
      return Time(static_cast<Time::rep>(100e6 / std::min(mine / (mine + its), most)));
    };
  }
  bool settles() {
    const LogLines log;
    return until([&] { return log.count("is the smallest that brings it nearly all") != 0; },
                 seconds(60));
  }
  double weight() { return named("train")["share_weight"].get<double>(); }

  Joined hog = rig.runs({.job = "hog", .name = "hog"});
};

TEST_F(Weighed, TheKneeIsFoundWithinAMinute) {
  begin(0.8);
  ASSERT_TRUE(set("share", "auto")["ok"]);
  EXPECT_EQ(named("train")["share_auto"], true);
  ASSERT_TRUE(settles());
  EXPECT_NEAR(weight(), 4, 0.01);
  EXPECT_NEAR(train.lane().compute_slice_us, 4.0 * hog.lane().compute_slice_us, 4);
}

TEST_F(Weighed, WhatBringsNothingIsGivenBack) {
  begin(0.2);
  ASSERT_TRUE(set("share", "auto")["ok"]);
  ASSERT_TRUE(settles());
  EXPECT_NEAR(weight(), 0.25, 0.01);
}

TEST_F(Weighed, AWeightThatIsSetEndsIt) {
  begin(0.8);
  ASSERT_TRUE(set("share", "auto")["ok"]);
  ASSERT_TRUE(settles());
  ASSERT_TRUE(set("share", "2")["ok"]);
  pass(seconds(1));
  EXPECT_EQ(weight(), 2);
  EXPECT_EQ(named("train")["share_auto"], false);
}

TEST_F(Weighed, AloneItsWeightStays) {
  ASSERT_TRUE(set("share", "auto")["ok"]);
  pass(seconds(30));
  EXPECT_EQ(weight(), 1);
}

// Of two ranks one is read. When it ends, the other one's iterations do not go on where its own
// ended.
TEST_F(Weighed, TheIterationsOfTwoProcessesMakeNoRate) {
  const Joined second = rig.runs({.job = "train", .name = "train"});
  present = {&train, &second, &hog};
  unsigned steps = 0;
  others = [&] {
    work(hog);
    if (++steps % 10 == 0) iterate(second);
  };
  trains = false;  // yet: the other one is read
  ASSERT_TRUE(set("share", "auto")["ok"]);
  pass(seconds(5));
  trains = true;
  ASSERT_TRUE(until([&] { return weight() < 0.6; })) << "it is on its way down";
  pass(seconds(1));
  trains = false;
  present = {&second, &hog};
  rig.dies(train);
  ASSERT_TRUE(settles());
  EXPECT_NEAR(weight(), 1.0 / 16, 0.001) << "more brings it nothing";
}

class WeighedUnderACap : public Weighed {
 protected:
  WeighedUnderACap() : Weighed(capped()) {}
};

TEST_F(WeighedUnderACap, NobodyGoesBeyondWhatRootAllows) {
  begin(1);
  // The job is not root's.
  ASSERT_TRUE(rig.ask({{"op", "set"}, {"target", "train"}, {"share", "auto"}}, 1000)["ok"]);
  ASSERT_TRUE(settles());
  EXPECT_EQ(weight(), 2);
}

}  // namespace
}  // namespace switchyard::monitor::test
