#include "shim/rules/launch.h"

#include "shim/client/client.h"

namespace switchyard::shim::rules {

void attend(abi::Lane& lane) {
  const std::uint32_t asked =
      lane.attention.fetch_and(~abi::kWakeMonitor, std::memory_order_relaxed);
  if ((asked & abi::kWakeMonitor) != 0) wake_monitor();
}

bool is_captured(CUstream stream, bool per_thread) {
  const auto ask = per_thread ? driver().cuStreamIsCapturing_ptsz : driver().cuStreamIsCapturing;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask != nullptr && ask(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace switchyard::shim::rules
