// Plain, pitched, pinned, registered and managed memory; what is known of a pointer.
#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "memory.h"
#include "work.h"

using namespace fakecuda;

namespace {

constexpr unsigned kHostFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;

CUresult host_alloc(void** out, std::size_t bytes, unsigned flags) {
  FAKE_NEED_CONTEXT(context);
  if (!out || bytes == 0 || flags & ~kHostFlags) return CUDA_ERROR_INVALID_VALUE;
  FAKE_REFUSE_UNSAFE();
  void* at = mmap(nullptr, round_up(bytes, 4096), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.start = reinterpret_cast<CUdeviceptr>(at);
  range.bytes = bytes;
  range.kind = RangeKind::kHost;
  range.context = context;
  range.gpu = context->gpu;
  range.flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
  if (!Ranges::all().add_pinned(range)) {
    release(range);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = at;
  return CUDA_SUCCESS;
}

// The memory that is mapped as one: an allocation's own pages, or the block that a small one is in.
std::pair<CUdeviceptr, std::size_t> mapping_of(const Range& range) {
  std::uint64_t within = 0;
  if (range.kind == RangeKind::kSmall && block_of(range.start, &within)) {
    return {range.start - within, kGranularity};
  }
  return {range.start, range.backing ? range.backing->bytes : range.bytes};
}

CUresult attribute_of(const Range& range, CUpointer_attribute which, CUdeviceptr pointer,
                      void* out) {
  auto put = [&](auto value) {
    memcpy(out, &value, sizeof(decltype(value)));
    return CUDA_SUCCESS;
  };
  const bool managed = range.kind == RangeKind::kManaged;
  const bool mapped = range.kind == RangeKind::kMapped;
  const bool plain = range.kind == RangeKind::kDevice || range.kind == RangeKind::kSmall;
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
      const bool none = mapped || range.kind == RangeKind::kPool;
      return put(none ? CUcontext{nullptr} : reinterpret_cast<CUcontext>(range.context));
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(
          static_cast<unsigned>(range.on_device() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (range.on_device() && !managed) return CUDA_ERROR_INVALID_VALUE;
      return put(reinterpret_cast<void*>(pointer));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put(static_cast<unsigned>(plain || mapped || range.kind == RangeKind::kPool));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(range.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(static_cast<unsigned>(managed));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(range.gpu);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(static_cast<unsigned>(plain));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(mapped ? range.reserved : range.start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(mapped ? range.reserved_bytes : range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(mapping_of(range).first);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put(mapping_of(range).second);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(static_cast<std::uint64_t>(range.prop.requestedHandleTypes));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put(static_cast<unsigned>(plain || range.prop.allocFlags.gpuDirectRDMACapable));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put(static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(reinterpret_cast<CUmemoryPool>(range.pool));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  FAKE_NEED_CONTEXT(context);
  const std::uint64_t total = fake->state->gpu(context->gpu).total_bytes;
  if (free_bytes) {
    Locked locked(*fake->state);
    fake->state->reap_locked();
    *free_bytes = total - std::min(total, fake->state->used(fake->state->gpu_of(context->gpu)));
  }
  if (total_bytes) *total_bytes = total;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t bytes) {
  FAKE_NEED_CONTEXT(context);
  if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  FAKE_REFUSE_UNSAFE();
  std::lock_guard api(context->api);
  *out = allocate(context, bytes);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* out, std::size_t* pitch, std::size_t width,
                            std::size_t height, unsigned element) {
  if (!out || !pitch || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
  std::size_t bytes = 0;
  if (width > UINT64_MAX - 512 || __builtin_mul_overflow(round_up(width, 512), height, &bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *pitch = round_up(width, 512);
  return cuMemAlloc_v2(out, bytes);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  FAKE_NEED_CONTEXT(context);
  if (!address) return CUDA_SUCCESS;
  FAKE_REFUSE_UNSAFE();
  Range range;
  if (!Ranges::all().find(address, &range) || range.start != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (range.kind == RangeKind::kPool || range.kind == RangeKind::kGraph) {
    wait_context(range.context);
    return free_pooled(range);
  }
  if (range.kind != RangeKind::kDevice && range.kind != RangeKind::kSmall &&
      range.kind != RangeKind::kManaged) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // As the driver: waits for the context's work with the context's lock held.
  std::lock_guard api(range.context->api);
  wait_context(range.context);
  Range removed;
  if (!Ranges::all().remove(address, &removed)) return CUDA_ERROR_INVALID_VALUE;
  release(removed);
  return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr* out, std::size_t bytes, unsigned flags) {
  FAKE_NEED_CONTEXT(context);
  if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  FAKE_REFUSE_UNSAFE();
  std::lock_guard api(context->api);
  Range range;
  range.bytes = bytes;
  range.kind = RangeKind::kManaged;
  range.context = context;
  range.gpu = context->gpu;
  range.backing = make_backing(context->gpu, bytes, false);
  if (!range.backing) return CUDA_ERROR_OUT_OF_MEMORY;
  void* at = map_backing(range.backing, nullptr, 0, range.backing->bytes, PROT_READ | PROT_WRITE);
  if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = range.start = reinterpret_cast<CUdeviceptr>(at);
  Ranges::all().add(range);
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** out, std::size_t bytes, unsigned flags) {
  return host_alloc(out, bytes, flags);
}

CUresult cuMemAllocHost_v2(void** out, std::size_t bytes) { return host_alloc(out, bytes, 0); }

CUresult cuMemFreeHost(void* pointer) {
  FAKE_NEED_CONTEXT(context);
  if (!pointer) return CUDA_SUCCESS;
  FAKE_REFUSE_UNSAFE();
  Range range;
  const auto start = reinterpret_cast<CUdeviceptr>(pointer);
  if (!Ranges::all().find(start, &range) || range.kind != RangeKind::kHost ||
      range.start != start) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  wait_context(range.context);
  if (Ranges::all().remove(start, &range)) release(range);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned flags) {
  FAKE_NEED_CONTEXT(context);
  if (!pointer || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  FAKE_REFUSE_UNSAFE();
  Range range;
  range.start = reinterpret_cast<CUdeviceptr>(pointer);
  range.bytes = bytes;
  if (Ranges::all().overlaps(range.start, bytes)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  range.kind = RangeKind::kRegistered;
  range.context = context;
  range.gpu = context->gpu;
  range.flags = flags;
  return Ranges::all().add_pinned(range) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemHostRegister(void* pointer, std::size_t bytes, unsigned flags) {
  return cuMemHostRegister_v2(pointer, bytes, flags);
}

CUresult cuMemHostUnregister(void* pointer) {
  FAKE_NEED_CONTEXT(context);
  Range range;
  const auto start = reinterpret_cast<CUdeviceptr>(pointer);
  if (!Ranges::all().find(start, &range) || range.kind != RangeKind::kRegistered) {
    return pointer ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE;
  }
  wait_context(range.context);
  Ranges::all().remove(range.start, &range);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* pointer, unsigned flags) {
  FAKE_NEED_CONTEXT(context);
  if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  if (!Ranges::all().find(reinterpret_cast<CUdeviceptr>(pointer), &range) || range.on_device()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = reinterpret_cast<CUdeviceptr>(pointer);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned* flags, void* pointer) {
  FAKE_NEED_CONTEXT(context);
  Range range;
  if (!flags || !Ranges::all().find(reinterpret_cast<CUdeviceptr>(pointer), &range) ||
      range.on_device()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = range.flags;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  FAKE_NEED_CONTEXT(context);
  Range range;
  if (!Ranges::all().find(address, &range)) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = range.start;
  if (bytes) *bytes = range.bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute which, CUdeviceptr pointer) {
  FAKE_NEED_CONTEXT(context);
  Range range;
  if (!out || !Ranges::all().find(pointer, &range)) return CUDA_ERROR_INVALID_VALUE;
  return attribute_of(range, which, pointer, out);
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* which, void** out,
                                CUdeviceptr pointer) {
  FAKE_NEED_CONTEXT(context);
  if (!which || !out || std::any_of(out, out + count, [](void* at) { return !at; })) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Range range;
  const bool known = Ranges::all().find(pointer, &range);
  for (unsigned i = 0; i < count; ++i) {
    if (known && attribute_of(range, which[i], pointer, out[i]) == CUDA_SUCCESS) continue;
    // An unknown attribute is told by zeros, as the driver does, never by an error.
    const bool word = which[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
                      which[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                      which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ||
                      which[i] == CU_POINTER_ATTRIBUTE_MAPPED ||
                      which[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    memset(out[i], 0, word ? 4 : 8);
    if (which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *static_cast<int*>(out[i]) = -2;
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void*, CUpointer_attribute which, CUdeviceptr pointer) {
  FAKE_NEED_CONTEXT(context);
  Range range;
  if (which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  if (!Ranges::all().find(pointer, &range)) return CUDA_ERROR_INVALID_VALUE;
  return range.kind == RangeKind::kMapped ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult cuMemAdvise(CUdeviceptr, std::size_t, CUmem_advise, CUdevice) {
  FAKE_NEED_CONTEXT(context);
  return CUDA_SUCCESS;
}

CUresult cuMemPrefetchAsync(CUdeviceptr, std::size_t, CUdevice, CUstream) {
  FAKE_NEED_CONTEXT(context);
  return CUDA_SUCCESS;
}

}  // extern "C"
