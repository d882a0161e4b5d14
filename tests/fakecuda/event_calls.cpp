// Events.
#include "work.h"

using namespace fakecuda;

extern "C" {

CUresult cuEventCreate(CUevent* out, unsigned flags) {
  FAKE_NEED_CONTEXT(context);
  if (!out || flags & ~7u) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* event = kept(new Event);
  event->context = context;
  event->flags = flags;
  std::lock_guard held(ops_lock());
  fake->events.insert(event);
  *out = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  Event* event = nullptr;
  if (const CUresult status = find_event(handle, &event)) return status;
  fake->events.erase(event);
  event->op = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle) { return cuEventDestroy_v2(handle); }

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  FAKE_NEED_DRIVER();
  std::unique_lock held(ops_lock());
  Event* event = nullptr;
  Stream* stream = nullptr;
  if (const CUresult status = find_both(handle, &event, stream_handle, &stream)) return status;
  if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult status = check_capture(stream)) return status;
  if (stream->capture) return record_in_capture(stream, event), CUDA_SUCCESS;
  event->capture = nullptr;
  event->recorded = true;
  event->op = std::make_shared<Op>();
  enqueue(stream, event->op, held, false);
  return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) {
  return cuEventRecord(event, stream);
}

CUresult cuEventQuery(CUevent handle) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  Event* event = nullptr;
  if (const CUresult status = find_event(handle, &event)) return status;
  if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (const CUresult status = refuse_unsafe()) return status;
  return event->op && !event->op->done ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent handle) {
  FAKE_NEED_DRIVER();
  OpRef op;
  Context* context = nullptr;
  {
    std::lock_guard held(ops_lock());
    Event* event = nullptr;
    if (const CUresult status = find_event(handle, &event)) return status;
    if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
    op = event->op;
    context = event->context;
  }
  wait_done(op);
  trim_pools_after_wait();
  return context->fault;
}

CUresult cuEventElapsedTime(float* ms, CUevent from_handle, CUevent to_handle) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  Event *from = nullptr, *to = nullptr;
  if (!ms) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = find_event(from_handle, &from)) return status;
  if (const CUresult status = find_event(to_handle, &to)) return status;
  if ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
  if (!from->op || !to->op) return CUDA_ERROR_INVALID_HANDLE;
  if (!from->op->done || !to->op->done) return CUDA_ERROR_NOT_READY;
  *ms = static_cast<float>(static_cast<double>(to->op->at_ns) -
                           static_cast<double>(from->op->at_ns)) /
        1e6f;
  return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12080
CUresult cuEventElapsedTime_v2(float* ms, CUevent from, CUevent to) {
  return cuEventElapsedTime(ms, from, to);
}
#endif

}  // extern "C"
