// Rules for questions: inside a job the GPU is as large as the job's quota.
//
// Concept. The driver answers first; then total becomes the quota, if there is one, and free at
// most what the account has left. cuMemGetInfo, cuDeviceTotalMem and NVML agree, because all ask
// shown().
//
// Threading: any thread. May ask the monitor once, in a bounded round trip.
#pragma once

#include <cstdint>

#include "shim/client/process.h"
#include "shim/driver.h"

namespace switchyard::shim::memory {

struct Shown {
  std::uint64_t free;
  std::uint64_t total;
};

// The figures that the job is shown for a GPU that truly has `real`.
Shown shown(const abi::Lane& lane, Shown real);

// Brings the account up to date: pools that shrank, and what the job's other processes took.
// False when a monitor that we joined did not answer.
bool refresh(abi::Lane& lane);

}  // namespace switchyard::shim::memory

namespace switchyard::shim::rules {

// Both widths. A null argument is the driver's to judge.
template <typename Original, typename Size>
CUresult memory_info(Original original, Size* free, Size* total) {
  Size real_free = 0;
  Size real_total = 0;
  const CUresult result =
      original(free != nullptr ? &real_free : nullptr, total != nullptr ? &real_total : nullptr);
  if (result != CUDA_SUCCESS) return result;
  memory::Shown shown{real_free, total != nullptr ? real_total : UINT64_MAX};
  if (abi::Lane* lane = current_lane()) {
    memory::refresh(*lane);
    shown = memory::shown(*lane, shown);
  }
  if (free != nullptr) *free = static_cast<Size>(shown.free);
  if (total != nullptr) *total = static_cast<Size>(shown.total);
  return result;
}

template <typename Original, typename Size>
CUresult total_memory(Original original, Size* bytes, CUdevice device) {
  const CUresult result = original(bytes, device);
  const abi::Lane* lane = lane_of_device(device);
  if (result == CUDA_SUCCESS && lane != nullptr) {
    *bytes = static_cast<Size>(memory::shown(*lane, {*bytes, *bytes}).total);
  }
  return result;
}

}  // namespace switchyard::shim::rules
