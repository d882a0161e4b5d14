// An island that fails: each member that is there is told once, and those at work are suspects.
#include "monitor/islands/failures.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/monitor/log_lines.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor {
namespace {

using test::Joined;
using test::json;
using test::LogLines;
using test::milliseconds;
using test::Rig;
using test::seconds;

constexpr std::uint32_t kIllegalAddress = 700, kRpcFailure = 806;

class IslandFailures : public ::testing::Test {
 protected:
  Joined join(const std::string& name, json card) {
    card["name"] = name;
    const json made = rig.ask({{"op", "create"}, {"pid", 0}, {"card", card}}, 1000);
    return rig.join({.job = made["job"]});
  }
  // With a context in the server.
  Joined member(const std::string& name) {
    Joined out = join(name, {{"co_run", "x"}});
    out.lane().contexts = 1;
    out.lane().in_use = 1;
    return out;
  }
  Joined server() { return join("s", {{"co_run", "x"}, {"island_gpu", "GPU-0"}}); }
  // {job: text} of these events.
  json told(const std::string& kind) {
    json out = json::object();
    const json listing = rig.ask({{"op", "events"}});
    for (const json& event : listing["events"]) {
      if (event["kind"] != kind) continue;
      EXPECT_FALSE(out.contains(event["name"])) << "told twice";
      out[event["name"].get<std::string>()] = event["text"];
    }
    return out;
  }
  json failure_of(const std::string& name) {
    const json listing = rig.ask({{"op", "ps"}});
    for (const json& job : listing["jobs"]) {
      if (job["name"] == name) return job["island_failure"];
    }
    return nullptr;
  }

  Rig rig;
};

TEST_F(IslandFailures, MembersAloneAreAskedForFaults) {
  const Joined a = member("a"), plain = join("plain", json::object()), s = server();
  EXPECT_NE(a.lane().attention & abi::kTellFaults, 0u);
  EXPECT_EQ(plain.lane().attention & abi::kTellFaults, 0u);
  EXPECT_EQ(s.lane().attention & abi::kTellFaults, 0u);
}

TEST_F(IslandFailures, AFaultNamesThoseThatWereAtWork) {
  const Joined a = member("a"), b = member("b"), idle = member("idle");
  const Joined plain = join("plain", json::object());
  rig.settle({&a, &b, &plain});
  a.lane().fault = kIllegalAddress;
  rig.monitor.look_at_those_of(a.id, rig.now);
  EXPECT_EQ(told("island fault"),
            json({{"a",
                   "its island has failed on GPU 0: illegal address (error 700); at work then: "
                   "a suspect"},
                  {"b",
                   "its island has failed on GPU 0: illegal address (error 700); at work then: "
                   "a suspect"},
                  {"idle",
                   "its island has failed on GPU 0: illegal address (error 700); not at work "
                   "then"}}));
  EXPECT_EQ(failure_of("idle")["suspects"], json({"a", "b"}));
  EXPECT_EQ(failure_of("idle")["error"], kIllegalAddress);
  EXPECT_EQ(failure_of("plain"), nullptr);
  // The others tell it, too, and that is no news.
  b.lane().fault = kIllegalAddress;
  idle.lane().fault = kIllegalAddress;
  rig.pass(milliseconds(200));
  EXPECT_EQ(told("island fault").size(), 3u);
}

TEST_F(IslandFailures, AFaultIsToldOfAMemberThatIsGoneAtOnce) {
  const Joined a = member("a"), b = member("b");
  rig.settle({&a});
  a.lane().fault = kIllegalAddress;
  rig.dies(a);
  EXPECT_EQ(told("island fault").size(), 2u);
  EXPECT_EQ(failure_of("b")["suspects"], json({"a"}));
}

// Its page says an error, and a moment later nothing.
TEST_F(IslandFailures, AFaultThatNobodyHasIsNotLogged) {
  const Joined a = member("a");
  std::atomic<bool> ends{false};
  a.lane().contexts = 0;
  std::thread flips([&] {
    while (!ends) a.lane().fault = kIllegalAddress - a.lane().fault;
  });
  spdlog::set_level(spdlog::level::warn);
  std::size_t lines = 0;
  {
    const LogLines log;
    for (int i = 0; i < 2000 && told("island fault").empty(); ++i) {
      rig.monitor.look_at_those_of(a.id, rig.now);
    }
    lines = log.count("an island has failed");
  }
  spdlog::set_level(spdlog::level::off);
  ends = true;
  flips.join();
  EXPECT_LE(lines, told("island fault").size());
}

TEST_F(IslandFailures, TheEndOfTheServerIsToldToThoseWithAContext) {
  const Joined a = member("a"), b = member("b"), s = server();
  const Joined fresh = join("fresh", {{"co_run", "x"}}), other = join("o", {{"co_run", "y"}});
  other.lane().contexts = 1;
  const std::string text = "the MPS server of its island has ended (pid " +
                           std::to_string(s.client->peer.pid) + "): its CUDA calls fail";
  rig.dies(s);
  EXPECT_EQ(told("island ended"), json({{"a", text}, {"b", text}}));
  EXPECT_EQ(failure_of("a")["text"], "its MPS server ended");
  EXPECT_EQ(failure_of("fresh"), nullptr);
  // Then their calls fail, which is no news.
  a.lane().fault = kRpcFailure;
  rig.pass(milliseconds(200));
  EXPECT_EQ(told("island ended").size(), 2u);
  EXPECT_TRUE(told("island fault").empty());
}

TEST_F(IslandFailures, AJobOfSeveralProcessesIsToldOnce) {
  const Joined a = member("a"), s = server();
  const Joined more = rig.join({.job = rig.ask({{"op", "ps"}})["jobs"][0]["job"]});
  more.lane().contexts = 1;
  more.lane().in_use = 1;
  ASSERT_EQ(more.client->job, a.client->job);
  rig.dies(s);
  EXPECT_EQ(told("island ended").size(), 1u);
}

// nvidia-smi in the shell of the server's job, say.
TEST_F(IslandFailures, TheEndOfAnObserverBesideTheServerIsNoFailure) {
  const Joined a = member("a"), s = server();
  const std::string id = rig.monitor.registry().find(s.client->job)->id;
  const Joined observer = rig.join({.job = id}, 1000, 1, wire::kObserver);
  ASSERT_EQ(observer.client->job, s.client->job);
  rig.dies(observer);
  EXPECT_TRUE(told("island ended").empty());
  EXPECT_EQ(failure_of("a"), nullptr);
  rig.dies(s);
  EXPECT_EQ(told("island ended").size(), 1u) << "a true one is told";
}

TEST_F(IslandFailures, AServerThatNeverJoinedIsToldByItsMembers) {
  const Joined a = member("a"), b = member("b");
  a.lane().fault = kRpcFailure;
  rig.pass(milliseconds(200));
  EXPECT_EQ(told("island ended").size(), 2u);
}

TEST_F(IslandFailures, WhoComesLaterHasNotFailed) {
  const Joined a = member("a");
  a.lane().fault = kIllegalAddress;
  rig.pass(milliseconds(200));
  const Joined b = member("b");
  rig.settle({&b});
  EXPECT_EQ(failure_of("b"), nullptr);
  b.lane().fault = 719;
  rig.pass(milliseconds(200));
  EXPECT_EQ(failure_of("b")["text"], "launch failed (error 719)");
  EXPECT_EQ(failure_of("a")["text"], "illegal address (error 700)");
}

}  // namespace
}  // namespace switchyard::monitor
