// The engine's world with memory that can be moved: the calls of virtual memory management, and the
// mover's side of the accounts without its thread.
//
// Concept. Addresses and handles are numbers: nothing stands behind them. The made-up driver
// refuses what the real one does, and remembers what lives. Reserve, create, map and access are
// watched (engine/faults.h).
//
// Threading: locked by the world's lock, except what a test sets before it begins.
#pragma once

#include "shim/swap/host/pinned_pool.h"
#include "tests/shim/engine/world.h"

namespace switchyard::shim::testing {

struct Mapping {
  std::uint64_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
  bool accessible = false;
  std::vector<CUmemAccessDesc> access = {};  // as it was given last
};

struct SwapWorld {
  // --- the driver ---
  std::map<CUdeviceptr, std::uint64_t> reserved;
  std::map<std::uint64_t, CUdeviceptr> again;  // the address to give out next, by size
  std::map<CUmemGenericAllocationHandle, std::uint64_t> handles;
  std::map<CUdeviceptr, Mapping> mapped;
  std::map<CUmemGenericAllocationHandle, CUmemAllocationProp> kinds;  // of all that were created
  unsigned refused_types = 0;        // handle types that it makes no memory for
  CUmemAllocationProp properties{};  // of the last that was created
  bool rdma = false;
  int relaxed = 0;  // how often a thread changed its capture mode
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED;  // every thread's
  std::vector<CUdeviceptr> freed;                                     // by the driver's own free

  // --- what the mover was told ---
  std::atomic<int> started{0};
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  std::uint64_t most_resident = 0;
  std::function<CUresult(CUmemGenericAllocationHandle)> make_whole;  // null: it never comes to it
};

extern SwapWorld* g_swap;

class SwapTest : public EngineTest {
 protected:
  SwapTest();
  ~SwapTest() override;

  // Nothing is left of any allocation, on any side.
  void expect_nothing_left();

  // The driver's own free, as an original for rules, and an allocation that is not to be called.
  static CUresult driver_free(CUdeviceptr address);
  static CUresult never(CUdeviceptr* out, size_t bytes);

  // By the rules.
  CUdeviceptr allocate(std::uint64_t bytes);
  static CUresult free(CUdeviceptr address);

  // Leaves an allocation as a move to the host does, without the bytes.
  void take_away(CUdeviceptr address);
  // The same, and work is held as while it is away.
  void take_away_and_shut(CUdeviceptr address);
  CUcontext use_context(std::uintptr_t number);
  CUcontext make_context(std::uintptr_t number);  // by the application, which uses it

  SwapWorld swap_;
};

}  // namespace switchyard::shim::testing
