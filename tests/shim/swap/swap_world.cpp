#include "tests/shim/swap/swap_world.h"

#include <algorithm>
#include <cstdlib>

#include "shim/memory/owner.h"
#include "shim/rules/linear.h"
#include "shim/swap/calls/allocate.h"
#include "shim/swap/calls/pooled.h"
#include "shim/swap/memory/consolidation_request.h"
#include "shim/swap/memory/range_table.h"
#include "shim/swap/memory/vmm_allocation.h"
#include "shim/swap/mover.h"
#include "shim/work_guard.h"

// The mover and its words as their neighbours see them, without the thread. Outside of these tests
// nobody listens.
namespace switchyard::shim::swap {

namespace mover {

void start(unsigned) {
  if (testing::g_swap != nullptr) ++testing::g_swap->started;
}
void poke() {
  if (testing::g_swap == nullptr || !testing::g_swap->make_whole || !consolidation_request::take(0))
    return;
  EXPECT_TRUE(consolidation_request::is_taken());
  EXPECT_TRUE(consolidation_request::begin());
  consolidation_request::answer(testing::g_swap->make_whole(consolidation_request::number()));
}

void allocated(unsigned, std::uint64_t bytes) {
  testing::SwapWorld& world = *testing::g_swap;
  world.total += bytes;
  world.resident += bytes;
  world.most_resident = std::max(world.most_resident, world.resident);
}

void freed(unsigned, std::uint64_t bytes, std::uint64_t resident_bytes) {
  testing::g_swap->total -= bytes;
  testing::g_swap->resident -= resident_bytes;
}

}  // namespace mover

}  // namespace switchyard::shim::swap

namespace switchyard::shim::testing {

SwapWorld* g_swap = nullptr;

namespace {

using Handle = CUmemGenericAllocationHandle;

bool inside_a_reservation(CUdeviceptr address, size_t bytes) {
  auto found = g_swap->reserved.upper_bound(address);
  if (found == g_swap->reserved.begin()) return false;
  --found;
  return address + bytes <= found->first + found->second;
}

CUresult reserve(CUdeviceptr* out, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  const std::lock_guard hold(g_world->lock);
  static CUdeviceptr next = 0x7f0000000000;
  const auto used_before = g_swap->again.extract(bytes);
  *out = used_before.empty() ? next : used_before.mapped();
  if (used_before.empty()) next += bytes + swap::kSmallestChunk;
  g_swap->reserved[*out] = bytes;
  return CUDA_SUCCESS;
}

CUresult unreserve(CUdeviceptr address, size_t bytes) {
  const std::lock_guard hold(g_world->lock);
  const auto found = g_swap->reserved.find(address);
  const auto mapping = g_swap->mapped.lower_bound(address);
  if (found == g_swap->reserved.end() || found->second != bytes ||
      (mapping != g_swap->mapped.end() && mapping->first < address + bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  g_swap->reserved.erase(found);
  g_swap->again[bytes] = address;
  return CUDA_SUCCESS;
}

CUresult create(Handle* out, size_t bytes, const CUmemAllocationProp* properties,
                unsigned long long) {
  const std::lock_guard hold(g_world->lock);
  if (bytes % swap::kSmallestChunk != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((static_cast<unsigned>(properties->requestedHandleTypes) & g_swap->refused_types) != 0) {
    return CUDA_ERROR_NOT_PERMITTED;
  }
  static Handle next = 0x9000;
  *out = ++next;
  g_swap->handles[*out] = bytes;
  g_swap->properties = *properties;
  g_swap->kinds[*out] = *properties;
  return CUDA_SUCCESS;
}

CUresult release(Handle handle) {
  const std::lock_guard hold(g_world->lock);
  return g_swap->handles.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult map(CUdeviceptr address, size_t bytes, size_t offset, Handle handle, unsigned long long) {
  const std::lock_guard hold(g_world->lock);
  const auto found = g_swap->handles.find(handle);
  if (found == g_swap->handles.end() || !inside_a_reservation(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (offset != 0 || bytes != found->second) return CUDA_ERROR_NOT_SUPPORTED;
  g_swap->mapped[address] = {bytes, handle, false};
  return CUDA_SUCCESS;
}

// The mappings that make up [address, address + bytes) exactly; empty when they don't.
std::vector<CUdeviceptr> exactly(CUdeviceptr address, size_t bytes) {
  std::vector<CUdeviceptr> found;
  CUdeviceptr reached = address;
  for (auto at = g_swap->mapped.find(address);
       at != g_swap->mapped.end() && at->first == reached && reached < address + bytes; ++at) {
    found.push_back(at->first);
    reached += at->second.bytes;
  }
  if (reached != address + bytes) found.clear();
  return found;
}

CUresult unmap(CUdeviceptr address, size_t bytes) {
  const std::lock_guard hold(g_world->lock);
  const std::vector<CUdeviceptr> places = exactly(address, bytes);
  for (const CUdeviceptr place : places) g_swap->mapped.erase(place);
  return places.empty() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult give_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                     size_t count) {
  const std::lock_guard hold(g_world->lock);
  const std::vector<CUdeviceptr> places = exactly(address, bytes);
  for (const CUdeviceptr place : places) {
    g_swap->mapped[place].accessible = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    g_swap->mapped[place].access.assign(access, access + count);
  }
  return places.empty() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult attribute(int* value, CUdevice_attribute, CUdevice) {
  *value = g_swap->rdma ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult exchange_mode(CUstreamCaptureMode* mode) {
  ++g_swap->relaxed;
  std::swap(*mode, g_swap->capture_mode);
  return CUDA_SUCCESS;
}

}  // namespace

SwapTest::SwapTest() {
  g_swap = &swap_;
  use_contexts();
  g_driver.cuMemAddressReserve = reserve;
  g_driver.cuMemAddressFree = unreserve;
  g_driver.cuMemCreate = create;
  g_driver.cuMemRelease = release;
  g_driver.cuMemMap = map;
  g_driver.cuMemUnmap = unmap;
  g_driver.cuMemSetAccess = give_access;
  g_driver.cuDeviceGetAttribute = attribute;
  g_driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
  SWITCHYARD_WATCH(faults(), cuMemAddressReserve);
  SWITCHYARD_WATCH(faults(), cuMemCreate);
  SWITCHYARD_WATCH(faults(), cuMemMap);
  SWITCHYARD_WATCH(faults(), cuMemSetAccess);
  process().swappable.store(1);
}

SwapTest::~SwapTest() {
  swap::reclaim();  // or the next test's allocation finds frees that wait, and tries twice
  process().swappable.store(0);
  process().captures.store(0);
  swap::admission::open(0);
  {
    // Not cleared: that is for a forked child, which leaves the parent's table where it is.
    const swap::RangesLock held;
    while (swap::count() != 0) {
      const swap::Range range = swap::take(0);
      if (range.use != swap::Use::kMapped) std::free(range.chunks);
    }
  }
  g_swap = nullptr;
}

void SwapTest::expect_nothing_left() {
  EXPECT_TRUE(swap_.reserved.empty());
  EXPECT_TRUE(swap_.handles.empty());
  EXPECT_TRUE(swap_.mapped.empty());
  EXPECT_EQ(swap_.total, 0u);
  EXPECT_EQ(swap_.resident, 0u);
  EXPECT_EQ(used(), 0u);
  const swap::RangesLock held;
  EXPECT_EQ(swap::count(), 0u);
}

CUresult SwapTest::driver_free(CUdeviceptr address) {
  g_swap->freed.push_back(address);
  return CUDA_SUCCESS;
}

CUresult SwapTest::never(CUdeviceptr*, size_t) {
  ADD_FAILURE() << "the driver was called";
  return CUDA_ERROR_UNKNOWN;
}

CUdeviceptr SwapTest::allocate(std::uint64_t bytes) {
  CUdeviceptr at = 0;
  EXPECT_EQ(rules::allocate(never, &at, size_t{bytes}), CUDA_SUCCESS);
  return at;
}

CUresult SwapTest::free(CUdeviceptr address) { return rules::free_memory(driver_free, address); }

void SwapTest::take_away(CUdeviceptr address) {
  const swap::RangesLock held;
  const swap::Range& range = *swap::find(address);
  ASSERT_EQ(range.address, address);
  for (unsigned i = 0; i < range.count; ++i) {
    swap::send_away(range.chunks[i], range.address + i * swap::kChunk);
    swap_.resident -= range.chunks[i].bytes;
  }
}

void SwapTest::take_away_and_shut(CUdeviceptr address) {
  take_away(address);
  ASSERT_TRUE(swap::admission::shut(0));
}

CUcontext SwapTest::use_context(std::uintptr_t number) {
  return world_.context = reinterpret_cast<CUcontext>(number);
}

CUcontext SwapTest::make_context(std::uintptr_t number) {
  memory::context_created(0, use_context(number));
  return world_.context;
}

}  // namespace switchyard::shim::testing
