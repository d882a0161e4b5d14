// The made-up driver of all worlds: GPUs with their contexts, streams that may be captured, and
// pools. A world adds what its own tests are about, and has calls fail by its faults (faults.h).
//
// Concept. A driver that lacks a call is a case of its own. So each group of calls is there only
// once a world asks for it. What a call does can be read and changed by name.
//
// Threading: locked, except what a test sets before it begins. The current context is every
// thread's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "shim/driver.h"
#include "switchyard/abi.h"
#include "tests/shim/engine/faults.h"

namespace switchyard::shim::testing {

inline CUcontext context_number(std::uintptr_t n) { return reinterpret_cast<CUcontext>(n); }
// The primary contexts, by GPU, of which the first is the one that most tests have.
inline CUcontext primary_of(int device) {
  return context_number(0xA000 + static_cast<std::uintptr_t>(device));
}
inline const CUcontext kPrimary = primary_of(0);
// The GPU of a primary context of a further GPU; `first` of any other context.
inline int device_of(CUcontext context, int first) {
  const std::uintptr_t device =
      reinterpret_cast<std::uintptr_t>(context) - reinterpret_cast<std::uintptr_t>(kPrimary);
  return device != 0 && device < abi::kMaxGpus ? static_cast<int>(device) : first;
}
inline CUmemoryPool pool_number(std::uintptr_t n) { return reinterpret_cast<CUmemoryPool>(n); }

// A pool of the made-up driver.
struct FakePool {
  std::uint64_t used = 0;
  std::uint64_t reserved = 0;
  std::uint64_t threshold = 0;
};

struct FakeDriver {
  std::mutex lock;
  Faults faults;  // of the calls that a world watches

  // --- contexts ---
  int device = 0;  // of the current context, if not of a further GPU; -1: none is current
  CUcontext context = context_number(0x1000);
  CUcontext pushed = nullptr;    // what was current before a push
  std::set<CUcontext> refused;   // that nothing can be done in
  bool primary = true;           // the primary contexts are active
  int retained = 0;              // how often one is retained and not released
  int fewest_retained = 0;       // ever
  std::vector<CUcontext> waits;  // contexts that were synchronised
  CUresult wait_result = CUDA_SUCCESS;
  std::function<void()> during_wait;

  // --- streams ---
  bool all_captured = false;
  std::set<CUstream> captured;
  bool legacy_untouchable = false;  // another stream's capture forbids to touch the legacy one

  // --- pools ---
  CUmemoryPool current_pool = pool_number(1);  // the default one, too
  std::map<CUmemoryPool, FakePool> pools{{current_pool, {}}};
  FakePool graphs;
  int trims = 0;
  std::vector<CUdeviceptr> freed_async;
};

// Puts calls of the driver that g_world is into the table: questions for the current context,
void use_current_context();
// changes of it, waits and the primary context,
void use_contexts();
// questions for captures, and pools.
void use_streams();
void use_pools();

}  // namespace switchyard::shim::testing
