// Kernels that the library brings, and the memory of the host that they write their results to.
//
// Concept. A kernel comes as PTX, which the driver compiles: the build needs no CUDA compiler. It
// is loaded as a library, which outlives contexts, and compiles on the caller's stack, which must
// not be small. Loading waits for the context: where that waits for a thread that waits for the
// driver, for ever. So who loads says when.
//
// Results go to pinned memory, so nobody has to wait for the GPU to read them.
//
// Threading: plain functions and values; who has a value guards it.
#pragma once

#include <cstddef>

#include "shim/driver.h"

namespace switchyard::shim {

// A launch takes what it finds, and picks the context's own by itself.
CUresult load_kernel(const char* ptx, const char* name, CUfunction& kernel);

// Zero-initialised it is closed. It has no destructor: who has it knows whether its context lives.
class PinnedResults {
 public:
  // All bytes are `fill` then. pre: it is closed, and a context of the GPU is current. False: the
  // system or the driver refused.
  bool open(std::size_t bytes, int fill);
  // pre: nothing on the GPU writes there any more, and the context is current.
  void close();
  // The context has ended, and the registration with it.
  void context_gone();

  void* host() const { return host_; }
  CUdeviceptr device() const { return device_; }  // where the GPU finds it
  std::size_t bytes() const { return bytes_; }
  bool is_open() const { return device_ != 0; }

 private:
  bool pin();

  void* host_ = nullptr;
  std::size_t bytes_ = 0;
  bool pinned_ = false;
  CUdeviceptr device_ = 0;
};

}  // namespace switchyard::shim
