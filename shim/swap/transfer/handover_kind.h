// The kind of memory, as a number: only chunks of equal numbers can stand for each other.
//
// Threading: a pure function.
#pragma once

#include <cstdint>

#include "shim/driver.h"

namespace switchyard::shim::swap::handover {

// False: it can't be handed over.
inline bool kind_of(const CUmemAllocationProp& properties, std::uint32_t& kind) {
  const auto types = static_cast<std::uint32_t>(properties.requestedHandleTypes);
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
    return false;
  }
  kind = types << 24 | properties.allocFlags.usage << 16 |
         static_cast<std::uint32_t>(properties.allocFlags.compressionType) << 8 |
         properties.allocFlags.gpuDirectRDMACapable;
  return true;
}

}  // namespace switchyard::shim::swap::handover
