// The driver API by dlopen, so that the bench programs link to nothing of CUDA's and meet the
// preload library as PyTorch and JAX do: by dlsym.
//
// Threading: one thread.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "kernels_ptx.h"

namespace switchyard::bench {

// CLOCK_MONOTONIC is one clock for all processes of a machine: rates of several jobs are compared
// over one window.
inline std::int64_t now_ns() {
  timespec at{};
  ::clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1'000'000'000LL + at.tv_nsec;
}

inline void* symbol(const char* name) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  void* const found = library != nullptr ? ::dlsym(library, name) : nullptr;
  if (found == nullptr) {
    std::fprintf(stderr, "bench: libcuda.so.1 has no %s: %s\n", name, ::dlerror());
    std::exit(1);
  }
  return found;
}

inline void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "bench: %s returned %d\n", call, static_cast<int>(result));
  std::exit(1);
}

// The type is that of the declaration in cuda.h, where macros already name the current version.
#define BENCH_STRING_(name) #name
#define BENCH_STRING(name) BENCH_STRING_(name)
#define BENCH_CALL(name) \
  (reinterpret_cast<decltype(&::name)>(::switchyard::bench::symbol(BENCH_STRING(name))))

inline CUmodule load_module() {
  check(BENCH_CALL(cuInit)(0), "cuInit");
  CUdevice device = 0;
  check(BENCH_CALL(cuDeviceGet)(&device, 0), "cuDeviceGet");
  CUcontext context = nullptr;
  check(BENCH_CALL(cuDevicePrimaryCtxRetain)(&context, device), "cuDevicePrimaryCtxRetain");
  check(BENCH_CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  CUmodule module = nullptr;
  check(BENCH_CALL(cuModuleLoadData)(&module, kKernelsPtx), "cuModuleLoadData");
  return module;
}

}  // namespace switchyard::bench
