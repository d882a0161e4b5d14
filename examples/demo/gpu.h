// The GPU as the demo sees it: libcuda opened by name, as frameworks do, and one busy kernel.
//
// Nothing here knows of Switchyard: that the very same program runs with and without it is the
// point.
//
// Threading: one Gpu per process, used by one thread.
#pragma once

#include <cuda.h>

#include <optional>
#include <string>

#include "switchyard/cuda_library.h"

namespace demo {

// The driver calls that the demo makes.
#define DEMO_DRIVER_CALLS(CALL)  \
  CALL(cuInit)                   \
  CALL(cuDeviceGet)              \
  CALL(cuDeviceGetName)          \
  CALL(cuDevicePrimaryCtxRetain) \
  CALL(cuCtxSetCurrent)          \
  CALL(cuModuleLoadData)         \
  CALL(cuModuleGetFunction)      \
  CALL(cuMemAlloc)               \
  CALL(cuStreamCreate)           \
  CALL(cuStreamSynchronize)      \
  CALL(cuEventCreate)            \
  CALL(cuEventRecord)            \
  CALL(cuEventSynchronize)       \
  CALL(cuLaunchKernel)           \
  CALL(cuGetErrorName)

SWITCHYARD_CUDA_FUNCTIONS(Driver, DEMO_DRIVER_CALLS);

class Gpu {
 public:
  // Opens libcuda.so.1 and GPU 0. Without a GPU: nothing, and `why` says the reason.
  static std::optional<Gpu> open(std::string& why);

  const std::string& name() const { return name_; }

  // Makes the context and loads the kernel. False: `why` says what failed.
  bool load(std::string& why);

  // Allocates memory, which nothing frees before the process ends. False: `why` says what failed.
  bool allocate(unsigned long bytes, std::string& why);

  // Queues `count` kernels of `microseconds` each.
  bool launch(unsigned count, unsigned microseconds);
  bool wait();  // until all that is queued has ended

  // Marks the end of what is queued as number `slot` (0 or 1), to be waited for later.
  bool mark(unsigned slot);
  bool wait_for(unsigned slot);

 private:
  bool check(CUresult result, const char* call, std::string& why) const;

  Driver driver_;
  std::string name_;
  CUstream stream_ = nullptr;
  CUfunction busy_ = nullptr;
  CUevent marks_[2] = {};
};

}  // namespace demo
