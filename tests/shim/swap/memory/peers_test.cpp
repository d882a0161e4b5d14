// Which GPUs reach what: memory that stands in for cuMemAlloc, and what a program maps itself.
#include "shim/swap/memory/peers.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "shim/rules/context.h"
#include "shim/rules/stream_ordered.h"
#include "shim/swap/calls/pooled.h"
#include "shim/swap/memory/range_table.h"
#include "tests/shim/swap/swap_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
namespace peers = swap::peers;

bool g_reach[3][3];

class Peers : public SwapTest {
 protected:
  Peers() {
    for (auto& row : g_reach) std::fill(std::begin(row), std::end(row), true);
    g_driver.cuDeviceCanAccessPeer = [](int* can, CUdevice from, CUdevice to) {
      *can = g_reach[from][to] ? 1 : 0;
      return CUDA_SUCCESS;
    };
    process().swappable.store(3);
    use_context(1);
    peers::clear();
  }
  ~Peers() override { peers::clear(); }

  // The devices with access to the first chunk at an address, as it was given last.
  std::vector<int> reaching(CUdeviceptr at) {
    std::vector<int> devices;
    for (const CUmemAccessDesc& each : swap_.mapped[at].access) {
      EXPECT_EQ(each.flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      devices.push_back(each.location.id);
    }
    return devices;
  }
};

TEST_F(Peers, AreAllReachedOrNone) {
  EXPECT_TRUE(peers::all_reach(3));
  g_reach[2][0] = false;
  EXPECT_TRUE(peers::all_reach(2));
  EXPECT_FALSE(peers::all_reach(3));
  g_driver.cuDeviceCanAccessPeer = nullptr;
  EXPECT_TRUE(peers::all_reach(1)) << "there is nothing to ask";
  EXPECT_FALSE(peers::all_reach(2));
}

TEST_F(Peers, MemoryIsReachedByEachGpuThatHasAContext) {
  peers::context_made(0);
  const CUdeviceptr alone = allocate(4 * kMiB);
  EXPECT_EQ(reaching(alone), std::vector{0}) << "no GPU without a context is asked to map it";
  peers::context_made(2);
  EXPECT_EQ(reaching(alone), std::vector{2}) << "one more, beside those that have it";
  peers::context_made(2);
  const CUdeviceptr later = allocate(4 * kMiB);
  EXPECT_EQ(reaching(later), (std::vector{0, 2}));
  EXPECT_EQ(free(alone), CUDA_SUCCESS);
  EXPECT_EQ(free(later), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(Peers, WhatStandsByForAChunkIsReachedToo) {
  peers::context_made(0);
  const CUdeviceptr at = allocate(4 * kMiB);
  take_away(at);
  const auto stand_by = [at](CUmemGenericAllocationHandle handle) {
    const swap::RangesLock held;
    swap::find(at)->chunks[0].preimported = handle;
  };
  stand_by(77);
  static int reaches;
  reaches = -1;
  g_driver.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc* access, size_t) {
    reaches = access->location.id;
    return CUDA_SUCCESS;
  };
  peers::context_made(1);
  EXPECT_EQ(reaches, 1);
  stand_by(0);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
}

TEST_F(Peers, WhatIsAwayIsReachedOnceItIsBack) {
  peers::context_made(0);
  const CUdeviceptr at = allocate(4 * kMiB);
  take_away(at);
  peers::context_made(1);
  EXPECT_TRUE(swap_.mapped.empty());
  {
    const swap::RangesLock held;
    swap::Range& range = *swap::find(at);
    ASSERT_EQ(swap::bring(range.chunks[0], at, range.properties), CUDA_SUCCESS);
    ASSERT_EQ(swap::permit(at, 4 * kMiB, swap::access_of(range)), CUDA_SUCCESS);
    swap_.resident += 4 * kMiB;
  }
  EXPECT_EQ(reaching(at), (std::vector{0, 1}));
  EXPECT_EQ(free(at), CUDA_SUCCESS);
}

TEST_F(Peers, WhatAProgramMappedHasTheAccessThatItGave) {
  for (unsigned lane : {0u, 1u}) peers::context_made(lane);
  const swap::Range mapped{.use = swap::Use::kMapped};
  EXPECT_FALSE(swap::access_of(mapped).peers);
  EXPECT_TRUE(swap::access_of({.use = swap::Use::kLive}).peers);
}

// `first` and `next` have a context of GPU 1 each, and `next` comes while the driver is asked to
// give the GPU access. Whether it could go on before that was done.
std::promise<void> g_asked;
std::atomic<bool> g_went_on{false};
template <typename First, typename Next>
bool overtakes(First first, Next next) {
  g_asked = {};
  g_went_on.store(false);
  static std::atomic<bool> given{false};
  given.store(false);
  g_driver.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
    g_asked.set_value();
    // Time enough for one that does not wait; one that waits comes later, however long this is.
    for (int i = 0; i < 100 && !g_went_on.load(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    given.store(true);
    return CUDA_SUCCESS;
  };
  bool overtook = false;
  std::thread second([&] {
    g_asked.get_future().wait();
    next();
    overtook = !given.load();
    g_went_on.store(true);
  });
  first();
  if (!given.load()) g_asked.set_value();  // nobody asked the driver
  second.join();
  return overtook;
}

TEST_F(Peers, WhoHasAContextOfAGpuNextFindsAllReached) {
  peers::context_made(0);
  const CUdeviceptr at = allocate(4 * kMiB);
  const auto make = [] { peers::context_made(1); };
  EXPECT_FALSE(overtakes(make, make));
  EXPECT_EQ(free(at), CUDA_SUCCESS);
}

TEST_F(Peers, WhoRetainsThePrimaryContextNextFindsAllReached) {
  static std::atomic<bool> active{false};
  active.store(false);
  g_driver.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned* flags, int* out) {
    *flags = 0;
    *out = active.load() ? 1 : 0;
    return CUDA_SUCCESS;
  };
  peers::context_made(0);
  const CUdeviceptr at = allocate(4 * kMiB);
  const auto retain = [] {
    CUcontext context = nullptr;
    const auto original = [](CUcontext* out, CUdevice device) {
      active.store(true);
      *out = primary_of(device);
      return CUDA_SUCCESS;
    };
    EXPECT_EQ(rules::primary_retain(original, &context, 1), CUDA_SUCCESS);
  };
  EXPECT_FALSE(overtakes(retain, retain));
  EXPECT_EQ(free(at), CUDA_SUCCESS);
}

// Work of its own GPU goes on.
TEST_F(Peers, AGpuThatTheDriverGivesNoAccessIsLeftOut) {
  for (unsigned lane : {0u, 1u}) peers::context_made(lane);
  static const auto give = g_driver.cuMemSetAccess;
  g_driver.cuMemSetAccess = [](CUdeviceptr at, size_t bytes, const CUmemAccessDesc* access,
                               size_t count) {
    return count > 1 ? CUDA_ERROR_NOT_SUPPORTED : give(at, bytes, access, count);
  };
  const CUdeviceptr at = allocate(4 * kMiB);
  EXPECT_EQ(reaching(at), std::vector{0});
  EXPECT_EQ(free(at), CUDA_SUCCESS);
}

}  // namespace
}  // namespace switchyard::shim
