// cuGetProcAddress: exactly the exported symbols, by version and by default stream.
#include <dlfcn.h>

#include "driver.h"

namespace conformance {
namespace {

class ProcAddress : public Gpu {
 protected:
  struct Answer {
    CUresult code;
    void* address;
    int status;
  };
  static Answer ask(const char* name, int version, cuuint64_t flags = 0) {
    auto get =
        call<CUresult (*)(const char*, void**, int, cuuint64_t, int*)>("cuGetProcAddress_v2");
    Answer answer{CUDA_ERROR_UNKNOWN, nullptr, -1};
    answer.code = get(name, &answer.address, version, flags, &answer.status);
    return answer;
  }
  static void expect(const char* symbol, const char* name, int version, cuuint64_t flags = 0) {
    const Answer answer = ask(name, version, flags);
    EXPECT_OK(answer.code) << name;
    EXPECT_EQ(0, answer.status) << name;
    EXPECT_EQ(find(symbol), answer.address) << name << " is not " << symbol;
  }
};

constexpr cuuint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

TEST_F(ProcAddress, GivesTheNewestTheVersionKnows) {
  for (const int version : {11000, 12000, 13000}) expect("cuMemAlloc_v2", "cuMemAlloc", version);
  expect("cuMemGetInfo_v2", "cuMemGetInfo", 12000);
  expect("cuLaunchKernel", "cuLaunchKernel", 12000);
  expect("cuInit", "cuInit", 12000);
  expect("cuCtxCreate_v2", "cuCtxCreate", 11000);
  expect("cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease", 12000);
  expect("cuStreamBeginCapture_v2", "cuStreamBeginCapture", 12000);
  expect("cuStreamWaitValue32_v2", "cuStreamWaitValue32", 12000);
  expect("cuStreamWaitValue32", "cuStreamWaitValue32", 11000);
  expect("cuGetProcAddress_v2", "cuGetProcAddress", 12000);
  // cuda.h makes the plain name mean the call with flags; the driver does not (580.159.04).
  expect("cuGraphInstantiate_v2", "cuGraphInstantiate", 12000);
}

TEST_F(ProcAddress, GivesPerThreadTwins) {
  expect("cuLaunchKernel_ptsz", "cuLaunchKernel", 12000, kPerThread);
  expect("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD", 12000, kPerThread);
  expect("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync", 12000, kPerThread);
  expect("cuMemAllocAsync_ptsz", "cuMemAllocAsync", 12000, kPerThread);
  expect("cuGraphLaunch_ptsz", "cuGraphLaunch", 12000, kPerThread);
  expect("cuMemAlloc_v2", "cuMemAlloc", 12000, kPerThread);
  expect("cuLaunchKernel", "cuLaunchKernel", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
}

TEST_F(ProcAddress, SaysWhatItDoesNotKnow) {
  const Answer answer = ask("cuNoSuchCall", 12000);
  EXPECT_OK(answer.code);
  EXPECT_EQ(nullptr, answer.address);
  EXPECT_EQ(static_cast<int>(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND), answer.status);
  const Answer early = ask("cuMemAllocAsync", 10000);
  EXPECT_OK(early.code);
  EXPECT_EQ(nullptr, early.address);
  EXPECT_EQ(static_cast<int>(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT), early.status);
}

TEST_F(ProcAddress, WhatItGivesWorks) {
  auto get_version = reinterpret_cast<CUresult (*)(int*)>(ask("cuDriverGetVersion", 12000).address);
  ASSERT_NE(nullptr, get_version);
  int version = 0;
  EXPECT_OK(get_version(&version));
  EXPECT_GE(version, 12000);
}

}  // namespace
}  // namespace conformance
