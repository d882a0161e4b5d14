// What the copies of one move run on: a stream, with as many events as copies may be in flight. It
// lives for one move: the context that it was made in may end before the next.
//
// Threading: the mover's thread.
#pragma once

#include "shim/driver.h"
#include "shim/no_copy.h"

namespace switchyard::shim::swap {

inline constexpr unsigned kDepth = 4;

class CopyStream : NoCopy {
 public:
  CopyStream() {
    if (driver().cuStreamDestroy_v2 == nullptr || driver().cuEventDestroy_v2 == nullptr) {
      result_ = CUDA_ERROR_NOT_SUPPORTED;
      return;
    }
    result_ = driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    for (CUevent& event : events_) {
      if (result_ == CUDA_SUCCESS) {
        result_ = driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
      }
    }
  }
  ~CopyStream() {
    for (CUevent event : events_) {
      if (event != nullptr) driver().cuEventDestroy_v2(event);
    }
    if (stream_ != nullptr) driver().cuStreamDestroy_v2(stream_);
  }

  CUresult result() const { return result_; }
  CUstream stream() const { return stream_; }
  CUresult mark(unsigned at) { return driver().cuEventRecord(events_[at % kDepth], stream_); }
  CUresult wait(unsigned at) { return driver().cuEventSynchronize(events_[at % kDepth]); }
  CUresult wait_for_all() { return driver().cuStreamSynchronize(stream_); }

 private:
  CUresult result_ = CUDA_SUCCESS;
  CUstream stream_ = nullptr;
  CUevent events_[kDepth] = {};
};

}  // namespace switchyard::shim::swap
