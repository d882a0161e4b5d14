// Streams.
#include "work.h"

using namespace fakecuda;

namespace {

// What a stream says of itself goes where the caller wants it.
template <typename Value, typename Read>
CUresult tell(CUstream handle, Value* out, Read read) {
  std::lock_guard held(ops_lock());
  Stream* stream = nullptr;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = find_stream(handle, &stream)) return status;
  *out = read(*stream);
  return CUDA_SUCCESS;
}

// `move(the stream's own, the caller's)` for the attribute `which`.
template <typename Value, typename Move>
CUresult attribute(CUstream handle, CUstreamAttrID which, Value* value, Move move) {
  std::lock_guard held(ops_lock());
  Stream* stream = nullptr;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = find_stream(handle, &stream)) return status;
  if (which == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) {
    move(stream->sync_policy, value->syncPolicy);
  } else if (which == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) {
    move(stream->window, value->accessPolicyWindow);
  } else if (which == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    move(stream->priority, value->priority);
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  FAKE_NEED_CONTEXT(context);
  if (!out || flags & ~CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = make_stream(context, flags, priority);
  std::lock_guard held(ops_lock());
  context->streams.insert(stream);
  fake->streams.insert(stream);
  *out = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* out, unsigned flags) {
  FAKE_MAY_FAIL();
  return cuStreamCreateWithPriority(out, flags, 0);
}

// The stream ends once its work is done; the call doesn't wait.
CUresult cuStreamDestroy_v2(CUstream handle) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (!fake->streams.erase(stream)) return CUDA_ERROR_INVALID_HANDLE;
  // Work that waits for all blocking streams must still wait for this one's work.
  if (stream->last && !stream->last->done) {
    Stream& legacy = stream->context->legacy_stream;
    auto both = std::make_shared<Op>();
    depend(both, stream->last);
    depend(both, legacy.last);
    submit(both);
    if (stream->blocking()) legacy.last = both;
  }
  stream->context->streams.erase(stream);
  stream->alive = false;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }

CUresult cuStreamQuery(CUstream handle) {
  FAKE_NEED_CONTEXT(context);
  std::lock_guard held(ops_lock());
  Stream* stream = nullptr;
  if (const CUresult status = find_stream(handle, &stream)) return status;
  if (const CUresult status = refuse_wait(stream)) return status;
  if (stream->last && !stream->last->done) return CUDA_ERROR_NOT_READY;
  if (!stream->legacy) return CUDA_SUCCESS;
  for (Stream* other : context->streams) {
    if (other->blocking() && other->last && !other->last->done) return CUDA_ERROR_NOT_READY;
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
  FAKE_NEED_CONTEXT(context);
  Stream* stream = nullptr;
  {
    std::lock_guard held(ops_lock());
    if (const CUresult status = find_stream(handle, &stream)) return status;
    if (const CUresult status = refuse_wait(stream)) return status;
  }
  wait_stream(stream);
  trim_pools_after_wait();
  return stream->context->fault;
}

CUresult cuCtxSynchronize() {
  FAKE_NEED_CONTEXT(context);
  {
    std::lock_guard held(ops_lock());
    if (const CUresult status = refuse_wait(context)) return status;
  }
  wait_context(context);
  trim_pools_after_wait();
  return context->fault;
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  FAKE_NEED_CONTEXT(context);
  return tell(handle, priority, [](const Stream& stream) { return stream.priority; });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  FAKE_NEED_CONTEXT(context);
  return tell(handle, flags, [](const Stream& stream) { return stream.flags; });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  FAKE_NEED_CONTEXT(context);
  return tell(handle, id, [](const Stream& stream) { return stream.id; });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* out) {
  FAKE_NEED_CONTEXT(context);
  return tell(handle, out,
              [](const Stream& stream) { return reinterpret_cast<CUcontext>(stream.context); });
}

#if CUDA_VERSION >= 12050
CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext* out, CUgreenCtx* green) {
  if (green) *green = nullptr;
  return cuStreamGetCtx(handle, out);
}
#endif

#if CUDA_VERSION >= 12080
CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  FAKE_NEED_CONTEXT(context);
  return tell(handle, device, [](const Stream& stream) { return stream.context->gpu; });
}
#endif

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data,
                             unsigned flags) {
  FAKE_NEED_CONTEXT(context);
  if (!callback || flags) return CUDA_ERROR_INVALID_VALUE;
  struct Call {
    CUstream stream;
    CUstreamCallback callback;
    void* data;
  };
  {
    std::lock_guard held(ops_lock());
    Stream* stream = nullptr;
    if (const CUresult status = find_stream(handle, &stream)) return status;
    if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  auto run = [](void* raw) {
    auto* call = static_cast<Call*>(raw);
    call->callback(call->stream, CUDA_SUCCESS, call->data);
    delete call;
  };
  return put(handle, host_work(run, new Call{handle, callback, data}));
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
  FAKE_NEED_DRIVER();
  std::unique_lock held(ops_lock());
  Stream* stream = nullptr;
  Event* event = nullptr;
  if (const CUresult status = find_both(event_handle, &event, handle, &stream)) return status;
  if (event->capture || stream->capture) return wait_in_capture(stream, event);
  if (const CUresult status = check_capture(stream)) return status;
  if (!event->op || event->op->done) return CUDA_SUCCESS;
  auto op = std::make_shared<Op>();
  depend(op, event->op);
  enqueue(stream, op, held, false);
  return CUDA_SUCCESS;
}

CUresult cuStreamAttachMemAsync(CUstream, CUdeviceptr, std::size_t, unsigned) {
  FAKE_NEED_CONTEXT(context);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID which, CUstreamAttrValue* value) {
  FAKE_NEED_CONTEXT(context);
  return attribute(handle, which, value, [](const auto& own, auto& out) { out = own; });
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID which,
                              const CUstreamAttrValue* value) {
  FAKE_NEED_CONTEXT(context);
  return attribute(handle, which, value, [](auto& own, const auto& wanted) { own = wanted; });
}

}  // extern "C"
