// Turns of gangs in the pages: gates of all their ranks, and the cut before these close.
#include <gtest/gtest.h>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

Settings exclusive() {
  Settings settings;
  settings.rules.kind = policy::Kind::kExclusive;
  return settings;
}

struct TwoGangs : Rig {
  Joined a0 = on(0, "a"), a1 = on(1, "a"), b0 = on(0, "b"), b1 = on(1, "b");

  TwoGangs() : Rig(2, 4 * kGiB, exclusive()) {
    place(a0, 1, 0);
    place(a1, 1, 1);
    place(b0, 2, 0);
    place(b1, 2, 1);
    pass(milliseconds(1));
    for (const Joined* each : {&a0, &a1, &b0, &b1}) {
      each->shim.ready_gate();
      each->shim.submit();
    }
    work(milliseconds(4));
  }
  Joined on(unsigned gpu, const char* job) {
    wire::Hello hello = hello_of({.job = job, .name = job});
    const Uuid uuid = uuid_of(static_cast<unsigned char>(gpu));
    std::copy(uuid.begin(), uuid.end(), hello.uuid[0]);
    Joined joined = join_as({next_pid++, 1000}, hello);
    joined.shim.open_context();
    joined.shim.launch();
    return joined;
  }
  static void place(const Joined& who, std::uint64_t id, std::uint32_t rank) {
    who.shim.joins_communicator(id, rank, 2);
  }
  // All have work on their GPUs, as far as their gates let them.
  void work(Time span) {
    for (const Time end = now + span; now < end;) {
      for (const Joined* each : {&a0, &a1, &b0, &b1}) {
        if (open(*each)) each->shim.launch();
      }
      pass(milliseconds(2));
    }
  }
  static bool open(const Joined& who) { return who.shim.gate().closed == 0; }
  static std::uint32_t asked(const Joined& who) { return who.shim.page().process.cut; }
};

TEST(GangTurns, OneGangIsOpenOnBothGpusAndTheOtherClosedOnBoth) {
  TwoGangs rig;
  EXPECT_TRUE(TwoGangs::open(rig.a0));
  EXPECT_TRUE(TwoGangs::open(rig.a1));
  EXPECT_FALSE(TwoGangs::open(rig.b0));
  EXPECT_FALSE(TwoGangs::open(rig.b1));
}

TEST(GangTurns, ATurnEndsAtACutThatIsKeptUntilTheGatesAreClosed) {
  TwoGangs rig;
  rig.a0.shim.page().communicators[0].launched = 1;
  rig.work(milliseconds(70));
  EXPECT_NE(rig.asked(rig.a0), 0u);
  EXPECT_EQ(rig.a1.shim.page().communicators[0].target, 1u);
  EXPECT_TRUE(TwoGangs::open(rig.a0)) << "rank 1 is behind";
  EXPECT_TRUE(TwoGangs::open(rig.a1));
  rig.a1.shim.page().communicators[0].launched = 1;
  rig.work(milliseconds(6));
  EXPECT_TRUE(TwoGangs::open(rig.a0)) << "what it has launched ends";
  EXPECT_NE(rig.asked(rig.a0), 0u);
  rig.a0.shim.complete();
  rig.a1.shim.complete();
  rig.pass(milliseconds(2));
  rig.pass(milliseconds(2));
  EXPECT_FALSE(TwoGangs::open(rig.a0));
  EXPECT_FALSE(TwoGangs::open(rig.a1));
  EXPECT_TRUE(TwoGangs::open(rig.b0));
  EXPECT_TRUE(TwoGangs::open(rig.b1));
  rig.pass(milliseconds(2));
  EXPECT_EQ(rig.asked(rig.a0), 0u);
}

TEST(GangTurns, WhatAPersonWantsComesBeforeTheEndOfATurn) {
  TwoGangs rig;
  rig.a0.shim.page().communicators[0].launched = 1;
  rig.work(milliseconds(70));
  rig.tell("pause", "a");
  rig.a1.shim.page().communicators[0].launched = 1;
  rig.pass(milliseconds(2));
  rig.pass(milliseconds(2));
  rig.a0.shim.complete();
  rig.a1.shim.complete();
  rig.pass(milliseconds(2));
  rig.pass(milliseconds(2));
  EXPECT_EQ(rig.job(0)["state"], "paused");
  EXPECT_TRUE(TwoGangs::open(rig.b0)) << "who is paused has no turn";
  EXPECT_TRUE(TwoGangs::open(rig.b1));
}

}  // namespace
}  // namespace switchyard::monitor::test
