// Of which CUDA the library knows the calls. Those of a newer one pass it unseen.
//
// Threading: constants.
#pragma once

#include <cuda.h>

namespace switchyard {

// As CUDA_VERSION has it: 13000 is CUDA 13.0. The tables of shim/ have the calls until then. A
// build leaves out what its headers lack (cmake/FilterCalls.cmake).
inline constexpr int kTableVersion = 13000;
inline constexpr int kKnownVersion = CUDA_VERSION < kTableVersion ? CUDA_VERSION : kTableVersion;

}  // namespace switchyard
