// The door cuGetProcAddress: the real one answers, then the pointer is swapped.
//
// Asking the real one first keeps versions, flags, per-thread twins and symbolStatus exact. For
// every name, flag and version it returns the address of exactly one exported symbol. So the
// address alone tells which row it is (measured on 580.159.04 for 16 names).
//
// Threading: any thread.
#pragma once

#include "shim/client/settings.h"
#include "shim/driver.h"
#include "shim/table.h"

namespace switchyard::shim::rules {

template <typename Original, typename... Rest>
CUresult proc_address(Original original, const char* name, void** out, Rest... rest) {
  const CUresult result = original(name, out, rest...);
  if (result != CUDA_SUCCESS || out == nullptr || *out == nullptr || disabled()) return result;
  if (void* entry = entry_by_original(*out)) *out = entry;
  return result;
}

}  // namespace switchyard::shim::rules
