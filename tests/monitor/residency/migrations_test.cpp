// A job goes to another GPU: what the monitor tells its processes, and what it counts where.
#include <gtest/gtest.h>

#include "monitor/control/commands.h"
#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

// Two GPUs of 4 GiB. Processes of a job "x", which see the first one, with swappable memory.
struct Moves : Rig {
  explicit Moves(Settings settings = with_host_pool(64 * kGiB))
      : Rig(2, 4 * kGiB, std::move(settings)) {}

  Joined process(std::uint64_t bytes, Ask ask = {.job = "x", .name = "x"}) {
    ask.swappable = "yes";
    Joined joined = join(ask);
    joined.shim.open_context();
    joined.shim.memory().contexts = abi::kContextsMayLeave;
    be_on(joined, 0);
    EXPECT_TRUE(allocate(joined, bytes));
    joined.shim.swappable(bytes);
    pass(milliseconds(10));
    return joined;
  }
  static void be_on(const Joined& who, unsigned gpu) {
    const Uuid uuid = uuid_of(static_cast<unsigned char>(gpu));
    std::copy(uuid.begin(), uuid.end(), who.lane().uuid);
    ++who.lane().places;
  }
  json migrate(const char* to = "1", const char* name = "x") {
    return ask({{"op", "migrate"}, {"target", name}, {"to", to}});
  }
  json answer() {
    const Job* job = monitor.registry().find_target("x");
    const auto said = answer_awaited(monitor, Awaits::kMoved, job->key, now, false);
    return said ? json::parse(*said) : json();
  }
  std::uint64_t held(std::size_t gpu) {
    return account(gpu).held(monitor.registry().find_target("x")->key);
  }
  // What the library does.
  void be_absent(const Joined& who) {
    who.shim.be_absent();
    for (auto& gpu : gpus.uses) gpu.erase(who.client->peer.pid);
  }
  void leave(std::initializer_list<const Joined*> all) {
    for (const Joined* each : all) be_absent(*each);
    pass(milliseconds(50));
    for (const Joined* each : all) {
      EXPECT_EQ(each->shim.residency().limited, abi::kContextsToo);
      each->shim.be_detached();
    }
    pass(milliseconds(50));
  }
  // Its contexts are on that GPU.
  void land(const Joined& who, unsigned gpu, std::uint32_t error = abi::kSwapFine) {
    EXPECT_EQ(who.shim.residency().limited, abi::kLimited);
    if (error == abi::kSwapFine) be_on(who, gpu);
    gpus.uses[gpu][who.client->peer.pid] = 0;
    who.shim.say(abi::kAbsent, error);
    pass(milliseconds(50));
  }
  void come(std::initializer_list<const Joined*> all, unsigned gpu) {
    for (const Joined* each : all) {
      EXPECT_EQ(each->shim.residency().limited, abi::kUnlimited);
      each->shim.be_resident();
      gpus.uses[gpu][each->client->peer.pid] = each->shim.residency().total_bytes;
    }
    pass(milliseconds(50));
  }
  std::string where() {
    std::string all;
    const json listed = job();
    for (const json& gpu : listed["gpus"]) {
      if (gpu["memory_used_bytes"] != 0) all += gpu["uuid"].get<std::string>().back();
    }
    return all;
  }
};

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

// Of a job "x" that sees both GPUs, and so may leave its memory behind.
struct LeavesBehind : Moves {
  Joined a;

  explicit LeavesBehind(const Ask& ask = asks()) : a(runs(ask, 2)) {
    a.shim.open_context();
    a.shim.memory().contexts = abi::kContextsMayLeave;
    see(0, 1);
    EXPECT_TRUE(allocate(a, 2 * kGiB));
    a.shim.swappable(2 * kGiB);
    pass(milliseconds(10));
  }
  static Ask asks() { return {.job = "x", .name = "x", .swappable = "yes"}; }
  void see(unsigned first, unsigned second) const {
    be_on(a, first);
    const Uuid uuid = uuid_of(static_cast<unsigned char>(second));
    std::copy(uuid.begin(), uuid.end(), a.lane(1).uuid);
  }
  abi::Residency& words() const { return a.shim.residency(0); }
  void says_kept(std::uint64_t bytes, unsigned lane) const {
    a.lane(0).parked_lane = bytes != 0 ? lane + 1 : 0;
    a.lane(0).parked_bytes = bytes;
  }
  void leaves_with_contexts() {
    says_kept(2 * kGiB, 0);
    leave({&a});
  }
  void lands() {
    see(1, 0);
    says_kept(2 * kGiB, 1);
    gpus.uses[1][a.client->peer.pid] = 0;
    a.shim.say(abi::kAbsent);
    pass(milliseconds(50));
  }
  std::uint64_t free(std::size_t gpu) { return account(gpu).free(); }
};

TEST(Migrations, WhoSeesBothGpusLeavesItsMemoryBehindAndItCountsOnce) {
  LeavesBehind rig;
  const std::uint64_t free = rig.free(0);
  rig.migrate();
  EXPECT_EQ(rig.words().park_lane, 1u) << "its own: where it is";
  EXPECT_EQ(rig.words().park_bytes, 2 * kGiB);
  EXPECT_EQ(rig.words().park_only, 0u) << "what can't stay goes to the host";
  const std::uint64_t beside = rig.free(1);
  const auto counted = [&] {
    EXPECT_EQ(rig.free(0), free);
    EXPECT_EQ(rig.free(1), beside);
    EXPECT_EQ(rig.words().park_bytes, 2 * kGiB) << "nothing need move on";
  };
  counted();
  rig.leaves_with_contexts();
  counted();
  rig.lands();
  EXPECT_EQ(rig.free(0), free);
  EXPECT_EQ(rig.free(1), beside);
  rig.says_kept(0, 0);
  rig.come({&rig.a}, 1);
  EXPECT_EQ(rig.answer()["ok"], true) << rig.answer();
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.account(0).parked(), 0u);
  EXPECT_EQ(rig.held(0), 0u);
  EXPECT_EQ(rig.words().park_bytes, 0u);
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

TEST(Migrations, WhatIsLeftBehindMakesNoWay) {
  LeavesBehind rig;
  rig.migrate();
  rig.leaves_with_contexts();
  const Joined b = rig.join({.name = "b"});
  EXPECT_NE(rig.charge(b, 3 * kGiB).verdict, wire::kGranted);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.words().park_bytes, 2 * kGiB);
}

TEST(Migrations, WhatOthersHaveParkedThereMakesWayInItsPlace) {
  LeavesBehind rig;
  Ask ask;
  ask.name = "c";
  ask.swappable = "yes";
  const Joined c = rig.runs(ask, 2);
  c.shim.residency(1).total_bytes = kGiB;
  c.lane(1).parked_lane = 1;
  c.lane(1).parked_bytes = kGiB;
  c.client->lanes[1].parker = policy::found(0, kGiB);
  rig.migrate();
  rig.leaves_with_contexts();
  const Joined b = rig.join({.name = "b"});
  EXPECT_EQ(rig.charge(b, 2 * kGiB).verdict, wire::kWait);
  EXPECT_EQ(c.client->lanes[1].parker.allowed, 0u);
  EXPECT_EQ(rig.words().park_bytes, 2 * kGiB);
}

TEST(Migrations, WhatIsLeftBehindIsNobodysUseFromOutside) {
  LeavesBehind rig;
  rig.migrate();
  rig.leaves_with_contexts();
  rig.gpus.memories[0].used_bytes = 2 * kGiB;  // NVML names no process
  for (int i = 0; i < 3; ++i) rig.pass(seconds(1));
  EXPECT_EQ(rig.account(0).outside(), 0u);
  rig.lands();
  for (int i = 0; i < 3; ++i) rig.pass(seconds(1));
  EXPECT_EQ(rig.account(0).outside(), 0u);
}

TEST(Migrations, WhatShallStayOutOrTakesTurnsOrSeesOneGpuLeavesNothingBehind) {
  {
    LeavesBehind rig;
    rig.tell("swap-out", "x");
    rig.migrate();
    EXPECT_EQ(rig.words().park_bytes, 0u);
  }
  {
    Ask ask = LeavesBehind::asks();
    ask.oversubscribe = "yes";
    LeavesBehind rig(ask);
    rig.migrate();
    EXPECT_EQ(rig.words().park_bytes, 0u);
  }
  Moves rig;
  const Joined a = rig.process(2 * kGiB);
  rig.migrate();
  EXPECT_EQ(a.shim.residency(0).park_bytes, 0u);
}

TEST(Migrations, WhatCannotBeReachedLeadsBackAndNothingMoreIsLeftBehind) {
  LeavesBehind rig;
  rig.migrate();
  rig.leaves_with_contexts();
  rig.lands();
  EXPECT_EQ(rig.words().limited, abi::kUnlimited);
  rig.words().swap_result = 101;
  rig.a.shim.say(abi::kReturning, abi::kSwapFailed);
  rig.pass(milliseconds(50));
  EXPECT_EQ(rig.job()["state_reason"], "back to GPU 0");
  EXPECT_EQ(rig.words().limited, abi::kLimited) << "it is told to leave";
  EXPECT_EQ(rig.words().park_bytes, 2 * kGiB) << "what is there waits for the contexts";
  EXPECT_NE(rig.words().park_lane, 1u);
  rig.leave({&rig.a});
  rig.see(0, 1);
  rig.says_kept(2 * kGiB, 0);
  rig.a.shim.say(abi::kAbsent);
  rig.pass(milliseconds(50));
  rig.says_kept(0, 0);
  rig.come({&rig.a}, 0);
  EXPECT_NE(rig.answer().dump().find("CUDA error 101"), std::string::npos) << rig.answer();
}

TEST(Migrations, WhatCannotBeReachedOnTheWayBackEitherKeepsNoRoomForEver) {
  LeavesBehind rig;
  rig.migrate();
  rig.leaves_with_contexts();
  rig.lands();
  rig.words().swap_result = 101;
  rig.a.shim.say(abi::kReturning, abi::kSwapFailed);
  rig.pass(milliseconds(50));
  rig.leave({&rig.a});
  rig.see(0, 1);
  rig.says_kept(2 * kGiB, 0);
  rig.a.shim.say(abi::kAbsent);
  rig.pass(milliseconds(50));
  rig.a.shim.say(abi::kReturning, abi::kSwapFailed);
  rig.pass(milliseconds(50));
  EXPECT_TRUE(rig.answer().is_null()) << "it may still succeed";
  EXPECT_NE(rig.held(1), 0u);
  for (int i = 0; i < 12; ++i) rig.pass(seconds(1));
  EXPECT_NE(rig.answer().dump().find("CUDA error 101"), std::string::npos) << rig.answer();
  EXPECT_EQ(rig.held(1), 0u);
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
  EXPECT_EQ(a.lane().shall_be_on, 0u) << "it was told nothing";
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
  rig.pass(migration::kFindsRoomWithin);
  EXPECT_EQ(rig.job()["state_reason"], "back to GPU 0");
  rig.leave({&a});
  rig.land(a, 0);
  rig.come({&a}, 0);
  EXPECT_NE(rig.answer().dump().find("no room for its memory"), std::string::npos);
  EXPECT_EQ(rig.where(), "0");
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

TEST(Migrations, AProcessThatEndsOnItsWayKeepsNoRoom) {
  Moves rig;
  const Joined a = rig.process(3 * kGiB);
  const Joined b = rig.process(0);
  b.lane().contexts = b.lane().compute_groups = 0;
  rig.migrate();
  rig.leave({&a});
  rig.dies(a);
  rig.pass(milliseconds(50));
  EXPECT_NE(rig.answer().dump().find("nothing of it uses a GPU"), std::string::npos);
  EXPECT_EQ(rig.held(1), 0u);
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
  refused(kUsage, "invalid value", "GPU");
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
  wire::Hello hello = hello_of({.name = "first", .on_oom = "wait"});
  const Uuid uuid = uuid_of(1);
  std::copy(uuid.begin(), uuid.end(), hello.uuid[0]);
  const Joined first = rig.join_as({rig.next_pid++, 1000}, hello);
  first.shim.open_context();
  rig.gpus.uses[1][77] = kGiB;
  rig.pass(seconds(2));
  ASSERT_EQ(rig.charge(first, 4 * kGiB).verdict, wire::kWait);
  EXPECT_NE(rig.migrate().dump().find("job 'first' waits for memory there"), std::string::npos);
  rig.pass(seconds(2));
  EXPECT_EQ(rig.migrate()["state"], "moving") << "it has given up";
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
  wire::Hello hello = hello_of({.name = "there", .oversubscribe = "yes"});
  const Uuid uuid = uuid_of(1);
  std::copy(uuid.begin(), uuid.end(), hello.uuid[0]);
  const Joined there = rig.join_as({rig.next_pid++, 1000}, hello);
  there.shim.open_context();
  ASSERT_EQ(rig.charge(there, 3 * kGiB).verdict, wire::kGranted);
  ASSERT_TRUE(there.shim.allocate(3 * kGiB));
  there.shim.swappable(3 * kGiB);
  EXPECT_EQ(rig.migrate()["code"], kRefusedByPolicy);
}

}  // namespace
}  // namespace switchyard::monitor::test
