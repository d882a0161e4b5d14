#include "tests/shim/engine/world.h"

#include <algorithm>

#include "shim/client/client.h"
#include "shim/client/service.h"
#include "shim/memory/account.h"
#include "shim/memory/ledger.h"
#include "shim/memory/pools.h"
#include "shim/rules/graph_memory.h"
#include "shim/slices/groups.h"

// What the engine would reach outside of itself.
namespace switchyard::shim {

Driver g_driver;

bool request(wire::Kind kind, int lane, std::uint64_t bytes, wire::Charged& answer) {
  testing::World& world = *testing::g_world;
  if (world.before_answer) world.before_answer();
  const std::lock_guard hold(world.lock);
  if (!world.present) return false;
  if (kind == wire::kRefresh) return ++world.refreshes > 0;
  ++world.charges;
  auto& credit = page().lanes[lane].credit_bytes;
  const std::uint64_t has = credit.load();
  const std::uint64_t missing = bytes > has ? bytes - has : 0;
  const std::uint64_t left = world.quota > world.granted ? world.quota - world.granted : 0;
  if (world.quota != 0 && missing > left) {
    answer.verdict = world.waits_first-- > 0 ? wire::kWait : wire::kOverQuota;
    answer.lacks = world.lacks;
    return true;
  }
  world.granted += missing;
  world.largest_granted = std::max(world.largest_granted, world.granted);
  credit.fetch_add(missing);
  page().lanes[lane].available_bytes.store(world.quota - world.granted);
  answer = {wire::kGranted, 0, missing, world.quota - world.granted};
  return true;
}

void wake_monitor() {
  if (testing::g_world != nullptr) ++testing::g_world->wakes;
}
void service::poke() {
  if (testing::g_world != nullptr) ++testing::g_world->pokes;
}

}  // namespace switchyard::shim

namespace switchyard::shim::testing {

World* g_world = nullptr;

EngineTest::EngineTest() {
  g_world = &world_;
  g_driver = {};
  use_current_context();
  use_pools();
  process().alive.store(0);  // as a process that begins
  process().joined.store(0);
  process().captures.store(0);
  for (auto& word : process().used_bytes) word.store(0);
  for (auto& word : process().debt_bytes) word.store(0);
  for (auto& lane : process().stays_bytes) {
    for (auto& word : lane) word.store(0);
  }
  t_lane = 0;
  begin_process();
  process().joined.store(1);
}

EngineTest::~EngineTest() { g_world = nullptr; }

void EngineTest::set_quota(std::uint64_t bytes) {
  world_.quota = bytes;
  lane().quota_bytes.store(bytes);
  lane().available_bytes.store(bytes - world_.granted);
}

void EngineTest::expect_balanced() {
  EXPECT_EQ(world_.granted, used() + credit() - debt());
  EXPECT_EQ(lane().used_bytes.load(), used());
}

CUresult EngineTest::driver_alloc(CUdeviceptr* out, size_t) {
  static std::atomic<CUdeviceptr> next{0x600000000000};
  *out = next.fetch_add(64 * kMiB);
  return CUDA_SUCCESS;
}

}  // namespace switchyard::shim::testing
