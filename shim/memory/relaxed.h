// Our own questions to the driver must not break a capture that the application's thread is in.
//
// Concept. In a global or thread-local capture, calls such as cuMemPoolTrimTo are "potentially
// unsafe" and would invalidate it. While one of these lives, the thread is in relaxed mode. Where
// it must hold even if a capture begins in another thread meanwhile, say kAlways.
//
// Threading: a value on one thread's stack.
#pragma once

#include "shim/client/process.h"
#include "shim/driver.h"
#include "shim/no_copy.h"

namespace switchyard::shim::memory {

class Relaxed : NoCopy {
 public:
  enum When { kInCapture, kAlways };
  explicit Relaxed(When when = kInCapture) {
    if (when == kInCapture && process().captures.load(std::memory_order_relaxed) == 0) return;
    const auto exchange = driver().cuThreadExchangeStreamCaptureMode;
    changed_ = exchange != nullptr && exchange(&mode_) == CUDA_SUCCESS;
  }
  ~Relaxed() {
    if (changed_) driver().cuThreadExchangeStreamCaptureMode(&mode_);
  }
  // Whether the thread was in relaxed mode before. Where that is not known, it was not.
  bool was_relaxed() const { return changed_ && mode_ == CU_STREAM_CAPTURE_MODE_RELAXED; }

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool changed_ = false;
};

}  // namespace switchyard::shim::memory
