// The driver's calls that are timed, each looked up once: a look-up would count.
//
// Concept. `CU(cuMemMap, ...)` calls one and ends the program where the driver refuses.
//
// Threading: one thread.
#pragma once

#include "bench/driver.h"

namespace switchyard::bench::ablation {

// clang-format off
#define ABLATION_CALLS(CALL) \
  CALL(cuDeviceGetAttribute) CALL(cuDeviceGetCount) CALL(cuDeviceCanAccessPeer) \
  CALL(cuCtxGetCurrent) CALL(cuCtxSetCurrent) CALL(cuGetErrorName) CALL(cuMemGetAllocationGranularity) \
  CALL(cuMemCreate) CALL(cuMemRelease) CALL(cuMemMap) CALL(cuMemUnmap) CALL(cuMemSetAccess) \
  CALL(cuMemAddressReserve) CALL(cuMemAddressFree) CALL(cuMemAlloc) CALL(cuMemFree) \
  CALL(cuMemHostAlloc) CALL(cuMemFreeHost) CALL(cuMemHostRegister) CALL(cuMemHostUnregister) \
  CALL(cuMemcpyDtoH) CALL(cuMemcpyHtoD) CALL(cuMemcpyDtoHAsync) CALL(cuMemcpyHtoDAsync) \
  CALL(cuMemcpyAsync) CALL(cuMemcpyDtoDAsync) CALL(cuMemsetD32) CALL(cuStreamCreate) CALL(cuStreamDestroy) \
  CALL(cuStreamSynchronize) CALL(cuStreamWaitEvent) CALL(cuEventCreate) CALL(cuEventDestroy) \
  CALL(cuEventRecord) CALL(cuEventSynchronize) CALL(cuCtxSynchronize) CALL(cuLaunchKernel) \
  CALL(cuModuleGetFunction)
// clang-format on

SWITCHYARD_CUDA_FUNCTIONS(Calls, ABLATION_CALLS);

inline const Calls& calls() {
  static const Calls only = loaded<Calls>();
  return only;
}

#define CU(name, ...) \
  ::switchyard::bench::check(::switchyard::bench::ablation::calls().name(__VA_ARGS__), #name)

inline double ms_since(std::int64_t begun_ns) {
  return static_cast<double>(now_ns() - begun_ns) * 1e-6;
}

}  // namespace switchyard::bench::ablation
