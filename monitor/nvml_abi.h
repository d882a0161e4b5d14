// The part of NVML's ABI that the monitor uses, declared here because build machines need not have
// nvml.h. Layouts are those of the public header.
//
// Threading: plain values.
#pragma once

#include <cstdint>

namespace switchyard::monitor::nvml {

using Return = int;  // 0: success
inline constexpr Return kSuccess = 0;
inline constexpr Return kInsufficientSize = 7;
inline constexpr unsigned kUuidBytes = 96;
inline constexpr unsigned kNameBytes = 96;
inline constexpr std::uint64_t kNotAvailable = ~0ull;

using Device = struct DeviceOpaque*;

struct Memory {
  unsigned long long total, free, used;
};

struct MemoryV2 {
  unsigned version;  // kMemoryV2Version
  unsigned long long total, reserved, free, used;
};
static_assert(sizeof(MemoryV2) == 40);
inline constexpr unsigned kMemoryV2Version = sizeof(MemoryV2) | (2u << 24);

struct ProcessInfoV1 {
  unsigned pid;
  unsigned long long used_bytes;
};
static_assert(sizeof(ProcessInfoV1) == 16);

struct ProcessInfo {  // of the _v2 and _v3 calls
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);

struct ProcessUtilization {
  unsigned pid;
  unsigned long long time_stamp_us;
  unsigned sm_percent, memory_percent, encoder_percent, decoder_percent;
};
static_assert(sizeof(ProcessUtilization) == 32);

}  // namespace switchyard::monitor::nvml
