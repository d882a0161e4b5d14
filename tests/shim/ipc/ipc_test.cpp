// Legacy IPC of swappable memory: what of it goes wrong, and what others of the engine see of it.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include "shim/ipc/handle.h"
#include "shim/ipc/opened.h"
#include "shim/memory/owner.h"
#include "shim/rules/questions.h"
#include "tests/shim/ipc/ipc_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

constexpr std::uint64_t kAsked = 70 * kMiB - 12;

class LegacyIpc : public IpcTest {
 protected:
  std::size_t mapped_now() { return swap_.mapped.size(); }
  CUipcMemHandle exported(CUdeviceptr at) {
    CUipcMemHandle handle{};
    EXPECT_EQ(get(handle, at), CUDA_SUCCESS);
    return handle;
  }
  void expect_last_freed(CUdeviceptr at) {
    EXPECT_EQ(free(at), CUDA_SUCCESS);
    expect_nothing_left();
  }
};

TEST_F(LegacyIpc, WhatIsExportedCountsNoMoreAsMemoryThatMoves) {
  const CUdeviceptr at = allocate(kAsked);
  const CUdeviceptr other = allocate(4 * kMiB);
  EXPECT_EQ(swap_.properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(swap_.total, 74 * kMiB);
  const CUipcMemHandle first = exported(at), second = exported(at + 69 * kMiB);
  EXPECT_EQ(std::memcmp(&first, &second, sizeof(first)), 0);
  EXPECT_EQ(ipc_.frames, 1);
  EXPECT_EQ(swap_.total, 4 * kMiB);
  EXPECT_EQ(swap_.resident, 4 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(swap_.total, 4 * kMiB);
  EXPECT_TRUE(ipc_.shares.begin()->second.empty()) << "the monitor keeps nothing of it";
  expect_last_freed(other);
}

TEST_F(LegacyIpc, NobodyWaitsWhileTheMonitorIsToldOfAFree) {
  const CUdeviceptr at = allocate(kAsked);
  const CUdeviceptr other = allocate(4 * kMiB);
  exported(at);
  int told = 0;
  std::future<bool> found;
  ipc_.during_frame = [&](wire::Kind kind) {
    told += kind == wire::kEndShare ? 1 : 0;
    found = std::async(std::launch::async, [&] {
      swap::Bounds ignored;
      return swap::bounds_at(at, ignored) || !swap::bounds_at(other, ignored);
    });
    EXPECT_EQ(found.wait_for(std::chrono::seconds(10)), std::future_status::ready)
        << "the ranges are held while the monitor is asked";
  };
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(found.get()) << "what was freed is gone, and the other is not";
  ipc_.during_frame = nullptr;
  expect_last_freed(other);
}

TEST_F(LegacyIpc, AContextThatEndsTellsOfAllThatItHadExported) {
  const CUdeviceptr first = allocate(kAsked);
  const CUdeviceptr second = allocate(4 * kMiB);
  exported(first);
  exported(second);
  EXPECT_EQ(ipc_.frames, 2);
  swap::free_owned(0, memory::current_owner());
  EXPECT_EQ(ipc_.frames, 4);
  for (const auto& [key, kept] : ipc_.shares) EXPECT_TRUE(kept.empty());
  EXPECT_EQ(swap_.total, 0u);
}

TEST_F(LegacyIpc, NobodyWaitsWhileTheMonitorIsAskedForMemory) {
  const CUdeviceptr first = allocate(4 * kMiB);
  const CUdeviceptr second = allocate(kAsked);
  const CUipcMemHandle large = exported(second);
  CUdeviceptr opened = 0, other = 0;
  ASSERT_EQ(open(opened, exported(first)), CUDA_SUCCESS);
  int asked = 0;
  std::future<bool> found;
  ipc_.during_frame = [&](wire::Kind kind) {
    asked += kind == wire::kOpenShared ? 1 : 0;
    found = std::async(std::launch::async, [&] {
      ipc::Bounds bounds;
      CUresult closed = CUDA_ERROR_UNKNOWN;
      return ipc::opened(opened, bounds) && ipc::close(opened, closed) && closed == CUDA_SUCCESS;
    });
    EXPECT_EQ(found.wait_for(std::chrono::seconds(10)), std::future_status::ready)
        << "what is open is held while the monitor is asked";
  };
  EXPECT_EQ(open(other, large), CUDA_SUCCESS);
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(found.get());
  ipc_.during_frame = nullptr;
  EXPECT_EQ(close(other), CUDA_SUCCESS);
  EXPECT_EQ(free(first), CUDA_SUCCESS);
  expect_last_freed(second);
}

// Forks children until it ends, and sums up what `count` says in them.
class Forks {
 public:
  explicit Forks(int (*count)()) : thread_([this, count] { run(count); }) {}
  // Until so many more were forked.
  void wait_for(int more) {
    for (const int until = forked_ + more; forked_ < until;) std::this_thread::yield();
  }
  int end() {
    ends_ = true;
    thread_.join();
    return found_;
  }

 private:
  void run(int (*count)()) {
    while (!ends_) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(count());
      int status = 0;
      ::waitpid(child, &status, 0);
      found_ += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
      ++forked_;
    }
  }

  std::atomic<bool> ends_{false};
  std::atomic<int> forked_{0};
  int found_ = 0;
  std::thread thread_;
};

// Each of them would keep the memory for as long as it lives.
TEST_F(LegacyIpc, ForkedChildrenHaveNoneOfWhatIsOnItsWay) {
  constexpr std::uint64_t kLarge = 64 * swap::kChunk;
  CUdeviceptr at = allocate(kLarge);
  Forks forks(memory_files);
  // Time for a fork, if one may be: a fork that comes while one waits is not in time.
  ipc_.during_frame = [](wire::Kind) { ::usleep(1000); };
  for (int i = 0; i < 30; ++i) {
    const CUipcMemHandle handle = exported(at);
    CUdeviceptr opened = 0;
    EXPECT_EQ(open(opened, handle), CUDA_SUCCESS);
    EXPECT_EQ(close(opened), CUDA_SUCCESS);
    EXPECT_EQ(free(at), CUDA_SUCCESS);
    at = allocate(kLarge);
    forks.wait_for(1);
  }
  EXPECT_EQ(forks.end(), 0) << "descriptors in children";
  ipc_.during_frame = nullptr;
  expect_last_freed(at);
}

TEST_F(LegacyIpc, AnotherMonitorIsToldAgainUnderTheSameKey) {
  const CUdeviceptr at = allocate(kAsked);
  const CUipcMemHandle first = exported(at);
  CUipcMemHandle second{};
  ipc_.monitor = 0;
  EXPECT_EQ(get(second, at), CUDA_ERROR_NOT_SUPPORTED);
  ipc_.monitor = 2;
  second = exported(at);
  EXPECT_EQ(std::memcmp(&first, &second, sizeof(first)), 0);
  EXPECT_EQ(ipc_.frames, 2);
  EXPECT_EQ(ipc_.shares.begin()->second.size(), 3u);
  EXPECT_EQ(swap_.total, 0u) << "left once";
  EXPECT_EQ(free(at), CUDA_SUCCESS);
}

TEST_F(LegacyIpc, AnotherMonitorIsNotToldOfTheEndOfWhatItNeverHad) {
  const CUdeviceptr at = allocate(kAsked);
  exported(at);
  ipc_.monitor = 2;
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(ipc_.frames, 1);
}

TEST_F(LegacyIpc, WithoutAnAnswerMemoryStaysMovable) {
  const CUdeviceptr at = allocate(kAsked);
  CUipcMemHandle handle{};
  ipc_.answers = false;
  EXPECT_EQ(get(handle, at), CUDA_ERROR_NOT_SUPPORTED);
  ipc_.answers = true;
  ipc_.verdict = wire::kNoRoomToShare;
  EXPECT_EQ(get(handle, at), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(swap_.total, 70 * kMiB);
  expect_last_freed(at);
}

// It has more chunks than a frame has descriptors, and the driver exports no more than the first
// frame's.
TEST_F(LegacyIpc, AnExportThatFailsInItsSecondFrameIsTakenBack) {
  static decltype(g_driver.cuMemExportToShareableHandle) export_one;
  static unsigned exports;
  export_one = g_driver.cuMemExportToShareableHandle;
  exports = 0;
  g_driver.cuMemExportToShareableHandle = [](void* out, CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType type,
                                             unsigned long long flags) {
    return ++exports <= wire::kMostDescriptors ? export_one(out, handle, type, flags)
                                               : CUDA_ERROR_UNKNOWN;
  };
  const CUdeviceptr at = allocate(32 * kMiB * (wire::kMostDescriptors + 2));
  CUipcMemHandle handle{};
  EXPECT_EQ(get(handle, at), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(ipc_.frames, 2) << "the first part, and the end of the share";
  EXPECT_TRUE(ipc_.shares.begin()->second.empty()) << "the monitor keeps nothing of it";
  g_driver.cuMemExportToShareableHandle = export_one;
  expect_last_freed(at);
}

TEST_F(LegacyIpc, WhatTheDriverMadeIsTheDriversToGive) {
  CUipcMemHandle handle{};
  EXPECT_EQ(get(handle, 0xdead), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(close(0xdead), CUDA_ERROR_ILLEGAL_STATE);
  CUdeviceptr at = 0;
  EXPECT_EQ(open(at, handle), CUDA_ERROR_ILLEGAL_STATE);
  // A driver that can't export chunks refuses by itself.
  swap_.rdma = false;
  const CUdeviceptr plain = allocate(kAsked);
  EXPECT_EQ(get(handle, plain), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(free(plain), CUDA_SUCCESS);
}

TEST_F(LegacyIpc, NoHandleFromAnybodyIsTrusted) {
  const CUdeviceptr at = allocate(kAsked);
  const CUipcMemHandle given = exported(at);
  const std::size_t mapped = mapped_now();
  const auto spoilt = [&](auto spoil) {
    CUipcMemHandle bad = given;
    ipc::Handle handle{};
    std::memcpy(&handle, &bad, sizeof(bad));
    spoil(handle);
    std::memcpy(&bad, &handle, sizeof(bad));
    CUdeviceptr opened = 0;
    return open(opened, bad);
  };
  EXPECT_EQ(spoilt([](auto& h) { h.bytes = 0; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(spoilt([](auto& h) { h.bytes = ~0ull; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(spoilt([](auto& h) { h.chunk = 0; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(spoilt([](auto& h) { h.chunk += 1; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(spoilt([](auto& h) { h.asked = h.bytes + 1; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(spoilt([](auto& h) { h.key.words[1] ^= 1; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(spoilt([](auto& h) { h.bytes += 2 * kMiB; }), CUDA_SUCCESS) << "the last is shorter";
  EXPECT_NE(spoilt([](auto& h) { h.chunk = 2 * kMiB; }), CUDA_SUCCESS) << "too few of them";
  EXPECT_EQ(mapped_now(), mapped);
  expect_last_freed(at);
}

TEST_F(LegacyIpc, NoAnswerOfAMonitorIsTrusted) {
  const CUdeviceptr at = allocate(kAsked);
  const CUipcMemHandle handle = exported(at);
  CUdeviceptr opened = 0;
  // Of the whole, and with this answer.
  for (const auto& lie : {std::pair{2u, 3u}, {4u, 3u}, {3u, 2u}, {3u, 0u}, {0u, 0u}}) {
    ipc_.spoil = [&](wire::Shared& answer) {
      answer.total = lie.first;
      answer.count = lie.second;
    };
    EXPECT_EQ(open(opened, handle), CUDA_ERROR_INVALID_VALUE);
  }
  ipc_.spoil = nullptr;
  ipc_.monitor = 0;
  EXPECT_EQ(open(opened, handle), CUDA_ERROR_NOT_SUPPORTED);
  expect_nothing_opened();
  ipc_.monitor = 1;
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  expect_nothing_left();
}

// Reserve, then create and map for each of three chunks, then access.
TEST_F(LegacyIpc, WhicheverCallFailsNothingIsLeftBehind) {
  const CUdeviceptr at = allocate(kAsked);
  const CUipcMemHandle handle = exported(at);
  const std::size_t mapped = mapped_now(), reserved = swap_.reserved.size();
  CUdeviceptr opened = 0;
  int failing = 0;
  for (;; ++failing) {
    faults().fail(failing);
    const CUresult result = open(opened, handle);
    faults().none();
    if (result == CUDA_SUCCESS) break;
    EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(mapped_now(), mapped);
    EXPECT_EQ(swap_.reserved.size(), reserved);
    expect_nothing_opened();
  }
  EXPECT_EQ(failing, 8);
  EXPECT_EQ(close(opened), CUDA_SUCCESS);
  EXPECT_EQ(mapped_now(), mapped);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
}

TEST_F(LegacyIpc, TheLastCloseWaitsForTheContextAndMayBeTooLate) {
  const CUdeviceptr at = allocate(kAsked);
  const CUipcMemHandle handle = exported(at);
  const std::size_t mapped = mapped_now();
  CUdeviceptr opened = 0, again = 0;
  ASSERT_EQ(open(opened, handle), CUDA_SUCCESS);
  EXPECT_EQ(open(again, handle), CUDA_SUCCESS);
  EXPECT_EQ(again, opened);
  EXPECT_EQ(close(opened), CUDA_SUCCESS);
  EXPECT_TRUE(world_.waits.empty());
  // Another thread opens it while this one waits to unmap it.
  world_.during_wait = [&] { EXPECT_EQ(open(again, handle), CUDA_SUCCESS); };
  EXPECT_EQ(close(opened), CUDA_SUCCESS);
  EXPECT_EQ(world_.waits.size(), 1u);
  EXPECT_EQ(mapped_now(), mapped + 3);
  world_.during_wait = nullptr;
  process().captures.store(1);
  EXPECT_EQ(close(opened), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  process().captures.store(0);
  EXPECT_EQ(mapped_now(), mapped + 3);
  EXPECT_EQ(close(opened + 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(close(opened), CUDA_SUCCESS);
  EXPECT_EQ(mapped_now(), mapped);
  EXPECT_EQ(close(opened), CUDA_ERROR_ILLEGAL_STATE) << "the driver's to refuse";
  EXPECT_EQ(free(at), CUDA_SUCCESS);
}

TEST_F(LegacyIpc, TheNextToOpenItGetsAccessOfItsOwn) {
  const CUdeviceptr at = allocate(kAsked);
  const CUipcMemHandle handle = exported(at);
  CUdeviceptr opened = 0, again = 0;
  ASSERT_EQ(open(opened, handle), CUDA_SUCCESS);
  faults().refuse("cuMemSetAccess", CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(open(again, handle), CUDA_ERROR_INVALID_DEVICE);
  faults().none();
  EXPECT_EQ(close(opened), CUDA_SUCCESS) << "it was opened once";
  expect_nothing_opened();
  expect_last_freed(at);
}

TEST_F(LegacyIpc, WhatAContextOpenedEndsWithIt) {
  const CUdeviceptr at = allocate(kAsked);
  const CUipcMemHandle handle = exported(at);
  const CUcontext mine = make_context(0x3000);
  CUdeviceptr opened = 0;
  ASSERT_EQ(open(opened, handle), CUDA_SUCCESS);
  memory::context_gone(mine, swap::made_context(mine));
  expect_nothing_opened();
  use_context(0x1000);
  expect_last_freed(at);
}

TEST_F(LegacyIpc, AllThatAContextOpenedEndsWithIt) {
  CUdeviceptr at[3] = {};
  for (CUdeviceptr& each : at) each = allocate(kAsked);
  const CUipcMemHandle handles[] = {exported(at[0]), exported(at[1]), exported(at[2])};
  const CUcontext mine = make_context(0x3000);
  for (const CUipcMemHandle& handle : handles) {
    CUdeviceptr opened = 0;
    ASSERT_EQ(open(opened, handle), CUDA_SUCCESS);
  }
  memory::context_gone(mine, swap::made_context(mine));
  expect_nothing_opened();
  use_context(0x1000);
  for (const CUdeviceptr each : at) EXPECT_EQ(free(each), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(LegacyIpc, WhatAContextOpenedStaysWhenOneOfAnotherGpuEnds) {
  const CUdeviceptr at = allocate(kAsked);
  const CUipcMemHandle handle = exported(at);
  CUdeviceptr opened = 0;
  ASSERT_EQ(open(opened, handle), CUDA_SUCCESS);
  ipc::close_owned(1, memory::current_owner());
  EXPECT_EQ(close(opened), CUDA_SUCCESS) << "it is open";
  EXPECT_EQ(free(at), CUDA_SUCCESS);
}

TEST_F(LegacyIpc, WhatIsOpenedLooksLikeOneAllocation) {
  const CUdeviceptr at = allocate(kAsked);
  const CUipcMemHandle handle = exported(at);
  CUdeviceptr opened = 0, base = 0;
  size_t bytes = 0;
  ASSERT_EQ(open(opened, handle), CUDA_SUCCESS);
  const auto never = [](CUdeviceptr*, size_t*, CUdeviceptr) { return CUDA_ERROR_UNKNOWN; };
  EXPECT_EQ(rules::address_range(never, &base, &bytes, opened + 65 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(base, opened);
  EXPECT_EQ(bytes, kAsked);
  const auto ask = [&](CUpointer_attribute which, CUdeviceptr of) {
    std::uint64_t value = 77;
    const auto zero = [](void* out, CUpointer_attribute, CUdeviceptr) {
      *static_cast<std::uint64_t*>(out) = 0;
      return CUDA_SUCCESS;
    };
    EXPECT_EQ(rules::pointer_attribute(zero, &value, which, of), CUDA_SUCCESS);
    return value;
  };
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, opened + 33 * kMiB), opened);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, opened), kAsked);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, opened + 33 * kMiB), opened);
  const std::uint64_t number = ask(CU_POINTER_ATTRIBUTE_BUFFER_ID, opened);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_BUFFER_ID, opened + 33 * kMiB), number);
  EXPECT_NE(ask(CU_POINTER_ATTRIBUTE_BUFFER_ID, at), number);
  const unsigned yes = 1;
  const auto refuse = [](auto...) { return CUDA_ERROR_NOT_SUPPORTED; };
  EXPECT_EQ(rules::pointer_set_attribute(refuse, &yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, opened),
            CUDA_SUCCESS);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, opened + 33 * kMiB), 1u);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_CONTEXT, opened), 0x1000u);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, opened), 0u) << "not its own";
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at), 1u);
  ipc_.monitor = 0;
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at), 0u);
  ipc_.monitor = 1;
  CUmemGenericAllocationHandle chunk = 0;
  const auto retain = [](auto...) { return CUDA_SUCCESS; };
  EXPECT_EQ(rules::retain_handle(retain, &chunk, reinterpret_cast<void*>(opened)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(close(opened), CUDA_SUCCESS);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
}

}  // namespace
}  // namespace switchyard::shim
