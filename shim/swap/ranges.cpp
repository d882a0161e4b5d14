#include "shim/swap/ranges.h"

#include <pthread.h>
#include <stdlib.h>

#include <algorithm>

#include "shim/log.h"

namespace switchyard::shim::swap {
namespace {

constexpr std::size_t kFirstPlaces = 256;

// Sorted by address. Few are added or taken, compared with how often all are looked at.
constinit Range* g_ranges = nullptr;
constinit std::size_t g_count = 0;
constinit std::size_t g_capacity = 0;
pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;

bool make_place() {
  if (g_count < g_capacity) return true;
  const std::size_t capacity = g_capacity == 0 ? kFirstPlaces : g_capacity * 2;
  void* grown = ::realloc(g_ranges, capacity * sizeof(Range));
  if (grown == nullptr) return false;
  g_ranges = static_cast<Range*>(grown);
  g_capacity = capacity;
  return true;
}

// The first range that begins behind `address`.
Range* after(CUdeviceptr address) {
  return std::upper_bound(
      g_ranges, g_ranges + g_count, address,
      [](CUdeviceptr value, const Range& range) { return value < range.address; });
}

// What cuMemAlloc gives can be registered for RDMA; our memory can be, too, where the GPU has it.
bool rdma_capable(int device) {
  const auto ask = driver().cuDeviceGetAttribute;
  const auto which = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
  int capable = 0;
  return ask != nullptr && ask(&capable, which, device) == CUDA_SUCCESS && capable != 0;
}

CUresult map(CUmemGenericAllocationHandle handle, CUdeviceptr address, std::uint64_t bytes,
             const CUmemLocation& location) {
  const CUresult mapped = driver().cuMemMap(address, bytes, 0, handle, 0);
  if (mapped != CUDA_SUCCESS) return mapped;
  const CUmemAccessDesc access{location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const CUresult allowed = driver().cuMemSetAccess(address, bytes, &access, 1);
  if (allowed != CUDA_SUCCESS) driver().cuMemUnmap(address, bytes);
  return allowed;
}

// Those that leave last come first. True: `act` of one was.
template <typename Act>
bool each_kept(Act act) {
  for (std::size_t i = 0; i < g_count; ++i) {
    for (unsigned c = 0; c < g_ranges[i].count; ++c) {
      Chunk& chunk = g_ranges[i].chunks[c];
      if (chunk.handle != 0 && !chunk.arriving && chunk.host && act(chunk)) return true;
    }
  }
  return false;
}

}  // namespace

Held::Held() { ::pthread_mutex_lock(&g_lock); }
Held::~Held() { ::pthread_mutex_unlock(&g_lock); }

std::size_t count() { return g_count; }
Range& at(std::size_t index) { return g_ranges[index]; }

Range* find(CUdeviceptr address) {
  if (g_count == 0) return nullptr;
  Range* range = after(address);
  if (range == g_ranges) return nullptr;
  --range;
  return address - range->address < range->bytes ? range : nullptr;
}

bool add(const Range& range) {
  if (!make_place()) return false;
  Range* place = after(range.address);
  std::copy_backward(place, g_ranges + g_count, g_ranges + g_count + 1);
  *place = range;
  ++g_count;
  return true;
}

Range take(std::size_t index) {
  const Range taken = g_ranges[index];
  std::copy(g_ranges + index + 1, g_ranges + g_count, g_ranges + index);
  --g_count;
  return taken;
}

CUresult bring(Chunk& chunk, CUdeviceptr address, int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.allocFlags.gpuDirectRDMACapable = rdma_capable(device) ? 1 : 0;
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = driver().cuMemCreate(&handle, chunk.bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  result = map(handle, address, chunk.bytes, properties.location);
  if (result != CUDA_SUCCESS) {
    driver().cuMemRelease(handle);
    return result;
  }
  chunk.handle = handle;
  return CUDA_SUCCESS;
}

bool send_away(Chunk& chunk, CUdeviceptr address) {
  const CUresult unmapped = driver().cuMemUnmap(address, chunk.bytes);
  const CUresult released =
      unmapped == CUDA_SUCCESS ? driver().cuMemRelease(chunk.handle) : CUDA_SUCCESS;
  if (unmapped != CUDA_SUCCESS || released != CUDA_SUCCESS) {
    log_line(Level::kError, "swap: %llu bytes at %llx could not be given back: driver %d, %d",
             static_cast<unsigned long long>(chunk.bytes), static_cast<unsigned long long>(address),
             static_cast<int>(unmapped), static_cast<int>(released));
  }
  if (unmapped != CUDA_SUCCESS) return false;
  chunk.handle = 0;
  return true;
}

std::uint64_t kept_bytes() {
  std::uint64_t bytes = 0;
  each_kept([&](Chunk& chunk) {
    bytes += chunk.host.bytes;
    return false;
  });
  return bytes;
}

bool give_up_kept() {
  return each_kept([](Chunk& chunk) {
    host_pool::give_back(chunk.host);
    return true;
  });
}

void clear_ranges() {
  // Another thread of the parent may have held the lock at the fork, with the table half changed:
  // both start anew, and the parent's table is left where it is.
  g_lock = PTHREAD_MUTEX_INITIALIZER;
  g_ranges = nullptr;
  g_count = 0;
  g_capacity = 0;
}

}  // namespace switchyard::shim::swap
