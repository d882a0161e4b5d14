#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels_ptx.h"

namespace conformance {

void* driver() {
  static void* library = switchyard::cuda::open_library(RTLD_GLOBAL);
  return library;
}

void* find(const char* symbol) {
  void* found = switchyard::cuda::in_library(driver())(symbol, symbol);
  if (!found) {
    fprintf(stderr, "libcuda.so.1 has no %s\n", symbol);
    abort();
  }
  return found;
}

std::string why_no_gpu() {
  if (!driver()) return "libcuda.so.1 can't be loaded";
  // A kernel that is loaded at its first launch waits for the whole context, and so for ever behind
  // a stream that a test holds.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  if (const CUresult status = CU(cuInit)(0)) return "cuInit: " + error_name(status);
  int count = 0;
  CU(cuDeviceGetCount)(&count);
  return count > 0 ? "" : "no device";
}

std::string error_name(CUresult code) {
  const char* name = nullptr;
  CU(cuGetErrorName)(code, &name);
  return name ? name : "error " + std::to_string(code);
}

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    char byte[4];
    snprintf(byte, sizeof byte, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += byte;
  }
  return text;
}

void Gpu::SetUp() {
  if (const std::string why = why_no_gpu(); !why.empty()) {
    const char* required = getenv("SWITCHYARD_REQUIRE_GPU");
    if (required && !strcmp(required, "1")) FAIL() << why;
    GTEST_SKIP() << why;
  }
  ASSERT_CU(CU(cuDeviceGet)(&device_, 0));
  ASSERT_CU(CU(cuDevicePrimaryCtxRetain)(&context_, device_));
  ASSERT_CU(CU(cuCtxSetCurrent)(context_));
  ASSERT_CU(CU(cuModuleLoadData)(&module_, kKernelsPtx));
}

void Gpu::TearDown() {
  if (!context_) return;
  EXPECT_OK(CU(cuCtxSynchronize)());
  for (CUevent event : events_) EXPECT_OK(CU(cuEventDestroy)(event));
  for (CUstream stream : streams_) EXPECT_OK(CU(cuStreamDestroy)(stream));
  for (CUdeviceptr memory : memory_) EXPECT_OK(CU(cuMemFree)(memory));
  for (void* host : host_) EXPECT_OK(CU(cuMemFreeHost)(host));
  EXPECT_OK(CU(cuModuleUnload)(module_));
  EXPECT_OK(CU(cuDevicePrimaryCtxRelease)(device_));
}

CUfunction Gpu::kernel(const char* name) {
  CUfunction function = nullptr;
  EXPECT_OK(CU(cuModuleGetFunction)(&function, module_, name));
  return function;
}

CUresult Gpu::launch_kernel(CUstream stream, CUfunction function, void** arguments) {
  return CU(cuLaunchKernel)(function, 1, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr);
}

CUdeviceptr Gpu::alloc(std::size_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_OK(CU(cuMemAlloc)(&address, bytes));
  if (address) memory_.push_back(address);
  return address;
}

std::uint32_t* Gpu::pinned(std::size_t words) {
  void* host = nullptr;
  EXPECT_OK(CU(cuMemHostAlloc)(&host, 4 * words, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(host, 0, 4 * words);
  host_.push_back(host);
  return static_cast<std::uint32_t*>(host);
}

CUstream Gpu::stream(unsigned flags) {
  CUstream made = nullptr;
  EXPECT_OK(CU(cuStreamCreate)(&made, flags));
  streams_.push_back(made);
  return made;
}

CUevent Gpu::event(unsigned flags) {
  CUevent made = nullptr;
  EXPECT_OK(CU(cuEventCreate)(&made, flags));
  events_.push_back(made);
  return made;
}

std::vector<std::uint32_t> Gpu::read(CUdeviceptr from, std::size_t words) {
  std::vector<std::uint32_t> out(words);
  EXPECT_OK(CU(cuMemcpyDtoH)(out.data(), from, 4 * words));
  return out;
}

std::uint64_t Gpu::free_bytes() {
  std::size_t free = 0;
  EXPECT_OK(CU(cuMemGetInfo)(&free, nullptr));
  return free;
}

void Gpu::hold(CUstream stream, std::uint32_t* word) {
  CUdeviceptr address = 0;
  ASSERT_CU(CU(cuMemHostGetDevicePointer)(&address, word, 0));
  ASSERT_CU(CU(cuStreamWaitValue32)(stream, address, 1, CU_STREAM_WAIT_VALUE_EQ));
}

Opener Gpu::held(CUstream stream) {
  std::uint32_t* word = pinned(1);
  hold(stream, word);
  return {word};
}

}  // namespace conformance
