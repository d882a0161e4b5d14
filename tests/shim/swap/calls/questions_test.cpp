#include "shim/rules/questions.h"

#include <cstring>

#include "tests/shim/swap/swap_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class SwappableQuestions : public SwapTest {};

// A driver that sees mappings and no context.
CUresult driver_attribute(void* out, CUpointer_attribute which, CUdeviceptr at) {
  EXPECT_TRUE(swap::admission::inside());
  const std::uint64_t value = which == CU_POINTER_ATTRIBUTE_CONTEXT            ? 0
                              : which == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ? at & ~0xFFFFFFull
                                                                               : 82 * kMiB;
  std::memcpy(out, &value, sizeof(value));
  return CUDA_SUCCESS;
}

TEST_F(SwappableQuestions, TheRangeIsTheApplicationsOwn) {
  const CUdeviceptr at = allocate(80 * kMiB + 1);
  const auto never = [](CUdeviceptr*, size_t*, CUdeviceptr) {
    ADD_FAILURE() << "the driver was called";
    return CUDA_ERROR_UNKNOWN;
  };
  CUdeviceptr base = 0;
  size_t bytes = 0;
  EXPECT_EQ(rules::address_range(never, &base, &bytes, at + 70 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(base, at);
  EXPECT_EQ(bytes, 80 * kMiB + 1);
  EXPECT_EQ(rules::address_range(never, static_cast<CUdeviceptr*>(nullptr), &bytes, at),
            CUDA_SUCCESS);
  EXPECT_EQ(rules::address_range(never, &base, static_cast<size_t*>(nullptr), at), CUDA_SUCCESS);
}

TEST_F(SwappableQuestions, AForeignAddressIsTheDriversToAnswer) {
  allocate(8 * kMiB);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const auto none = [](CUdeviceptr*, size_t*, CUdeviceptr) { return CUDA_ERROR_NOT_FOUND; };
  EXPECT_EQ(rules::address_range(none, &base, &bytes, CUdeviceptr{0xdead}), CUDA_ERROR_NOT_FOUND);
  std::uint64_t value = 7;
  const auto plain = [](void*, CUpointer_attribute, CUdeviceptr) {
    EXPECT_FALSE(swap::admission::inside());
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::pointer_attribute(plain, &value, CU_POINTER_ATTRIBUTE_RANGE_SIZE, 0xdead),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 7u);
}

TEST_F(SwappableQuestions, ContextAndBoundsAreAttributesAsOfTheDriversOwn) {
  const CUcontext mine = use_context(0x2000);
  const CUdeviceptr at = allocate(80 * kMiB + 1);
  std::uint64_t value = 0;
  const auto ask = [&](CUpointer_attribute which) {
    EXPECT_EQ(rules::pointer_attribute(driver_attribute, &value, which, at + 40 * kMiB),
              CUDA_SUCCESS);
    return value;
  };
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_CONTEXT), reinterpret_cast<std::uintptr_t>(mine));
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), at);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE), 80 * kMiB + 1);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_BUFFER_ID), 82 * kMiB) << "the driver's answer";
}

TEST_F(SwappableQuestions, ManyAttributesAtOnceAreTheSame) {
  const CUdeviceptr at = allocate(8 * kMiB);
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 CU_POINTER_ATTRIBUTE_CONTEXT};
  std::uint64_t values[3] = {};
  void* answers[] = {&values[0], &values[1], &values[2]};
  const auto driver = [](unsigned count, CUpointer_attribute* each, void** out, CUdeviceptr of) {
    for (unsigned i = 0; i < count; ++i) driver_attribute(out[i], each[i], of);
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::pointer_attributes(driver, 3, which, answers, at), CUDA_SUCCESS);
  EXPECT_EQ(values[0], 8 * kMiB);
  EXPECT_EQ(values[1], 82 * kMiB);
  EXPECT_EQ(values[2], reinterpret_cast<std::uintptr_t>(world_.context));
}

TEST_F(SwappableQuestions, WhatTheDriverRefusesToAnswerStaysRefused) {
  const CUdeviceptr at = allocate(8 * kMiB);
  const auto refuse = [](void*, CUpointer_attribute, CUdeviceptr) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(rules::pointer_attribute(refuse, nullptr, CU_POINTER_ATTRIBUTE_CONTEXT, at),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace switchyard::shim
