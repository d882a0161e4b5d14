// The pairs of jobs that hand memory over, over the whole monitor.
#include "monitor/residency/handovers.h"

#include <utility>

#include "tests/monitor/residency/crowd.h"

namespace switchyard::monitor::test {
namespace {

struct Turn : TurnOfB {
  using TurnOfB::TurnOfB;
  void a_comes_back() {
    is_absent(b);
    is_back(a);
  }
  void goes(const Joined& who) {
    gpus.uses[0].erase(who.client->peer.pid);
    monitor.left(who.id);
    pass(milliseconds(50));
  }
  static std::uint64_t gives(const Joined& who) { return who.shim.residency().gives; }
  static std::uint64_t takes(const Joined& who) { return who.shim.residency().takes; }
};

TEST(HandOvers, WhoLeavesAndWhoComesAreToldOneNumber) {
  Turn rig;
  EXPECT_EQ(rig.gives(rig.b), 0u);
  EXPECT_EQ(rig.takes(rig.a), 0u);
  rig.b_leaves_in_its_turn();
  EXPECT_NE(rig.gives(rig.b), 0u);
  EXPECT_EQ(rig.gives(rig.b), rig.takes(rig.a));
  EXPECT_EQ(rig.gives(rig.a), 0u);
  EXPECT_EQ(rig.takes(rig.b), 0u);
}

TEST(HandOvers, TheirNumberComesFromTheMonitorsOwnSourceForItIsAKey) {
  Turn rig;  // whose source counts in steps of 2^20
  rig.b_leaves_in_its_turn();
  EXPECT_EQ(rig.gives(rig.b) & 0xfffff, 1u);
}

TEST(HandOvers, NothingIsHandedIntoAnotherContainer) {
  Turn rig;
  rig.a.client->container = "pid:[1]user:[2]";
  rig.b_leaves_in_its_turn();
  EXPECT_EQ(rig.gives(rig.b), 0u);
  EXPECT_EQ(rig.takes(rig.a), 0u);
}

// b's turn has ended, and what it has leaves to a.
struct Handing : Turn {
  explicit Handing(uid_t uid_of_b = 1000) : Turn(uid_of_b) { b_leaves_in_its_turn(); }
};

// b works until it is told what to prepare.
void works_until_it_prepares(Turn& rig) {
  const Time end = rig.now + seconds(60);
  while (rig.b.shim.residency().soon_bytes == 0 && rig.now < end) {
    rig.live(milliseconds(50), {&rig.b});
  }
}

TEST(HandOvers, AMomentBeforeItsTurnEndsTheGiverPreparesIt) {
  Turn rig;
  works_until_it_prepares(rig);
  EXPECT_FALSE(rig.b.shim.told_to_leave());
  EXPECT_EQ(rig.b.shim.residency().soon_bytes, 2 * kGiB) << "what a lacks";
  const std::uint64_t number = rig.gives(rig.b);
  ASSERT_NE(number, 0u);
  EXPECT_EQ(rig.takes(rig.a), number);
  rig.b_leaves_in_its_turn();
  EXPECT_EQ(rig.gives(rig.b), number);
  EXPECT_EQ(rig.takes(rig.a), number);
  EXPECT_EQ(rig.b.shim.residency().soon_bytes, 0u) << "its limit tells";
}

TEST(HandOvers, WhatNobodyWaitsForAnyMoreIsWithdrawn) {
  Turn rig;
  works_until_it_prepares(rig);
  ASSERT_NE(rig.gives(rig.b), 0u);
  rig.goes(rig.a);
  EXPECT_EQ(rig.gives(rig.b), 0u);
  EXPECT_EQ(rig.b.shim.residency().soon_bytes, 0u);
  EXPECT_FALSE(rig.b.shim.told_to_leave());
}

TEST(HandOvers, WhatIsPreparedForOneThatIsOvertakenIsWithdrawn) {
  Turn rig;
  works_until_it_prepares(rig);
  const std::uint64_t number = rig.gives(rig.b);
  ASSERT_NE(number, 0u);
  rig.ask({{"op", "swap-out"}, {"target", "a"}});
  rig.pass(milliseconds(1));
  EXPECT_EQ(rig.takes(rig.a), 0u);
  EXPECT_EQ(rig.gives(rig.b), 0u);
  EXPECT_EQ(rig.b.shim.residency().soon_bytes, 0u);
}

TEST(HandOvers, WhatIsPreparedForOneThatAHigherClassOvertakesIsWithdrawn) {
  Turn rig;
  works_until_it_prepares(rig);
  ASSERT_NE(rig.takes(rig.a), 0u);
  const Joined c = rig.oversubscriber("c", {.priority = "high"});
  EXPECT_EQ(rig.charge(c, 3 * kGiB).verdict, wire::kWait);
  rig.monitor.look(rig.now);
  EXPECT_EQ(rig.job(2)["waits_for"], "a") << "what a has kept goes first";
  EXPECT_NE(rig.job(0)["waits_for"], "a");
  EXPECT_EQ(rig.takes(rig.a), 0u);
  EXPECT_EQ(rig.gives(rig.b), 0u);
}

TEST(HandOvers, WhatIsPreparedIsWithdrawnWhenTooLittleOfItIsStillLacking) {
  Turn rig;
  works_until_it_prepares(rig);
  ASSERT_NE(rig.gives(rig.b), 0u);
  rig.a.shim.release(2 * kGiB - 32 * kMiB);  // it frees what is away
  rig.a.shim.residency().total_bytes -= 2 * kGiB - 32 * kMiB;
  rig.live(milliseconds(1), {&rig.b});
  EXPECT_FALSE(rig.b.shim.told_to_leave());
  EXPECT_EQ(rig.gives(rig.b), 0u);
  EXPECT_EQ(rig.b.shim.residency().soon_bytes, 0u);
  EXPECT_EQ(rig.takes(rig.a), 0u);
}

// As measured: with an open descriptor it is used, and no process's once its maker has released it.
TEST(HandOvers, WhatIsOnItsWayFromTheOneToTheOtherLessensNothing) {
  Handing rig;
  const std::uint64_t stays = rig.may_have(rig.b);
  rig.b.shim.leave(2 * kGiB);
  rig.listed(rig.b) = 2 * kGiB;
  rig.gpus.unlisted = kGiB;
  for (int look = 0; look < 8; ++look) rig.pass(milliseconds(200));
  EXPECT_EQ(rig.may_have(rig.b), stays);
  EXPECT_EQ(rig.may_have(rig.a), 2 * kGiB) << "the one that has left";
  EXPECT_EQ(rig.account().outside(), 0u);
  EXPECT_EQ(rig.account().holding(rig.a.id)->overhead, 0u);
}

TEST(HandOvers, WhatCameInTheOthersMemoryLessensNothingEither) {
  Handing rig;
  rig.is_absent(rig.b);
  rig.is_back(rig.a);
  rig.listed(rig.a) -= 2 * kGiB;
  rig.gpus.unlisted = 2 * kGiB;
  for (int look = 0; look < 8; ++look) rig.pass(milliseconds(200));
  EXPECT_EQ(rig.account().outside(), 0u);
  // It is charged for its true use beyond that.
  rig.listed(rig.a) += 2 * kGiB + kGiB / 4;
  rig.gpus.unlisted = 0;
  for (int look = 0; look < 8; ++look) rig.pass(milliseconds(200));
  EXPECT_EQ(rig.account().holding(rig.a.id)->overhead, kGiB / 4);
}

// Chunks are whole: one that is partly out has some less than it may, for as long as it is out.
struct PartlyOut : Turn {
  PartlyOut() {
    b_leaves_in_its_turn();
    comes_to(b, may_have(b) - kMiB);
    b.shim.residency().phase = abi::kAbsent;
    live(milliseconds(50));
    is_back(a);
  }
  void looks() {
    for (int look = 0; look < 4; ++look) live(seconds(1), {&a});
  }
};

TEST(HandOvers, WhatIsNobodysIsFollowedWhileOneIsPartlyOut) {
  PartlyOut rig;
  rig.gpus.unlisted = kGiB;
  rig.looks();
  EXPECT_GE(rig.account().outside(), kGiB - kMiB);
  rig.gpus.unlisted = 0;
  rig.looks();
  EXPECT_LE(rig.account().outside(), kMiB);
}

TEST(HandOvers, OverheadIsFollowedWhileItIsPartlyOut) {
  PartlyOut rig;
  rig.listed(rig.b) += 400 * kMiB;
  rig.looks();
  EXPECT_GE(rig.account().holding(rig.b.id)->overhead, 399 * kMiB);
  rig.listed(rig.b) -= 400 * kMiB;
  rig.looks();
  EXPECT_LE(rig.account().holding(rig.b.id)->overhead, kMiB);
}

TEST(HandOvers, WhenTheGiverStaysAfterAllTheNumberIsWithdrawn) {
  Handing rig;
  ASSERT_NE(rig.takes(rig.a), 0u);
  rig.b.shim.residency().error = abi::kSwapBusy;
  rig.b.shim.residency().phase = abi::kResident;
  for (int look = 0; look < 4; ++look) rig.pass(milliseconds(500));
  EXPECT_FALSE(rig.b.shim.told_to_leave());
  EXPECT_EQ(rig.takes(rig.a), 0u);
}

TEST(HandOvers, EachTurnHasANumberOfItsOwn) {
  Handing rig;
  const std::uint64_t first = rig.gives(rig.b);
  rig.a_comes_back();
  EXPECT_EQ(rig.takes(rig.a), 0u) << "all is there";
  rig.works_until_told(rig.a);
  rig.a.shim.residency().held_threads = 1;
  rig.pass(milliseconds(1));
  EXPECT_NE(rig.gives(rig.a), 0u);
  EXPECT_NE(rig.gives(rig.a), first);
  EXPECT_EQ(rig.gives(rig.a), rig.takes(rig.b));
  EXPECT_EQ(rig.gives(rig.b), 0u) << "nobody takes under the old one";
}

TEST(HandOvers, AnotherUsersJobIsHandedNothing) {
  Handing rig(1001);
  EXPECT_EQ(rig.gives(rig.b), 0u);
  EXPECT_EQ(rig.takes(rig.a), 0u);
}

TEST(HandOvers, WhoAsksForNewMemoryIsHandedNothing) {
  TwoOfThree rig;
  ASSERT_TRUE(rig.a.shim.told_to_leave());
  EXPECT_EQ(rig.a.shim.residency().gives, 0u);
  EXPECT_EQ(rig.b.shim.residency().takes, 0u);
}

TEST(HandOvers, WhenTheGiverGoesTheNumberIsWithdrawn) {
  Handing rig;
  ASSERT_NE(rig.takes(rig.a), 0u);
  rig.goes(rig.b);
  EXPECT_EQ(rig.takes(rig.a), 0u);
}

TEST(HandOvers, WhenTheTakerGoesNothingIsOfferedAnyMore) {
  Handing rig;
  ASSERT_NE(rig.gives(rig.b), 0u);
  rig.goes(rig.a);
  EXPECT_EQ(rig.gives(rig.b), 0u);
}

TEST(HandOvers, WhomAPersonSwapsOutTakesNothing) {
  Handing rig;
  ASSERT_NE(rig.takes(rig.a), 0u);
  rig.ask({{"op", "swap-out"}, {"target", "a"}});
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.takes(rig.a), 0u);
}

TEST(Oversubscription, WhoFindsNoRoomOnTheDeviceAtOnceKeepsItsTurn) {
  Handing rig;
  // The driver is still clearing what it was given back.
  rig.a.shim.residency().error = abi::kSwapNoDeviceRoom;
  rig.b.shim.residency().held_threads = 1;
  rig.is_absent(rig.b);
  ASSERT_FALSE(rig.a.shim.told_to_leave());
  rig.pass(milliseconds(50));
  rig.pass(milliseconds(50));
  EXPECT_FALSE(rig.a.shim.told_to_leave()) << "it has only been told to come";
  rig.is_back(rig.a);
  EXPECT_EQ(rig.job(0)["residency"], "resident");
}

// Two processes of each job, whose words are put where a look would leave them.
struct Pairs : Crowd {
  Joined giver[2] = {oversubscriber("g", {.job = "g"}), oversubscriber("g", {.job = "g"})};
  Joined taker[2] = {oversubscriber("t", {.job = "t"}), oversubscriber("t", {.job = "t"})};

  static void has(const Joined& who, std::uint64_t resident, std::uint64_t kept) {
    Client::Lane& lane = who.client->lanes.at(0);
    lane.residency = {.total_bytes = 2 * kGiB, .resident_bytes = resident};
    lane.kept_bytes = kept;
  }
  static void is_out(const Joined& who, std::uint64_t away) {
    Client::Lane& lane = who.client->lanes.at(0);
    lane.residency = {
        .phase = abi::kAbsent, .total_bytes = 2 * kGiB, .resident_bytes = 2 * kGiB - away};
  }
  Pairs() {
    for (const Joined& each : giver) has(each, 2 * kGiB, kGiB);
    for (const Joined& each : taker) is_out(each, kGiB);
  }
  // The places of the two in their jobs; -1: none.
  std::pair<int, int> pair() {
    const Registry& registry = monitor.registry();
    const auto& jobs = registry.jobs();
    const policy::Handover found =
        pair_of(registry, 0, jobs.at(giver[0].client->job), jobs.at(taker[0].client->job));
    const auto place = [](ClientId id, const Joined(&of)[2]) {
      return id == of[0].id ? 0 : id == of[1].id ? 1 : -1;
    };
    return {place(found.donor, giver), place(found.recipient, taker)};
  }
};
using Pair = std::pair<int, int>;

TEST(HandOverPairs, AreTheFirstThatLeavesAndTheFirstThatIsOut) {
  Pairs rig;
  EXPECT_EQ(rig.pair(), Pair(0, 0));
  rig.has(rig.giver[0], kGiB, kGiB);
  EXPECT_EQ(rig.pair(), Pair(1, 0)) << "the first keeps all that it has";
  rig.is_out(rig.taker[0], 0);
  EXPECT_EQ(rig.pair(), Pair(1, 1)) << "the first lacks nothing";
  rig.taker[1].client->lanes.at(0).residency.phase = abi::kReturning;
  EXPECT_EQ(rig.pair(), Pair(1, -1));
  rig.has(rig.giver[1], kGiB, kGiB);
  rig.is_out(rig.taker[1], kGiB);
  EXPECT_EQ(rig.pair(), Pair(-1, -1)) << "nothing leaves";
}

TEST(HandOverPairs, AreOfOneUserAndContainerThatTheMonitorSees) {
  Pairs rig;
  const auto no_first = [&](Client& client, auto change, Pair expected, const char* what) {
    const Peer peer = client.peer;
    const std::string container = client.container;
    change(client);
    EXPECT_EQ(rig.pair(), expected) << what;
    client.peer = peer;
    client.container = container;
  };
  Client& taker = *rig.taker[0].client;
  no_first(
      taker, [](Client& it) { it.peer.uid = 1; }, {0, 1}, "another user");
  no_first(
      taker, [](Client& it) { it.container = "box"; }, {0, 1}, "another container");
  no_first(
      taker, [](Client& it) { it.peer.pid = 0; }, {0, 1}, "of an unseen process");
  Client& giver = *rig.giver[0].client;
  no_first(
      giver, [](Client& it) { it.peer.pid = 0; }, {0, -1}, "to nobody from an unseen one");
}

}  // namespace
}  // namespace switchyard::monitor::test
