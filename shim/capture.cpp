#include "shim/capture.h"

namespace switchyard::shim {
namespace {

CUresult ask(CUstream stream, bool per_thread, CUstreamCaptureStatus& status) {
  const auto call = per_thread ? driver().cuStreamIsCapturing_ptsz : driver().cuStreamIsCapturing;
  return call != nullptr ? call(stream, &status) : CUDA_SUCCESS;
}

}  // namespace

bool is_captured(CUstream stream, bool per_thread) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask(stream, per_thread, status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool may_not_touch(CUstream stream, bool per_thread) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask(stream, per_thread, status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace switchyard::shim
