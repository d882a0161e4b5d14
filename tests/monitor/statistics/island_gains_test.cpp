// An island's figures count only while nobody else works on its members' GPUs.
#include "monitor/statistics/island_gains.h"

#include <gtest/gtest.h>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

class IslandGainsOf : public ::testing::Test {
 protected:
  Joined member(const char* name) {
    rig.ask({{"op", "create"}, {"pid", 0}, {"card", {{"name", name}, {"co_run", "x"}}}}, 1000);
    return rig.join({.job = rig.monitor.registry().find_target(name)->id});
  }
  // So many seconds in which each member does so much.
  void pass(int count, unsigned of_a, unsigned of_b) {
    for (int i = 0; i < count; ++i) {
      now += seconds(1);
      does(a, of_a);
      does(b, of_b);
      gains.tick(rig.monitor.registry(), now);
    }
  }
  static void does(const Joined& who, unsigned launches) {
    Client::Lane& lane = who.client->lanes.at(0);
    lane.last.launches += launches;
    lane.share_got = 0.25;
    lane.load = 1;  // counts where no share is known
  }
  bool known() { return gains.of(*rig.monitor.registry().find_target("a")).has_value(); }

  Rig rig{2};
  Joined a = member("a"), b = member("b");
  Joined other = rig.join({.name = "other"}, 1000, 2);
  IslandGains gains;
  Time now = seconds(100);
};

TEST_F(IslandGainsOf, OthersWorkOnAnotherGpuIsNobodysConcern) {
  other.client->lanes.at(1).active = true;
  pass(6, 1000, 0);
  pass(6, 0, 1000);
  pass(6, 500, 500);
  ASSERT_TRUE(known());
  const auto figures = gains.of(*rig.monitor.registry().find_target("b"));
  EXPECT_NEAR(figures->island, 1, 1e-9);
  EXPECT_NEAR(figures->slices, 2, 1e-9) << "half a GPU in all, by their shares";
}

TEST_F(IslandGainsOf, BesideOthersOnItsGpuNothingIsCounted) {
  other.client->lanes.at(0).active = true;
  pass(6, 1000, 0);
  pass(6, 0, 1000);
  pass(6, 500, 500);
  EXPECT_FALSE(known());
}

}  // namespace
}  // namespace switchyard::monitor::test
