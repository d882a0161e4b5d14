// What an island gives, by what its members did alone and together.
#include "monitor/policy/island_gain.h"

#include <gtest/gtest.h>

namespace switchyard::monitor::policy {
namespace {

class Gains : public ::testing::Test {
 protected:
  struct Job {
    std::uint64_t work = 0;
    double busy = 0;
  };
  // So many seconds in which each did that much a second; 0: it was there and did nothing.
  void pass(int seconds, std::map<std::uint64_t, double> rates, bool others = false) {
    for (int i = 0; i < seconds; ++i) {
      now_ += std::chrono::seconds(1);
      std::vector<IslandGain::Member> members;
      for (const auto& [job, rate] : rates) {
        jobs_[job].work += static_cast<std::uint64_t>(rate);
        members.push_back({job, jobs_[job].work, jobs_[job].busy});
      }
      gain_.look(members, others, now_);
    }
  }
  void alone() {
    jobs_[1].busy = 0.8;
    jobs_[2].busy = 0.6;
    pass(6, {{1, 1000}, {2, 0}});
    pass(6, {{1, 0}, {2, 500}});
  }
  IslandGain gain_;

 private:
  std::map<std::uint64_t, Job> jobs_;
  Time now_ = std::chrono::seconds(100);
};

TEST_F(Gains, RatesTogetherAreComparedWithThoseAlone) {
  alone();
  EXPECT_EQ(gain_.figures(), std::nullopt);
  pass(6, {{1, 900}, {2, 300}});
  ASSERT_NE(gain_.figures(), std::nullopt);
  EXPECT_NEAR(gain_.figures()->island, 0.9 + 0.6, 1e-9);
  EXPECT_NEAR(gain_.figures()->slices, 2 / 1.4, 1e-9);
}

TEST_F(Gains, AMemberWhoseBusyPartIsNotKnownHasNoFigures) {
  alone();
  pass(6, {{1, 1000}, {2, 0}});
  pass(6, {{3, 100}, {1, 0}, {2, 0}});  // its busy part is not known
  pass(6, {{1, 1000}, {3, 100}, {2, 0}});
  EXPECT_EQ(gain_.figures(), std::nullopt);
}

TEST_F(Gains, MembersThatNeverWorkedAloneHaveNoFigures) {
  pass(20, {{1, 900}, {2, 300}});
  EXPECT_EQ(gain_.figures(), std::nullopt);
}

TEST_F(Gains, WhatIsSeenBesideOthersDoesNotCount) {
  alone();
  pass(6, {{1, 900}, {2, 300}});
  const auto before = gain_.figures();
  pass(6, {{1, 100}, {2, 30}}, true);
  EXPECT_EQ(gain_.figures(), before);
}

TEST_F(Gains, OtherMembersTogetherBeginAnew) {
  alone();
  pass(6, {{1, 900}, {2, 300}});
  pass(6, {{1, 800}, {2, 200}, {3, 10}});
  EXPECT_EQ(gain_.figures(), std::nullopt) << "3 never worked alone";
  pass(6, {{1, 500}, {2, 250}});
  ASSERT_NE(gain_.figures(), std::nullopt);
  EXPECT_NEAR(gain_.figures()->island, 1.0, 1e-9);
}

}  // namespace
}  // namespace switchyard::monitor::policy
