// A job goes to another GPU: what the monitor tells its processes, and what it counts where.
#include <gtest/gtest.h>

#include "monitor/residency/oversubscription.h"
#include "tests/monitor/residency/migrations_scene.h"

namespace switchyard::monitor::test {
namespace {

// A process of another job, with a context on the second GPU alone.
Joined joins_there(Moves& rig, const Ask& ask) {
  wire::Hello hello = hello_of(ask);
  const Uuid uuid = uuid_of(1);
  std::copy(uuid.begin(), uuid.end(), hello.uuid[0]);
  Joined out = rig.join_as({rig.next_pid++, 1000}, hello);
  out.shim.open_context();
  return out;
}
// And with memory that can leave it.
Joined holds_there(Moves& rig, const Ask& ask, std::uint64_t bytes) {
  Joined out = joins_there(rig, ask);
  EXPECT_EQ(rig.charge(out, bytes).verdict, wire::kGranted);
  EXPECT_TRUE(out.shim.allocate(bytes));
  out.shim.swappable(bytes);
  return out;
}

TEST(Migrations, ContextsAndMemoryLeaveAndComeOnTheOtherGpu) {
  Moves rig;
  const Joined a = rig.process(2 * kGiB);
  EXPECT_EQ(rig.migrate()["state"], "moving");
  EXPECT_EQ(rig.job()["state_reason"], "to GPU 1");
  rig.leave({&a});
  EXPECT_EQ(a.lane().shall_be_on, 2u);
  const Uuid uuid = uuid_of(1);
  std::uint64_t words[2];
  std::memcpy(words, uuid.data(), sizeof(words));
  for (const unsigned i : {0u, 1u}) EXPECT_EQ(a.lane(1).machine_uuid[i], words[i]);
  EXPECT_EQ(a.lane(2).machine_uuid[0], 0u) << "the machine has two";
  EXPECT_TRUE(rig.answer().is_null());
  rig.land(a, 1);
  EXPECT_TRUE(rig.answer().is_null()) << "its memory is away";
  rig.come({&a}, 1);
  const json moved = rig.answer();
  EXPECT_EQ(moved["ok"], true) << moved;
  ASSERT_EQ(moved["gpus"].size(), 1u);
  EXPECT_EQ(rig.where(), "1");
  EXPECT_EQ(moved["residency"], "resident");
  EXPECT_EQ(rig.held(0), 0u);
  EXPECT_GE(rig.held(1), 2 * kGiB);
}

TEST(Migrations, RoomIsKeptOnBothGpusUntilTheEnd) {
  Moves rig;
  const Joined a = rig.process(3 * kGiB);
  const std::uint64_t before = rig.held(0);
  const auto kept = [&] {
    EXPECT_EQ(rig.held(0), before);
    EXPECT_EQ(rig.held(1), before);
  };
  rig.migrate();
  kept();
  rig.leave({&a});
  kept();
  rig.land(a, 1);
  kept();
  rig.come({&a}, 1);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.held(0), 0u);
}

TEST(Migrations, TheQuotaHoldsOnTheOtherGpuFromTheBeginning) {
  Moves rig;
  const Joined a = rig.process(kGiB, {.job = "x", .name = "x", .memory = "1GiB"});
  const Joined without_context = rig.join({.job = "x", .name = "x", .swappable = "yes"});
  rig.migrate();
  rig.leave({&a});
  EXPECT_EQ(a.lane().quota_bytes, kGiB);
  EXPECT_NE(rig.charge(a, kMiB).verdict, wire::kGranted);
  rig.land(a, 1);
  rig.come({&a}, 1);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.account(1).reserved(), kGiB);
  EXPECT_EQ(rig.account(0).reserved(), 0u);
}

TEST(Migrations, WhatTheDriverRefusesIsWhereItWas) {
  Moves rig;
  const Joined a = rig.process(3 * kGiB);
  rig.migrate();
  rig.leave({&a});
  a.shim.residency().swap_result = 1;
  rig.land(a, 0, abi::kSwapNotMoved);
  EXPECT_EQ(rig.job()["state_reason"], "back to GPU 0");
  rig.come({&a}, 0);
  const json out = rig.answer();
  EXPECT_EQ(out["code"], kRefusedByPolicy);
  EXPECT_NE(out["error"].get<std::string>().find("CUDA error 1)"), std::string::npos) << out;
  EXPECT_EQ(rig.where(), "0");
  EXPECT_EQ(rig.held(1), 0u);
  EXPECT_EQ(a.lane().shall_be_on.load(), 1u) << "its next checkpoint brings it back here";
}

TEST(Migrations, AnEventSaysOnWhichGpuAJobStays) {
  Moves rig;
  const Joined a = rig.process(kGiB);
  rig.migrate();
  rig.leave({&a});
  rig.land(a, 0, abi::kSwapNotMoved);
  rig.come({&a}, 0);
  rig.pass(milliseconds(50));
  const std::string said = rig.ask({{"op", "events"}, {"target", "x"}}).dump();
  EXPECT_NE(said.find("did not move and stays on GPU 0"), std::string::npos) << said;
}

TEST(Migrations, GpusThatWereNamedAreStillTheJobsAfterwards) {
  Moves rig;
  std::string why;
  const JobCard card = card_of({.job = "x", .name = "x", .swappable = "yes"});
  ASSERT_NE(rig.monitor.create(card, 1000, 1, {0, 1}, rig.now, why), nullptr) << why;
  const Joined a = rig.process(kGiB);
  rig.migrate();
  rig.leave({&a});
  rig.land(a, 1);
  rig.come({&a}, 1);
  EXPECT_EQ(rig.answer()["gpus"].size(), 2u) << "its next process may use the first one";
}

TEST(Migrations, WhatDoesNotLeaveIsWhereItWas) {
  Moves rig;
  const Joined a = rig.process(3 * kGiB);
  rig.migrate();
  rig.be_absent(a);
  rig.pass(milliseconds(50));
  a.shim.residency().swap_result = 801;
  a.shim.say(abi::kAbsent, abi::kSwapContextsStay);
  rig.pass(milliseconds(50));
  rig.come({&a}, 0);
  const json out = rig.answer();
  EXPECT_NE(out.dump().find("CUDA error 801"), std::string::npos) << out;
  EXPECT_EQ(a.lane().shall_be_on, 1u) << "its next checkpoint brings it back here";
  EXPECT_EQ(rig.held(1), 0u);
}

TEST(Migrations, WhatDoesNotLeaveInTimeHasTakenTooLong) {
  Moves rig;
  const Joined a = rig.process(3 * kGiB);
  rig.migrate();
  for (Time past{0}; past <= kLeavesWithin; past += milliseconds(500)) rig.pass(milliseconds(500));
  EXPECT_EQ(rig.answer()["code"], kTimedOut);
  EXPECT_EQ(rig.held(1), 0u);
}

TEST(Migrations, WhenOneOfTwoIsRefusedTheOtherGoesBack) {
  Moves rig;
  const Joined a = rig.process(kGiB);
  const Joined b = rig.process(kGiB);
  rig.migrate();
  rig.leave({&a, &b});
  rig.land(a, 1);
  rig.land(b, 0, abi::kSwapNotMoved);
  EXPECT_EQ(rig.job()["state_reason"], "back to GPU 0");
  rig.leave({&a, &b});
  EXPECT_EQ(a.lane().shall_be_on, 1u);
  rig.land(a, 0);
  rig.land(b, 0);
  rig.come({&a, &b}, 0);
  EXPECT_EQ(rig.answer()["code"], kRefusedByPolicy);
  EXPECT_EQ(rig.where(), "0");
  EXPECT_EQ(rig.held(1), 0u);
  EXPECT_GE(rig.held(0), 2 * kGiB);
}

TEST(Migrations, WhoDoesNotLandInTimeIsCountedWhereItIs) {
  Moves rig;
  const Joined a = rig.process(kGiB);
  rig.migrate();
  rig.leave({&a});
  rig.pass(migration::kLandsWithin);
  EXPECT_EQ(a.shim.residency().limited, abi::kContextsToo);
  a.shim.say(abi::kDetached);
  rig.pass(milliseconds(50));
  EXPECT_EQ(a.lane().shall_be_on, 1u);
  rig.land(a, 0);
  rig.come({&a}, 0);
  EXPECT_EQ(rig.answer()["code"], kTimedOut);
  EXPECT_EQ(rig.where(), "0");
}

TEST(Migrations, WhoseMemoryFindsNoRoomGoesBack) {
  Moves rig;
  const Joined a = rig.process(kGiB);
  rig.migrate();
  rig.leave({&a});
  rig.land(a, 1);
  a.shim.say(abi::kReturning, abi::kSwapNoDeviceRoom);
  rig.pass(milliseconds(50));
  rig.pass(migration::kComesWithin);
  EXPECT_EQ(rig.job()["state_reason"], "back to GPU 0");
  rig.leave({&a});
  rig.land(a, 0);
  rig.come({&a}, 0);
  EXPECT_NE(rig.answer().dump().find("no room for its memory"), std::string::npos);
  EXPECT_EQ(rig.where(), "0");
}

TEST(Migrations, WhoseMemoryTheDriverRefusesGoesBackAndKeepsNoRoomForEver) {
  Moves rig;
  const Joined a = rig.process(kGiB);
  rig.migrate();
  rig.leave({&a});
  rig.land(a, 1);
  const auto is_refused = [&] {
    a.shim.residency().resident_bytes = 0;
    a.shim.residency().swap_result = 101;
    a.shim.say(abi::kReturning, abi::kSwapFailed);
    rig.pass(milliseconds(50));
  };
  a.shim.residency().resident_bytes = kGiB / 2;
  a.shim.say(abi::kReturning);
  rig.pass(milliseconds(50));
  is_refused();
  EXPECT_EQ(rig.job()["state_reason"], "to GPU 1") << "it may still succeed";
  // It is tried again, and no more of it comes than before.
  for (Time passed{0}; passed < migration::kComesWithin; passed += seconds(1)) {
    a.shim.residency().resident_bytes = kGiB / 2;
    a.shim.say(abi::kReturning);
    rig.pass(milliseconds(500));
    is_refused();
    rig.pass(milliseconds(450));
  }
  EXPECT_EQ(rig.job()["state_reason"], "back to GPU 0");
  rig.leave({&a});
  rig.land(a, 0);
  is_refused();
  EXPECT_NE(rig.held(1), 0u);
  rig.pass(migration::kComesWithin);
  EXPECT_EQ(rig.held(1), 0u);
  EXPECT_NE(rig.answer().dump().find("CUDA error 101"), std::string::npos) << rig.answer();
}

TEST(Migrations, WhatComesBackIsMeasuredAnew) {
  Moves rig;
  const Joined a = rig.process(kGiB);
  rig.migrate();
  rig.leave({&a});
  rig.land(a, 1);
  const auto comes_to = [&](std::uint64_t bytes, Time span) {
    a.shim.residency().resident_bytes = bytes;
    a.shim.say(abi::kReturning, abi::kSwapNoDeviceRoom);
    rig.pass(span);
  };
  comes_to(kGiB / 2, milliseconds(50));
  comes_to(0, migration::kComesWithin);
  ASSERT_EQ(rig.job()["state_reason"], "back to GPU 0");
  rig.leave({&a});
  rig.land(a, 0);
  for (unsigned second = 1; second <= 15; ++second) comes_to(second * kMiB, seconds(1));
  EXPECT_TRUE(rig.answer().is_null()) << "less than had come there, but more and more";
}

TEST(Migrations, OnlyWhoWasToldToMayChangeTheGpu) {
  Moves rig;
  const Joined a = rig.process(kGiB);
  Moves::be_on(a, 1);
  rig.pass(milliseconds(250));
  EXPECT_EQ(rig.where(), "0");
}

TEST(Migrations, SlicesBeginAnewOnTheOtherGpu) {
  Moves rig;
  const Joined a = rig.process(kGiB, {.job = "x", .name = "x", .priority = "low"});
  const Joined high = rig.join({.name = "high", .priority = "high"});
  high.shim.open_context();
  rig.settle({&a, &high});
  ASSERT_LT(a.lane().compute_slice_us, abi::kShortBelowUs) << "it yields";
  rig.migrate();
  rig.leave({&a});
  EXPECT_EQ(a.lane().compute_slice_us, 0u)
      << "on the other GPU somebody may have a short one already";
}

// The job lives on, by a process that uses no GPU yet.
class EndsOnItsWay : public ::testing::TestWithParam<bool> {};

TEST_P(EndsOnItsWay, TheJobKeepsNoRoomAndIsOnNoMove) {
  const bool lands = GetParam();
  Moves rig;
  const Joined a = rig.process(3 * kGiB);
  const Joined b = rig.process(0);
  b.lane().contexts = b.lane().compute_groups = 0;
  rig.migrate();
  if (lands) {
    rig.leave({&a});
  } else {
    rig.pass(milliseconds(50));
    EXPECT_TRUE(a.shim.told_to_leave());
  }
  rig.dies(a);
  rig.pass(milliseconds(50));
  EXPECT_NE(rig.answer().dump().find("nothing of it uses a GPU"), std::string::npos);
  EXPECT_EQ(rig.held(1), 0u);
  b.shim.open_context();
  rig.pass(milliseconds(50));
  EXPECT_EQ(b.shim.residency().limited, abi::kUnlimited) << "nobody would bring it back";
  EXPECT_EQ(rig.job()["state"], "idle");
}

INSTANTIATE_TEST_SUITE_P(Migrations, EndsOnItsWay, ::testing::Bool(), [](const auto& way) {
  return way.param ? "InItsCheckpoint" : "WhileItLeaves";
});

TEST(Migrations, TheEndOfAJobOnItsWayFreesTheRoomThatWasKept) {
  Moves rig;
  const Joined a = rig.process(3 * kGiB);
  rig.migrate();
  ASSERT_EQ(rig.account(1).free(), kGiB);
  rig.gpus.uses[0].clear();
  rig.dies(a);
  EXPECT_EQ(rig.account(1).free(), 4 * kGiB);
}

TEST(Migrations, WhatSpeaksAgainstItIsSaidBeforeAnythingIsTouched) {
  Moves rig;
  const Joined a = rig.process(2 * kGiB);
  const auto refused = [&](int code, const char* why, const char* to = "1") {
    const json out = rig.migrate(to);
    EXPECT_EQ(out["code"], code) << out;
    EXPECT_NE(out.dump().find(why), std::string::npos) << out;
    EXPECT_FALSE(a.shim.told_to_leave());
    EXPECT_EQ(rig.held(1), 0u);
  };
  refused(kNoSuchJobOrGpu, "there is no GPU 2", "2");
  refused(kUsage, "several GPUs begin with GPU-aa", "GPU-aa");
  refused(kUsage, "--to cannot be 'GPU': expected", "GPU");
  refused(kRefusedByPolicy, "it is there already", "0");
  const std::uint32_t places = a.lane().places.exchange(0);
  refused(kRefusedByPolicy, "580 and newer can");
  a.lane().places = places;
  a.lane().contexts = a.lane().compute_groups = 0;
  refused(kRefusedByPolicy, "uses no GPU yet");
  a.lane().contexts = 1;
  for (const Stays why : kKeepsContexts) {
    abi::Word64& bytes = a.shim.memory().stays_bytes[static_cast<unsigned>(why)];
    bytes = 1;
    refused(kRefusedByPolicy, "ps --memory");
    bytes = 0;
  }
  rig.gpus.uses[1][77] = 3 * kGiB;
  rig.pass(seconds(2));
  refused(kRefusedByPolicy, "unmanaged processes hold 3.00 GiB");
  rig.gpus.uses[1].clear();
  rig.pass(seconds(2));
  EXPECT_EQ(rig.migrate()["state"], "moving");
  EXPECT_NE(rig.migrate().dump().find("on its way already"), std::string::npos);
}

// NVML was asked before it joined, by a monitor that was started anew.
TEST(Migrations, AProcessThatHasJustJoinedHasTheLibrary) {
  Moves rig;
  const Joined a = rig.process(kGiB);
  rig.monitor.gpus()[0].foreign_processes.push_back({a.client->peer.pid, kGiB});
  EXPECT_EQ(rig.migrate()["state"], "moving");
}

TEST(Migrations, WhoWaitsForMemoryThereComesFirst) {
  Moves rig;
  const Joined a = rig.process(kGiB);
  const Joined first = joins_there(rig, {.name = "first", .on_oom = "wait"});
  rig.gpus.uses[1][77] = kGiB;
  rig.pass(seconds(2));
  ASSERT_EQ(rig.charge(first, 4 * kGiB).verdict, wire::kWait);
  EXPECT_NE(rig.migrate().dump().find("job 'first' waits for memory there"), std::string::npos);
  rig.pass(seconds(2));
  EXPECT_EQ(rig.migrate()["state"], "moving") << "it has given up";
}

TEST(Migrations, WhoWaitsToComeBackThereComesFirst) {
  Moves rig;
  const Joined a = rig.process(kGiB);
  const Joined first = holds_there(rig, {.name = "first", .swappable = "yes"}, 3 * kGiB);
  rig.tell("swap-out", "first");
  first.shim.be_absent();
  rig.pass(seconds(2));
  rig.gpus.uses[1][77] = 2 * kGiB;
  rig.pass(seconds(2));
  ASSERT_EQ(rig.tell("swap-in", "first")["residency"], "waiting");
  EXPECT_NE(rig.migrate().dump().find("job 'first' waits for memory there"), std::string::npos);
}

TEST(Migrations, AJobOnSeveralGpusOrWithoutTheOptionStays) {
  Moves rig;
  const Joined plain = rig.runs({.name = "plain"});
  EXPECT_NE(rig.migrate("1", "plain").dump().find("--swappable"), std::string::npos);
  const Joined both = rig.join({.name = "both", .swappable = "yes"}, 1000, 2);
  for (const unsigned lane : {0u, 1u}) both.shim.open_context(lane);
  EXPECT_NE(rig.migrate("1", "both").dump().find("several GPUs"), std::string::npos);
}

TEST(Migrations, ForJobsThatTakeTurnsTheHostMustHoldWhatTheyLackTogether) {
  Moves rig(with_host_pool(kGiB / 2));
  const Joined a = rig.process(2 * kGiB, {.job = "x", .name = "x", .oversubscribe = "yes"});
  const Joined there = holds_there(rig, {.name = "there", .oversubscribe = "yes"}, 3 * kGiB);
  EXPECT_EQ(rig.migrate()["code"], kRefusedByPolicy);
}

}  // namespace
}  // namespace switchyard::monitor::test
