// The host's pinned memory among clients, over the whole monitor. The fake shim plays the clients.
#include "monitor/policy/host_pool.h"

#include <gtest/gtest.h>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

using policy::kHostSlab;

struct HostPool : Rig {
  explicit HostPool(std::uint64_t budget = 8 * kGiB) : Rig(1, 24 * kGiB, with_host_pool(budget)) {}

  Joined swappable(const char* name, std::uint64_t bytes, uid_t uid = 1000) {
    Joined joined = join({.name = name, .swappable = "yes"}, uid);
    joined.shim.open_context();
    joined.shim.launch();
    has(joined, bytes);
    return joined;
  }
  // It allocates what is lacking.
  void has(const Joined& who, std::uint64_t bytes) {
    const std::uint64_t lacks = bytes - who.shim.residency().total_bytes;
    // Of several that have more than there is together, all but one were swapped out when they did.
    account().granted(who.id, lacks);
    who.shim.swappable(bytes);
    look();
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
  rig.has(a, 2 * kGiB);
  EXPECT_EQ(rig.limit(a), policy::usable_host_bytes(2 * kGiB));
  rig.has(a, 20 * kGiB);
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

TEST(HostPoolOfAll, WhoBoastsCountsForNoMoreThanItWasGranted) {
  HostPool rig;
  const Joined a = rig.swappable("x", 24 * kGiB);
  std::vector<Joined> liars;
  for (int i = 0; i < 4; ++i) {
    liars.push_back(rig.runs({.name = "liar", .swappable = "yes"}));
    liars.back().shim.swappable(~0ull);
  }
  rig.look();
  EXPECT_EQ(rig.limit(a), 8 * kGiB);
  for (const Joined& each : liars) EXPECT_EQ(rig.limit(each), 0u);
  const Joined b = rig.swappable("y", 24 * kGiB);
  b.shim.swappable(~0ull);
  rig.look();
  EXPECT_EQ(rig.limit(a), 4 * kGiB);
  EXPECT_EQ(rig.limit(b), 4 * kGiB);
}

// Each pins a slab at least, however little it has.
TEST(HostPoolOfAll, ManySmallOnesOfOneUserLeaveAnotherItsPart) {
  HostPool rig(2 * kGiB);
  std::vector<Joined> many;
  for (int i = 0; i < 40; ++i) many.push_back(rig.swappable("small", 2u << 20, 4711));
  const Joined mine = rig.swappable("x", 200u << 20);
  EXPECT_EQ(rig.limit(mine), kGiB);
  std::uint64_t theirs = 0;
  for (const Joined& each : many) theirs += rig.limit(each);
  EXPECT_EQ(theirs, kGiB);
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

// Under another monitor it was allowed more than it is now.
TEST(HostPoolOfAll, WhatOneThatRejoinsHasPinnedIsNobodyElses) {
  HostPool rig;
  const Joined b = rig.swappable("y", 10 * kGiB);
  wire::Hello hello = hello_of({.name = "x", .swappable = "yes"}, 1, wire::kRejoin);
  hello.used_bytes[0] = 10 * kGiB;
  const Joined a = rig.join_as({rig.next_pid++, 1000}, hello);
  a.shim.open_context();
  a.shim.swappable(10 * kGiB);
  rig.pins(a, 8 * kGiB);
  EXPECT_EQ(rig.limit(a), 4 * kGiB);
  EXPECT_EQ(rig.limit(b), 0u) << "nothing is free yet";
}

TEST(HostPoolOfAll, ASlabThatWasOnItsWayWhenTheLimitFellIsNobodyElses) {
  HostPool rig;
  const Joined a = rig.swappable("x", 10 * kGiB);
  rig.pins(a, 8 * kGiB - kHostSlab);
  const Joined b = rig.swappable("y", 10 * kGiB);
  ASSERT_EQ(rig.limit(a), 4 * kGiB);
  rig.pins(a, 8 * kGiB);
  EXPECT_EQ(rig.limit(b), 0u);
  rig.pins(a, 8 * kGiB + kHostSlab);  // no limit has permitted that
  rig.pins(a, 8 * kGiB - 2 * kHostSlab);
  EXPECT_EQ(rig.limit(b), 2 * kHostSlab);
}

// Its room for a move is known before it is told to leave.
TEST(HostPoolOfAll, WhoIsToldToLeaveKnowsItsLimit) {
  HostPool rig;
  const Joined a = rig.runs({.name = "x", .swappable = "yes"});
  rig.account().granted(a.id, 2 * kGiB);
  a.shim.swappable(2 * kGiB);
  rig.ask({{"op", "swap-out"}, {"target", "x"}});
  EXPECT_TRUE(a.shim.told_to_leave());
  EXPECT_EQ(rig.limit(a), policy::usable_host_bytes(2 * kGiB));
}

}  // namespace
}  // namespace switchyard::monitor::test
