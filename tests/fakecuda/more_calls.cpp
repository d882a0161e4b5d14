// Newer forms of calls that the other rooms implement, and calls that change nothing here.
#include "graph.h"
#include "modules.h"

using namespace fakecuda;

namespace {

Module* module_of(void* handle) {
  auto* module = static_cast<Module*>(handle);
  return known_module(module) ? module : nullptr;
}

CUresult count_kernels(unsigned* count, void* handle) {
  FAKE_NEED_DRIVER();
  const Module* module = module_of(handle);
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(module->kernels.size());
  return CUDA_SUCCESS;
}

template <class Handle>
CUresult list_kernels(Handle* out, unsigned count, void* handle) {
  FAKE_NEED_DRIVER();
  const Module* module = module_of(handle);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  for (unsigned i = 0; i < count; ++i) {
    out[i] = i < module->kernels.size() ? reinterpret_cast<Handle>(module->kernels[i]) : nullptr;
  }
  return CUDA_SUCCESS;
}

CUresult on_device(const CUmemLocation* location) {
  if (!location || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

// A node's work is replaced by one made of the given event or graph.
CUresult replace_work(CUgraphExec exec, CUgraphNode node, const Work& work) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  auto* origin = reinterpret_cast<GraphNode*>(node);
  if (!exec) {
    if (!known(origin) || origin->work.type != work.type) return CUDA_ERROR_INVALID_VALUE;
    origin->work = work;
    return CUDA_SUCCESS;
  }
  auto* launched = reinterpret_cast<GraphExec*>(exec);
  ExecNode* found = known(launched) ? launched->of(origin) : nullptr;
  if (!found || found->work.type != work.type) return CUDA_ERROR_INVALID_VALUE;
  found->work = work;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuCtxSetFlags(unsigned flags) {
  FAKE_NEED_CONTEXT(context);
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  FAKE_NEED_CONTEXT(context);
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig) {
  FAKE_NEED_CONTEXT(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache() {
  FAKE_NEED_CONTEXT(context);
  return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig) {
  FAKE_NEED_DRIVER();
  return known_kernel(reinterpret_cast<Kernel*>(function)) ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamCopyAttributes(CUstream to_handle, CUstream from_handle) {
  FAKE_NEED_CONTEXT(context);
  std::lock_guard held(ops_lock());
  Stream *to = nullptr, *from = nullptr;
  if (const CUresult status = find_stream(to_handle, &to)) return status;
  if (const CUresult status = find_stream(from_handle, &from)) return status;
  to->sync_policy = from->sync_policy;
  to->window = from->window;
  return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return replace_work(nullptr, node, event_record_work(event));
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return replace_work(nullptr, node, event_wait_work(event));
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return exec ? replace_work(exec, node, event_record_work(event)) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return exec ? replace_work(exec, node, event_wait_work(event)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID,
                                       const CUkernelNodeAttrValue* value) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  const bool ok = value && known(reinterpret_cast<GraphNode*>(node));
  return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  const bool ok =
      known(reinterpret_cast<GraphNode*>(to)) && known(reinterpret_cast<GraphNode*>(from));
  return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#if CUDA_VERSION >= 12020
CUresult cuMemAdvise_v2(CUdeviceptr, std::size_t, CUmem_advise, CUmemLocation) {
  FAKE_NEED_CONTEXT(context);
  return CUDA_SUCCESS;
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr, std::size_t, CUmemLocation, unsigned, CUstream) {
  FAKE_NEED_CONTEXT(context);
  return CUDA_SUCCESS;
}
#endif

#if CUDA_VERSION >= 12030
CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  return cuFuncGetName(name, reinterpret_cast<CUfunction>(kernel));
}
#endif

#if CUDA_VERSION >= 12040
CUresult cuFuncLoad(CUfunction function) {
  FAKE_NEED_DRIVER();
  return known_kernel(reinterpret_cast<Kernel*>(function)) ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  if (!state) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return cuFuncLoad(function);
}
CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  return count_kernels(count, module);
}
CUresult cuModuleEnumerateFunctions(CUfunction* out, unsigned count, CUmodule module) {
  return list_kernels(out, count, module);
}
CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary library) {
  return count_kernels(count, library);
}
CUresult cuLibraryEnumerateKernels(CUkernel* out, unsigned count, CUlibrary library) {
  return list_kernels(out, count, library);
}
#endif

#if CUDA_VERSION >= 12080
CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes,
                            std::size_t count, CUmemcpyAttributes*, std::size_t*, std::size_t,
                            std::size_t* failed, CUstream stream) {
  if (!to || !from || !sizes || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const CUresult status = cuMemcpyAsync(to[i], from[i], sizes[i], stream);
    if (status != CUDA_SUCCESS && failed) *failed = i;
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}
#endif

#if CUDA_VERSION >= 13000
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes,
                               std::size_t count, CUmemcpyAttributes* attributes,
                               std::size_t* which, std::size_t many, CUstream stream) {
  return cuMemcpyBatchAsync(to, from, sizes, count, attributes, which, many, nullptr, stream);
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  FAKE_NEED_DRIVER();
  auto* context = handle ? reinterpret_cast<Context*>(handle) : current();
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!context || !living(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->gpu;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
  FAKE_NEED_DRIVER();
  auto* context = handle ? reinterpret_cast<Context*>(handle) : current();
  if (!context || !living(context)) return CUDA_ERROR_INVALID_CONTEXT;
  {
    std::lock_guard held(ops_lock());
    if (const CUresult status = refuse_wait(context)) return status;
  }
  wait_context(context);
  trim_pools_after_wait();
  return context->fault;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType) {
  if (const CUresult status = on_device(location)) return status;
  return cuDeviceGetDefaultMemPool(out, location->id);
}
CUresult cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType) {
  if (const CUresult status = on_device(location)) return status;
  return cuDeviceGetMemPool(out, location->id);
}
CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType, CUmemoryPool pool) {
  if (const CUresult status = on_device(location)) return status;
  return cuDeviceSetMemPool(location->id, pool);
}
#endif

}  // extern "C"
