// Every call with a handle of memory that can leave means what it meant to the driver, and memory
// that others know of stays.
#include "shim/rules/questions.h"
#include "shim/rules/vmm.h"
#include "shim/work_guard.h"
#include "tests/shim/swap/calls/handles_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class HandleCalls : public HandlesTest {};

TEST_F(HandleCalls, RetainingIsOneMoreReferenceOfTheSameNumber) {
  const CUdeviceptr at = make(40 * kMiB);
  const Handle number = last(1);
  Handle again = 0;
  const auto never = [](Handle*, void*) { return CUDA_ERROR_UNKNOWN; };
  const auto retain = [&](CUdeviceptr of) {
    return rules::retain_handle(never, &again, reinterpret_cast<void*>(of));
  };
  EXPECT_EQ(retain(at + 35 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(again, number);
  EXPECT_EQ(release(number), CUDA_SUCCESS);
  EXPECT_EQ(release(number), CUDA_SUCCESS);
  EXPECT_EQ(release(number), CUDA_ERROR_INVALID_VALUE) << "only the mapping is left";
  EXPECT_EQ(map(reserve(40 * kMiB), 40 * kMiB, number), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(used(), 40 * kMiB);
  EXPECT_EQ(retain(at), CUDA_SUCCESS);
  EXPECT_EQ(unmap(at, 40 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(used(), 40 * kMiB);
  EXPECT_EQ(release(number), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u);
  EXPECT_TRUE(swap_.handles.empty());
  EXPECT_EQ(retain(at), CUDA_ERROR_UNKNOWN) << "the driver's to answer";
  expect_balanced();
}

TEST_F(HandleCalls, ExportedMemoryStaysForGood) {
  const CUdeviceptr at = make(30 * kMiB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(lend(last(1), CUDA_ERROR_INVALID_VALUE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(swap_.total, 30 * kMiB) << "the driver refused";
  EXPECT_EQ(lend(last(1), CUDA_SUCCESS), CUDA_SUCCESS);
  EXPECT_EQ(lent_, swap_.mapped.at(at).handle);
  EXPECT_EQ(swap_.total, 0u);
  EXPECT_EQ(stays(Stays::kIpcExported), 30 * kMiB);
  unmap(at, 30 * kMiB);
  map(at, 30 * kMiB, last(1));
  access(at, 30 * kMiB);
  EXPECT_EQ(swap_.total, 0u);
  EXPECT_EQ(stays(Stays::kIpcExported), 30 * kMiB);
  unmap(at, 30 * kMiB);
  release(last(1));
  EXPECT_EQ(stays(Stays::kIpcExported), 0u);
}

TEST_F(HandleCalls, AHandleForOthersByAddressMakesItStay) {
  const CUdeviceptr at = make(4 * kMiB);
  int fd = -1;
  const auto give = [](void*, CUdeviceptr, size_t, int) { return CUDA_SUCCESS; };
  EXPECT_EQ(rules::range_handle(give, &fd, at, size_t{2 * kMiB}, 0), CUDA_SUCCESS);
  EXPECT_EQ(swap_.total, 0u);
  EXPECT_EQ(stays(Stays::kIpcExported), 4 * kMiB);
}

TEST_F(HandleCalls, WhatIsBoundToAMulticastObjectStays) {
  Handle bound = 0;
  const auto bind = [&](Handle, size_t, Handle memory, size_t, size_t, unsigned long long) {
    bound = memory;
    return CUDA_SUCCESS;
  };
  const auto bind_whole = [&](Handle memory, std::uint64_t bytes) {
    return rules::bind_memory(bind, Handle{1}, size_t{0}, memory, size_t{0}, size_t{bytes}, 0ull);
  };
  const CUdeviceptr at = make(4 * kMiB);
  EXPECT_EQ(bind_whole(last(1), 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(bound, swap_.mapped.at(at).handle);
  EXPECT_EQ(swap_.total, 0u);
  make(40 * kMiB);
  swap_.make_whole = [](Handle) { return CUDA_ERROR_NOT_READY; };
  EXPECT_EQ(bind_whole(last(1), 40 * kMiB), CUDA_ERROR_NOT_READY) << "it is two handles";
  const CUdeviceptr third = make(4 * kMiB);
  EXPECT_EQ(swap_.total, 44 * kMiB);
  const auto bind_at = [](Handle, size_t, CUdeviceptr, size_t, unsigned long long) {
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::bind_address(bind_at, Handle{1}, size_t{0}, third, size_t{4 * kMiB}, 0ull),
            CUDA_SUCCESS);
  EXPECT_EQ(swap_.total, 40 * kMiB);
  EXPECT_EQ(stays(Stays::kMulticast), 8 * kMiB);
}

TEST_F(HandleCalls, ArraysAreMappedOntoTheDriversHandles) {
  static Handle seen[2];
  const CUdeviceptr at = make(4 * kMiB);
  CUarrayMapInfo list[2] = {};
  list[0].memHandle.memHandle = last(1);
  list[1].memHandle.memHandle = 4711;
  const auto driver = +[](CUarrayMapInfo* infos, unsigned, CUstream) {
    for (int i = 0; i < 2; ++i) seen[i] = infos[i].memHandle.memHandle;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::map_array(driver, list, 2, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(seen[0], swap_.mapped.at(at).handle);
  EXPECT_EQ(seen[1], 4711u);
  EXPECT_EQ(list[0].memHandle.memHandle, last(1)) << "the application's list is its own";
  EXPECT_EQ(swap_.total, 0u);
  EXPECT_EQ(stays(Stays::kArrays), 4 * kMiB);
}

TEST_F(HandleCalls, PropertiesAreTheDriversWhereverTheMemoryIs) {
  g_driver.cuMemGetAllocationPropertiesFromHandle = [](CUmemAllocationProp* out, Handle) {
    out->allocFlags.compressionType = 1;
    return CUDA_SUCCESS;
  };
  const CUdeviceptr at = make(4 * kMiB);
  take_away(at);
  CUmemAllocationProp known{};
  const auto never = [](CUmemAllocationProp*, Handle) { return CUDA_ERROR_UNKNOWN; };
  EXPECT_EQ(rules::handle_properties(never, &known, last(1)), CUDA_SUCCESS);
  EXPECT_EQ(known.allocFlags.compressionType, 1);
  EXPECT_EQ(known.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  CUmemAllocationProp* nowhere = nullptr;
  EXPECT_EQ(rules::handle_properties(never, nowhere, last(1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(rules::handle_properties(never, &known, Handle{4711}), CUDA_ERROR_UNKNOWN);
}

TEST_F(HandleCalls, BoundsAreThoseOfTheMappingAndTheContextIsNone) {
  const CUdeviceptr at = make(80 * kMiB);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const auto never = [](CUdeviceptr*, size_t*, CUdeviceptr) { return CUDA_ERROR_UNKNOWN; };
  EXPECT_EQ(rules::address_range(never, &base, &bytes, at + 70 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(base, at);
  EXPECT_EQ(bytes, 80 * kMiB);
  const auto driver = [](void* out, CUpointer_attribute, CUdeviceptr) {
    EXPECT_TRUE(swap::admission::inside());
    *static_cast<std::uint64_t*>(out) = 7;
    return CUDA_SUCCESS;
  };
  std::uint64_t value = 0;
  const auto ask = [&](CUpointer_attribute which) {
    EXPECT_EQ(rules::pointer_attribute(driver, &value, which, at + 70 * kMiB), CUDA_SUCCESS);
    return value;
  };
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR), at);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_MAPPING_SIZE), 80 * kMiB);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), 7u) << "the driver's answer";
  const std::uint64_t number = ask(CU_POINTER_ATTRIBUTE_BUFFER_ID);
  const std::uint64_t memory = ask(static_cast<CUpointer_attribute>(swap::kMemoryBlockId));
  EXPECT_EQ(memory, last(1)) << "its chunks have their own";
  const CUdeviceptr other = make(4 * kMiB);
  EXPECT_EQ(rules::pointer_attribute(driver, &value, CU_POINTER_ATTRIBUTE_BUFFER_ID, other),
            CUDA_SUCCESS);
  EXPECT_NE(value, number);
  take_away(at);
  bring_back(at);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_BUFFER_ID), number);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_CONTEXT), 7u);
}

}  // namespace
}  // namespace switchyard::shim
