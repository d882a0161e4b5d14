#include "shim/rules/stream_ordered.h"

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

CUmemoryPool current_pool(CUstream stream) {
  const int device = device_of(stream);
  CUmemoryPool pool = nullptr;
  const auto ask = driver().cuDeviceGetMemPool;
  if (device < 0 || ask == nullptr || ask(&pool, device) != CUDA_SUCCESS) return nullptr;
  pools::learn(pool, device);
  return pool;
}

}  // namespace switchyard::shim::rules
