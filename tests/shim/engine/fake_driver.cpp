#include "tests/shim/engine/fake_driver.h"

#include <algorithm>

#include "tests/shim/engine/world.h"

namespace switchyard::shim::testing {
namespace {

CUresult device_in_use(CUdevice* device) {
  *device = device_of(g_world->context, g_world->device);
  return g_world->device >= 0 && g_world->context != nullptr ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult context_in_use(CUcontext* context) {
  *context = g_world->context;
  return CUDA_SUCCESS;
}

CUresult use(CUcontext context) {
  if (g_world->refused.contains(context)) return CUDA_ERROR_INVALID_CONTEXT;
  g_world->context = context;
  return CUDA_SUCCESS;
}

CUresult push(CUcontext context) {
  const CUcontext before = g_world->context;
  const CUresult result = use(context);
  if (result == CUDA_SUCCESS) g_world->pushed = before;
  return result;
}

CUresult pop(CUcontext* context) {
  *context = g_world->context;
  g_world->context = g_world->pushed;
  return CUDA_SUCCESS;
}

CUresult synchronise() {
  EXPECT_NE(g_world->context, nullptr);
  {
    const std::lock_guard hold(g_world->lock);
    g_world->waits.push_back(g_world->context);
  }
  if (g_world->during_wait) g_world->during_wait();
  return g_world->wait_result;
}

CUresult primary_state(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = g_world->primary ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult retain_primary(CUcontext* out, CUdevice device) {
  const std::lock_guard hold(g_world->lock);
  ++g_world->retained;
  *out = primary_of(device);
  return CUDA_SUCCESS;
}

CUresult release_primary(CUdevice) {
  const std::lock_guard hold(g_world->lock);
  --g_world->retained;
  g_world->fewest_retained = std::min(g_world->fewest_retained, g_world->retained);
  return CUDA_SUCCESS;
}

CUresult is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  if (g_world->legacy_untouchable && (stream == nullptr || stream == CU_STREAM_LEGACY)) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  const bool captured = g_world->all_captured || g_world->captured.contains(stream);
  *status = captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute which, void* value) {
  const std::lock_guard hold(g_world->lock);
  const auto found = g_world->pools.find(pool);
  if (found == g_world->pools.end()) return CUDA_ERROR_INVALID_VALUE;
  const FakePool& state = found->second;
  *static_cast<cuuint64_t*>(value) = which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD  ? state.threshold
                                     : which == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? state.used
                                                                                 : state.reserved;
  return CUDA_SUCCESS;
}

CUresult graph_attribute(CUdevice, CUgraphMem_attribute which, void* value) {
  const std::lock_guard hold(g_world->lock);
  *static_cast<cuuint64_t*>(value) =
      which == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT ? g_world->graphs.used : g_world->graphs.reserved;
  return CUDA_SUCCESS;
}

CUresult trim_pool(CUmemoryPool pool, size_t keep) {
  const std::lock_guard hold(g_world->lock);
  ++g_world->trims;
  FakePool& state = g_world->pools[pool];
  state.reserved = std::min(state.reserved, std::max<std::uint64_t>(state.used, keep));
  return CUDA_SUCCESS;
}

CUresult trim_graphs(CUdevice) {
  const std::lock_guard hold(g_world->lock);
  ++g_world->trims;
  g_world->graphs.reserved = g_world->graphs.used;
  return CUDA_SUCCESS;
}

CUresult free_async(CUdeviceptr address, CUstream) {
  g_world->freed_async.push_back(address);
  return CUDA_SUCCESS;
}

CUresult current_pool(CUmemoryPool* pool, CUdevice) {
  *pool = g_world->current_pool;
  return CUDA_SUCCESS;
}

}  // namespace

void use_contexts() {
  g_driver.cuCtxSetCurrent = use;
  g_driver.cuCtxPushCurrent_v2 = push;
  g_driver.cuCtxPopCurrent_v2 = pop;
  g_driver.cuCtxSynchronize = synchronise;
  g_driver.cuDevicePrimaryCtxGetState = primary_state;
  g_driver.cuDevicePrimaryCtxRetain = retain_primary;
  g_driver.cuDevicePrimaryCtxRelease_v2 = release_primary;
}

void use_streams() {
  g_driver.cuStreamIsCapturing = is_capturing;
  g_driver.cuStreamIsCapturing_ptsz = is_capturing;
}

void use_current_context() {
  g_driver.cuCtxGetDevice = device_in_use;
  g_driver.cuCtxGetCurrent = context_in_use;
}

void use_pools() {
  g_driver.cuMemPoolGetAttribute = pool_attribute;
  g_driver.cuDeviceGetGraphMemAttribute = graph_attribute;
  g_driver.cuMemPoolTrimTo = trim_pool;
  g_driver.cuDeviceGraphMemTrim = trim_graphs;
  g_driver.cuMemFreeAsync = free_async;
  g_driver.cuDeviceGetMemPool = current_pool;
  g_driver.cuDeviceGetDefaultMemPool = current_pool;
}

}  // namespace switchyard::shim::testing
