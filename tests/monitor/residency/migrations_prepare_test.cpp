// Before a job that goes to another GPU is held: its memory is copied, and its host pool unpinned.
#include <gtest/gtest.h>

#include "tests/monitor/residency/migrations_scene.h"

namespace switchyard::monitor::test {
namespace {

// All that it had is away: there it needs room for all of it.
TEST(Migrations, OfAJobThatIsSwappedOutAllOfItsRoomIsKeptWhereItGoes) {
  Moves rig;
  const Joined a = rig.process(2 * kGiB);
  rig.tell("swap-out");
  rig.be_absent(a);
  rig.pass(milliseconds(50));
  ASSERT_EQ(rig.held(0), 0u);
  rig.migrate();
  EXPECT_EQ(rig.held(1), rig.account(0).in_full(a.client->job));
  EXPECT_GE(rig.held(1), 2 * kGiB);
}

// Of a job "x" that sees both GPUs, and whose library unpins its host pool while it works.
struct Prepares : LeavesBehind {
  explicit Prepares(const Ask& ask = asks()) : LeavesBehind(ask) {
    words().host_bytes = 2 * kGiB;
    a.lane(0).unpinned = abi::kAnswersNone;
    pass(milliseconds(10));
  }
  std::uint32_t asked() const { return a.lane(0).unpin; }
  void answers() {
    a.lane(0).unpinned = asked();
    pass(milliseconds(10));
  }
  bool is_held() const { return words().limited != abi::kUnlimited; }
  void arrives() {
    leaves_with_contexts();
    lands();
    says_kept(0, 0);
    come({&a}, 1);
  }
};

TEST(Migrations, TheHostPoolIsUnpinnedBeforeTheJobIsHeld) {
  Prepares rig;
  EXPECT_EQ(rig.asked(), 0u);
  EXPECT_EQ(rig.migrate()["state"], "moving");
  const std::uint32_t request = rig.asked();
  EXPECT_NE(request, 0u);
  EXPECT_NE(request, abi::kAnswersNone);
  EXPECT_EQ(rig.a.lane(0).precopy, 0u) << "its memory does not go by the host";
  EXPECT_EQ(rig.a.lane(1).unpin, 0u) << "nothing of it is there";
  rig.pass(milliseconds(100));
  EXPECT_FALSE(rig.is_held());
  EXPECT_TRUE(rig.answer().is_null());
  rig.answers();
  EXPECT_TRUE(rig.is_held());
  EXPECT_EQ(rig.words().park_lane, 1u) << "its memory stays behind";
  EXPECT_EQ(rig.asked(), request) << "nothing is pinned on the way";
  rig.arrives();
  EXPECT_EQ(rig.answer()["ok"], true) << rig.answer();
  EXPECT_EQ(rig.asked(), 0u) << "it may be pinned again";
}

TEST(Migrations, EachRequestToUnpinIsAnother) {
  Prepares rig;
  rig.migrate();
  const std::uint32_t request = rig.asked();
  rig.answers();
  rig.arrives();
  rig.pass(milliseconds(50));
  const json back = rig.migrate("0");
  EXPECT_EQ(back["state"], "moving") << back;
  EXPECT_NE(rig.asked(), 0u);
  EXPECT_NE(rig.asked(), request);
  EXPECT_FALSE(rig.is_held()) << "the earlier answer is none";
}

TEST(Migrations, WhoDoesNotUnpinItsPoolLeavesAllTheSame) {
  Prepares rig;
  rig.migrate();
  rig.pass(migration::kPreparesWithin - milliseconds(100));
  EXPECT_FALSE(rig.is_held());
  rig.pass(milliseconds(200));
  EXPECT_TRUE(rig.is_held());
  rig.arrives();
  EXPECT_EQ(rig.answer()["ok"], true) << rig.answer();
}

TEST(Migrations, NobodyIsAskedToUnpinWhatTheMoveOrSomebodyElseNeeds) {
  {
    LeavesBehind rig;
    rig.words().host_bytes = 2 * kGiB;
    rig.migrate();
    EXPECT_EQ(rig.a.lane(0).unpin, 0u) << "its library does not know of it";
    EXPECT_EQ(rig.words().limited, abi::kLimited);
  }
  {
    Prepares rig;
    rig.words().host_bytes = 0;
    rig.migrate();
    EXPECT_EQ(rig.asked(), 0u);
    EXPECT_TRUE(rig.is_held());
  }
  {
    Prepares rig;
    rig.tell("swap-out", "x");
    rig.migrate();
    EXPECT_EQ(rig.asked(), 0u) << "its memory is in the pool";
  }
  {
    Prepares rig;
    rig.tell("pause", "x");
    rig.migrate();
    EXPECT_EQ(rig.asked(), 0u) << "no step is spared";
    EXPECT_TRUE(rig.is_held());
  }
  {
    Ask ask = LeavesBehind::asks();
    ask.oversubscribe = "yes";
    Prepares rig(ask);
    rig.migrate();
    EXPECT_EQ(rig.asked(), 0u) << "its memory goes by the host";
  }
  Moves rig;
  const Joined a = rig.process(2 * kGiB);
  a.shim.residency(0).host_bytes = 2 * kGiB;
  a.lane(0).unpinned = abi::kAnswersNone;
  rig.migrate();
  EXPECT_EQ(a.lane(0).unpin, 0u) << "it goes by the host, and its library does not copy before";
}

TEST(Migrations, WhatGoesByTheHostIsCopiedThereBeforeTheJobIsHeld) {
  Moves rig;
  const Joined a = rig.process(2 * kGiB);
  a.shim.residency(0).host_bytes = 2 * kGiB;
  a.lane(0).unpinned = abi::kAnswersNone;
  a.lane(0).precopies = 1;
  rig.migrate();
  EXPECT_NE(a.lane(0).unpin, 0u);
  EXPECT_EQ(a.lane(0).precopy, 1u);
  EXPECT_EQ(a.shim.residency(0).limited, abi::kUnlimited);
  a.lane(0).unpinned = a.lane(0).unpin.load();
  rig.pass(milliseconds(10));
  EXPECT_NE(a.shim.residency(0).limited, abi::kUnlimited);
  EXPECT_EQ(a.shim.residency(0).park_bytes, 0u);
  rig.leave({&a});
  rig.land(a, 1);
  rig.come({&a}, 1);
  EXPECT_EQ(rig.answer()["ok"], true) << rig.answer();
  EXPECT_EQ(a.lane(0).unpin, 0u);
  EXPECT_EQ(a.lane(0).precopy, 0u);
}

TEST(Migrations, WhatIsSwappedOutWhileItPreparesGoesByTheHost) {
  Prepares rig;
  rig.migrate();
  EXPECT_FALSE(rig.is_held());
  rig.tell("swap-out", "x");
  rig.pass(milliseconds(10));
  EXPECT_TRUE(rig.is_held());
  EXPECT_EQ(rig.words().park_bytes, 0u);
  rig.leave({&rig.a});
  rig.see(1, 0);
  rig.gpus.uses[1][rig.a.client->peer.pid] = 0;
  rig.a.shim.say(abi::kAbsent);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.answer()["ok"], true) << rig.answer();
  EXPECT_EQ(rig.asked(), 0u);
}

TEST(Migrations, WhatGrewWhileItPreparedIsKeptRoomForOrGoesNowhere) {
  {
    Prepares rig;
    rig.migrate();
    const std::uint64_t before = rig.held(1);
    EXPECT_TRUE(rig.allocate(rig.a, kGiB / 2));
    rig.answers();
    EXPECT_TRUE(rig.is_held());
    EXPECT_GE(rig.held(1), before + kGiB / 2);
  }
  Prepares rig;
  const Joined other = rig.runs({.name = "other"}, 2);
  EXPECT_EQ(rig.charge(other, kGiB, 1).verdict, wire::kGranted);
  EXPECT_TRUE(other.shim.allocate(kGiB, 1));
  rig.migrate();
  EXPECT_TRUE(rig.allocate(rig.a, kGiB + kGiB / 2));
  rig.answers();
  EXPECT_FALSE(rig.is_held()) << "nothing of it was touched";
  EXPECT_EQ(rig.answer()["code"], kRefusedByPolicy) << rig.answer();
  EXPECT_EQ(rig.asked(), 0u);
  EXPECT_EQ(rig.held(1), 0u);
}

TEST(Migrations, WhatSharesItsMemoryOncePreparedStays) {
  Prepares rig;
  rig.migrate();
  rig.a.shim.memory().stays_bytes[static_cast<unsigned>(*std::begin(kKeepsContexts))] = 1;
  rig.answers();
  EXPECT_FALSE(rig.is_held());
  EXPECT_NE(rig.answer().dump().find("ps --memory"), std::string::npos) << rig.answer();
}

TEST(Migrations, WhoUsesAnotherGpuOncePreparedDoesNotMove) {
  Prepares rig;
  rig.migrate();
  rig.a.shim.swappable(0);
  rig.a.lane(0).contexts = rig.a.lane(0).compute_groups = 0;
  rig.a.shim.open_context(1);
  rig.a.shim.swappable(kGiB, 1);
  rig.a.shim.memory(1).contexts = abi::kContextsMayLeave;
  ++rig.a.lane(1).places;
  rig.pass(milliseconds(50));
  rig.answers();
  EXPECT_FALSE(rig.is_held());
  EXPECT_NE(rig.answer().dump().find("uses another GPU by now"), std::string::npos) << rig.answer();
}

TEST(Migrations, AProcessThatEndsWhileItPreparesKeepsNoRoom) {
  Prepares rig;
  rig.migrate();
  const Joined b = rig.process(0);
  b.lane().contexts = b.lane().compute_groups = 0;
  rig.dies(rig.a);
  rig.pass(milliseconds(50));
  EXPECT_NE(rig.answer().dump().find("nothing of it uses a GPU"), std::string::npos);
  EXPECT_EQ(rig.held(1), 0u);
}

}  // namespace
}  // namespace switchyard::monitor::test
