#include "tests/shim/memory/kinds.h"

namespace memory_job {
namespace {

// What `create` makes; `destroy` gives it back.
template <typename Made, typename Create, typename Destroy>
CUresult take(Give& give, Create create, Destroy destroy) {
  Made made{};
  const CUresult result = create(&made);
  give = [made, destroy] { return destroy(made); };
  return result;
}

CUresult free_async(CUdeviceptr at) { return cuMemFreeAsync(at, nullptr); }

CUresult take_linear(std::size_t mib, Give& give) {
  return take<CUdeviceptr>(
      give, [=](CUdeviceptr* at) { return cuMemAlloc(at, mib * kMiB); }, cuMemFree);
}

CUresult take_pitch(std::size_t mib, Give& give) {
  const auto create = [=](CUdeviceptr* at) {
    size_t pitch = 0;
    return cuMemAllocPitch(at, &pitch, 4000, mib * kMiB / 4096, 16);
  };
  return take<CUdeviceptr>(give, create, cuMemFree);
}

CUresult take_managed(std::size_t mib, Give& give) {
  const auto create = [=](CUdeviceptr* at) {
    return cuMemAllocManaged(at, mib * kMiB, CU_MEM_ATTACH_GLOBAL);
  };
  return take<CUdeviceptr>(give, create, cuMemFree);
}

CUresult take_async(std::size_t mib, Give& give) {
  return take<CUdeviceptr>(
      give, [=](CUdeviceptr* at) { return cuMemAllocAsync(at, mib * kMiB, nullptr); }, free_async);
}

CUmemoryPool g_pool = nullptr;

CUresult take_from_pool(std::size_t mib, Give& give) {
  CUmemoryPool& pool = g_pool;
  if (pool == nullptr) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    cuuint64_t keep = UINT64_MAX;  // as PyTorch does: the pool shrinks only when it is trimmed
    if (const CUresult result = cuMemPoolCreate(&pool, &properties)) return result;
    cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
  }
  const auto create = [=](CUdeviceptr* at) {
    return cuMemAllocFromPoolAsync(at, mib * kMiB, pool, nullptr);
  };
  return take<CUdeviceptr>(give, create, free_async);
}

// A pool without a place: by number, for older headers lack the names.
CUresult take_from_managed_pool(std::size_t mib, Give& give) {
  static CUmemoryPool pool = nullptr;
  CUmemPoolProps properties{};
  properties.allocType = static_cast<CUmemAllocationType>(2);
  if (pool == nullptr) {
    if (const CUresult result = cuMemPoolCreate(&pool, &properties)) return result;
  }
  const auto create = [=](CUdeviceptr* at) {
    return cuMemAllocFromPoolAsync(at, mib * kMiB, pool, nullptr);
  };
  return take<CUdeviceptr>(give, create, free_async);
}

// The heap of malloc() on the device, larger with each piece.
CUresult take_heap(std::size_t mib, Give& give) {
  const auto resize = [](std::size_t bytes, bool more) {
    std::size_t now = 0;
    if (const CUresult result = cuCtxGetLimit(&now, CU_LIMIT_MALLOC_HEAP_SIZE)) return result;
    return cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, more ? now + bytes : now - bytes);
  };
  give = [=] { return resize(mib * kMiB, false); };
  return resize(mib * kMiB, true);
}

// The handle is released at once: the mapping alone holds the memory.
CUresult take_mapped(std::size_t mib, Give& give) {
  const std::size_t bytes = (mib + 1) / 2 * 2 * kMiB;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  if (const CUresult result = cuMemCreate(&handle, bytes, &properties, 0)) return result;
  CUdeviceptr at = 0;
  if (const CUresult result = cuMemAddressReserve(&at, bytes, 0, 0, 0)) return result;
  if (const CUresult result = cuMemMap(at, bytes, 0, handle, 0)) return result;
  if (const CUresult result = cuMemRelease(handle)) return result;
  give = [at, bytes] {
    if (const CUresult result = cuMemUnmap(at, bytes)) return result;
    return cuMemAddressFree(at, bytes);
  };
  return CUDA_SUCCESS;
}

CUresult take_array(std::size_t mib, Give& give) {
  const CUDA_ARRAY_DESCRIPTOR flat = {512, mib * kMiB / (512 * 16), CU_AD_FORMAT_FLOAT, 4};
  return take<CUarray>(
      give, [&](CUarray* array) { return cuArrayCreate(array, &flat); }, cuArrayDestroy);
}

CUresult take_volume(std::size_t mib, Give& give) {
  const CUDA_ARRAY3D_DESCRIPTOR cube = {512, 512, mib, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
  return take<CUarray>(
      give, [&](CUarray* array) { return cuArray3DCreate(array, &cube); }, cuArrayDestroy);
}

CUresult take_mipmap(std::size_t mib, Give& give) {
  const CUDA_ARRAY3D_DESCRIPTOR layers = {
      256, 256, mib, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_LAYERED};
  const auto create = [&](CUmipmappedArray* mipmap) {
    return cuMipmappedArrayCreate(mipmap, &layers, 3);
  };
  return take<CUmipmappedArray>(give, create, cuMipmappedArrayDestroy);
}

// A graph that allocates, launched once and kept: its memory stays until it is destroyed.
CUresult take_graph(std::size_t mib, Give& give) {
  CUDA_MEM_ALLOC_NODE_PARAMS node{};
  node.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  node.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  node.bytesize = mib * kMiB;
  CUgraph graph = nullptr;
  CUgraphNode made = nullptr;
  CUgraphExec executable = nullptr;
  if (const CUresult result = cuGraphCreate(&graph, 0)) return result;
  CUresult result = cuGraphAddMemAllocNode(&made, graph, nullptr, 0, &node);
  if (result == CUDA_SUCCESS) result = cuGraphInstantiate(&executable, graph, 0);
  if (result == CUDA_SUCCESS) result = cuGraphLaunch(executable, nullptr);
  if (result == CUDA_SUCCESS) result = cuStreamSynchronize(nullptr);
  give = [graph, executable, at = node.dptr] {
    CUresult freed = cuMemFree(at);
    if (freed == CUDA_SUCCESS) freed = cuGraphExecDestroy(executable);
    return freed == CUDA_SUCCESS ? cuGraphDestroy(graph) : freed;
  };
  if (result != CUDA_SUCCESS) {
    if (executable != nullptr) cuGraphExecDestroy(executable);
    cuGraphDestroy(graph);
  }
  return result;
}

}  // namespace

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"linear", take_linear}, {"pitch", take_pitch},    {"managed", take_managed},
      {"async", take_async},   {"pool", take_from_pool}, {"mapped", take_mapped},
      {"array", take_array},   {"volume", take_volume},  {"mipmap", take_mipmap},
      {"graph", take_graph},
  };
  return all;
}

const Kind* find_kind(const std::string& name) {
  static const Kind others[] = {{"managed_pool", take_from_managed_pool}, {"heap", take_heap}};
  for (const Kind& kind : kinds()) {
    if (name == kind.name) return &kind;
  }
  for (const Kind& kind : others) {
    if (name == kind.name) return &kind;
  }
  return nullptr;
}

void settle() {
  cuCtxSynchronize();
  if (g_pool != nullptr) cuMemPoolTrimTo(g_pool, 0);
  CUmemoryPool pool = nullptr;
  if (cuDeviceGetMemPool(&pool, 0) == CUDA_SUCCESS) cuMemPoolTrimTo(pool, 0);
  cuDeviceGraphMemTrim(0);
}

}  // namespace memory_job
