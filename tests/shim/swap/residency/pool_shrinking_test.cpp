// The slabs that the host pool gives back, and those that stay.
#include "shim/swap/residency/pool_shrinking.h"

#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/memory/range_table.h"
#include "tests/shim/swap/swap_world.h"

namespace switchyard::shim {
namespace {

namespace pinned_pool = swap::pinned_pool;
using namespace testing;

constexpr std::uint64_t kSlab = pinned_pool::kSlab;
constexpr std::uint64_t kChunk = swap::kChunk;

// Three slabs, and memory whose copies are put into them by hand.
class Shrink : public SwapTest {
 protected:
  static int unregistered;
  static CUresult result;

  Shrink() {
    unregistered = 0;
    result = CUDA_SUCCESS;
    pinned_pool::clear();
    g_driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) { return CUDA_SUCCESS; };
    g_driver.cuMemHostUnregister = [](void*) {
      ++unregistered;
      return result;
    };
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  }
  ~Shrink() override {
    {
      const swap::RangesLock held;
      for (std::size_t i = 0; i < swap::count(); ++i) {
        for (unsigned c = 0; c < swap::at(i).count; ++c) {
          pinned_pool::give_back(swap::at(i).chunks[c].host);
        }
      }
    }
    result = CUDA_SUCCESS;
    while (pinned_pool::slabs(0) != 0 && pinned_pool::drop(0, 0)) {
    }
    pinned_pool::clear();
  }

  // Memory of a few chunks, with copies in the slab `number`.
  CUdeviceptr copied(std::uint64_t bytes, unsigned number) {
    const CUdeviceptr address = allocate(bytes);
    const swap::RangesLock held;
    std::vector<pinned_pool::HostPiece> before;
    for (unsigned i = 0; i < number; ++i) {
      while (pinned_pool::HostPiece piece = take_of(i)) before.push_back(piece);
    }
    const swap::Range& range = *swap::find(address);
    for (unsigned i = 0; i < range.count; ++i) {
      range.chunks[i].host = pinned_pool::take(0, range.chunks[i].bytes);
      EXPECT_EQ(pinned_pool::slab_of(range.chunks[i].host), number);
    }
    for (auto& piece : before) pinned_pool::give_back(piece);
    return address;
  }
  static pinned_pool::HostPiece take_of(unsigned slab) {
    return pinned_pool::free_bytes_of(0, slab) != 0 ? pinned_pool::take(0, 2 * kMiB)
                                                    : pinned_pool::HostPiece{};
  }
  static bool has_copy(CUdeviceptr address) {
    const swap::RangesLock held;
    return static_cast<bool>(swap::find(address)->chunks[0].host);
  }
  static unsigned shrink(std::uint64_t limit) { return swap::shrink(0, limit, UINT64_MAX); }
};
int Shrink::unregistered = 0;
CUresult Shrink::result = CUDA_SUCCESS;

TEST_F(Shrink, NoMoreIsGivenBackThanIsOverTheLimit) {
  EXPECT_TRUE(swap::can_shrink(0));
  EXPECT_EQ(shrink(3 * kSlab), 0u);
  EXPECT_EQ(shrink(2 * kSlab + 1), 1u);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), 2 * kSlab);
  EXPECT_EQ(shrink(kSlab - 1), 2u);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), 0u);
  EXPECT_EQ(unregistered, 3);
  EXPECT_FALSE(swap::can_shrink(0));
}

TEST_F(Shrink, NoneIsBegunAfterItsTime) {
  EXPECT_EQ(swap::shrink(0, 0, 1), 0u);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), 3 * kSlab);
}

TEST_F(Shrink, WhatIsAwayStays) {
  const CUdeviceptr away = copied(2 * kChunk, 1);
  take_away(away);
  EXPECT_EQ(shrink(0), 2u);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), kSlab);
  EXPECT_FALSE(swap::can_shrink(0));
  EXPECT_TRUE(has_copy(away));
  EXPECT_EQ(free(away), CUDA_SUCCESS);
  EXPECT_TRUE(swap::can_shrink(0));
}

TEST_F(Shrink, KeptCopiesAreGivenUpOfTheSlabThatHasLeast) {
  const CUdeviceptr more = copied(3 * kChunk, 0);
  const CUdeviceptr less = copied(kChunk, 1);
  const CUdeviceptr most = copied(4 * kChunk, 2);
  EXPECT_EQ(shrink(2 * kSlab), 1u);
  EXPECT_FALSE(has_copy(less));
  EXPECT_TRUE(has_copy(more));
  EXPECT_TRUE(has_copy(most));
  EXPECT_EQ(pinned_pool::free_bytes(0), 2 * kSlab - 7 * kChunk);
  EXPECT_EQ(shrink(0), 2u);
  EXPECT_FALSE(has_copy(more));
  EXPECT_FALSE(has_copy(most));
}

TEST_F(Shrink, OfSlabsWithAsMuchTheLastGoesForTheFirstAreFilledFirst) {
  const CUdeviceptr first = copied(kChunk, 0);
  const CUdeviceptr second = copied(kChunk, 1);
  const CUdeviceptr last = copied(kChunk, 2);
  EXPECT_EQ(shrink(2 * kSlab), 1u);
  EXPECT_TRUE(has_copy(first));
  EXPECT_TRUE(has_copy(second));
  EXPECT_FALSE(has_copy(last));
}

TEST_F(Shrink, NoKeptCopyIsGivenUpForNothing) {
  std::vector<CUdeviceptr> kept;
  for (unsigned slab = 0; slab < 3; ++slab) {
    kept.push_back(copied(kChunk, slab));
    take_away(copied(kChunk, slab));
  }
  EXPECT_FALSE(swap::can_shrink(0));
  EXPECT_EQ(shrink(0), 0u);
  for (const CUdeviceptr address : kept) EXPECT_TRUE(has_copy(address));
  EXPECT_EQ(unregistered, 0);
}

TEST_F(Shrink, WhatTheDriverDoesNotLetGoOfIsTriedOnce) {
  const CUdeviceptr away = copied(kChunk, 0);
  take_away(away);
  result = CUDA_ERROR_UNKNOWN;
  EXPECT_EQ(shrink(0), 0u);
  EXPECT_EQ(unregistered, 1);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), 3 * kSlab);
  EXPECT_EQ(pinned_pool::free_bytes(0), 3 * kSlab - kChunk);
  EXPECT_TRUE(has_copy(away));
  result = CUDA_SUCCESS;
  EXPECT_EQ(shrink(0), 2u);
}

// The first is full of copies that are to be made anew, and what has none finds no room there.
TEST_F(Shrink, WhatIsNeededStaysPinnedAlsoWhereNothingElseHasRoom) {
  copied(kSlab, 0);
  allocate(kChunk);
  swap::none_is_needed(0);
  for (CUdeviceptr below = UINT64_MAX; below != 0;) swap::find_needed(0, below);
  EXPECT_TRUE(swap::unpin_spare(0, UINT64_MAX).all);
  EXPECT_FALSE(pinned_pool::is_unpinned(0, 0));
  EXPECT_FALSE(pinned_pool::is_unpinned(0, 1)) << "what has no copy yet";
  EXPECT_TRUE(pinned_pool::is_unpinned(0, 2));
}

}  // namespace
}  // namespace switchyard::shim
