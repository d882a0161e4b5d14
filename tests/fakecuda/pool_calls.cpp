// The calls of stream-ordered memory.
#include "graph.h"
#include "pools.h"
#include "work.h"

namespace fakecuda {
namespace {

// The pool is looked up by `choose`, under the pools' lock.
template <class Choose>
CUresult allocate_async(CUdeviceptr* out, std::size_t bytes, CUstream handle, Choose choose) {
  FAKE_NEED_CONTEXT(context);
  if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Pool* pool = nullptr;
  {
    std::lock_guard guard(pools().lock);
    pool = choose(context);
  }
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  {
    std::lock_guard held(ops_lock());
    if (const CUresult status = find_stream(handle, &stream)) return status;
    if (const CUresult status = check_capture(stream)) return status;
    if (stream->capture) {
      CUDA_MEM_ALLOC_NODE_PARAMS params{};
      params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
      params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      params.poolProps.location.id = pool->gpu;
      params.bytesize = bytes;
      Work work;
      if (const CUresult status = alloc_work(&params, &work)) return status;
      *out = params.dptr;
      return add_to_capture(stream, work);
    }
  }
  CUdeviceptr address = allocate_from(pool, bytes);
  if (!address) {  // frees that are on their way may be enough
    wait_context(context);
    address = allocate_from(pool, bytes);
  }
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.start = *out = address;
  range.bytes = bytes;
  range.kind = RangeKind::kPool;
  range.context = stream->context;
  range.gpu = pool->gpu;
  range.pool = pool;
  Ranges::all().add(range);
  return CUDA_SUCCESS;
}

// What `then` says of the pool, if the attribute exists.
template <class Then>
CUresult of_attribute(CUmemoryPool handle, CUmemPool_attribute which, const void* value, Then then,
                      const char* call = __builtin_FUNCTION()) {
  if (const CUresult status = need_driver(call)) return status;
  std::lock_guard guard(pools().lock);
  Pool* pool = pool_of(handle);
  const bool ok = pool && value && which >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
                  which <= CU_MEMPOOL_ATTR_USED_MEM_HIGH;
  return ok ? then(*pool) : CUDA_ERROR_INVALID_VALUE;
}

CUresult pool_of_gpu(CUmemoryPool* out, CUdevice device, Pool* (*choose)(int gpu),
                     const char* call = __builtin_FUNCTION()) {
  if (const CUresult status = need_driver(call)) return status;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (device < 0 || device >= gpu_count()) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(pools().lock);
  *out = reinterpret_cast<CUmemoryPool>(choose(device));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

extern "C" {

CUresult cuMemAllocAsync(CUdeviceptr* out, std::size_t bytes, CUstream stream) {
  return allocate_async(out, bytes, stream,
                        [](Context* context) { return current_pool(context->gpu); });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
  return allocate_async(out, bytes, stream, [pool](Context*) { return pool_of(pool); });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  FAKE_NEED_CONTEXT(context);
  std::unique_lock held(ops_lock());
  Stream* stream = nullptr;
  if (const CUresult status = find_stream(handle, &stream)) return status;
  if (!address) return CUDA_SUCCESS;
  if (const CUresult status = check_capture(stream)) return status;
  Range range;
  if (stream->capture) {
    if (!is_graph_memory(address)) return CUDA_ERROR_INVALID_VALUE;
    return add_to_capture(stream, free_work(address));
  }
  if (!Ranges::all().find(address, &range) || range.start != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto op = std::make_shared<Op>();
  if (range.kind == RangeKind::kGraph) {
    op->effect = [address] { free_graph_memory(address); };
  } else if (range.kind == RangeKind::kPool || range.kind == RangeKind::kDevice ||
             range.kind == RangeKind::kSmall) {
    if (!Ranges::all().retire(address)) return CUDA_ERROR_INVALID_VALUE;
    op->effect = [range] {
      Ranges::all().remove_retired(range.start);
      range.kind == RangeKind::kPool ? free_now(range) : release(range);
    };
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  enqueue(stream, op, held, false);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  FAKE_NEED_DRIVER();
  if (!out || !props) return CUDA_ERROR_INVALID_VALUE;
  // As CUDA 13 has them: managed ones with a place or without, pinned ones of a GPU or of the host.
  const auto type = static_cast<unsigned>(props->allocType);
  const auto place = static_cast<unsigned>(props->location.type);
  const bool managed = type == 2, on_device = place == CU_MEM_LOCATION_TYPE_DEVICE;
  if ((type != CU_MEM_ALLOCATION_TYPE_PINNED && !managed) || place > 4 || (!managed && !place)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (on_device && !valid(props->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  auto* pool = kept(new Pool);
  pool->of_host = !managed && !on_device;
  // Memory of a managed one comes to the GPU that touches it: here the current one does.
  pool->gpu = on_device ? props->location.id : current() ? current()->gpu : 0;
  pool->handle_types = props->handleTypes;
#if CUDA_VERSION >= 12020
  pool->max_bytes = props->maxSize;
#endif
  std::lock_guard guard(pools().lock);
  pools().all.insert(pool);
  *out = reinterpret_cast<CUmemoryPool>(pool);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  FAKE_NEED_DRIVER();
  std::lock_guard guard(pools().lock);
  Pool* pool = pool_of(handle);
  if (!pool || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  trim(pool, 0);
  pools().all.erase(pool);
  for (Pool*& current : pools().current) {
    if (current == pool) current = nullptr;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, std::size_t keep) {
  FAKE_NEED_DRIVER();
  std::lock_guard guard(pools().lock);
  Pool* pool = pool_of(handle);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  trim(pool, keep);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute which, void* value) {
  return of_attribute(handle, which, value, [&](const Pool& pool) {
    const std::uint64_t words[] = {pool.threshold, pool.reserved, pool.reserved_high, pool.used,
                                   pool.used_high};
    if (which < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
      *static_cast<int*>(value) = pool.reuse[which - 1];
    } else {
      *static_cast<cuuint64_t*>(value) = words[which - CU_MEMPOOL_ATTR_RELEASE_THRESHOLD];
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute which, void* value) {
  return of_attribute(handle, which, value, [&](Pool& pool) {
    if (which < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
      pool.reuse[which - 1] = *static_cast<int*>(value);
    } else if (which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
      pool.threshold = *static_cast<cuuint64_t*>(value);
    } else if (*static_cast<cuuint64_t*>(value) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    } else if (which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
      pool.reserved_high = pool.reserved;
    } else if (which == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
      pool.used_high = pool.used;
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, std::size_t count) {
  FAKE_NEED_DRIVER();
  if (!access || count == 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(pools().lock);
  return pool_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                            CUmemLocation* location) {
  FAKE_NEED_DRIVER();
  if (!location) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard guard(pools().lock);
  if (!flags || !pool_of(handle)) return CUDA_ERROR_INVALID_VALUE;
  *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  return pool_of_gpu(out, device, default_pool);
}

CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  return pool_of_gpu(out, device, current_pool);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  FAKE_NEED_DRIVER();
  if (device < 0 || device >= gpu_count()) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(pools().lock);
  Pool* pool = pool_of(handle);
  if (!pool || pool->gpu != device) return CUDA_ERROR_INVALID_VALUE;
  pools().current[device] = pool;
  return CUDA_SUCCESS;
}

}  // extern "C"
