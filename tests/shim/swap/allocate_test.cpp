#include "shim/swap/allocate.h"

#include <thread>

#include "shim/memory/linear.h"
#include "shim/memory/owner.h"
#include "shim/memory/stream_ordered.h"
#include "shim/swap/admission.h"
#include "shim/swap/questions.h"
#include "shim/swap/ranges.h"
#include "tests/shim/swap/swap_world.h"

namespace switchyard::shim {
namespace {

using swap::Held;
using testing::g_swap;
using testing::g_world;
using testing::kMiB;

constexpr auto kNever = [](CUdeviceptr*, size_t) {
  ADD_FAILURE() << "the driver was called";
  return CUDA_ERROR_UNKNOWN;
};

class SwappableAllocation : public testing::SwapTest {
 protected:
  ~SwappableAllocation() override { swap::admission::open(); }

  CUdeviceptr allocate(std::uint64_t bytes) {
    CUdeviceptr at = 0;
    EXPECT_EQ(rules::allocate(kNever, &at, size_t{bytes}), CUDA_SUCCESS);
    return at;
  }
  static CUresult free(CUdeviceptr at) { return rules::free_memory(driver_free, at); }

  // As a move to the host leaves it, without the bytes.
  void take_away(CUdeviceptr address) {
    const Held held;
    const swap::Range& range = *swap::find(address);
    for (unsigned i = 0; i < range.count; ++i) {
      swap::send_away(range.chunks[i], range.address + i * swap::kChunk);
      swap_.resident -= range.chunks[i].bytes;
    }
  }
  CUcontext use_context(std::uintptr_t number) {
    return world_.context = reinterpret_cast<CUcontext>(number);
  }
};

TEST_F(SwappableAllocation, IsMadeOfChunksInOneReservation) {
  const CUdeviceptr at = allocate(80 * kMiB + 1);
  EXPECT_EQ(swap_.reserved.at(at), 82 * kMiB);
  ASSERT_EQ(swap_.mapped.size(), 3u);
  EXPECT_EQ(swap_.mapped.at(at).bytes, 32 * kMiB);
  EXPECT_EQ(swap_.mapped.at(at + 32 * kMiB).bytes, 32 * kMiB);
  EXPECT_EQ(swap_.mapped.at(at + 64 * kMiB).bytes, 18 * kMiB);
  for (const auto& [address, mapping] : swap_.mapped) EXPECT_TRUE(mapping.accessible);
  EXPECT_EQ(swap_.started, 1);
  EXPECT_EQ(swap_.total, 82 * kMiB);
  EXPECT_EQ(swap_.resident, 82 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableAllocation, IsChargedAsTheDriversOwn) {
  set_quota(100 * kMiB);
  const CUdeviceptr at = allocate(5 * kMiB);
  EXPECT_EQ(used(), 6 * kMiB);
  CUdeviceptr more = 0;
  EXPECT_EQ(rules::allocate(kNever, &more, size_t{95 * kMiB}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used(), 6 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  expect_nothing_left();
  expect_balanced();
}

TEST_F(SwappableAllocation, EachCallFailingInTurnLeavesNothing) {
  constexpr int kCalls = 1 + 3 * 3;  // the reservation; create, map and access of three chunks
  for (const CUresult failure : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    for (int call = 0; call < kCalls; ++call) {
      swap_.failure = failure;
      swap_.calls_until_failure = call;
      CUdeviceptr at = 0;
      EXPECT_EQ(rules::allocate(kNever, &at, size_t{80 * kMiB}), failure) << "call " << call;
      expect_nothing_left();
    }
  }
  swap_.calls_until_failure = kCalls;
  allocate(80 * kMiB);
}

TEST_F(SwappableAllocation, SmallOnesStayTheDrivers) {
  CUdeviceptr at = 0;
  ASSERT_EQ(rules::allocate(driver_alloc, &at, size_t{2 * kMiB - 1}), CUDA_SUCCESS);
  EXPECT_TRUE(swap_.reserved.empty());
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(swap_.freed, std::vector<CUdeviceptr>{at});
  EXPECT_EQ(swap_.waits.size(), 0u);
  expect_nothing_left();
}

TEST_F(SwappableAllocation, ManagedOldAndImpossibleOnesStayTheDrivers) {
  CUdeviceptr at = 0;
  CUdeviceptr_v1 old = 0;
  const auto managed = [](CUdeviceptr* out, size_t bytes, unsigned) {
    return driver_alloc(out, bytes);
  };
  const auto narrow = [](CUdeviceptr_v1* out, unsigned) {
    *out = 0x1000000;
    return CUDA_SUCCESS;
  };
  const auto refuse = [](CUdeviceptr*, size_t) { return CUDA_ERROR_OUT_OF_MEMORY; };
  EXPECT_EQ(rules::allocate(managed, &at, size_t{8 * kMiB}, 1u), CUDA_SUCCESS);
  EXPECT_EQ(rules::allocate(narrow, &old, 8u << 20), CUDA_SUCCESS);
  EXPECT_EQ(rules::allocate(refuse, &at, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(swap_.reserved.empty());
}

TEST_F(SwappableAllocation, OtherProcessesGoTheDriversWay) {
  process().swappable.store(0);
  CUdeviceptr at = 0;
  ASSERT_EQ(rules::allocate(driver_alloc, &at, size_t{8 * kMiB}), CUDA_SUCCESS);
  EXPECT_TRUE(swap_.reserved.empty());
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(swap_.freed, std::vector<CUdeviceptr>{at});
}

TEST_F(SwappableAllocation, WithoutAContextTheDriverAnswers) {
  world_.device = -1;
  CUdeviceptr at = 0;
  const auto refuse = [](CUdeviceptr*, size_t) { return CUDA_ERROR_INVALID_CONTEXT; };
  EXPECT_EQ(rules::allocate(refuse, &at, size_t{8 * kMiB}), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(SwappableAllocation, RowsOfAPitchedOneAre512Apart) {
  const auto never = [](CUdeviceptr*, size_t*, size_t, size_t, unsigned) {
    ADD_FAILURE() << "the driver was called";
    return CUDA_ERROR_UNKNOWN;
  };
  CUdeviceptr at = 0;
  size_t pitch = 0;
  ASSERT_EQ(rules::allocate_pitch(never, &at, &pitch, size_t{1000}, size_t{8192}, 4u),
            CUDA_SUCCESS);
  EXPECT_EQ(pitch, 1024u);
  EXPECT_EQ(swap_.total, 8 * kMiB);
  EXPECT_EQ(used(), 8 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  const auto judge = [](CUdeviceptr*, size_t*, size_t, size_t, unsigned) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(rules::allocate_pitch(judge, &at, &pitch, size_t{1000}, size_t{8192}, 5u),
            CUDA_ERROR_INVALID_VALUE);
  expect_nothing_left();
}

TEST_F(SwappableAllocation, WaitsUntilMemoryHasMoved) {
  ASSERT_TRUE(swap::admission::shut());
  std::thread other([] {
    t_lane = 0;
    CUdeviceptr at = 0;
    EXPECT_EQ(rules::allocate(kNever, &at, size_t{8 * kMiB}), CUDA_SUCCESS);
  });
  while (page().residencies[0].held_threads.load() == 0) std::this_thread::yield();
  EXPECT_EQ(swap_.total, 0u);
  { const Held held; }  // it waits with nothing held
  swap::admission::open();
  other.join();
  EXPECT_EQ(swap_.total, 8 * kMiB);
}

TEST_F(SwappableAllocation, InsideAnEntryDoesNotWait) {
  const swap::Entry entry;
  ASSERT_TRUE(swap::admission::shut());
  const CUdeviceptr at = allocate(8 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_TRUE(swap_.waits.empty());  // nor for the GPU: the mover would wait for the waiter
}

TEST_F(SwappableAllocation, GoesOnInACaptureInRelaxedMode) {
  process().captures.store(1);
  allocate(8 * kMiB);
  EXPECT_EQ(swap_.relaxed, 2);  // and back
}

TEST_F(SwappableAllocation, FreeWaitsForTheContextsWork) {
  const CUcontext mine = use_context(0x2000);
  const CUdeviceptr at = allocate(8 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(swap_.waits, std::vector<CUcontext>{mine});
  expect_nothing_left();
}

TEST_F(SwappableAllocation, FreeWaitsForTheContextItWasMadeInWhateverIsCurrent) {
  const CUcontext mine = use_context(0x2000);
  const CUdeviceptr at = allocate(8 * kMiB);
  const CUcontext other = use_context(0x3000);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(swap_.waits, std::vector<CUcontext>{mine});
  EXPECT_EQ(world_.context, other);
}

TEST_F(SwappableAllocation, FreeWaitsWithNothingHeldAndTheMemoryStillThere) {
  const CUdeviceptr at = allocate(8 * kMiB);
  bool came = false;
  swap_.during_wait = [&] {
    const Held held;
    came = true;
    EXPECT_EQ(swap_.mapped.size(), 1u);
    EXPECT_FALSE(swap::find(at)->chunks[0].handle == 0);
  };
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_TRUE(came);
  expect_nothing_left();
}

TEST_F(SwappableAllocation, MayMoveWhileAFreeWaits) {
  const CUdeviceptr at = allocate(8 * kMiB);
  swap_.during_wait = [&] { take_away(at); };
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableAllocation, FreeOfWhatIsAwayWaitsForNothing) {
  const CUdeviceptr at = allocate(40 * kMiB);
  take_away(at);
  ASSERT_TRUE(swap::admission::shut());
  lane().attention.fetch_or(abi::kGateArmed);
  page().gates[0].closed.store(abi::kClosedByTurn);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_TRUE(swap_.waits.empty());
  expect_nothing_left();
}

TEST_F(SwappableAllocation, FreeDuringACaptureIsKeptAside) {
  const CUdeviceptr at = allocate(8 * kMiB);
  const CUdeviceptr other = allocate(4 * kMiB);
  process().captures.store(1);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(free(other), CUDA_SUCCESS);
  EXPECT_TRUE(swap_.waits.empty());
  EXPECT_EQ(swap_.mapped.size(), 2u);
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(swap::context_of(at), nullptr) << "the application's it is no more";
  allocate(2 * kMiB);
  EXPECT_EQ(swap_.mapped.size(), 3u) << "still captured";
  process().captures.store(0);
  const CUdeviceptr last = allocate(2 * kMiB);
  EXPECT_EQ(swap_.waits.size(), 2u);
  EXPECT_EQ(swap_.mapped.size(), 2u);
  EXPECT_EQ(free(last), CUDA_SUCCESS);
}

TEST_F(SwappableAllocation, ACaptureThatBeginsUnderAFreesWaitIsNoError) {
  const CUdeviceptr at = allocate(8 * kMiB);
  swap_.wait_result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(swap_.mapped.size(), 1u);
  swap_.wait_result = CUDA_SUCCESS;
  EXPECT_EQ(free(0), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableAllocation, WhatTheDriverSaysAgainstTheWaitIsSaidAndNothingIsFreed) {
  const CUdeviceptr at = allocate(8 * kMiB);
  swap_.wait_result = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(free(at), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(used(), 8 * kMiB);
  EXPECT_NE(swap::context_of(at), nullptr);
  swap_.wait_result = CUDA_SUCCESS;
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableAllocation, FreeOfAnAddressInsideIsInvalid) {
  const CUdeviceptr at = allocate(8 * kMiB);
  EXPECT_EQ(free(at + 2 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(swap_.freed.empty());
  EXPECT_EQ(used(), 8 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
}

TEST_F(SwappableAllocation, FreeingTwiceIsTheDriversToAnswer) {
  const CUdeviceptr at = allocate(8 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  const auto refuse = [](CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; };
  EXPECT_EQ(rules::free_memory(refuse, at), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SwappableAllocation, AFreeInStreamOrderDoesNotWait) {
  const CUdeviceptr at = allocate(8 * kMiB);
  const auto never = [](CUdeviceptr, CUstream) {
    ADD_FAILURE() << "the driver was called";
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(rules::free_async<false>(never, at, CUstream{nullptr}), CUDA_SUCCESS);
  EXPECT_TRUE(swap_.waits.empty());
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(free(0), CUDA_SUCCESS);
  EXPECT_EQ(swap_.waits.size(), 1u);
  expect_nothing_left();
}

TEST_F(SwappableAllocation, AContextsEndFreesWhatItOwned) {
  const CUdeviceptr primary = allocate(2 * kMiB);
  const CUcontext mine = use_context(0x2000);
  memory::context_created(0, mine);
  allocate(8 * kMiB);
  const CUdeviceptr aside = allocate(4 * kMiB);
  process().captures.store(1);
  EXPECT_EQ(free(aside), CUDA_SUCCESS);
  process().captures.store(0);
  swap_.ended.insert(mine);
  memory::context_gone(mine);
  EXPECT_EQ(swap_.total, 2 * kMiB);
  EXPECT_EQ(used(), 2 * kMiB);
  EXPECT_TRUE(swap_.waits.empty()) << "its end has waited";
  EXPECT_TRUE(swap_.mapped.contains(primary));
  memory::primary_gone(0);
  expect_nothing_left();
}

TEST_F(SwappableAllocation, ItsContextMayEndWhileAFreeWaits) {
  const CUcontext mine = use_context(0x2000);
  memory::context_created(0, mine);
  const CUdeviceptr at = allocate(8 * kMiB);
  swap_.wait_result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  swap_.during_wait = [&] { memory::context_gone(mine); };
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(SwappableAllocation, ManyThreadsEndAtNothing) {
  set_quota(400 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      t_lane = 0;
      for (int i = 0; i < 200; ++i) {
        CUdeviceptr at = 0;
        const size_t bytes = static_cast<size_t>((i * 37 + t) % 40 + 2) * kMiB;
        if (rules::allocate(kNever, &at, bytes) != CUDA_SUCCESS) continue;
        if (i % 7 == 0) {
          rules::free_async<false>([](CUdeviceptr, CUstream) { return CUDA_ERROR_UNKNOWN; }, at,
                                   CUstream{nullptr});
        } else {
          EXPECT_EQ(free(at), CUDA_SUCCESS);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(free(0), CUDA_SUCCESS);
  expect_nothing_left();
  expect_balanced();
}

// --- questions ---

// A driver that sees mappings and no context.
CUresult driver_attribute(void* out, CUpointer_attribute which, CUdeviceptr at) {
  EXPECT_TRUE(swap::admission::inside());
  const std::uint64_t value = which == CU_POINTER_ATTRIBUTE_CONTEXT            ? 0
                              : which == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ? at & ~0xFFFFFFull
                                                                               : 82 * kMiB;
  std::memcpy(out, &value, sizeof(value));
  return CUDA_SUCCESS;
}

TEST_F(SwappableAllocation, TheRangeIsTheApplicationsOwn) {
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

TEST_F(SwappableAllocation, AForeignAddressIsTheDriversToAnswer) {
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

TEST_F(SwappableAllocation, ContextAndBoundsAreAttributesAsOfTheDriversOwn) {
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

TEST_F(SwappableAllocation, ManyAttributesAtOnceAreTheSame) {
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

TEST_F(SwappableAllocation, WhatTheDriverRefusesToAnswerStaysRefused) {
  const CUdeviceptr at = allocate(8 * kMiB);
  const auto refuse = [](void*, CUpointer_attribute, CUdeviceptr) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(rules::pointer_attribute(refuse, nullptr, CU_POINTER_ATTRIBUTE_CONTEXT, at),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace switchyard::shim
