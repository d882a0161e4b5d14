// The GPU's time that NVML lists under a server is that of the members at work.
#include "monitor/islands/loads.h"

#include <gtest/gtest.h>

#include "monitor/islands/members.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor {
namespace {

using test::Joined;
using test::json;
using test::Rig;

Joined join(Rig& rig, const std::string& name, json card) {
  card["name"] = name;
  const json made = rig.ask({{"op", "create"}, {"pid", 0}, {"card", card}}, 1000);
  return rig.join({.job = made["job"]});
}

TEST(IslandLoads, TheServersLoadIsThatOfItsMembersAtWork) {
  Rig rig;
  const Joined server = join(rig, "s", {{"co_run", "x"}, {"island_gpu", "GPU-0"}});
  const Joined a = join(rig, "a", {{"co_run", "x"}}), b = join(rig, "b", {{"co_run", "x"}});
  const Joined idle = join(rig, "idle", {{"co_run", "x"}}), plain = join(rig, "p", json::object());
  const auto load = [](const Joined& of) -> double& { return of.client->lanes[0].load; };
  load(server) = 0.6;
  load(plain) = 0.3;
  for (const Joined* each : {&a, &b, &plain}) each->client->lanes[0].active = true;
  islands::share_loads(rig.monitor.registry());
  EXPECT_DOUBLE_EQ(load(a), 0.3);
  EXPECT_DOUBLE_EQ(load(b), 0.3);
  EXPECT_LE(load(idle), 0);
  EXPECT_DOUBLE_EQ(load(server), 0);
  EXPECT_DOUBLE_EQ(load(plain), 0.3);
}

TEST(IslandLoads, WithoutASampleNothingIsKnown) {
  Rig rig;
  const Joined server = join(rig, "s", {{"co_run", "x"}, {"island_gpu", "GPU-0"}});
  const Joined a = join(rig, "a", {{"co_run", "x"}});
  a.client->lanes[0].active = true;
  islands::share_loads(rig.monitor.registry());
  EXPECT_EQ(a.client->lanes[0].load, -1);
  EXPECT_EQ(server.client->lanes[0].load, -1);
}

}  // namespace
}  // namespace switchyard::monitor
