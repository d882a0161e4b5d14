// Errors by which a member learns that its island failed.
//
// Concept. The driver tells a fault of one client to all clients of its MPS server. It blames none.
// So the library in each member tells the monitor the first such error. The monitor knows which
// members were at work then (monitor/islands/failures.h). It asks members alone, by a bit in
// `attention`. Elsewhere a result that is no error costs one comparison, and launches nothing.
//
// Threading: any thread; no lock.
#pragma once

#include "shim/client/process.h"
#include "shim/driver.h"

namespace switchyard::shim::island {

// REQUIRES: it is an error.
void tell_fault(abi::Lane& lane, CUresult error);

// `result`, after it was told if it has to be.
inline CUresult told(abi::Lane& lane, CUresult result) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    tell_fault(lane, result);
  return result;
}
inline CUresult told(CUresult result) {
  if (result == CUDA_SUCCESS) [[likely]]
    return result;
  if (abi::Lane* lane = current_lane()) tell_fault(*lane, result);
  return result;
}

}  // namespace switchyard::shim::island
