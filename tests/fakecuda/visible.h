// Which GPUs a process sees, and in which order: CUDA_VISIBLE_DEVICES, as the driver reads it. And
// which of them reach each other's memory: FAKECUDA_PEERS.
//
// Concept. A process numbers the GPUs that it sees from 0; that is a *device*. The state file and
// NVML number all GPUs of the machine.
//
// Threading: pure functions.
#pragma once

#include <vector>

namespace fakecuda {

// The GPU behind each device. `text`: null for all GPUs. The list ends before the first word that
// names no GPU; one GPU twice leaves none.
std::vector<int> visible_gpus(const char* text, int gpu_count);

// Whether two GPUs of the machine reach each other's memory. `text`: null for all of them, "no" for
// none, or the pairs that do, such as 0-1,1-2.
bool are_linked(const char* text, int gpu, int peer);

}  // namespace fakecuda
