// The host's pinned memory among clients, over the whole monitor. The fake shim plays the clients.
#include "monitor/policy/host_pool.h"

#include <gtest/gtest.h>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

using policy::kHostSlab;

struct HostPool : Rig {
  explicit HostPool(std::uint64_t budget = 8 * kGiB) : Rig(1, 24 * kGiB, with_host_pool(budget)) {}

  Joined swappable(const char* name, std::uint64_t bytes) {
    Joined joined = runs({.name = name, .swappable = "yes"});
    joined.shim.swappable(bytes);
    look();
    return joined;
  }
  void pins(const Joined& who, std::uint64_t bytes) {
    who.shim.residency().host_bytes = bytes;
    look();
  }
  void look() { pass(milliseconds(250)); }
  static std::uint64_t limit(const Joined& who) { return who.shim.residency().host_limit_bytes; }
};

TEST(HostPoolOfAll, OneAloneMayPinWhatItCanUse) {
  HostPool rig;
  const Joined a = rig.runs({.name = "x", .swappable = "yes"});
  EXPECT_EQ(rig.limit(a), 0u) << "it has no memory yet";
  a.shim.swappable(2 * kGiB);
  rig.look();
  EXPECT_EQ(rig.limit(a), policy::usable_host_bytes(2 * kGiB));
  a.shim.swappable(20 * kGiB);
  rig.look();
  EXPECT_EQ(rig.limit(a), 8 * kGiB);
}

TEST(HostPoolOfAll, WhoHasPinnedAllGivesHalfOfItToTheNext) {
  HostPool rig;
  const Joined a = rig.swappable("x", 10 * kGiB);
  rig.pins(a, 8 * kGiB);
  EXPECT_EQ(rig.limit(a), 8 * kGiB);
  const Joined b = rig.swappable("y", 10 * kGiB);
  EXPECT_EQ(rig.limit(a), 4 * kGiB);
  EXPECT_EQ(rig.limit(b), 0u) << "nothing is free yet";
  rig.pins(a, 8 * kGiB - kHostSlab);
  EXPECT_EQ(rig.limit(b), kHostSlab);
  rig.pins(b, kHostSlab);
  EXPECT_EQ(rig.limit(b), kHostSlab);
  rig.pins(a, 5 * kGiB);
  EXPECT_EQ(rig.limit(b), 3 * kGiB);
  rig.pins(a, 4 * kGiB);
  EXPECT_EQ(rig.limit(a), 4 * kGiB);
  EXPECT_EQ(rig.limit(b), 4 * kGiB);
  EXPECT_EQ(rig.job()["gpus"][0]["host_pool_bytes"], 4 * kGiB);
}

TEST(HostPoolOfAll, WhatOneLeavesIsTheOthers) {
  HostPool rig;
  const Joined a = rig.swappable("x", 10 * kGiB);
  const Joined b = rig.swappable("y", 10 * kGiB);
  EXPECT_EQ(rig.limit(a), 4 * kGiB);
  rig.monitor.died(b.id);
  rig.look();
  EXPECT_EQ(rig.limit(a), 8 * kGiB);
}

TEST(HostPoolOfAll, WhoIsNotSwappableHasNoPartInIt) {
  HostPool rig;
  const Joined a = rig.swappable("x", 10 * kGiB);
  const Joined plain = rig.runs({.name = "z"});
  plain.shim.swappable(10 * kGiB);
  rig.pins(plain, 8 * kGiB);
  EXPECT_EQ(rig.limit(a), 8 * kGiB);
  EXPECT_EQ(rig.limit(plain), 0u);
}

TEST(HostPoolOfAll, WhoBoastsCountsForNoMoreThanTheGpuHas) {
  HostPool rig;
  const Joined a = rig.swappable("x", 24 * kGiB);
  const Joined b = rig.swappable("y", ~0ull);
  EXPECT_EQ(rig.limit(a), 4 * kGiB);
  EXPECT_EQ(rig.limit(b), 4 * kGiB);
}

TEST(HostPoolOfAll, WhoSaysThatItPinnedMoreThanItMayTakesOnlyItsOwnShare) {
  HostPool rig;
  const Joined a = rig.swappable("x", 10 * kGiB);
  const Joined liar = rig.swappable("y", 10 * kGiB);
  EXPECT_EQ(rig.limit(liar), 4 * kGiB);
  rig.pins(liar, ~0ull);
  EXPECT_EQ(rig.limit(a), 4 * kGiB);
  rig.pins(a, 4 * kGiB);
  EXPECT_EQ(rig.limit(a), 4 * kGiB);
  const Joined late = rig.swappable("z", 10 * kGiB);
  rig.pins(a, rig.limit(a));
  EXPECT_GE(rig.limit(late), kGiB) << "what a has given back";
}

// Its room for a move is known before it is told to leave.
TEST(HostPoolOfAll, WhoIsToldToLeaveKnowsItsLimit) {
  HostPool rig;
  const Joined a = rig.runs({.name = "x", .swappable = "yes"});
  a.shim.swappable(2 * kGiB);
  rig.ask({{"op", "swap-out"}, {"target", "x"}});
  EXPECT_TRUE(a.shim.told_to_leave());
  EXPECT_EQ(rig.limit(a), policy::usable_host_bytes(2 * kGiB));
}

}  // namespace
}  // namespace switchyard::monitor::test
