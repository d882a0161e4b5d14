#include "gpu.h"

#include "kernels_ptx.h"

namespace demo {

bool Gpu::check(CUresult result, const char* call, std::string& why) const {
  if (result == CUDA_SUCCESS) return true;
  const char* name = nullptr;
  driver_.cuGetErrorName(result, &name);
  why = std::string(call) + " failed: " + (name != nullptr ? name : "unknown error");
  return false;
}

std::optional<Gpu> Gpu::open(std::string& why) {
  void* library = switchyard::cuda::open_library();
  if (library == nullptr) {
    why = ::dlerror();
    return std::nullopt;
  }
  Gpu gpu;
  if (const char* missing = gpu.driver_.fill(switchyard::cuda::in_library(library))) {
    why = std::string("libcuda.so.1 has no ") + missing;
    return std::nullopt;
  }
  CUdevice device = 0;
  char name[128] = {};
  if (!gpu.check(gpu.driver_.cuInit(0), "cuInit", why) ||
      !gpu.check(gpu.driver_.cuDeviceGet(&device, 0), "cuDeviceGet", why) ||
      !gpu.check(gpu.driver_.cuDeviceGetName(name, sizeof(name) - 1, device), "cuDeviceGetName",
                 why)) {
    return std::nullopt;
  }
  gpu.name_ = name;
  return gpu;
}

bool Gpu::load(std::string& why) {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  const auto step = [&](CUresult result, const char* call) { return check(result, call, why); };
  return step(driver_.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain") &&
         step(driver_.cuCtxSetCurrent(context), "cuCtxSetCurrent") &&
         step(driver_.cuModuleLoadData(&module, kKernelsPtx), "cuModuleLoadData") &&
         step(driver_.cuModuleGetFunction(&busy_, module, "busy"), "cuModuleGetFunction") &&
         step(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate") &&
         step(driver_.cuEventCreate(&marks_[0], CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
              "cuEventCreate") &&
         step(driver_.cuEventCreate(&marks_[1], CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
              "cuEventCreate");
}

bool Gpu::allocate(unsigned long bytes, std::string& why) {
  CUdeviceptr memory = 0;
  return check(driver_.cuMemAlloc(&memory, bytes), "cuMemAlloc", why);
}

bool Gpu::launch(unsigned count, unsigned microseconds) {
  void* arguments[] = {&microseconds};
  for (unsigned i = 0; i < count; ++i) {
    if (driver_.cuLaunchKernel(busy_, 1, 1, 1, 1, 1, 1, 0, stream_, arguments, nullptr) !=
        CUDA_SUCCESS) {
      return false;
    }
  }
  return true;
}

bool Gpu::wait() { return driver_.cuStreamSynchronize(stream_) == CUDA_SUCCESS; }

bool Gpu::mark(unsigned slot) {
  return driver_.cuEventRecord(marks_[slot], stream_) == CUDA_SUCCESS;
}

bool Gpu::wait_for(unsigned slot) {
  return driver_.cuEventSynchronize(marks_[slot]) == CUDA_SUCCESS;
}

}  // namespace demo
