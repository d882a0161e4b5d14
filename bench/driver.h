// The driver API by dlopen and dlsym. So the bench programs link to nothing of CUDA's, and meet the
// preload library as PyTorch and JAX do.
//
// Threading: one thread.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels_ptx.h"
#include "switchyard/cuda_library.h"

namespace switchyard::bench {

// CLOCK_MONOTONIC is one clock for all processes of a machine: rates of several jobs are compared
// over one window.
inline std::int64_t now_ns() {
  timespec at{};
  ::clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1'000'000'000LL + at.tv_nsec;
}

// The functions of `Functions`, a struct of cuda_library.h; ends the program when one is missing.
template <typename Functions>
Functions loaded() {
  Functions functions;
  void* const library = cuda::open_library(RTLD_GLOBAL);
  if (const char* missing = functions.fill(cuda::in_library(library))) {
    std::fprintf(stderr, "bench: libcuda.so.1 has no %s: %s\n", missing, ::dlerror());
    std::exit(1);
  }
  return functions;
}

// clang-format off
#define BENCH_CALLS(CALL) \
  CALL(cuInit) CALL(cuDeviceGet) CALL(cuDevicePrimaryCtxRetain) CALL(cuCtxSetCurrent) \
  CALL(cuModuleLoadData) CALL(cuModuleGetFunction) CALL(cuStreamCreate) CALL(cuEventCreate) \
  CALL(cuEventRecord) CALL(cuEventSynchronize) CALL(cuCtxSynchronize) CALL(cuLaunchKernel) \
  CALL(cuStreamQuery) CALL(cuStreamSynchronize) CALL(cuDeviceGetAttribute)
// clang-format on
SWITCHYARD_CUDA_FUNCTIONS(Driver, BENCH_CALLS);

// Looked up once. A measured loop takes its pointers out before it begins.
inline const Driver& driver() {
  static const Driver only = loaded<Driver>();
  return only;
}

// The driver's own address of an exported symbol, read from the library's symbol table, past
// whatever answers dlsym.
inline void* own_symbol(const char* name) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (library == nullptr || ::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return nullptr;
  const ElfW(Sym)* symbols = nullptr;
  const char* texts = nullptr;
  const std::uint32_t* hash = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    const auto* at = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(at);
    if (entry->d_tag == DT_STRTAB) texts = at;
    if (entry->d_tag == DT_GNU_HASH) hash = reinterpret_cast<const std::uint32_t*>(at);
  }
  if (symbols == nullptr || texts == nullptr || hash == nullptr) return nullptr;
  // The chains of a GNU hash table hold every defined symbol; a chain ends with an odd word.
  const std::uint32_t buckets = hash[0];
  const std::uint32_t first = hash[1];
  const auto* bucket = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
  const auto* chain = bucket + buckets;
  for (std::uint32_t b = 0; b < buckets; ++b) {
    if (bucket[b] < first) continue;
    for (std::uint32_t i = bucket[b];; ++i) {
      if (std::strcmp(texts + symbols[i].st_name, name) == 0) {
        return reinterpret_cast<void*>(map->l_addr + symbols[i].st_value);
      }
      if ((chain[i - first] & 1) != 0) break;
    }
  }
  return nullptr;
}

inline void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "bench: %s returned %d\n", call, static_cast<int>(result));
  std::exit(1);
}

inline CUmodule load_module() {
  check(driver().cuInit(0), "cuInit");
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, 0), "cuDeviceGet");
  CUcontext context = nullptr;
  check(driver().cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(driver().cuCtxSetCurrent(context), "cuCtxSetCurrent");
  CUmodule module = nullptr;
  check(driver().cuModuleLoadData(&module, kKernelsPtx), "cuModuleLoadData");
  return module;
}

}  // namespace switchyard::bench
