#include "tests/shim/memory/kinds.h"

namespace memory_job {
namespace {

CUresult take_linear(std::size_t mib, Give& give) {
  CUdeviceptr at = 0;
  const CUresult result = cuMemAlloc(&at, mib * kMiB);
  give = [at] { return cuMemFree(at); };
  return result;
}

CUresult take_pitch(std::size_t mib, Give& give) {
  CUdeviceptr at = 0;
  size_t pitch = 0;
  const CUresult result = cuMemAllocPitch(&at, &pitch, 4000, mib * kMiB / 4096, 16);
  give = [at] { return cuMemFree(at); };
  return result;
}

CUresult take_managed(std::size_t mib, Give& give) {
  CUdeviceptr at = 0;
  const CUresult result = cuMemAllocManaged(&at, mib * kMiB, CU_MEM_ATTACH_GLOBAL);
  give = [at] { return cuMemFree(at); };
  return result;
}

CUresult take_async(std::size_t mib, Give& give) {
  CUdeviceptr at = 0;
  const CUresult result = cuMemAllocAsync(&at, mib * kMiB, nullptr);
  give = [at] { return cuMemFreeAsync(at, nullptr); };
  return result;
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
  CUdeviceptr at = 0;
  const CUresult result = cuMemAllocFromPoolAsync(&at, mib * kMiB, pool, nullptr);
  give = [at] { return cuMemFreeAsync(at, nullptr); };
  return result;
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
  CUDA_ARRAY_DESCRIPTOR shape{};
  shape.Width = 512;
  shape.Height = mib * kMiB / (512 * 16);
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 4;
  CUarray array = nullptr;
  const CUresult result = cuArrayCreate(&array, &shape);
  give = [array] { return cuArrayDestroy(array); };
  return result;
}

CUresult take_volume(std::size_t mib, Give& give) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = 512;
  shape.Height = 512;
  shape.Depth = mib;
  shape.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  shape.NumChannels = 4;
  CUarray array = nullptr;
  const CUresult result = cuArray3DCreate(&array, &shape);
  give = [array] { return cuArrayDestroy(array); };
  return result;
}

CUresult take_mipmap(std::size_t mib, Give& give) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = 256;
  shape.Height = 256;
  shape.Depth = mib;
  shape.Flags = CUDA_ARRAY3D_LAYERED;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 4;
  CUmipmappedArray mipmap = nullptr;
  const CUresult result = cuMipmappedArrayCreate(&mipmap, &shape, 3);
  give = [mipmap] { return cuMipmappedArrayDestroy(mipmap); };
  return result;
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
  for (const Kind& kind : kinds()) {
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
