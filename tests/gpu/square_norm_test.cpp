// The kernel of squared norms as the driver compiles it from our text, against the CPU: on the GPU
// that is there, simulated or real.
#include "shim/nccl/square_norm.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "square_norm_ptx.h"
#include "tests/conformance/driver.h"
#include "tests/support/half.h"

namespace conformance {
namespace {

namespace norm = switchyard::shim::nccl::square_norm;
using norm::Type;

constexpr Type kTypes[] = {Type::kFloat32, Type::kFloat16, Type::kBfloat16};

class SquareNormKernel : public Gpu {
 protected:
  static constexpr std::uint64_t kMost = 5'000'011;

  void SetUp() override {
    Gpu::SetUp();
    if (!context_ || HasFatalFailure() || IsSkipped()) return;
    ASSERT_CU(
        CU(cuLibraryLoadData)(&library_, kSquareNormPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    ASSERT_CU(CU(cuLibraryGetKernel)(&kernel_, library_, "switchyard_square_norm"));
    memory_ = alloc(4 * kMost + 64);
    out_ = reinterpret_cast<double*>(pinned(2 * norm::kMostBlocks));
  }
  void TearDown() override {
    if (library_) {
      EXPECT_OK(CU(cuLibraryUnload)(library_));
    }
    Gpu::TearDown();
  }

  static std::vector<unsigned char> some(std::uint64_t count, Type type) {
    std::vector<unsigned char> out(count * norm::bytes_of(type));
    std::mt19937 next(static_cast<std::uint32_t>(count));
    std::normal_distribution<float> normal;
    for (std::uint64_t at = 0; at < count; ++at) put(out.data(), at, normal(next), type);
    return out;
  }
  static void put(void* to, std::uint64_t at, float number, Type type) {
    if (type == Type::kFloat32) {
      static_cast<float*>(to)[at] = number;
    } else {
      static_cast<std::uint16_t*>(to)[at] = type == Type::kFloat16
                                                ? switchyard::half::half_of(number)
                                                : switchyard::half::bfloat_of(number);
    }
  }

  // Of the numbers, which stand so many elements behind an aligned address.
  double run(const std::vector<unsigned char>& numbers, Type type, std::uint64_t odd = 0) {
    std::uint64_t count = numbers.size() / norm::bytes_of(type);
    CUdeviceptr from = memory_ + odd * norm::bytes_of(type);
    if (count != 0) {
      EXPECT_OK(CU(cuMemcpyHtoD)(from, numbers.data(), numbers.size()));
    }
    std::memset(out_, 0xFF, norm::kMostBlocks * sizeof(double));
    CUdeviceptr out = 0;
    EXPECT_OK(CU(cuMemHostGetDevicePointer)(&out, out_, 0));
    auto number = static_cast<std::uint32_t>(type);
    void* arguments[] = {&from, &count, &number, &out};
    const unsigned blocks = norm::blocks_of(count);
    EXPECT_OK(CU(cuLaunchKernel)(reinterpret_cast<CUfunction>(kernel_), blocks, 1, 1,
                                 norm::kThreads, 1, 1, 0, stream(), arguments, nullptr));
    EXPECT_OK(CU(cuCtxSynchronize)());
    double sum = 0;
    for (unsigned i = 0; i < norm::kMostBlocks; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, out_ + i, sizeof word);
      EXPECT_EQ(word == norm::kUnwritten, i >= blocks) << "block " << i;
      if (i < blocks) sum += out_[i];
    }
    return sum;
  }

  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
  CUdeviceptr memory_ = 0;
  double* out_ = nullptr;
};

TEST_F(SquareNormKernel, ComputesAsTheCpuDoes) {
  for (const Type type : kTypes) {
    for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7},
                                      std::uint64_t{8192}, std::uint64_t{32769}, kMost}) {
      const auto numbers = some(count, type);
      const double expected = norm::of(numbers.data(), count, type);
      EXPECT_NEAR(run(numbers, type), expected, 1e-6 * expected)
          << count << " of type " << static_cast<int>(type);
    }
  }
}

TEST_F(SquareNormKernel, TakesAddressesThatAreNotAligned) {
  for (const Type type : kTypes) {
    for (std::uint64_t odd = 1; odd < 9; ++odd) {
      for (const std::uint64_t count : {std::uint64_t{3}, std::uint64_t{10'001}}) {
        const auto numbers = some(count, type);
        const double expected = norm::of(numbers.data(), count, type);
        EXPECT_NEAR(run(numbers, type, odd), expected, 1e-6 * expected)
            << count << " from " << odd << " of type " << static_cast<int>(type);
      }
    }
  }
}

TEST_F(SquareNormKernel, WhatIsNotFiniteShows) {
  for (const Type type : kTypes) {
    auto numbers = some(10'000, type);
    put(numbers.data(), 5'000, std::numeric_limits<float>::infinity(), type);
    EXPECT_TRUE(std::isinf(run(numbers, type)));
    put(numbers.data(), 5'000, std::numeric_limits<float>::quiet_NaN(), type);
    EXPECT_TRUE(std::isnan(run(numbers, type)));
  }
}

}  // namespace
}  // namespace conformance
