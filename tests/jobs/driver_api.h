// The driver API, entered by the door that a test chooses.
//
// Concept. Programs reach libcuda in different ways: linked to it, by dlopen and then dlsym, or by
// asking cuGetProcAddress. dlopen takes its soname, "libcuda.so" or a path. A job is the same
// program for all of them; only how `Api` is filled differs. Nothing here knows of Switchyard.
//
// Threading: fill it once, before anything else.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <string>

#include "switchyard/cuda_library.h"

namespace jobs {

#define JOB_CALLS(CALL)               \
  CALL(cuInit)                        \
  CALL(cuDeviceGet)                   \
  CALL(cuDeviceGetCount)              \
  CALL(cuDeviceTotalMem)              \
  CALL(cuDevicePrimaryCtxRetain)      \
  CALL(cuCtxSetCurrent)               \
  CALL(cuModuleLoadData)              \
  CALL(cuModuleGetFunction)           \
  CALL(cuStreamCreate)                \
  CALL(cuStreamSynchronize)           \
  CALL(cuLaunchKernel)                \
  CALL(cuMemAlloc)                    \
  CALL(cuMemFree)                     \
  CALL(cuMemGetInfo)                  \
  CALL(cuMemAllocAsync)               \
  CALL(cuMemFreeAsync)                \
  CALL(cuMemAllocPitch)               \
  CALL(cuMemAllocManaged)             \
  CALL(cuArrayCreate)                 \
  CALL(cuArrayDestroy)                \
  CALL(cuMemGetAllocationGranularity) \
  CALL(cuMemCreate)                   \
  CALL(cuMemRelease)                  \
  CALL(cuMemAddressReserve)           \
  CALL(cuMemAddressFree)              \
  CALL(cuMemMap)                      \
  CALL(cuMemSetAccess)                \
  CALL(cuMemUnmap)

SWITCHYARD_CUDA_FUNCTIONS(Api, JOB_CALLS);

#ifdef JOB_LINKED

// pre: door is "" (the link is the door). Null, or what is missing.
inline const char* load(Api& api, const std::string& door) {
#define JOB_LINK(name) api.name = &::name;
  JOB_CALLS(JOB_LINK)
#undef JOB_LINK
  return door.empty() ? nullptr : "this program has no doors but its link";
}

#else

// `door`: "" or "soname" (libcuda.so.1), "so" (libcuda.so), a path with a slash; "proc" and "proc2"
// ask cuGetProcAddress and _v2 of the soname's library. Null, or what is missing.
inline const char* load(Api& api, const std::string& door) {
  const bool path = door.find('/') != std::string::npos;
  const char* file = path ? door.c_str() : door == "so" ? "libcuda.so" : "libcuda.so.1";
  void* library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return ::dlerror();
  using Ask1 = CUresult(CUDAAPI*)(const char*, void**, int, cuuint64_t);
  using Ask2 =
      CUresult(CUDAAPI*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  const auto ask1 = reinterpret_cast<Ask1>(::dlsym(library, "cuGetProcAddress"));
  const auto ask2 = reinterpret_cast<Ask2>(::dlsym(library, "cuGetProcAddress_v2"));
  const auto find = [&](const char* symbol, const char* name) -> void* {
    void* found = nullptr;
    if (door == "proc") {
      return ask1 != nullptr && ask1(name, &found, 12000, 0) == CUDA_SUCCESS ? found : nullptr;
    }
    if (door == "proc2") {
      CUdriverProcAddressQueryResult status{};
      return ask2 != nullptr && ask2(name, &found, 12000, 0, &status) == CUDA_SUCCESS ? found
                                                                                      : nullptr;
    }
    return ::dlsym(library, symbol);
  };
  return api.fill(find);
}

#endif

// The first GPU with its primary context made current. Null, or the call that failed.
inline const char* open_gpu(const Api& api, CUdevice& device) {
  CUcontext context = nullptr;
  if (api.cuInit(0) != CUDA_SUCCESS) return "cuInit";
  if (api.cuDeviceGet(&device, 0) != CUDA_SUCCESS) return "cuDeviceGet";
  if (api.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) {
    return "cuDevicePrimaryCtxRetain";
  }
  if (api.cuCtxSetCurrent(context) != CUDA_SUCCESS) return "cuCtxSetCurrent";
  return nullptr;
}

}  // namespace jobs
