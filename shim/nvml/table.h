// NVML calls that show memory: inside a job they show the job's quota, so that nvidia-smi agrees
// with cuMemGetInfo.
//
// Concept. The driver answers first. If the job has a quota on that GPU, total becomes the quota,
// and free at most what the account has left. A process that only uses NVML joins as an observer at
// its first such question, and is charged nothing.
//
// Threading: any thread.
#pragma once

#include <cstdint>

namespace switchyard::shim::nvml {

// What the door dlsym answers for a name that starts with "nvml".
struct Pick {
  void* symbol;
  bool decided;  // false: the name is not ours, ask glibc
};
Pick pick(void* handle, const char* name);

// The GPUs that this process's NVML lists, for joining as an observer. Returns how many.
std::uint32_t list_gpus(std::uint8_t (*uuid)[16]);

}  // namespace switchyard::shim::nvml
