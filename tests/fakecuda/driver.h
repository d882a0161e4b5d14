// The driver API as cuda.h declares it, old and per-thread names included, exported by this
// library.
//
// Concept. Every implementation in this folder defines a function that cuda.h declares, so the
// compiler refuses one whose signature differs. The rest of the library is hidden.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>

#include "switchyard/cuda_checkpoint.h"

// Of cudaProfiler.h, which NVIDIA's wheel lacks (scripts/fetch_cuda_headers.sh).
extern "C" {
CUresult CUDAAPI cuProfilerStart(void);
CUresult CUDAAPI cuProfilerStop(void);
}
#pragma GCC visibility pop
