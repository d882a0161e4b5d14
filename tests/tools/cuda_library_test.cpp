// A list of libcuda's functions, filled from a library.
#include "switchyard/cuda_library.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace switchyard::cuda {
namespace {

#define TEST_CALLS(CALL) CALL(cuInit) CALL(cuMemAlloc) CALL(cuLaunchKernel)
SWITCHYARD_CUDA_FUNCTIONS(Functions, TEST_CALLS);

void a_call() {}

TEST(CudaLibrary, EachFunctionIsLookedUpByItsSymbolAndItsName) {
  Functions functions;
  std::vector<std::string> asked;
  EXPECT_EQ(functions.fill([&](const char* symbol, const char* name) {
    asked.push_back(std::string(symbol) + " " + name);
    return reinterpret_cast<void*>(&a_call);
  }),
            nullptr);
  EXPECT_EQ(asked, (std::vector<std::string>{"cuInit cuInit", "cuMemAlloc_v2 cuMemAlloc",
                                             "cuLaunchKernel cuLaunchKernel"}));
  EXPECT_EQ(reinterpret_cast<void*>(functions.cuMemAlloc), reinterpret_cast<void*>(&a_call));
}

TEST(CudaLibrary, TheFirstMissingSymbolIsTheError) {
  Functions functions;
  const char* missing = functions.fill([](const char* symbol, const char*) {
    return std::strcmp(symbol, "cuInit") == 0 ? reinterpret_cast<void*>(&a_call) : nullptr;
  });
  EXPECT_STREQ(missing, "cuMemAlloc_v2");
  EXPECT_NE(functions.cuInit, nullptr);
  EXPECT_EQ(functions.cuLaunchKernel, nullptr);
}

TEST(CudaLibrary, WithoutALibraryTheFirstSymbolIsMissing) {
  EXPECT_STREQ(Functions().fill(in_library(nullptr)), "cuInit");
}

}  // namespace
}  // namespace switchyard::cuda
