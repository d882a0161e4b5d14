// The shim's engine without a preload, a driver or a monitor: what stands around it in these tests.
//
// Concept. The engine's own files are compiled into the test. `World` plays the monitor, which owns
// one quota per GPU and grants credit out of it into the page. It also plays the parts of the
// driver that the rules ask. Each rule gets its original as an argument, so a test gives it any.
//
// Threading: as the engine: the monitor's side is locked.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "shim/client/process.h"
#include "shim/driver.h"
#include "switchyard/wire.h"
#include "tests/shim/engine/fake_driver.h"

namespace switchyard::shim::testing {

inline constexpr std::uint64_t kMiB = 1u << 20;
// Older headers lack CU_MEM_LOCATION_TYPE_HOST_NUMA.
inline constexpr auto kHostNuma = static_cast<CUmemLocationType>(3);

// The monitor, and the driver.
struct World : FakeDriver {
  bool present = true;
  std::uint64_t quota = 0;  // of lane 0; 0: none
  std::uint64_t granted = 0;
  std::uint64_t largest_granted = 0;
  int charges = 0;    // kCharge requests
  int refreshes = 0;  // kRefresh requests
  std::atomic<int> wakes{0};
  std::atomic<int> pokes{0};               // of the service thread
  int waits_first = 0;                     // answer kWait so often before a refusal
  wire::Lacks lacks = wire::kDeviceLacks;  // the reason of refusals
  std::function<void()> before_answer;
};

extern World* g_world;

class EngineTest : public ::testing::Test {
 protected:
  EngineTest();
  ~EngineTest() override;

  Faults& faults() { return world_.faults; }
  abi::Lane& lane() { return page().lanes[0]; }
  std::uint64_t used() { return process().used_bytes[0].load(); }
  std::uint64_t debt() { return process().debt_bytes[0].load(); }
  std::uint64_t credit() { return lane().credit_bytes.load(); }
  // What the page says of memory that can't leave.
  static std::uint64_t stays(Stays why) {
    return page().memories[0].stays_bytes[static_cast<unsigned>(why)].load();
  }
  void set_quota(std::uint64_t bytes);
  // The driver's own allocation, as an original for rules: fresh addresses, 64 MiB apart.
  static CUresult driver_alloc(CUdeviceptr* out, size_t bytes);
  // granted = used + credit - debt, whatever happened.
  void expect_balanced();

  World world_;
};

// `body` in so many threads at once, each with its number, until all have ended.
template <typename Body>
void in_threads(int count, const Body& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) threads.emplace_back(body, t);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace switchyard::shim::testing
