// A whole monitor on fake GPUs, with fake clients and a clock that only the test moves.
//
// Threading: one thread.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <map>
#include <nlohmann/json.hpp>

#include "monitor/control/commands.h"
#include "monitor/monitor.h"
#include "tests/monitor/fake_shim.h"

namespace switchyard::monitor::test {

// The names that nearly every test of the monitor uses.
using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Tests say what failed by themselves.
inline const bool kQuiet = (spdlog::set_level(spdlog::level::off), true);

// A client that joined, seen from both sides.
struct Joined {
  Client* client;
  FakeShim shim;
  ClientId id;
  abi::Lane& lane(unsigned at = 0) const { return shim.lane(at); }
};

inline Settings with_host_pool(std::uint64_t bytes) {
  Settings settings;
  settings.host_pool_bytes = bytes;
  return settings;
}

class Rig {
 public:
  explicit Rig(unsigned gpus = 1, std::uint64_t bytes = 4 * kGiB, Settings settings = {},
               Time begins = seconds(1000))
      : gpus(gpus, bytes),
        now(begins),
        monitor(this->gpus, std::move(settings), now, [this] { return (++random_) << 20; }) {}

  // A fresh process of `uid` joins. Its pid is made up.
  Joined join(const Ask& ask, uid_t uid = 1000, unsigned lanes = 1, std::uint32_t flags = 0) {
    return join_as({next_pid++, uid}, hello_of(ask, lanes, flags));
  }
  Joined join_as(const Peer& peer, const wire::Hello& hello) {
    std::string why;
    Client* client = monitor.join(peer, hello, now, why);
    if (client == nullptr) throw std::runtime_error("refused: " + why);
    return {client, FakeShim(client->page->memfd()), client->id};
  }
  // The same, with a context and its first work.
  Joined runs(const Ask& ask, unsigned lanes = 1) {
    Joined joined = join(ask, 1000, lanes);
    joined.shim.open_context();
    joined.shim.launch();
    return joined;
  }
  std::string refusal(const Ask& ask, uid_t uid = 1000, std::uint32_t flags = 0) {
    std::string why;
    Client* client = monitor.join({next_pid++, uid}, hello_of(ask, 1, flags), now, why);
    EXPECT_EQ(client, nullptr);
    return why;
  }

  wire::Charged charge(const Joined& who, std::uint64_t bytes, unsigned lane = 0) {
    return monitor.charge(who.id, {lane, 0, bytes}, now);
  }
  // Charges and takes what the client asked for, as an allocation does.
  bool allocate(const Joined& who, std::uint64_t bytes) {
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (who.shim.allocate(bytes)) {
        gpus.uses[0][who.client->peer.pid] += bytes;
        return true;
      }
      if (charge(who, bytes).verdict != wire::kGranted) return false;
    }
    return false;
  }
  void release(const Joined& who, std::uint64_t bytes) {
    gpus.uses[0][who.client->peer.pid] -= bytes;
    who.shim.release(bytes);
  }

  json ask(const json& request, uid_t uid = 0, pid_t pid = 1) {
    return json::parse(answer_command(monitor, {pid, uid}, request.dump(), now).json);
  }
  // A command about one job, and the job as `ps` lists it.
  json tell(const char* op, const char* name = "x") { return ask({{"op", op}, {"target", name}}); }
  json job(std::size_t at = 0) { return ask({{"op", "ps"}})["jobs"][at]; }
  void pass(Time span) {
    now += span;
    monitor.tick(now);
    monitor.look(now);
  }
  // Everybody works and their service threads do what the page says, until nothing changes.
  void settle(std::initializer_list<const Joined*> all) {
    for (int i = 0; i < 4; ++i) {
      for (const Joined* each : all) each->shim.launch();
      pass(milliseconds(5));
      for (const Joined* each : all) each->shim.apply_slices();
    }
  }
  // Bytes that NVML lists for its process.
  std::uint64_t& listed(const Joined& who) { return gpus.uses[0][who.client->peer.pid]; }
  void dies(const Joined& who) {
    gpus.uses[0].erase(who.client->peer.pid);
    monitor.died(who.id);
  }
  Account& account(std::size_t gpu = 0) { return monitor.gpus().all()[gpu].account; }

  FakeGpus gpus;
  Time now;
  pid_t next_pid = 3'000'000;  // beyond what /proc has

 private:
  std::uint64_t random_ = 0;

 public:
  Monitor monitor;
};

}  // namespace switchyard::monitor::test
