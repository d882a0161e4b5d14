// The little of NVIDIA's resource-manager (RM) ABI that slices need. Taken from the open kernel
// module's published headers, and measured on 580.159.04. The controls, NVOS54 and NVOS00 are the
// same from 515 to 595. The allocation calls are not: before 535 NVOS64 has 40 bytes, and the
// status of NVOS21 is at 24. Such a driver's groups are left alone, and gates replace slices.
//
// Threading: plain values.
#pragma once

#include <cstdint>

namespace switchyard::shim::rm {

inline constexpr unsigned kIoctlType = 'F';
inline constexpr unsigned kFreeNr = 0x29;
inline constexpr unsigned kControlNr = 0x2a;
inline constexpr unsigned kAllocNr = 0x2b;
inline constexpr unsigned long kControlRequest = 0xc020462a;

inline constexpr std::uint32_t kClassChannelGroup = 0xa06c;
inline constexpr std::uint32_t kCmdSetTimeslice = 0xa06c0103;
inline constexpr std::uint32_t kEngineCompute = 1;  // graphics/compute; others are copy engines

inline constexpr std::uint32_t kStatusOk = 0;

struct Control {  // NVOS54
  std::uint32_t client;
  std::uint32_t object;
  std::uint32_t cmd;
  std::uint32_t flags;
  std::uint64_t params;
  std::uint32_t params_size;
  std::uint32_t status;
};
static_assert(sizeof(Control) == 32);

struct AllocHead {  // the common head of NVOS21 (32 bytes) and NVOS64 (48 bytes)
  std::uint32_t root;
  std::uint32_t parent;
  std::uint32_t object;
  std::uint32_t object_class;
  std::uint64_t params;
};
inline constexpr unsigned kAllocBytesShort = 32;  // NVOS21: status at 28
inline constexpr unsigned kAllocBytes = 48;       // NVOS64: status at 40
inline constexpr unsigned kAllocBytesOld = 40;    // NVOS64 before 535

struct GroupParams {  // NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS
  std::uint32_t error_object;
  std::uint32_t ecc_error_object;
  std::uint32_t va_space;
  std::uint32_t engine_type;
};

struct Free {  // NVOS00
  std::uint32_t root;
  std::uint32_t parent;
  std::uint32_t object;
  std::uint32_t status;
};
static_assert(sizeof(Free) == 16);

}  // namespace switchyard::shim::rm
