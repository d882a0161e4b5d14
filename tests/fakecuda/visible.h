// Which GPUs a process sees, and in which order: CUDA_VISIBLE_DEVICES, as the driver reads it.
//
// Concept. A process numbers the GPUs that it sees from 0; that is a *device*. The state file and
// NVML number all GPUs of the machine.
//
// Threading: a pure function.
#pragma once

#include <vector>

namespace fakecuda {

// The GPU behind each device. `text`: null for all GPUs. The list ends before the first word that
// names no GPU; one GPU twice leaves none.
std::vector<int> visible_gpus(const char* text, int gpu_count);

}  // namespace fakecuda
