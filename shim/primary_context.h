// The primary context of a GPU, used by the library on its own account.
//
// Concept. It is retained only while it is active: to retain it else would make one, and take
// memory. Each reference is given back, else the context outlives the application's last one.
//
// Threading: any thread.
#pragma once

#include "shim/driver.h"
#include "shim/no_copy.h"

namespace switchyard::shim::swap {

// Null, without an error: it isn't active. Else a reference is the caller's.
inline CUresult retain_active_primary(CUdevice device, CUcontext& context) {
  context = nullptr;
  unsigned flags = 0;
  int active = 0;
  const Driver& calls = driver();
  if (calls.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0) {
    return CUDA_SUCCESS;
  }
  return calls.cuDevicePrimaryCtxRetain(&context, device);
}

class PrimaryContext : NoCopy {
 public:
  explicit PrimaryContext(CUdevice device)
      : device_(device), result_(retain_active_primary(device, context_)) {}
  ~PrimaryContext() {
    if (get() != nullptr) driver().cuDevicePrimaryCtxRelease_v2(device_);
  }

  CUresult result() const { return result_; }
  // Null: it isn't active, or could not be retained.
  CUcontext get() const { return result_ == CUDA_SUCCESS ? context_ : nullptr; }

 private:
  CUdevice device_;
  CUcontext context_ = nullptr;
  CUresult result_;
};

}  // namespace switchyard::shim::swap
