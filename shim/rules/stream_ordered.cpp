#include "shim/rules/stream_ordered.h"

#include "shim/log.h"

namespace switchyard::shim::rules {

namespace {

// cuStreamGetDevice is younger than the oldest header that builds us, and than some drivers.
template <typename AnyDriver>
bool ask_device(const AnyDriver& driver, CUstream stream, CUdevice& device) {
  if constexpr (requires { driver.cuStreamGetDevice; }) {
    const auto ask = driver.cuStreamGetDevice;
    return ask != nullptr && ask(stream, &device) == CUDA_SUCCESS;
  }
  return false;
}

}  // namespace

int device_of(CUstream stream) {
  // Null, legacy and per-thread streams are of the current context.
  const bool named = reinterpret_cast<std::uintptr_t>(stream) > 2;
  CUdevice device = -1;
  if (named && ask_device(driver(), stream, device)) {
    return lane_of_device(device) != nullptr ? device : -1;
  }
  const abi::Lane* lane = current_lane();
  return lane != nullptr ? lane_index(lane) : -1;
}

bool unknown_is_refused() {
  abi::Lane* lane = current_lane();
  if (lane == nullptr || lane->quota_bytes.load(std::memory_order_relaxed) == 0) return false;
  lane->refusals.fetch_add(1, std::memory_order_relaxed);
  static Once said;
  log_once(said, Level::kWarn,
           "memory of a kind that this library does not know is refused, because the job has a "
           "quota; run the job without --memory, or with a newer Switchyard");
  return true;
}

namespace {

// By number: older headers lack the later names.
constexpr unsigned kPinned = 1, kManaged = 2;
constexpr unsigned kLastHostLocation = 4;  // HOST, HOST_NUMA, HOST_NUMA_CURRENT

}  // namespace

bool learn_pool(CUmemoryPool pool, const CUmemLocation& location, CUmemAllocationType type) {
  const auto where = static_cast<unsigned>(location.type);
  const bool on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (where > kLastHostLocation) return false;
  if (static_cast<unsigned>(type) == kManaged) {
    const abi::Lane* lane = current_lane();
    const int current = lane != nullptr ? lane_index(lane) : -1;
    pools::learn(pool, on_device ? location.id : current, pools::PoolKind::kManaged);
    return true;
  }
  if (static_cast<unsigned>(type) != kPinned || where == 0) return false;
  if (on_device) {
    pools::learn(pool, location.id);
  } else {
    pools::learn(pool, -1, pools::PoolKind::kHost);
  }
  return true;
}

CUmemoryPool current_pool(CUstream stream) {
  const int device = device_of(stream);
  CUmemoryPool pool = nullptr;
  const auto ask = driver().cuDeviceGetMemPool;
  if (device < 0 || ask == nullptr || ask(&pool, device) != CUDA_SUCCESS) return nullptr;
  pools::learn(pool, device);
  return pool;
}

}  // namespace switchyard::shim::rules
