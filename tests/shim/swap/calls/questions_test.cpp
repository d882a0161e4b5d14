#include "shim/rules/questions.h"

#include <cstring>
#include <vector>

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
                                                                               : 77;
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
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR), at);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_MAPPING_SIZE), 82 * kMiB);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_DEVICE_POINTER), 77u) << "the driver's answer";
}

TEST_F(SwappableQuestions, ManyAttributesAtOnceAreTheSame) {
  const CUdeviceptr at = allocate(8 * kMiB);
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_CONTEXT};
  std::uint64_t values[3] = {};
  void* answers[] = {&values[0], &values[1], &values[2]};
  const auto driver = [](unsigned count, CUpointer_attribute* each, void** out, CUdeviceptr of) {
    for (unsigned i = 0; i < count; ++i) driver_attribute(out[i], each[i], of);
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::pointer_attributes(driver, 3, which, answers, at), CUDA_SUCCESS);
  EXPECT_EQ(values[0], 8 * kMiB);
  EXPECT_EQ(values[1], 77u);
  EXPECT_EQ(values[2], reinterpret_cast<std::uintptr_t>(world_.context));
}

// A registration cache takes equal numbers for equal memory.
TEST_F(SwappableQuestions, AnAllocationHasOneNumberForLifeAndNoOtherHasIt) {
  const CUdeviceptr at = allocate(80 * kMiB);
  const CUdeviceptr next = allocate(80 * kMiB);
  const auto number = [](CUdeviceptr of, unsigned which = CU_POINTER_ATTRIBUTE_BUFFER_ID) {
    std::uint64_t value = 0;
    EXPECT_EQ(rules::pointer_attribute(driver_attribute, &value,
                                       static_cast<CUpointer_attribute>(which), of),
              CUDA_SUCCESS);
    return value;
  };
  const std::uint64_t first = number(at);
  EXPECT_NE(first, number(next));
  EXPECT_EQ(first, number(at + 79 * kMiB));
  EXPECT_EQ(number(at, swap::kMemoryBlockId), number(at + 79 * kMiB, swap::kMemoryBlockId));
  EXPECT_NE(number(at, swap::kMemoryBlockId), number(next, swap::kMemoryBlockId));
  take_away(at);
  EXPECT_EQ(first, number(at + 40 * kMiB)) << "it has moved";
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  const CUdeviceptr again = allocate(80 * kMiB);
  EXPECT_EQ(again, at) << "the same address";
  EXPECT_NE(first, number(again));
}

TEST_F(SwappableQuestions, AnAllocationIsOfNoKindThatAccessIsAskedOf) {
  const CUdeviceptr at = allocate(8 * kMiB);
  const auto readwrite = [](unsigned long long* flags, const CUmemLocation*, CUdeviceptr) {
    *flags = 3;
    return CUDA_SUCCESS;
  };
  unsigned long long flags = 9;
  EXPECT_EQ(rules::memory_access(readwrite, &flags, nullptr, at + kMiB), CUDA_SUCCESS);
  EXPECT_EQ(flags, 0u);
  EXPECT_EQ(rules::memory_access(readwrite, &flags, nullptr, CUdeviceptr{0xdead}), CUDA_SUCCESS);
  EXPECT_EQ(flags, 3u) << "the driver's answer";
}

std::vector<CUstream> g_waited;

TEST_F(SwappableQuestions, SyncMemopsCanBeSetAndMeansWhatItSays) {
  g_waited.clear();
  g_driver.cuStreamSynchronize = [](CUstream stream) {
    g_waited.push_back(stream);
    return CUDA_SUCCESS;
  };
  const CUdeviceptr at = allocate(80 * kMiB);
  const auto refuse = [](const void*, CUpointer_attribute, CUdeviceptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  };
  const auto set = [&](unsigned value, CUdeviceptr of) {
    return rules::pointer_set_attribute(refuse, &value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, of);
  };
  const auto told = [&] {
    unsigned value[2] = {9, 9};  // the made-up driver writes a word of 64 bits
    EXPECT_EQ(rules::pointer_attribute(driver_attribute, value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                       at + 70 * kMiB),
              CUDA_SUCCESS);
    return value[0];
  };
  const auto fill = [](CUdeviceptr, unsigned char, size_t) { return CUDA_SUCCESS; };
  const auto fill_in_order = [](CUdeviceptr, unsigned char, size_t, CUstream) {
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(told(), 77u) << "not set: the driver's answer";
  EXPECT_EQ(rules::copy(fill, at, static_cast<unsigned char>(1), size_t{64}), CUDA_SUCCESS);
  EXPECT_TRUE(g_waited.empty());
  EXPECT_EQ(set(0, at), CUDA_SUCCESS);
  EXPECT_EQ(told(), 0u);
  EXPECT_EQ(rules::copy(fill, at, static_cast<unsigned char>(1), size_t{64}), CUDA_SUCCESS);
  EXPECT_TRUE(g_waited.empty());
  EXPECT_EQ(set(1, at + 5 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(told(), 1u);
  EXPECT_EQ(rules::copy(fill, at, static_cast<unsigned char>(1), size_t{64}), CUDA_SUCCESS);
  EXPECT_EQ(rules::copy_per_thread(fill, at, static_cast<unsigned char>(1), size_t{64}),
            CUDA_SUCCESS);
  EXPECT_EQ(g_waited, (std::vector{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}));
  EXPECT_EQ(
      rules::copy(fill_in_order, at, static_cast<unsigned char>(1), size_t{64}, CUstream{nullptr}),
      CUDA_SUCCESS);
  EXPECT_EQ(g_waited.size(), 2u) << "what has a stream is not synchronous";
  EXPECT_EQ(set(1, CUdeviceptr{0xdead}), CUDA_ERROR_NOT_SUPPORTED) << "the driver's to answer";
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
