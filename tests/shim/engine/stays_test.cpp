// Memory that stays on the device is told by its reason, from its making to its end, whatever ends
// it.
#include "shim/memory/stays.h"

#include <thread>

#include "shim/rules/ipc.h"
#include "shim/rules/linear.h"
#include "shim/rules/stream_ordered.h"
#include "tests/shim/swap/swap_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class Standing : public EngineTest {
 protected:
  static CUresult alloc_managed(CUdeviceptr* out, size_t bytes, unsigned) {
    return driver_alloc(out, bytes);
  }
  static CUresult free_ok(CUdeviceptr) { return CUDA_SUCCESS; }
  static CUdeviceptr make(size_t bytes) {
    CUdeviceptr at = 0;
    EXPECT_EQ(rules::allocate(driver_alloc, &at, bytes), CUDA_SUCCESS);
    return at;
  }
};

TEST_F(Standing, WhatIsSmallerThanAChunkStays) {
  const CUdeviceptr at = make(kMiB + 1);
  EXPECT_EQ(stays(Stays::kSmall), 2 * kMiB) << "as it is charged";
  EXPECT_EQ(used(), stays(Stays::kSmall));
  EXPECT_EQ(rules::release_memory([](CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; }, at),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(stays(Stays::kSmall), 2 * kMiB) << "the driver refused";
  EXPECT_EQ(rules::release_memory(free_ok, at), CUDA_SUCCESS);
  EXPECT_EQ(stays(Stays::kSmall), 0u);
}

TEST_F(Standing, WhatIsAsLargeHasNoReasonOfItsOwn) {
  const CUdeviceptr at = make(2 * kMiB);
  for (unsigned why = 0; why < kStays; ++why) EXPECT_EQ(stays(static_cast<Stays>(why)), 0u);
  rules::release_memory(free_ok, at);
}

// The monitor gives the room of such memory to nobody before NVML says that it is free.
TEST_F(Standing, WhatOthersMayHaveByLegacyIpcIsNamedOnBothSides) {
  static CUdeviceptr base = 0;
  base = make(4 * kMiB);
  g_driver.cuMemGetAddressRange_v2 = [](CUdeviceptr* start, size_t* bytes, CUdeviceptr) {
    if (start != nullptr) *start = base;
    if (bytes != nullptr) *bytes = 4 * kMiB;
    return CUDA_SUCCESS;
  };
  CUipcMemHandle handle{};
  const auto give = [](CUipcMemHandle*, CUdeviceptr) { return CUDA_SUCCESS; };
  EXPECT_EQ(rules::ipc_get_handle(give, &handle, base + kMiB), CUDA_SUCCESS);
  EXPECT_EQ(stays(Stays::kIpcExported), 4 * kMiB);
  rules::release_memory(free_ok, base);
  EXPECT_EQ(stays(Stays::kIpcExported), 0u);

  CUdeviceptr opened = 0;
  const auto open = [](CUdeviceptr* at, CUipcMemHandle, unsigned) {
    *at = 0x7e0000000000;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::ipc_open(open, &opened, handle, 1u), CUDA_SUCCESS);
  EXPECT_EQ(stays(Stays::kIpcImported), 4 * kMiB);
  EXPECT_EQ(used(), 0u) << "its maker pays";
  EXPECT_EQ(rules::ipc_close([](CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; }, opened),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(stays(Stays::kIpcImported), 4 * kMiB);
  EXPECT_EQ(rules::ipc_close(free_ok, opened), CUDA_SUCCESS);
  EXPECT_EQ(stays(Stays::kIpcImported), 0u);
}

// Opens memory of another process, always the same.
CUdeviceptr opens_four_mib() {
  g_driver.cuMemGetAddressRange_v2 = [](CUdeviceptr*, size_t* bytes, CUdeviceptr) {
    *bytes = 4 * kMiB;
    return CUDA_SUCCESS;
  };
  const auto open = [](CUdeviceptr* at, CUipcMemHandle, unsigned) {
    *at = 0x7e0000000000;
    return CUDA_SUCCESS;
  };
  CUdeviceptr opened = 0;
  EXPECT_EQ(rules::ipc_open(open, &opened, CUipcMemHandle{}, 1u), CUDA_SUCCESS);
  return opened;
}

TEST_F(Standing, WhatWasOpenedTwiceStaysUntilTheSecondClose) {
  CUdeviceptr opened = 0;
  for (int i = 0; i < 2; ++i) opened = opens_four_mib();
  EXPECT_EQ(stays(Stays::kIpcImported), 4 * kMiB);
  rules::ipc_close(free_ok, opened);
  EXPECT_EQ(stays(Stays::kIpcImported), 4 * kMiB);
  rules::ipc_close([](CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; }, opened);
  rules::ipc_close(free_ok, opened);
  EXPECT_EQ(stays(Stays::kIpcImported), 0u);
}

TEST_F(Standing, WhatWasOpenedEndsWithItsContext) {
  opens_four_mib();
  EXPECT_EQ(ledger::take_owned(0, 77), 0u);
  EXPECT_EQ(stays(Stays::kIpcImported), 4 * kMiB) << "of another context";
  EXPECT_EQ(ledger::take_owned(0, 0), 0u) << "its maker pays";
  EXPECT_EQ(stays(Stays::kIpcImported), 0u);
}

TEST_F(Standing, APoolThatOthersMayHaveIsNamedSo) {
  const CUmemoryPool pool = pool_number(8);
  pools::learn(pool, 0);
  world_.pools[pool] = {4 * kMiB, 32 * kMiB};
  pools::settle(pool);
  const auto give = [](auto...) { return CUDA_SUCCESS; };
  EXPECT_EQ(rules::pool_export(give, nullptr, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(stays(Stays::kIpcExported), 32 * kMiB);
  EXPECT_EQ(stays(Stays::kPools), 0u);
  world_.pools[pool] = {};
  pools::settle(pool);
  EXPECT_EQ(stays(Stays::kIpcExported), 0u);
}

TEST_F(Standing, ManagedMemoryStaysOfAnySize) {
  CUdeviceptr at = 0;
  ASSERT_EQ(rules::allocate(alloc_managed, &at, size_t{8 * kMiB}, 1u), CUDA_SUCCESS);
  EXPECT_EQ(stays(Stays::kManaged), 8 * kMiB);
  rules::release_memory(free_ok, at);
  EXPECT_EQ(stays(Stays::kManaged), 0u);
}

TEST_F(Standing, TheEndOfTheOwnerEndsIt) {
  make(kMiB);
  make(kMiB);
  EXPECT_EQ(stays(Stays::kSmall), 2 * kMiB);
  account::release(&lane(), ledger::take_owned(0, memory::current_owner()));
  EXPECT_EQ(stays(Stays::kSmall), 0u);
  EXPECT_EQ(used(), 0u);
}

TEST_F(Standing, AnAllocationThatOutlivesItsPoolStaysForTheSameReason) {
  const CUmemoryPool pool = pool_number(7);
  pools::learn(pool, 0);
  world_.pools[pool] = {4 * kMiB, 32 * kMiB};
  pools::settle(pool);
  EXPECT_EQ(stays(Stays::kPools), 32 * kMiB);
  pools::Growth growth;
  EXPECT_EQ(pools::begin(pool, 1, growth), CUDA_SUCCESS);
  EXPECT_TRUE(pools::end(growth));
  ledger::note(ledger::NoteKind::kPooled, 0x7c0000000000,
               {.bytes = 4 * kMiB, .owner = growth.owner});
  EXPECT_EQ(rules::pool_destroy([](CUmemoryPool) { return CUDA_SUCCESS; }, pool), CUDA_SUCCESS);
  EXPECT_EQ(stays(Stays::kPools), 4 * kMiB);
  rules::release_memory(free_ok, CUdeviceptr{0x7c0000000000});
  EXPECT_EQ(stays(Stays::kPools), 0u);
}

TEST_F(Standing, ANoteInThePlaceOfAnotherCountsOnce) {
  const ledger::Charge charge{.lane = 0, .bytes = kMiB, .why = Stays::kSmall};
  account::charge(&lane(), 2 * kMiB);
  ledger::note(ledger::NoteKind::kPointer, 0x7b0000000000, charge);
  ledger::note(ledger::NoteKind::kPointer, 0x7b0000000000, charge);
  EXPECT_EQ(stays(Stays::kSmall), kMiB);
  EXPECT_EQ(used(), kMiB) << "what was there before the driver has freed";
  ledger::Charge taken;
  ledger::take(ledger::NoteKind::kPointer, 0x7b0000000000, taken);
  EXPECT_EQ(stays(Stays::kSmall), 0u);
}

TEST_F(Standing, WhatIsOnNoGpuOfOursIsNotCounted) {
  memory::stays(-1, Stays::kSmall, 512);
  memory::stays(abi::kMaxGpus, Stays::kSmall, 512);
  memory::stays(0, Stays::kLeaves, 512);
  for (const auto& memory : page().memories) {
    for (const auto& word : memory.stays_bytes) EXPECT_EQ(word.load(), 0u);
  }
}

TEST_F(Standing, AFreshPageIsToldAllOfIt) {
  memory::stays(0, Stays::kArrays, 512);
  memory::stays(3, Stays::kPools, 1024);
  ASSERT_TRUE(map_page(-1));
  EXPECT_EQ(stays(Stays::kArrays), 0u);
  memory::tell_stays();
  EXPECT_EQ(stays(Stays::kArrays), 512u);
  EXPECT_EQ(page().memories[3].stays_bytes[static_cast<unsigned>(Stays::kPools)].load(), 1024u);
}

TEST_F(Standing, TheLastOfManyThreadsLeavesTheTruthInThePage) {
  const auto act = [] {
    for (int i = 0; i < 2000; ++i) {
      memory::stays(0, Stays::kSmall, 3);
      if (i % 3 != 0) memory::stays(0, Stays::kSmall, -3);
    }
  };
  std::thread threads[4];
  for (std::thread& thread : threads) thread = std::thread(act);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stays(Stays::kSmall), 4u * 3 * 667);
}

// In a swappable process.
class StandingBesideSwappable : public SwapTest {};

TEST_F(StandingBesideSwappable, OnlyTheSmallOnesStay) {
  allocate(40 * kMiB);
  CUdeviceptr small = 0;
  EXPECT_EQ(rules::allocate(driver_alloc, &small, size_t{2 * kMiB - 1}), CUDA_SUCCESS);
  EXPECT_EQ(swap_.total, 40 * kMiB);
  EXPECT_EQ(stays(Stays::kSmall), used() - swap_.total);
  EXPECT_EQ(free(small), CUDA_SUCCESS);
  EXPECT_EQ(stays(Stays::kSmall), 0u);
}

}  // namespace
}  // namespace switchyard::shim
