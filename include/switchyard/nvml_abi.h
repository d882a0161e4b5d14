// The part of NVML that Switchyard asks or answers, with the names and layouts of the public
// nvml.h.
//
// Concept. Declared here because build machines need not have that header. So a file that includes
// this one must not include that one.
//
// Threading: plain values.
#pragma once

#include <cstddef>

extern "C" {

using nvmlReturn_t = int;
constexpr nvmlReturn_t NVML_SUCCESS = 0, NVML_ERROR_UNINITIALIZED = 1,
                       NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_NOT_SUPPORTED = 3,
                       NVML_ERROR_NOT_FOUND = 6, NVML_ERROR_INSUFFICIENT_SIZE = 7,
                       NVML_ERROR_DRIVER_NOT_LOADED = 9, NVML_ERROR_FUNCTION_NOT_FOUND = 13,
                       NVML_ERROR_UNKNOWN = 999;
constexpr unsigned NVML_DEVICE_UUID_V2_BUFFER_SIZE = 96, NVML_DEVICE_NAME_V2_BUFFER_SIZE = 96;
constexpr unsigned long long NVML_VALUE_NOT_AVAILABLE = ~0ull;

struct nvmlDevice_st;
using nvmlDevice_t = nvmlDevice_st*;

struct nvmlMemory_t {
  unsigned long long total, free, used;
};
struct nvmlMemory_v2_t {
  unsigned version;  // nvmlMemory_v2, before the call
  unsigned long long total, reserved, free, used;
};
constexpr unsigned nvmlMemory_v2 = sizeof(nvmlMemory_v2_t) | (2u << 24);
struct nvmlProcessInfo_v1_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
};
struct nvmlProcessInfo_t {  // of the _v2 and _v3 calls
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;
};
struct nvmlProcessUtilizationSample_t {
  unsigned pid;
  unsigned long long timeStamp;                // us
  unsigned smUtil, memUtil, encUtil, decUtil;  // percent
};
struct nvmlUtilization_t {
  unsigned gpu, memory;
};
enum nvmlTemperatureSensors_t { NVML_TEMPERATURE_GPU = 0 };
struct nvmlPciInfo_t {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
};

static_assert(sizeof(nvmlMemory_t) == 24 && sizeof(nvmlMemory_v2_t) == 40 &&
              offsetof(nvmlMemory_v2_t, total) == 8 && sizeof(nvmlProcessInfo_v1_t) == 16 &&
              sizeof(nvmlProcessInfo_t) == 24 && sizeof(nvmlPciInfo_t) == 68 &&
              sizeof(nvmlProcessUtilizationSample_t) == 32);

}  // extern "C"
