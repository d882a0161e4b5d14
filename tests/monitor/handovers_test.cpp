// Who is told to hand its memory over to whom, over the whole monitor.
#include "monitor/handovers.h"

#include "tests/monitor/crowd.h"

namespace switchyard::monitor {
namespace {

using namespace test;
using std::chrono::milliseconds;
using std::chrono::seconds;

// a is out and waits for its turn, b works.
struct Turn : TwoOfThree {
  explicit Turn(uid_t uid_of_b = 1000) : TwoOfThree(uid_of_b) { b_works(); }
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

TEST(HandOvers, EachTurnHasANumberOfItsOwn) {
  Turn rig;
  rig.b_leaves_in_its_turn();
  const std::uint64_t first = rig.gives(rig.b);
  rig.a_comes_back();
  EXPECT_EQ(rig.takes(rig.a), 0u) << "all is there";
  const Time end = rig.now + seconds(60);
  while (!rig.a.shim.told_to_leave() && rig.now < end) rig.live(milliseconds(50), {&rig.a});
  rig.a.shim.residency().held_threads = 1;
  rig.pass(milliseconds(1));
  EXPECT_NE(rig.gives(rig.a), 0u);
  EXPECT_NE(rig.gives(rig.a), first);
  EXPECT_EQ(rig.gives(rig.a), rig.takes(rig.b));
  EXPECT_EQ(rig.gives(rig.b), 0u) << "nobody takes under the old one";
}

TEST(HandOvers, AnotherUsersJobIsHandedNothing) {
  Turn rig(1001);
  rig.b_leaves_in_its_turn();
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
  Turn rig;
  rig.b_leaves_in_its_turn();
  ASSERT_NE(rig.takes(rig.a), 0u);
  rig.goes(rig.b);
  EXPECT_EQ(rig.takes(rig.a), 0u);
}

TEST(HandOvers, WhenTheTakerGoesNothingIsOfferedAnyMore) {
  Turn rig;
  rig.b_leaves_in_its_turn();
  ASSERT_NE(rig.gives(rig.b), 0u);
  rig.goes(rig.a);
  EXPECT_EQ(rig.gives(rig.b), 0u);
}

TEST(HandOvers, WhomAPersonSwapsOutTakesNothing) {
  Turn rig;
  rig.b_leaves_in_its_turn();
  ASSERT_NE(rig.takes(rig.a), 0u);
  rig.ask({{"op", "swap-out"}, {"target", "a"}});
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.takes(rig.a), 0u);
}

TEST(Oversubscription, WhoFindsNoRoomOnTheDeviceAtOnceKeepsItsTurn) {
  Turn rig;
  rig.b_leaves_in_its_turn();
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

}  // namespace
}  // namespace switchyard::monitor
