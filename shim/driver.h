// The narrow door to the real driver: one typed pointer per call, taken from libcuda.so.1's handle.
//
// Concept. `Driver` has a field for every row of calls.def and plain.def (the calls we intercept)
// and of driver.def (calls that only we make). The fields have the names of the exported symbols.
// With __CUDA_API_VERSION_INTERNAL cuda.h declares them all, so every type comes from the header. A
// field is null when the loaded driver lacks the call. Other programs of ours need every call of
// theirs, and use switchyard/cuda_library.h.
//
// Threading: resolve() may be called by any thread at any time; it fills the table once. Reading a
// field after resolved() or resolve() returned true needs no lock. A field alone says nothing while
// another thread still fills the table: its row may be there and the next ones not.
#pragma once

#include <atomic>

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>

#include "switchyard/cuda_checkpoint.h"
#include "switchyard/known_calls.h"

namespace switchyard::shim {

struct Driver {
#define CUDA_CALL(name, rule) decltype(&::name) name;
#define DRIVER_CALL(name) decltype(&::name) name;
#include "filtered/calls.def"
#include "filtered/driver.def"
#include "filtered/plain.def"
#undef CUDA_CALL
#undef DRIVER_CALL
};

extern Driver g_driver;

extern std::atomic<bool> g_resolved;

// Whether the whole table is there.
inline bool resolved() { return g_resolved.load(std::memory_order_acquire); }

// The real driver. pre: resolve() returned true (every rule runs behind that).
inline const Driver& driver() { return g_driver; }

// Finds libcuda.so.1 and fills the table. With `load` false it only looks for a library that
// the process already has. False when there is none.
bool resolve(bool load);

// True when this process already has libcuda.so.1; never loads it.
bool driver_loaded();

// libcuda's own handle, or null. For symbols that are looked up from the driver's point of view.
void* driver_handle();

// 13000 is CUDA 13.0; 0: the driver does not say. pre: as driver().
inline int driver_version() {
  int version = 0;
  const auto ask = driver().cuDriverGetVersion;
  return ask != nullptr && ask(&version) == CUDA_SUCCESS ? version : 0;
}

// The answer when the driver has no such call: the driver's own for an unknown one.
inline constexpr CUresult kNoSuchCall = CUDA_ERROR_NOT_SUPPORTED;

}  // namespace switchyard::shim
