// The driver API as any program finds it: libcuda.so.1 by its soname, calls by dlsym.
//
// Concept. CU(cuMemAlloc) is the function that cuda.h means by that name (cuMemAlloc_v2). Its
// declaration gives the type, and it is looked up at run time. So one binary runs on whatever
// libcuda.so.1 is there. The tests know nothing but cuda.h: they hold for a real GPU and for a
// simulated one alike.
//
// Threading: any thread.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "switchyard/cuda_checkpoint.h"
#include "switchyard/cuda_library.h"

namespace conformance {

inline constexpr std::size_t kMiB = 1 << 20;

// The library, or null. why_no_gpu() is empty once cuInit succeeded and there is a device.
void* driver();
std::string why_no_gpu();

void* find(const char* symbol);

template <class Type>
Type call(const char* symbol) {
  return reinterpret_cast<Type>(find(symbol));
}

std::string error_name(CUresult code);
std::string uuid_text(const CUuuid& uuid);  // as CUDA_VISIBLE_DEVICES takes it

// Opens a held stream even when an assertion ends the test early.
struct Opener {
  std::uint32_t* word;
  void open() const { __atomic_store_n(word, 1u, __ATOMIC_RELEASE); }
  ~Opener() { open(); }
};

// A GPU with its primary context current and the kernels of kernels.ptx loaded.
class Gpu : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  CUfunction kernel(const char* name);
  // Launches one block of 256 threads.
  template <class... Arguments>
  CUresult launch(CUstream stream, const char* name, Arguments... arguments) {
    void* pointers[] = {&arguments..., nullptr};
    return launch_kernel(stream, kernel(name), pointers);
  }
  static CUresult launch_kernel(CUstream stream, CUfunction function, void** arguments);

  CUdeviceptr alloc(std::size_t bytes);                      // freed at the end
  std::uint32_t* pinned(std::size_t words);                  // zeroed, mapped, freed at the end
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING);  // destroyed at the end
  CUevent event(unsigned flags = CU_EVENT_DEFAULT);
  std::vector<std::uint32_t> read(CUdeviceptr from, std::size_t words);
  std::uint64_t free_bytes();
  // Work already queued keeps a stream busy until *word becomes 1.
  void hold(CUstream stream, std::uint32_t* word);
  Opener held(CUstream stream);  // by a word of its own

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;

 private:
  std::vector<CUdeviceptr> memory_;
  std::vector<void*> host_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
};

}  // namespace conformance

#define CU(name) ::conformance::call<decltype(&::name)>(SWITCHYARD_CUDA_SYMBOL(name))
#define EXPECT_CU(expected, expression) \
  EXPECT_EQ(::conformance::error_name(expected), ::conformance::error_name(expression))
#define ASSERT_CU(expression) \
  ASSERT_EQ(::conformance::error_name(CUDA_SUCCESS), ::conformance::error_name(expression))
#define EXPECT_OK(expression) EXPECT_CU(CUDA_SUCCESS, expression)

namespace conformance {

// One attribute of a pointer, by the type that cuda.h tells.
template <class Type>
Type attribute(CUpointer_attribute which, CUdeviceptr pointer) {
  Type value{};
  EXPECT_OK(CU(cuPointerGetAttribute)(&value, which, pointer)) << "attribute " << which;
  return value;
}

}  // namespace conformance
