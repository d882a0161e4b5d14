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

// `busy` does about `microseconds` of arithmetic on one thread: work, not waiting for a clock, so
// it makes no progress while another process has the GPU. About 1900 cycles are a microsecond,
// and a dependent multiply-add takes four. The simulated GPU knows `busy` by its name.
inline constexpr char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry empty() { ret; }
.visible .entry busy(.param .u32 microseconds) {
  .reg .u32 %count, %value;
  .reg .pred %more;
  ld.param.u32 %count, [microseconds];
  mul.lo.u32 %count, %count, 475;
  mov.u32 %value, %tid.x;
  setp.eq.u32 %more, %count, 0;
  @%more bra done;
again:
  mad.lo.u32 %value, %value, %value, %count;
  sub.u32 %count, %count, 1;
  setp.ne.u32 %more, %count, 0;
  @%more bra again;
  setp.ne.u32 %more, %value, 305419896;
  @%more bra done;
  trap;
done:
  ret;
}
)";

inline CUmodule load_module() {
  check(BENCH_CALL(cuInit)(0), "cuInit");
  CUdevice device = 0;
  check(BENCH_CALL(cuDeviceGet)(&device, 0), "cuDeviceGet");
  CUcontext context = nullptr;
  check(BENCH_CALL(cuDevicePrimaryCtxRetain)(&context, device), "cuDevicePrimaryCtxRetain");
  check(BENCH_CALL(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
  CUmodule module = nullptr;
  check(BENCH_CALL(cuModuleLoadData)(&module, kPtx), "cuModuleLoadData");
  return module;
}

}  // namespace switchyard::bench
