#include "shim/gate/timers.h"

namespace switchyard::shim::timers {

bool complete() {
  const Driver& calls = driver();
  return calls.cuEventCreate != nullptr && calls.cuEventRecord != nullptr &&
         calls.cuEventQuery != nullptr && calls.cuEventElapsedTime != nullptr;
}

bool current_is(CUcontext context) {
  CUcontext current = nullptr;
  return context != nullptr && driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
         current == context;
}

}  // namespace switchyard::shim::timers
