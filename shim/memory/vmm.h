// Rules for virtual memory management: cuMemCreate, Map, Unmap, Release, Retain, Import.
//
// Concept. Physical memory is charged at cuMemCreate, to the GPU of its location; memory of the
// host is not charged. It lives while a handle refers to it or an address maps it, so the charge
// ends with the last of both. Retaining and importing what we made ourselves add references, never
// a charge; what another process exported is charged there.
//
// Threading: any thread.
#pragma once

#include "shim/client/process.h"
#include "shim/memory/account.h"
#include "shim/memory/ledger.h"
#include "shim/memory/pools.h"

namespace switchyard::shim::rules {

// The lane that memory at a location is charged to; null for the host's.
inline abi::Lane* lane_of(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? lane_of_device(location.id) : nullptr;
}

template <typename Original>
CUresult create_memory(Original original, CUmemGenericAllocationHandle* handle, size_t size,
                       const CUmemAllocationProp* properties, unsigned long long flags) {
  abi::Lane* lane = properties != nullptr ? lane_of(properties->location) : nullptr;
  if (const CUresult refused = account::reserve(lane, size, pools::reclaim)) return refused;
  const CUresult result = original(handle, size, properties, flags);
  if (result != CUDA_SUCCESS) {
    account::release(lane, size);
  } else if (lane != nullptr &&
             !ledger::note(ledger::Kind::kHandle, *handle,
                           {.lane = lane_index(lane), .bytes = size, .handles = 1})) {
    account::release(lane, size);
  }
  return result;
}

// Takes references or mappings from a handle around the call that gives them back.
template <typename Call>
CUresult drop_reference(std::uint64_t handle, int handles, int mappings, Call call) {
  ledger::Charge charge;
  bool gone = false;
  const bool known = ledger::adjust(handle, -handles, -mappings, charge, gone);
  const CUresult result = call();
  if (!known) return result;
  if (result == CUDA_SUCCESS) {
    if (gone) account::release(lane_of_device(charge.lane), charge.bytes);
  } else if (gone) {
    charge.handles = static_cast<std::uint32_t>(handles);
    charge.mappings = static_cast<std::uint32_t>(mappings);
    ledger::note(ledger::Kind::kHandle, handle, charge);
  } else {
    ledger::adjust(handle, handles, mappings, charge, gone);
  }
  return result;
}

template <typename Original>
CUresult release_handle(Original original, CUmemGenericAllocationHandle handle) {
  return drop_reference(handle, 1, 0, [&] { return original(handle); });
}

// Retain and Import: the call gives a handle, perhaps one that we know.
template <typename Original, typename... Args>
CUresult gain_handle(Original original, CUmemGenericAllocationHandle* handle, Args... args) {
  const CUresult result = original(handle, args...);
  if (result == CUDA_SUCCESS) {
    ledger::Charge charge;
    bool gone = false;
    ledger::adjust(*handle, 1, 0, charge, gone);
  }
  return result;
}

template <typename Original>
CUresult map_memory(Original original, CUdeviceptr address, size_t size, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags) {
  ledger::Charge charge;
  bool gone = false;
  const bool known = ledger::adjust(handle, 0, 1, charge, gone);
  const CUresult result = original(address, size, offset, handle, flags);
  if (!known) return result;
  if (result != CUDA_SUCCESS) {
    ledger::adjust(handle, 0, -1, charge, gone);
  } else if (!ledger::note(ledger::Kind::kMapping, address, {.bytes = size, .owner = handle})) {
    ledger::adjust(handle, 0, -1, charge, gone);
  }
  return result;
}

// One call may end several mappings that lie side by side.
void unmapped(std::uint64_t address, std::uint64_t size);

template <typename Original>
CUresult unmap_memory(Original original, CUdeviceptr address, size_t size) {
  const CUresult result = original(address, size);
  if (result == CUDA_SUCCESS) unmapped(address, size);
  return result;
}

}  // namespace switchyard::shim::rules
