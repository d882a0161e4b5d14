// Jobs that were out, or were leaving, when a monitor ended, as the next one finds them
// (swaps_scene.h).
#include <gtest/gtest.h>

#include "monitor/control/commands.h"
#include "switchyard/status.h"
#include "tests/monitor/residency/swaps_scene.h"

namespace switchyard::monitor::test {
namespace {

// Clients of a monitor that went away.
struct Rejoins : Swaps {
  using Swaps::Swaps;
  Joined rejoin(std::uint64_t bytes, bool paused = false, Time until = Time{0}) {
    wire::Hello hello = hello_of({.job = "j", .name = "x", .swappable = "yes"}, 1, wire::kRejoin);
    hello.used_bytes[0] = bytes;
    hello.paused = paused ? 1 : 0;
    hello.pause_until_ns = static_cast<std::uint64_t>(until.count());
    Joined joined = join_as({next_pid++, 1000}, hello);
    joined.shim.open_context();
    joined.shim.swappable(bytes);
    // The library carries the words of the old page over.
    joined.shim.residency().limited = 1;
    return joined;
  }
};

TEST(ResidencyRejoins, OneThatWasOutBeforeThisMonitorIsBroughtInWhenItFits) {
  Rejoins rig;
  const Joined other = rig.other_with(3 * kGiB);
  const Joined a = rig.rejoin(2 * kGiB);
  a.shim.be_absent();
  rig.pass(milliseconds(250));
  EXPECT_TRUE(a.shim.told_to_leave()) << "the account has no room for it";
  EXPECT_EQ(rig.ask({{"op", "ps"}})["jobs"][1]["residency"], "waiting");
  rig.release(other, 3 * kGiB);
  rig.pass(seconds(1));
  EXPECT_EQ(a.shim.residency().limited, 0u);
}

TEST(ResidencyRejoins, WhatAnotherMonitorHadToldIsTakenBack) {
  for (const std::uint32_t phase : {abi::kResident, abi::kLeaving, abi::kReturning}) {
    Rejoins rig;
    const Joined a = rig.rejoin(2 * kGiB);
    a.shim.residency().phase = phase;
    rig.pass(milliseconds(250));
    EXPECT_EQ(a.shim.residency().limited, 0u) << phase;
    EXPECT_GE(a.shim.residency().host_limit_bytes, 2 * kGiB);
    rig.is_back(a);
    EXPECT_EQ(rig.job()["residency"], "resident");
  }
}

TEST(ResidencyRejoins, WhoRejoinsPartlyOutKeepsWhatIsThereWhoeverElseRejoins) {
  Rejoins rig;
  const Joined other = rig.other_with(3 * kGiB);
  const auto partly_out = [&] {
    Joined joined = rig.rejoin(2 * kGiB);
    joined.shim.residency().limit_bytes = kGiB / 2;
    joined.shim.be_absent();
    rig.on_device(joined, kGiB / 2);
    rig.pass(milliseconds(250));
    EXPECT_TRUE(joined.shim.told_to_leave()) << "its job has no room for all of it";
    EXPECT_EQ(joined.shim.residency().limit_bytes, kGiB / 2);
    return joined;
  };
  const Joined a = partly_out();
  a.shim.residency().resident_bytes = kGiB / 4;  // it may bring that back
  rig.on_device(a, kGiB / 4);
  partly_out();
  EXPECT_EQ(a.shim.residency().limit_bytes, kGiB / 2);
}

TEST(ResidencyRejoins, AReleasedPauseOutlivesTheMonitor) {
  Rejoins rig;
  const Joined a = rig.rejoin(2 * kGiB, true);
  a.shim.be_absent();
  rig.pass(seconds(1));
  EXPECT_TRUE(a.shim.told_to_leave());
  EXPECT_EQ(a.shim.gate().closed, abi::kClosedByPause);
  EXPECT_EQ(rig.job()["residency"], "swapped");
  EXPECT_EQ(rig.free(), 4 * kGiB);
  rig.tell("resume");
  EXPECT_EQ(a.shim.residency().limited, 0u);
  rig.is_back(a);
  EXPECT_EQ(a.shim.gate().closed, 0u);
}

TEST(ResidencyRejoins, WhatLeftWhenTheMonitorDiedForAPauseWithReleaseGoesOnLeaving) {
  // It may have looked for room in the host until then.
  for (const std::uint32_t phase : {abi::kResident, abi::kLeaving}) {
    Rejoins rig;
    const Joined a = rig.rejoin(2 * kGiB, true);
    a.shim.residency().phase = phase;
    a.shim.residency().answered = abi::kAnswersNone;
    rig.pass(milliseconds(250));
    rig.pass(milliseconds(250));
    EXPECT_TRUE(a.shim.told_to_leave()) << phase;
    EXPECT_EQ(a.shim.gate().closed, 0u) << "accepted work has to end";
    EXPECT_EQ(rig.job()["residency"], "moving");
    rig.is_absent(a);
    rig.pass(seconds(1));
    EXPECT_EQ(rig.job()["residency"], "swapped");
    EXPECT_EQ(a.shim.gate().closed, abi::kClosedByPause);
    EXPECT_EQ(rig.free(), 4 * kGiB);
  }
}

TEST(ResidencyRejoins, AGpuThatItDoesNotUseBringsNoContextsBack) {
  Rejoins rig(2);
  wire::Hello hello = hello_of({.job = "j", .name = "x", .swappable = "yes"}, 2, wire::kRejoin);
  hello.used_bytes[0] = kGiB;
  hello.paused = 1;
  const Joined a = rig.join_as({rig.next_pid++, 1000}, hello);
  a.shim.open_context();
  a.shim.swappable(kGiB);
  a.shim.residency().resident_bytes = 0;
  a.shim.residency().phase = abi::kDetached;
  a.shim.residency().limited = abi::kContextsToo;
  a.shim.residency(1).limited = abi::kLimited;
  for (const unsigned lane : {0u, 1u}) a.shim.residency(lane).answered = abi::kAnswersNone;
  rig.pass(milliseconds(250));
  rig.pass(milliseconds(250));
  EXPECT_EQ(a.shim.residency().limited, abi::kContextsToo);
  EXPECT_EQ(rig.job()["residency"], "swapped");
}

TEST(ResidencyRejoins, WhoIsHeardAfterThePausesEndDoesNotBringItBack) {
  for (const char* ends : {"resume", "swap-in", "in time"}) {
    Rejoins rig;
    const bool timed = std::string(ends) == "in time";
    const Time until = timed ? rig.now + seconds(10) : Time{0};
    const Joined a = rig.rejoin(kGiB, true, until);
    a.shim.be_absent();
    rig.pass(seconds(1));
    EXPECT_EQ(rig.job()["residency"], "swapped") << ends;
    const Joined b = rig.rejoin(kGiB, true, until);
    b.shim.swappable(0);  // it has not spoken yet
    if (timed) {
      rig.pass(seconds(10));
    } else {
      rig.tell(ends);
    }
    b.shim.swappable(kGiB);
    b.shim.residency().limited = abi::kLimited;
    b.shim.be_absent();
    b.shim.residency().answered = abi::kAnswersNone;
    rig.pass(seconds(1));
    for (const Joined* each : {&a, &b}) {
      EXPECT_FALSE(each->shim.told_to_leave()) << ends;
      rig.is_back(*each);
    }
    EXPECT_EQ(rig.job()["residency"], "resident") << ends;
  }
}

TEST(ResidencyRejoins, WhatADetachedJobHadBesideItsSwappableMemoryIsStillItsOwn) {
  Rejoins rig;
  const Joined a = rig.rejoin(kGiB, true);
  a.shim.swappable(0);
  a.shim.residency().limited = abi::kContextsToo;
  a.shim.residency().phase = abi::kDetached;
  a.shim.residency().answered = abi::kAnswersNone;
  for (int i = 0; i < 8; ++i) rig.pass(seconds(1));
  EXPECT_GE(rig.account().in_full(a.client->job), kGiB) << "NVML sees nothing of it";
}

TEST(ResidencyRejoins, AClaimIsCheckedThoughItsMemoryHasBeenOnItsWayInForTooLong) {
  Rejoins rig;
  const Joined a = rig.rejoin(2 * kGiB);
  a.shim.residency().phase = abi::kReturning;
  rig.on_device(a, kGiB);
  rig.pass(milliseconds(250));
  const auto believed = [&] { return rig.account().holding(a.id)->granted; };
  rig.pass(kLeavesWithin - seconds(1));
  EXPECT_EQ(believed(), 2 * kGiB) << "it may be neither here nor there";
  rig.pass(seconds(1));
  EXPECT_EQ(believed(), kGiB) << "as NVML says";
}

TEST(ResidencyRejoins, OneThatWasOutAndFitsComesByItself) {
  Rejoins rig;
  const Joined a = rig.rejoin(2 * kGiB);
  a.shim.be_absent();
  rig.pass(milliseconds(250));
  EXPECT_EQ(a.shim.residency().limited, 0u);
  EXPECT_EQ(rig.job()["residency"], "moving");
  rig.is_back(a);
  EXPECT_EQ(rig.job()["residency"], "resident");
  a.shim.be_absent();
  rig.pass(seconds(1));
  EXPECT_FALSE(rig.account().released(a.client->job)) << "believed once, at the start";
}

}  // namespace
}  // namespace switchyard::monitor::test
