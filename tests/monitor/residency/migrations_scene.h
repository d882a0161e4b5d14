// Jobs that go to another GPU: what their libraries do, for the tests of migrations.
//
// Threading: one thread, the test's.
#pragma once

#include <gtest/gtest.h>

#include "monitor/control/commands.h"
#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {

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
    who.shim.be_on(gpu);
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
    a.shim.be_on(second, 1);
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

}  // namespace switchyard::monitor::test
