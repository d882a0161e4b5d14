// NVML calls that show memory: inside a job they show the job's quota, so that nvidia-smi agrees
// with cuMemGetInfo.
//
// Threading: any thread.
#pragma once

#include <cstdint>

namespace switchyard::shim::nvml {

// Our entry for an exact exported name of libnvidia-ml.so.1, or null.
void* entry_by_name(const char* name);

// The GPUs that this process's NVML lists, for joining as an observer. Returns how many.
std::uint32_t list_gpus(std::uint8_t (*uuid)[16]);

}  // namespace switchyard::shim::nvml
