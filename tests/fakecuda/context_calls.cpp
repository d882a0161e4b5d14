// Primary and other contexts, the stack of current ones, limits, peers.
#include "context.h"
#include "memory.h"

using namespace fakecuda;

namespace {

Context* from(CUcontext handle) { return reinterpret_cast<Context*>(handle); }
CUcontext to(Context* context) { return reinterpret_cast<CUcontext>(context); }

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
  FAKE_NEED_DRIVER();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context* context = nullptr;
  if (const CUresult status = make_context(device, flags, &context)) return status;
  context_stack().push_back(context);
  *out = to(context);
  return CUDA_SUCCESS;
}

void end_context(Context* context) {
  wait_context(context);
  free_memory_of(context);
  destroy_context(context);
}

}  // namespace

extern "C" {

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  FAKE_NEED_DRIVER();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(fake->contexts_lock);
  Primary& primary = fake->primaries[device];
  if (!primary.context) {
    if (const CUresult status = make_context(device, primary.flags, &primary.context)) {
      return status;
    }
    primary.context->primary = true;
  }
  ++primary.retained;
  *out = to(primary.context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  FAKE_NEED_DRIVER();
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(fake->contexts_lock);
  Primary& primary = fake->primaries[device];
  if (primary.context) end_context(primary.context);
  primary.context = nullptr;
  primary.retained = 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  FAKE_NEED_DRIVER();
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(fake->contexts_lock);
  Primary& primary = fake->primaries[device];
  if (primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.retained == 0) {
    end_context(primary.context);
    primary.context = nullptr;
  }
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  FAKE_NEED_DRIVER();
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(fake->contexts_lock);
  *flags = fake->primaries[device].flags;
  *active = fake->primaries[device].context != nullptr;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  FAKE_NEED_DRIVER();
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(fake->contexts_lock);
  fake->primaries[device].flags = flags;
  if (fake->primaries[device].context) fake->primaries[device].context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) {
  return create(out, flags, device);
}

CUresult cuCtxCreate(CUcontext* out, unsigned flags, CUdevice device) {
  return create(out, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam*, int count, unsigned flags,
                        CUdevice device) {
  return count ? CUDA_ERROR_NOT_SUPPORTED : create(out, flags, device);
}

#if CUDA_VERSION >= 12050
CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* params, unsigned flags,
                        CUdevice device) {
  if (params && (params->execAffinityParams || params->cigParams)) return CUDA_ERROR_NOT_SUPPORTED;
  return create(out, flags, device);
}
#endif

CUresult cuCtxDestroy_v2(CUcontext handle) {
  FAKE_NEED_DRIVER();
  Context* context = from(handle);
  if (!context || !living(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  end_context(context);
  auto& stack = context_stack();
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext handle) { return cuCtxDestroy_v2(handle); }

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  FAKE_NEED_DRIVER();
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (!living(from(handle))) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(from(handle));
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext handle) { return cuCtxPushCurrent_v2(handle); }

CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  FAKE_NEED_DRIVER();
  auto& stack = context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (out) *out = to(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* out) { return cuCtxPopCurrent_v2(out); }

CUresult cuCtxSetCurrent(CUcontext handle) {
  FAKE_NEED_DRIVER();
  auto& stack = context_stack();
  if (handle && !living(from(handle))) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack.empty()) stack.pop_back();
  if (handle) stack.push_back(from(handle));
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* out) {
  FAKE_NEED_DRIVER();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = to(current());
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  FAKE_NEED_CONTEXT(context);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = context->gpu;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned* flags) {
  FAKE_NEED_CONTEXT(context);
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  FAKE_NEED_DRIVER();
  Context* context = handle ? from(handle) : current();
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  if (!context || !living(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  FAKE_NEED_DRIVER();
  Context* context = handle ? from(handle) : current();
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  if (!context || !living(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_NEED_CONTEXT(context);
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(std::size_t* value, CUlimit limit) {
  FAKE_NEED_CONTEXT(context);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  const auto found = context->limits.find(limit);
  *value = found != context->limits.end() ? found->second : fresh_limit(limit);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, std::size_t value) {
  FAKE_NEED_CONTEXT(context);
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (!grow_context(context, limit, value)) return CUDA_ERROR_OUT_OF_MEMORY;
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  FAKE_NEED_CONTEXT(context);
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache) {
  FAKE_NEED_CONTEXT(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  FAKE_NEED_CONTEXT(context);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (!peer || !living(from(peer))) return CUDA_ERROR_INVALID_CONTEXT;
  if (from(peer)->gpu == context->gpu) return CUDA_ERROR_INVALID_DEVICE;
  if (!reaches(context->gpu, from(peer)->gpu)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const bool added = context->peers.insert(from(peer)).second;
  return added ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  FAKE_NEED_CONTEXT(context);
  return context->peers.erase(from(peer)) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // extern "C"
