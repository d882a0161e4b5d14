// Slices around gangs, from the counts of pages to what the pages are told.
#include "monitor/adaptation/gang_pace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

// Two jobs on one GPU that work all the time; the first one may be a rank of a gang.
struct Shared : Rig {
  Joined gang = runs({.job = "gang", .name = "gang"});
  Joined other = runs({.job = "other", .name = "other"});
  abi::Communicator* communicator = nullptr;
  std::uint64_t per_second = 300;

  Shared() : Rig(1) {}
  void joins(std::uint32_t ranks) { communicator = &gang.shim.joins_communicator(7, 0, ranks); }
  void work(Time span) {
    for (const Time end = now + span; now < end;) {
      gang.shim.launch();
      other.shim.launch();
      if (communicator != nullptr) communicator->launched += per_second / 10;
      pass(milliseconds(100));
      for (const Joined* each : {&gang, &other}) each->shim.apply_slices();
    }
  }
  std::uint32_t slice() const { return gang.lane().compute_slice_us; }
};

TEST(GangPace, SlicesAroundAGangAreAsShortAsTheDefaultsUntilItsPaceIsKnown) {
  Shared rig;
  rig.joins(2);
  rig.work(seconds(1));
  EXPECT_EQ(rig.slice(), abi::kDefaultSliceUs);
  EXPECT_EQ(rig.other.lane().compute_slice_us, abi::kDefaultSliceUs);
  EXPECT_EQ(rig.job(0)["short_slices"], true);
  EXPECT_EQ(rig.job(1)["short_slices"], false) << "it is no gang";
  rig.work(seconds(4));
  EXPECT_EQ(rig.slice(), kUsualSliceUs);
  EXPECT_EQ(rig.job(0)["short_slices"], false);
}

TEST(GangPace, ACollapseMakesThemShortAgain) {
  Shared rig;
  rig.joins(2);
  rig.work(seconds(20));
  ASSERT_EQ(rig.slice(), kUsualSliceUs);
  rig.per_second = 50;
  const Time collapsed = rig.now;
  while (rig.slice() != abi::kDefaultSliceUs && rig.now - collapsed < seconds(60)) {
    rig.work(milliseconds(100));
  }
  EXPECT_LE(rig.now - collapsed, seconds(5));
}

// A word of a page may be another one each time that it is read.
TEST(GangPace, APageThatChangesItsMindAllTheTimeEndsNoMonitor) {
  Shared rig;
  rig.joins(2);
  std::atomic<bool> ends{false};
  std::thread flips([&] {
    while (!ends) rig.gang.lane().contexts = 1 - rig.gang.lane().contexts;
  });
  rig.other.lane().contexts = 0;
  for (int i = 0; i < 500; ++i) rig.pass(milliseconds(200));
  ends = true;
  flips.join();
}

TEST(GangPace, APauseIsNoCollapse) {
  Shared rig;
  rig.joins(2);
  rig.work(seconds(5));
  ASSERT_EQ(rig.slice(), kUsualSliceUs);
  rig.tell("pause", "gang");
  rig.per_second = 0;
  for (int i = 0; i < 50; ++i) {
    rig.other.shim.launch();
    rig.pass(milliseconds(100));
    rig.other.shim.apply_slices();
    EXPECT_EQ(rig.job(0)["short_slices"], false);
  }
  rig.tell("resume", "gang");
  rig.per_second = 300;
  rig.work(seconds(5));
  EXPECT_EQ(rig.slice(), kUsualSliceUs);
}

TEST(GangPace, AfterAPauseTheTimeOfThePauseDoesNotCount) {
  Shared rig;
  rig.joins(2);
  rig.work(seconds(5));
  ASSERT_EQ(rig.slice(), kUsualSliceUs);
  rig.tell("pause", "gang");
  for (int i = 0; i < 60; ++i) rig.pass(seconds(1));
  rig.tell("resume", "gang");
  for (int i = 0; i < 50; ++i) {
    rig.work(milliseconds(100));
    ASSERT_EQ(rig.job(0)["short_slices"], false) << i;
  }
}

TEST(GangPace, BehindALimitACollapseIsSeenAllTheSame) {
  Shared rig;
  rig.joins(2);
  rig.work(seconds(20));
  ASSERT_EQ(rig.slice(), kUsualSliceUs);
  rig.gang.shim.gate().held_threads = 1;
  rig.per_second = 50;
  for (int i = 0; i < 50; ++i) {
    // As each tick finds it.
    rig.gang.client->lanes[0].order.closed = abi::kClosedByLimit;
    rig.work(milliseconds(100));
    if (rig.job(0)["short_slices"] == true) return;
  }
  ADD_FAILURE() << "long slices have no end";
}

TEST(GangPace, WithoutCollectivesSlicesStayShort) {
  Shared rig;
  rig.joins(2);
  rig.per_second = 0;
  rig.work(seconds(30));
  EXPECT_EQ(rig.slice(), abi::kDefaultSliceUs);
}

TEST(GangPace, WhileItIsAloneNothingIsLearntOrTried) {
  Rig rig(1);
  Joined gang = rig.runs({.job = "gang", .name = "gang"});
  abi::Communicator& communicator = gang.shim.joins_communicator(7, 0, 2);
  const auto work = [&](Time span) {
    for (const Time end = rig.now + span; rig.now < end;) {
      gang.shim.launch();
      communicator.launched += 60;
      rig.pass(milliseconds(100));
      EXPECT_EQ(rig.job(0)["short_slices"], true);
    }
  };
  work(seconds(30));
  const Joined other = rig.runs({.job = "other", .name = "other"});
  work(seconds(1));
}

TEST(GangPace, OfASingleRankSlicesAreLongAtOnce) {
  Shared rig;
  rig.joins(1);
  rig.work(seconds(1));
  EXPECT_EQ(rig.slice(), kUsualSliceUs);
}

TEST(GangPace, AGangThatEndsLeavesLongSlicesToTheOther) {
  Shared rig;
  rig.joins(2);
  rig.work(seconds(1));
  Joined third = rig.runs({.job = "third", .name = "third"});
  rig.monitor.left(rig.gang.id);
  rig.monitor.died(rig.gang.id);
  for (int i = 0; i < 30; ++i) {
    rig.other.shim.launch();
    third.shim.launch();
    rig.pass(milliseconds(100));
  }
  EXPECT_EQ(third.lane().compute_slice_us, kUsualSliceUs);
}

}  // namespace
}  // namespace switchyard::monitor::test
