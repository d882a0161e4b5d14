#include "shim/capture.h"

namespace switchyard::shim {

bool is_captured(CUstream stream, bool per_thread) {
  const auto ask = per_thread ? driver().cuStreamIsCapturing_ptsz : driver().cuStreamIsCapturing;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask != nullptr && ask(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace switchyard::shim
