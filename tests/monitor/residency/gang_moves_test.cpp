// A gang whose memory the monitor wants out by itself: at a cut, or not at all.
#include <gtest/gtest.h>

#include <initializer_list>

#include "monitor/residency/gangs.h"
#include "tests/monitor/residency/crowd.h"

namespace switchyard::monitor::test {
namespace {

// Two ranks of one job, each on a GPU of 4 GiB of its own.
struct GangMoves : Crowd {
  GangMoves() : Crowd(64 * kGiB, 2) {}

  // A process of the job that sees one GPU and has memory there.
  Joined on(unsigned gpu, Ask wanted, std::uint64_t bytes = 3 * kGiB) {
    wire::Hello hello = hello_of(wanted);
    const Uuid uuid = uuid_of(static_cast<unsigned char>(gpu));
    std::copy(uuid.begin(), uuid.end(), hello.uuid[0]);
    Joined joined = join_as({next_pid++, 1000}, hello);
    joined.shim.open_context();
    joined.shim.launch();
    if (bytes != 0) {
      EXPECT_EQ(charge(joined, bytes).verdict, wire::kGranted);
      EXPECT_TRUE(joined.shim.allocate(bytes));
      joined.shim.swappable(bytes);
      gpus.uses[gpu][joined.client->peer.pid] = bytes;
    }
    return joined;
  }
  static abi::Communicator& place(const Joined& who, std::uint32_t rank, std::uint32_t ranks = 2) {
    return who.shim.joins_communicator(77, rank, ranks);
  }
  static std::uint32_t asked(const Joined& who) { return who.shim.page().process.cut; }
  // The monitor looks as often as ranks that are awaited need it.
  void follow() {
    for (int i = 0; i < 4; ++i) pass(milliseconds(2));
  }
  void has_left(const Joined& who, std::size_t gpu) {
    who.shim.be_absent();
    gpus.uses[gpu][who.client->peer.pid] = who.shim.residency().resident_bytes;
  }
  const GangHold& gang_of(const Joined& who) {
    return *monitor.registry().find(who.client->job)->gang;
  }
};

struct IdleGang : GangMoves {
  Ask x{.job = "x", .name = "x", .idle_release = "10s"};
  Joined first = on(0, x), second = on(1, x);
  IdleGang() {
    place(first, 0);
    place(second, 1);
    live(seconds(1));
  }
};

TEST(GangMoves, AnIdleGangLeavesAtACut) {
  IdleGang rig;
  rig.place(rig.first, 0).launched = 1;
  rig.live(seconds(12));
  EXPECT_NE(rig.asked(rig.first), 0u);
  EXPECT_EQ(rig.place(rig.second, 1).target, 1u);
  EXPECT_FALSE(rig.first.shim.told_to_leave()) << "rank 1 is behind";
  rig.place(rig.second, 1).launched = 1;
  rig.follow();
  EXPECT_TRUE(rig.first.shim.told_to_leave());
  EXPECT_TRUE(rig.second.shim.told_to_leave()) << "in the same look";
  EXPECT_NE(rig.asked(rig.first), 0u) << "until all has left";
  rig.has_left(rig.first, 0);
  rig.has_left(rig.second, 1);
  rig.follow();
  EXPECT_EQ(rig.asked(rig.first), 0u);
  EXPECT_EQ(rig.job()["residency"], "swapped");
  rig.second.shim.residency().held_threads = 1;
  rig.follow();
  EXPECT_FALSE(rig.first.shim.told_to_leave()) << "one rank works, so all come back";
  EXPECT_FALSE(rig.second.shim.told_to_leave());
}

TEST(GangMoves, AnIdleGangThatIsNotHeldStaysForAsLongAgain) {
  IdleGang rig;
  rig.place(rig.first, 0).launched = 1;
  rig.live(milliseconds(9500));
  ASSERT_NE(rig.asked(rig.first), 0u);
  rig.live(cut::kComesWithin);
  EXPECT_EQ(rig.asked(rig.first), 0u) << "given up";
  EXPECT_FALSE(rig.first.shim.told_to_leave());
  EXPECT_EQ(rig.gang_of(rig.first).failure, "") << "nobody asked";
  rig.live(seconds(8));
  EXPECT_EQ(rig.asked(rig.first), 0u);
  rig.live(seconds(3));
  EXPECT_NE(rig.asked(rig.first), 0u);
}

TEST(GangMoves, AnIdleGangWithARankElsewhereStays) {
  IdleGang rig;
  rig.place(rig.first, 0, 3);
  rig.place(rig.second, 1, 3);
  rig.live(seconds(30));
  EXPECT_EQ(rig.asked(rig.first), 0u);
  EXPECT_FALSE(rig.first.shim.told_to_leave());
}

// A gang that works on both GPUs.
struct WorkingGang : GangMoves {
  Ask x{.job = "x", .name = "x", .oversubscribe = "yes"};
  Joined first = on(0, x), second = on(1, x);
  WorkingGang() {
    place(first, 0);
    place(second, 1);
    live(seconds(1));
  }
  // Another waits there for the room of the gang.
  void asks_for(const Joined& other, std::initializer_list<unsigned> gpus, Time span) {
    for (Time end = now + span; now < end;) {
      for (const unsigned gpu : gpus) {
        EXPECT_EQ(charge(other, 3 * kGiB, gpu).verdict, wire::kWait);
      }
      for (const Joined* each : {&first, &second}) each->shim.launch();
      pass(milliseconds(50));
    }
  }
};

// b waits for the room of the first GPU.
struct YieldingGang : WorkingGang {
  Joined b = oversubscriber("b");
  YieldingGang() { EXPECT_EQ(charge(b, 3 * kGiB).verdict, wire::kWait); }
  void b_asks_for(Time span) { asks_for(b, {0}, span); }
};

TEST(GangMoves, AGangGivesRoomAtACut) {
  YieldingGang rig;
  rig.place(rig.first, 0).launched = 1;
  rig.b_asks_for(seconds(1));
  EXPECT_NE(rig.asked(rig.second), 0u);
  EXPECT_FALSE(rig.first.shim.told_to_leave());
  EXPECT_FALSE(rig.second.shim.told_to_leave());
  EXPECT_EQ(rig.job(1)["waits_for"], "x");
  rig.place(rig.second, 1).launched = 1;
  rig.follow();
  EXPECT_TRUE(rig.first.shim.told_to_leave());
  EXPECT_TRUE(rig.second.shim.told_to_leave());
  EXPECT_EQ(rig.may_have(rig.first), kGiB) << "only what is lacking";
  EXPECT_EQ(rig.may_have(rig.second), 3 * kGiB);
}

// Its ranks are being stopped for the first GPU when the second one is asked for.
TEST(GangMoves, AGangGivesRoomOnAllItsGpusAtOneCut) {
  WorkingGang rig;
  rig.place(rig.first, 0).launched = 1;
  const Joined other = rig.join({.name = "b", .oversubscribe = "yes"}, 1000, 2);
  rig.asks_for(other, {0, 1}, seconds(1));
  EXPECT_FALSE(rig.first.shim.told_to_leave());
  rig.place(rig.second, 1).launched = 1;
  rig.follow();
  EXPECT_EQ(rig.may_have(rig.first), kGiB);
  EXPECT_EQ(rig.may_have(rig.second), kGiB);
}

TEST(GangMoves, AGangThatIsNotHeldIsLeftAloneByWhoAsked) {
  YieldingGang rig;
  rig.place(rig.first, 0).launched = 1;
  rig.b_asks_for(seconds(1));
  ASSERT_NE(rig.asked(rig.first), 0u);
  for (Time end = rig.now + cut::kComesWithin; rig.now < end;) rig.pass(milliseconds(50));
  EXPECT_EQ(rig.asked(rig.first), 0u);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.asked(rig.first), 0u);
  EXPECT_FALSE(rig.first.shim.told_to_leave());
  EXPECT_NE(rig.charge(rig.b, 3 * kGiB).verdict, wire::kGranted);
}

TEST(GangMoves, WhatAPersonWantsComesBeforeTheMonitorsOwnWish) {
  YieldingGang rig;
  rig.place(rig.first, 0).launched = 1;
  rig.tell("pause");
  rig.b_asks_for(milliseconds(500));
  EXPECT_TRUE(rig.gang_of(rig.first).pauses);
  rig.place(rig.second, 1).launched = 1;
  rig.follow();
  EXPECT_EQ(rig.job()["state"], "paused");
}

// Two processes that share memory, and no NCCL is seen.
struct UnseenGang : GangMoves {
  Ask x{.job = "x", .name = "x", .swappable = "yes"};
  Joined first = on(0, x), second = on(1, x);
  bool counts_as_one() {
    pass(milliseconds(250));
    return *monitor.registry().find(first.client->job)->gang_kind == GangKind::kUnseen;
  }
  void share() {
    first.shim.memory().stays_bytes[static_cast<unsigned>(Stays::kIpcExported)] = kGiB;
  }
};

TEST(GangMoves, ProcessesThatShareMemoryAcrossGpusAreAGang) {
  UnseenGang rig;
  EXPECT_FALSE(rig.counts_as_one());
  rig.share();
  EXPECT_TRUE(rig.counts_as_one());
  rig.dies(rig.second);
  EXPECT_FALSE(rig.counts_as_one()) << "it works on one GPU only";
}

// Ranks whose communicator is born after they were told to leave: not stopped together.
struct BornWhileLeaving : GangMoves {
  Ask x{.job = "x", .name = "x", .swappable = "yes"};
  Joined first = on(0, x), second = on(1, x);
  // Rank 0 waits on its GPU for a collective that rank 1, whose memory has left, has not launched.
  void one_waits_for_the_other() {
    place(first, 0).launched = 1;
    place(second, 1);
    first.shim.say(abi::kLeaving);
    has_left(second, 1);
    follow();
  }
  bool open(const Joined& who) const { return who.shim.gate().closed == 0; }
};

TEST(GangMoves, AGangThatIsBornWhileItLeavesIsGivenUpSoon) {
  BornWhileLeaving rig;
  rig.tell("swap-out");
  ASSERT_TRUE(rig.first.shim.told_to_leave());
  rig.one_waits_for_the_other();
  rig.live(cut::kComesWithin - milliseconds(100));
  EXPECT_TRUE(rig.first.shim.told_to_leave());
  rig.live(milliseconds(200));
  EXPECT_FALSE(rig.first.shim.told_to_leave());
  EXPECT_FALSE(rig.second.shim.told_to_leave());
  EXPECT_TRUE(rig.open(rig.second));
}

TEST(GangMoves, SoIsOneThatIsBornWhileItLeavesForAPause) {
  BornWhileLeaving rig;
  rig.ask({{"op", "pause"}, {"target", "x"}, {"release", true}});
  ASSERT_TRUE(rig.first.shim.told_to_leave());
  rig.one_waits_for_the_other();
  rig.live(cut::kComesWithin + milliseconds(100));
  EXPECT_FALSE(rig.first.shim.told_to_leave()) << "the pause is at no cut";
}

TEST(GangMoves, AGangThatFindsRoomInTheHostForLongIsNotGivenUp) {
  BornWhileLeaving rig;
  rig.tell("swap-out");
  rig.place(rig.first, 0);
  rig.place(rig.second, 1);
  rig.live(3 * cut::kComesWithin);
  EXPECT_TRUE(rig.first.shim.told_to_leave()) << "none of them holds the other yet";
}

TEST(GangMoves, TheEndOfAPauseOpensAllGatesWhateverOneRankWaitsFor) {
  for (const bool timed : {false, true}) {
    BornWhileLeaving rig;
    json asked = {{"op", "pause"}, {"target", "x"}, {"release", true}};
    if (timed) asked["timeout_seconds"] = 1;
    rig.ask(asked);
    rig.one_waits_for_the_other();
    EXPECT_FALSE(rig.open(rig.second));
    if (timed) {
      rig.pass(seconds(1));
    } else {
      rig.tell("resume");
    }
    EXPECT_TRUE(rig.open(rig.first)) << timed;
    EXPECT_TRUE(rig.open(rig.second)) << timed;
    rig.follow();
    EXPECT_FALSE(rig.second.shim.told_to_leave()) << "it waits for its own memory alone";
    EXPECT_FALSE(rig.first.shim.told_to_leave());
    EXPECT_NE(rig.job()["state"], "paused");
  }
}

// Ranks that the monitor before had paused at a cut, and released.
struct PausedBefore : GangMoves {
  Joined rejoin(unsigned gpu, std::uint32_t rank) {
    wire::Hello hello = hello_of({.job = "x", .name = "x", .swappable = "yes"}, 1, wire::kRejoin);
    const Uuid uuid = uuid_of(static_cast<unsigned char>(gpu));
    std::copy(uuid.begin(), uuid.end(), hello.uuid[0]);
    hello.used_bytes[0] = 3 * kGiB;
    hello.paused = 1;
    Joined joined = join_as({next_pid++, 1000}, hello);
    EXPECT_NE(asked(joined), 0u) << "before it sees its page";
    place(joined, rank).launched = 7;
    joined.shim.open_context();
    joined.shim.swappable(3 * kGiB);
    joined.shim.residency().limited = abi::kLimited;
    return joined;
  }
  // It says what it carries over.
  static void speaks(const Joined& who, std::uint32_t phase) {
    who.shim.residency().phase = phase;
    who.shim.residency().answered = abi::kAnswersNone;
  }
};

TEST(GangMoves, TheNextMonitorKeepsTheCutUntilThoseThatLeaveHaveLeft) {
  PausedBefore rig;
  const Joined first = rig.rejoin(0, 0), second = rig.rejoin(1, 1);
  rig.follow();
  EXPECT_NE(rig.asked(first), 0u) << "nothing is known of it yet";
  rig.speaks(first, abi::kLeaving);
  second.shim.residency().resident_bytes = 0;
  rig.speaks(second, abi::kAbsent);
  rig.live(seconds(1));
  EXPECT_EQ(first.shim.gate().closed, 0u) << "its accepted work ends";
  EXPECT_NE(rig.asked(first), 0u) << "and it begins nothing that its sister could not join";
  rig.has_left(first, 0);
  rig.live(seconds(1));
  EXPECT_EQ(rig.job()["residency"], "swapped");
  EXPECT_EQ(first.shim.gate().closed, abi::kClosedByPause);
  EXPECT_EQ(rig.asked(first), 0u);
  EXPECT_EQ(rig.asked(second), 0u);
}

TEST(GangMoves, ResumingUnderTheNextMonitorEndsItsCut) {
  PausedBefore rig;
  const Joined first = rig.rejoin(0, 0), second = rig.rejoin(1, 1);
  rig.speaks(first, abi::kLeaving);
  rig.speaks(second, abi::kLeaving);
  rig.follow();
  ASSERT_NE(rig.asked(first), 0u);
  rig.tell("resume");
  for (const Joined* each : {&first, &second}) {
    EXPECT_EQ(rig.asked(*each), 0u);
    EXPECT_EQ(each->shim.gate().closed, 0u);
  }
}

TEST(GangMoves, AGangWithoutCountsThatDoesNotDrainIsGivenUpSoon) {
  for (const bool shares : {false, true}) {
    UnseenGang rig;
    if (shares) rig.share();
    rig.tell("swap-out");
    EXPECT_TRUE(rig.first.shim.told_to_leave()) << "no cut can be asked for";
    rig.first.shim.say(abi::kLeaving);
    rig.second.shim.say(abi::kLeaving);
    rig.live(cut::kComesWithin - milliseconds(100));
    EXPECT_TRUE(rig.first.shim.told_to_leave());
    rig.live(milliseconds(200));
    EXPECT_EQ(rig.first.shim.told_to_leave(), !shares);
    EXPECT_EQ(rig.second.shim.told_to_leave(), !shares);
  }
}

}  // namespace
}  // namespace switchyard::monitor::test
