// Jobs whose processes see two GPUs: memory leaves each GPU by itself, and the job works with all
// of it or not at all.
#include <gtest/gtest.h>

#include "tests/monitor/residency/crowd.h"

namespace switchyard::monitor::test {
namespace {

// a has memory on two GPUs of 4 GiB each.
struct TwoGpus : Crowd {
  Joined a;

  explicit TwoGpus(std::uint64_t first = 3 * kGiB, std::uint64_t second = 3 * kGiB)
      : Crowd(64 * kGiB, 2), a(on_both("a")) {
    EXPECT_TRUE(gets_on(a, 0, first));
    EXPECT_TRUE(gets_on(a, 1, second));
    live(seconds(1), {&a});
  }

  Joined on_both(const std::string& name) {
    Joined joined = join({.name = name, .oversubscribe = "yes"}, 1000, 2);
    for (unsigned lane : {0u, 1u}) joined.shim.open_context(lane);
    joined.shim.launch();
    return joined;
  }
  // Sees the second GPU alone.
  Joined on_second(const std::string& name) {
    wire::Hello hello = hello_of({.name = name, .oversubscribe = "yes"});
    const Uuid uuid = uuid_of(1);
    std::copy(uuid.begin(), uuid.end(), hello.uuid[0]);
    Joined joined = join_as({next_pid++, 1000}, hello);
    joined.shim.open_context();
    joined.shim.launch();
    return joined;
  }
  // Allocates on one of its GPUs, all of it swappable.
  bool gets_on(const Joined& who, unsigned lane, std::uint64_t bytes) {
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (who.shim.allocate(bytes, lane)) {
        gpus.uses[lane][who.client->peer.pid] += bytes;
        abi::Residency& said = who.shim.residency(lane);
        said.total_bytes += bytes;
        said.resident_bytes += bytes;
        who.lane(lane).used_bytes += bytes;
        return true;
      }
      if (charge(who, bytes, lane).verdict != wire::kGranted) return false;
    }
    return false;
  }
  void has_left(const Joined& who, std::initializer_list<unsigned> lanes = {0, 1}) {
    for (unsigned lane : lanes) {
      who.shim.be_absent(lane);
      gpus.uses[lane][who.client->peer.pid] = who.shim.residency(lane).resident_bytes;
    }
    pass(milliseconds(50));
  }
  json on_gpu(unsigned gpu, std::size_t job_at = 0) { return job(job_at)["gpus"][gpu]; }
};

TEST(TwoGpus, MemoryLeavesTheGpuWhereAnotherJobNeedsItAndStaysOnTheOther) {
  TwoGpus rig;
  const Joined b = rig.oversubscriber("b");
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  rig.live(milliseconds(300));
  ASSERT_TRUE(rig.a.shim.told_to_leave(0));
  EXPECT_EQ(rig.a.shim.residency(0).limit_bytes, kGiB) << "only what is lacking";
  EXPECT_TRUE(rig.a.shim.told_to_leave(1)) << "it works with all of its memory or not at all";
  EXPECT_EQ(rig.a.shim.residency(1).limit_bytes, 3 * kGiB);
  rig.has_left(rig.a);
  EXPECT_EQ(rig.account(1).held(rig.a.client->job), 3 * kGiB);
  EXPECT_EQ(rig.on_gpu(0)["residency"], "swapped");
  EXPECT_EQ(rig.on_gpu(0)["memory_resident_bytes"], kGiB);
  EXPECT_EQ(rig.on_gpu(1)["residency"], "resident");
  EXPECT_EQ(rig.on_gpu(1)["memory_resident_bytes"], 3 * kGiB);
  EXPECT_EQ(rig.job()["state"], "swapped");
  EXPECT_EQ(rig.job()["state_reason"], "GPU 0: another job needs the memory");
}

TEST(TwoGpus, OfAJobThatIsSwappedOutAllMemoryLeaves) {
  TwoGpus rig;
  rig.tell("swap-out", "a");
  for (unsigned lane : {0u, 1u}) EXPECT_EQ(rig.a.shim.residency(lane).limit_bytes, 0u);
  rig.has_left(rig.a, {1});
  EXPECT_EQ(rig.job()["state"], "moving");
  EXPECT_EQ(rig.on_gpu(1)["residency"], "swapped") << "one is done before the other";
  EXPECT_EQ(rig.on_gpu(0)["residency"], "moving");
  rig.has_left(rig.a);
  EXPECT_EQ(rig.job()["state"], "swapped");
  EXPECT_EQ(rig.job()["state_reason"], "swap-out");
  EXPECT_EQ(rig.account(0).held(rig.a.client->job) + rig.account(1).held(rig.a.client->job), 0u);
}

TEST(TwoGpus, TheGatesOfBothAreOpenWhileMemoryLeavesOne) {
  TwoGpus rig(3 * kGiB, 0);
  rig.tell("pause", "a");
  for (unsigned lane : {0u, 1u}) EXPECT_EQ(rig.a.shim.gate(lane).closed, abi::kClosedByPause);
  rig.tell("swap-out", "a");
  for (unsigned lane : {0u, 1u}) {
    EXPECT_EQ(rig.a.shim.gate(lane).closed, 0u) << "what was accepted there may touch it: " << lane;
  }
  rig.has_left(rig.a);
  for (unsigned lane : {0u, 1u}) EXPECT_EQ(rig.a.shim.gate(lane).closed, abi::kClosedByPause);
}

TEST(TwoGpus, TwoJobsThatNeedOneEachAreServedAtOnce) {
  TwoGpus rig;
  const Joined b = rig.oversubscriber("b");
  const Joined c = rig.on_second("c");
  EXPECT_EQ(rig.charge(b, 2 * kGiB).verdict, wire::kWait);
  EXPECT_EQ(rig.charge(c, 3 * kGiB).verdict, wire::kWait);
  rig.live(milliseconds(300));
  EXPECT_EQ(rig.a.shim.residency(0).limit_bytes, 2 * kGiB);
  EXPECT_EQ(rig.a.shim.residency(1).limit_bytes, kGiB);
}

TEST(TwoGpus, AJobComesBackToAllOfItsGpusOrToNone) {
  TwoGpus rig;
  const Joined b = rig.oversubscriber("b");
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  rig.live(milliseconds(300));
  rig.has_left(rig.a);
  ASSERT_TRUE(rig.gets(b, 3 * kGiB));
  rig.a.shim.residency(1).held_threads = 1;
  rig.live(milliseconds(200), {&b});
  for (unsigned lane : {0u, 1u}) EXPECT_TRUE(rig.a.shim.told_to_leave(lane)) << lane;
  EXPECT_EQ(rig.job()["state"], "waiting");
  EXPECT_EQ(rig.on_gpu(1)["residency"], "resident");
  rig.dies(b);
  rig.live(milliseconds(200));
  for (unsigned lane : {0u, 1u}) EXPECT_FALSE(rig.a.shim.told_to_leave(lane)) << lane;
}

// Nobody looks but when a look is due.
TEST(TwoGpus, AStayOnOneGpuEndsInTimeThoughNobodyWaitsOnTheOther) {
  TwoGpus rig;
  const Joined b = rig.oversubscriber("b");
  EXPECT_EQ(rig.charge(b, 3 * kGiB).verdict, wire::kWait);
  rig.live(milliseconds(300));
  rig.has_left(rig.a);
  ASSERT_TRUE(rig.gets(b, 3 * kGiB));
  rig.a.shim.residency(0).held_threads = 1;
  rig.live(milliseconds(100), {&b});
  ASSERT_FALSE(b.shim.told_to_leave());
  for (Time end = rig.now + seconds(20); rig.now < end && !b.shim.told_to_leave();) {
    rig.now += milliseconds(10);
    b.shim.launch();
    rig.monitor.look_at_due(rig.now);
  }
  EXPECT_TRUE(b.shim.told_to_leave());
}

// A job that can't come back to one of its GPUs keeps no other from coming back to another.
TEST(TwoGpus, WhoCannotReturnToOneOfItsGpusStandsInNoLine) {
  TwoGpus rig;
  rig.tell("swap-out", "a");
  rig.has_left(rig.a);
  const Joined b = rig.on_both("b");
  ASSERT_TRUE(rig.gets_on(b, 0, kGiB));
  ASSERT_TRUE(rig.gets_on(b, 1, 3 * kGiB));
  rig.tell("swap-out", "b");
  rig.has_left(b);
  const Joined plain = rig.runs({});
  ASSERT_TRUE(rig.allocate(plain, 2 * kGiB));
  rig.tell("swap-in", "a");
  rig.tell("swap-in", "b");
  rig.live(seconds(1));
  EXPECT_TRUE(rig.a.shim.told_to_leave())
      << "GPU 0 has no room for it as long as that job is there";
  for (unsigned lane : {0u, 1u}) EXPECT_FALSE(b.shim.told_to_leave(lane)) << lane;
}

struct QuotaOnTwo : Rig {
  Joined a;
  explicit QuotaOnTwo(unsigned contexts) : Rig(2), a(join({.memory = "3GiB"}, 1000, 2)) {
    for (unsigned lane = 0; lane < contexts; ++lane) a.shim.open_context(lane);
  }
  void pass_minutes(int minutes) {
    for (int i = 0; i < minutes * 60; ++i) pass(seconds(1));
  }
};

TEST(TwoGpus, WhatAClientMakesUpOnOneRefusesNobodyOnTheOther) {
  TwoGpus rig(kGiB / 4, kGiB / 4);
  const Joined liar = rig.oversubscriber("liar");
  liar.shim.residency().total_bytes = std::uint64_t{1} << 62;
  liar.shim.residency().resident_bytes = 0;
  const Joined b = rig.on_second("b");
  ASSERT_TRUE(rig.gets_on(b, 0, 3 * kGiB));
  const Joined c = rig.on_second("c");
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.charge(c, 3 * kGiB).verdict, wire::kWait);
}

TEST(TwoGpus, AQuotaIsReservedWhereTheJobHasContexts) {
  QuotaOnTwo rig(1);
  rig.pass_minutes(2);
  EXPECT_EQ(rig.account(0).reserved(), 3 * kGiB);
  EXPECT_EQ(rig.account(1).reserved(), 0u) << "others can have it";
  EXPECT_EQ(rig.a.lane(1).quota_bytes, 3 * kGiB) << "it is the most that the job may use there";
  EXPECT_EQ(rig.charge(rig.a, 3 * kGiB + 1, 1).verdict, wire::kOverQuota);
  rig.a.shim.open_context(1);
  rig.pass(seconds(1));
  EXPECT_EQ(rig.account(1).reserved(), 3 * kGiB) << "it is used after all";
}

TEST(TwoGpus, AQuotaIsReservedOnAllGpusWhileTheJobBegins) {
  QuotaOnTwo idle(0);
  idle.pass_minutes(2);
  EXPECT_EQ(idle.account(1).reserved(), 3 * kGiB) << "it may use any of them";
  QuotaOnTwo rig(1);
  rig.pass(seconds(1));
  rig.pass(seconds(30));
  EXPECT_EQ(rig.account(1).reserved(), 3 * kGiB) << "its next process may use this one";
}

TEST(TwoGpus, AQuotaIsReservedOnTheGpusThatWereNamed) {
  Rig rig(2);
  std::string why;
  Job* job =
      rig.monitor.create(card_of({.job = "j", .memory = "1GiB"}), 1000, 1, {0, 1}, rig.now, why);
  ASSERT_NE(job, nullptr) << why;
  const Joined a = rig.join({.job = "j"}, 1000, 2);
  a.shim.open_context();
  for (int i = 0; i < 120; ++i) rig.pass(seconds(1));
  EXPECT_EQ(rig.account(0).reserved(), kGiB);
  EXPECT_EQ(rig.account(1).reserved(), kGiB);
}

TEST(TwoGpus, WhereAQuotaIsNoLongerReservedItDoesNotHinderItsReturn) {
  Rig rig(2);
  const Joined a = rig.join({.name = "x", .memory = "3GiB", .swappable = "yes"}, 1000, 2);
  a.shim.open_context();
  ASSERT_TRUE(rig.allocate(a, kGiB));
  a.shim.swappable(kGiB);
  for (int i = 0; i < 120; ++i) rig.pass(seconds(1));
  wire::Hello hello = hello_of({.name = "y", .memory = "4GiB"});
  const Uuid uuid = uuid_of(1);
  std::copy(uuid.begin(), uuid.end(), hello.uuid[0]);
  rig.join_as({rig.next_pid++, 1000}, hello);
  rig.tell("swap-out");
  a.shim.be_absent();
  rig.listed(a) = 0;
  rig.pass(seconds(1));
  EXPECT_EQ(rig.tell("swap-in")["residency"], "moving");
  EXPECT_FALSE(a.shim.told_to_leave());
}

// y has 2 of the 4 GiB of GPU 0. The quota of x, 3 GiB, was never promised there. x works there on
// one GiB, and is swapped out.
struct NeverPromised : Rig {
  NeverPromised() : Rig(2) {
    EXPECT_EQ(account(0).reserved(), 0u) << "it does not fit";
    EXPECT_EQ(account(1).reserved(), 3 * kGiB);
    a.shim.open_context();
    EXPECT_TRUE(allocate(a, kGiB));
    a.shim.swappable(kGiB);
    for (int i = 0; i < 120; ++i) pass(seconds(1));
    tell("swap-out");
    a.shim.be_absent();
    listed(a) = 0;
    pass(seconds(1));
  }

  Joined holds_two_gib() {
    Joined joined = runs({.name = "y"});
    EXPECT_TRUE(allocate(joined, 2 * kGiB));
    return joined;
  }

  Joined y = holds_two_gib();
  Joined a = join({.name = "x", .memory = "3GiB", .swappable = "yes"}, 1000, 2);
};

TEST(TwoGpus, WhereAQuotaWasNeverPromisedItDoesNotHinderItsReturn) {
  NeverPromised rig;
  EXPECT_EQ(rig.tell("swap-in")["residency"], "moving") << "its own GiB fits";
  EXPECT_FALSE(rig.a.shim.told_to_leave());
  EXPECT_EQ(rig.account(0).reserved(), 0u);
}

TEST(TwoGpus, WhereAPersonSetsAQuotaThatFitsByNowItIsPromised) {
  NeverPromised rig;
  rig.dies(rig.y);
  rig.pass(seconds(1));
  ASSERT_EQ(rig.ask({{"op", "set"}, {"target", "x"}, {"memory", "2GiB"}})["ok"], true);
  rig.tell("swap-in");
  EXPECT_EQ(rig.account(0).reserved(), 2 * kGiB);
}

TEST(TwoGpus, WhatCouldLeaveOneGpuMakesNoRoomOnAnother) {
  TwoGpus rig(0, 3 * kGiB);
  ASSERT_TRUE(rig.a.shim.allocate(0));
  ASSERT_EQ(rig.charge(rig.a, 3 * kGiB, 0).verdict, wire::kGranted);
  ASSERT_TRUE(rig.a.shim.allocate(3 * kGiB, 0));  // plain: it says nothing of it
  rig.gpus.uses[0][rig.a.client->peer.pid] = 3 * kGiB;
  rig.a.lane(0).used_bytes = 3 * kGiB;
  rig.live(seconds(2), {&rig.a});
  const Joined b = rig.oversubscriber("b");
  wire::Charged said = rig.charge(b, 3 * kGiB);
  for (int i = 0; i < 40 && said.verdict == wire::kWait; ++i) {
    rig.live(milliseconds(50), {&rig.a});
    said = rig.charge(b, 3 * kGiB);
  }
  EXPECT_EQ(said.verdict, wire::kGpuFull);
  EXPECT_FALSE(rig.a.shim.told_to_leave(0));
}

}  // namespace
}  // namespace switchyard::monitor::test
