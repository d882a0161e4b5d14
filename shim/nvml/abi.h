// The part of NVML's ABI that the shim uses, declared here because build machines need not have
// nvml.h. Layouts are those of the public header.
//
// Threading: plain values.
#pragma once

#include <cstddef>

namespace switchyard::shim::nvml {

using Return = int;  // nvmlReturn_t
inline constexpr Return kSuccess = 0;
inline constexpr Return kFunctionNotFound = 13;
inline constexpr unsigned kUuidBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

using Device = struct DeviceOpaque*;  // nvmlDevice_t

struct Memory {  // nvmlMemory_t
  unsigned long long total, free, used;
};
static_assert(sizeof(Memory) == 24);

struct MemoryV2 {  // nvmlMemory_v2_t
  unsigned version;
  unsigned long long total, reserved, free, used;
};
static_assert(sizeof(MemoryV2) == 40 && offsetof(MemoryV2, total) == 8);

}  // namespace switchyard::shim::nvml
