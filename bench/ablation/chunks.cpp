#include "bench/ablation/chunks.h"

#include <algorithm>

namespace switchyard::bench::ablation {
namespace {

CUmemAllocationProp memory_of(CUmemLocation location) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = location;
  return properties;
}

// As what stands in for cuMemAlloc's memory.
CUmemAllocationProp device_memory() {
  CUmemAllocationProp properties = memory_of({CU_MEM_LOCATION_TYPE_DEVICE, 0});
  int capable = 0;
  CU(cuDeviceGetAttribute, &capable, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
     0);
  properties.allocFlags.gpuDirectRDMACapable = capable != 0 ? 1 : 0;
  return properties;
}

void let_device_use(CUdeviceptr address, std::size_t bytes) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CU(cuMemSetAccess, address, bytes, &access, 1);
}

}  // namespace

Chunks::Chunks(std::size_t bytes, std::size_t chunk_bytes)
    : bytes_(bytes), chunk_bytes_(chunk_bytes), handles_((bytes + chunk_bytes - 1) / chunk_bytes) {
  CU(cuMemAddressReserve, &address_, bytes_, 0, 0, 0);
}

Chunks::~Chunks() {
  send_all_away();
  CU(cuMemAddressFree, address_, bytes_);
}

std::size_t Chunks::bytes(unsigned at) const { return std::min(chunk_bytes_, bytes_ - offset(at)); }

void Chunks::bring_run(unsigned first, unsigned count) {
  static const CUmemAllocationProp properties = device_memory();
  std::size_t all = 0;
  for (unsigned at = first; at < first + count; ++at) {
    CU(cuMemCreate, &handles_[at], bytes(at), &properties, 0);
    CU(cuMemMap, address(at), bytes(at), 0, handles_[at], 0);
    all += bytes(at);
  }
  let_device_use(address(first), all);
}

void Chunks::bring(unsigned at) { bring_run(at, 1); }

void Chunks::send_away(unsigned at) {
  if (handles_[at] == 0) return;
  unmap(at);
  release(at);
}

CUresult Chunks::unmap_together(unsigned first, unsigned count) const {
  return calls().cuMemUnmap(address(first), std::min(count * chunk_bytes_, bytes_ - offset(first)));
}

void Chunks::release(unsigned at) {
  CU(cuMemRelease, handles_[at]);
  handles_[at] = 0;
}

void Chunks::bring_all() {
  for (unsigned i = 0; i < count(); ++i) bring(i);
}

void Chunks::send_all_away() {
  for (unsigned i = 0; i < count(); ++i) send_away(i);
}

void Chunks::map_host(unsigned at, Handle handle) {
  CU(cuMemMap, address(at), bytes(at), 0, handle, 0);
}

void Chunks::give_access() { let_device_use(address_, bytes_); }

void Chunks::unmap(unsigned at) { CU(cuMemUnmap, address(at), bytes(at)); }

std::string refused(const char* call, CUresult result) {
  const char* name = nullptr;
  calls().cuGetErrorName(result, &name);
  return std::string(call) + " of the host's memory: " + (name != nullptr ? name : "unknown error");
}

HostHandles make_host_handles(const Chunks& like) {
  HostHandles out;
#if CUDA_VERSION >= 12020
  int node = 0;
  const CUresult asked = calls().cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0);
  if (asked != CUDA_SUCCESS || node < 0) node = 0;  // a machine with a single one
  const CUmemAllocationProp properties = memory_of({CU_MEM_LOCATION_TYPE_HOST_NUMA, node});
  std::size_t granularity = 0;
  CUresult result = calls().cuMemGetAllocationGranularity(&granularity, &properties,
                                                          CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) {
    out.refusal = refused("cuMemGetAllocationGranularity", result);
    return out;
  }
  for (unsigned i = 0; i < like.count(); ++i) {
    if (like.bytes(i) % granularity != 0) {
      out.refusal = "the host's memory comes in pieces of " + std::to_string(granularity);
      break;
    }
    Handle handle = 0;
    result = calls().cuMemCreate(&handle, like.bytes(i), &properties, 0);
    if (result != CUDA_SUCCESS) {
      out.refusal = refused("cuMemCreate", result);
      break;
    }
    out.handles.push_back(handle);
  }
#else
  out.refusal = "built with a cuda.h older than 12.2: " + std::to_string(like.count());
#endif
  if (out.refusal) {
    for (const Handle handle : out.handles) CU(cuMemRelease, handle);
    out.handles.clear();
  }
  return out;
}

}  // namespace switchyard::bench::ablation
