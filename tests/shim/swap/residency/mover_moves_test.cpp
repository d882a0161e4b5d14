// The mover brings the contexts back on another GPU, where the monitor wants it.
#include <string.h>

#include "shim/checkpoint/steps.h"
#include "tests/shim/swap/residency/mover_world.h"
#include "tests/support/card.h"

namespace switchyard::shim {
namespace {

using namespace testing;

constexpr unsigned kGpus = 3;

class MoverMoves : public MoverTest {
 protected:
  MoverMoves() {
    for (unsigned gpu = 0; gpu < kGpus; ++gpu) {
      std::uint8_t bytes[16];
      fill(bytes, gpu);
      std::uint64_t words[2];
      ::memcpy(words, bytes, sizeof(words));
      for (unsigned i : {0u, 1u}) page().lanes[gpu].machine_uuid[i].store(words[i]);
    }
    be_on(0, 0);
  }
  ~MoverMoves() override {
    for (abi::Lane& lane : page().lanes) {
      for (abi::Word64& word : lane.machine_uuid) word.store(0);
      lane.shall_be_on.store(0);
      ::memset(lane.uuid, 0, sizeof(lane.uuid));
    }
  }
  static void fill(std::uint8_t (&uuid)[16], unsigned gpu) {
    ::memset(uuid, static_cast<int>(gpu + 1), sizeof(uuid));
  }
  static void be_on(unsigned lane, unsigned gpu) { fill(page().lanes[lane].uuid, gpu); }
  static bool is_on(unsigned lane, unsigned gpu) {
    std::uint8_t uuid[16];
    fill(uuid, gpu);
    return ::memcmp(uuid, page().lanes[lane].uuid, sizeof(uuid)) == 0;
  }
  static void send_to(unsigned gpu) { page().lanes[0].shall_be_on.store(gpu + 1); }
  // To which GPU the driver was told to bring what was on `gpu`; -1: it was told nothing.
  int goes(unsigned gpu) const {
    for (const CUcheckpointGpuPair& pair : mover_.pairs) {
      if (pair.oldUuid.bytes[0] == static_cast<char>(gpu + 1)) return pair.newUuid.bytes[0] - 1;
    }
    return -1;
  }
  void leave() {
    detach();
    ASSERT_TRUE(run_until([&] { return is_detached(); }));
  }
  void come() {
    lift();
    ASSERT_TRUE(run_until([&] { return is_back(); }));
    expect_told_right();
    EXPECT_EQ(mover_.process, CU_PROCESS_STATE_RUNNING);
  }
};

TEST_F(MoverMoves, EveryGpuOfTheMachineIsNamedAndTheTwoAreExchanged) {
  leave();
  send_to(2);
  come();
  EXPECT_EQ(mover_.pairs.size(), kGpus);
  EXPECT_EQ(goes(0), 2);
  EXPECT_EQ(goes(1), 1);
  EXPECT_EQ(goes(2), 0);
  EXPECT_TRUE(is_on(0, 2));
}

TEST_F(MoverMoves, AProcessThatSeesTheOtherGpuAsWellSeesItInTheFirstOnesPlace) {
  be_on(1, 2);
  leave();
  send_to(2);
  come();
  EXPECT_TRUE(is_on(0, 2));
  EXPECT_TRUE(is_on(1, 0));
}

TEST_F(MoverMoves, OnlyTheContextsMoveWhileTheMemoryMayNotComeYet) {
  leave();
  send_to(1);
  words().limited.store(abi::kLimited);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_TRUE(is_on(0, 1));
  EXPECT_EQ(error(), abi::kSwapFine);
  come();
}

// --- what stays behind ---

class MoverLeavesBehind : public MoverMoves {
 protected:
  MoverLeavesBehind() {
    swap::parking::clear();
    process().swappable.store(2);
    use_descriptors();
    be_on(1, 1);
    empty_host_pool();
    allow_host(0);
  }
  static void let_stay(std::uint64_t bytes) {
    words().park_lane.store(1);
    words().park_bytes.store(bytes);
  }
  static std::uint64_t told() { return page().lanes[0].parked_bytes.load(); }
  static std::uint32_t told_on() { return page().lanes[0].parked_lane.load(); }
  static void import_fails(CUresult with) {
    failure_ = with;
    g_driver.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle*, void*,
                                                 CUmemAllocationHandleType) { return failure_; };
  }

  inline static CUresult failure_ = CUDA_SUCCESS;
};

TEST_F(MoverLeavesBehind, MemoryStaysWithoutTheHostAndFollowsTheContexts) {
  let_stay(kAll);
  leave();
  EXPECT_EQ(told(), kAll);
  EXPECT_EQ(told_on(), 1u) << "of the GPU that is this lane's still";
  EXPECT_EQ(driven_.mapped_from_files, 0) << "the driver takes no checkpoint of that";
  EXPECT_EQ(driven_.live_handles, 0);
  send_to(1);
  words().limited.store(abi::kLimited);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  run_for(kSecond);
  EXPECT_EQ(told(), kAll) << "it needs not move on";
  EXPECT_EQ(told_on(), 2u) << "that GPU is the other lane's now";
  come();
  EXPECT_EQ(told(), 0u);
  EXPECT_EQ(driven_.copies_beside, 5);
  EXPECT_EQ(driven_.copies_in, 0);
}

TEST_F(MoverLeavesBehind, WhatTheDriverDoesNotMoveIsOfItsOwnLaneStill) {
  let_stay(kAll);
  leave();
  send_to(1);
  mover_.move_result = CUDA_ERROR_INVALID_VALUE;
  words().limited.store(abi::kLimited);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(told_on(), 1u);
  come();
}

TEST_F(MoverLeavesBehind, WhatCannotStayGoesToTheHost) {
  allow_host(UINT64_MAX);
  let_stay(2 * kMiB2);
  leave();
  EXPECT_EQ(told(), 2 * kMiB2);
  send_to(1);
  come();
  EXPECT_EQ(driven_.copies_beside, 2);
  EXPECT_EQ(driven_.copies_in, 3);
}

TEST_F(MoverLeavesBehind, WhatIsNotExportedFindsItsRoomInTheHost) {
  allow_host(UINT64_MAX);
  let_stay(kAll);
  g_driver.cuMemExportToShareableHandle = [](void*, CUmemGenericAllocationHandle,
                                             CUmemAllocationHandleType, unsigned long long) {
    return CUDA_ERROR_NOT_SUPPORTED;
  };
  leave();
  EXPECT_EQ(told(), 0u);
  send_to(1);
  come();
  EXPECT_EQ(driven_.copies_in, 5);
}

TEST_F(MoverLeavesBehind, WhatAnotherJobIsOfferedDoesNotStay) {
  allow_host(UINT64_MAX);
  let_stay(kAll);
  words().gives.store(7);
  leave();
  EXPECT_EQ(told(), 0u);
  words().gives.store(0);
  send_to(1);
  come();
}

TEST_F(MoverLeavesBehind, WhatCannotBeReachedIsSaidAndMayGoBack) {
  let_stay(kAll);
  leave();
  send_to(1);
  const auto import = g_driver.cuMemImportFromShareableHandle;
  import_fails(CUDA_ERROR_INVALID_DEVICE);
  lift();
  ASSERT_TRUE(run_until([&] { return error() == abi::kSwapFailed; }));
  EXPECT_EQ(words().swap_result.load(), static_cast<std::uint32_t>(CUDA_ERROR_INVALID_DEVICE));
  EXPECT_EQ(phase(), abi::kReturning);
  EXPECT_EQ(told(), kAll);
  EXPECT_FALSE(admits());
  words().park_lane.store(2);
  leave();
  EXPECT_EQ(told(), kAll);
  send_to(0);
  g_driver.cuMemImportFromShareableHandle = import;
  come();
  EXPECT_TRUE(is_on(0, 0));
  EXPECT_EQ(told(), 0u);
}

TEST_F(MoverLeavesBehind, WithoutAMonitorItFollowsAllTheSame) {
  let_stay(kAll);
  leave();
  send_to(1);
  monitor_dies();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  EXPECT_EQ(driven_.copies_in, 0);
  expect_told_right();
}

TEST_F(MoverLeavesBehind, WhatMayStayNoLongerMovesOnToTheHost) {
  let_stay(kAll);
  leave();
  allow_host(UINT64_MAX);
  send_to(1);
  words().limited.store(abi::kLimited);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  words().park_bytes.store(0);
  ASSERT_TRUE(run_until([&] { return told() == 0; }));
  EXPECT_TRUE(is_away());
  expect_told_right();
  come();
}

// The word says where it shall be, so it is followed once.
TEST_F(MoverMoves, WhoIsThereAlreadyStays) {
  leave();
  send_to(1);
  come();
  leave();
  come();
  EXPECT_TRUE(is_on(0, 1));
  EXPECT_EQ(mover_.exchanged, 1);
  EXPECT_TRUE(mover_.pairs.empty());
}

TEST_F(MoverMoves, WhatTheDriverRefusesIsBackWhereItWasWithTheReason) {
  leave();
  send_to(1);
  mover_.move_result = CUDA_ERROR_INVALID_VALUE;
  words().limited.store(abi::kLimited);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(error(), abi::kSwapNotMoved);
  EXPECT_EQ(words().swap_result.load(), static_cast<std::uint32_t>(CUDA_ERROR_INVALID_VALUE));
  EXPECT_TRUE(is_on(0, 0));
  EXPECT_EQ(mover_.exchanged, 0);
  come();
}

TEST_F(MoverMoves, WithoutRoomOnBothItIsTriedAgainOnBoth) {
  leave();
  send_to(1);
  mover_.move_result = mover_.restore_result = CUDA_ERROR_OUT_OF_MEMORY;
  lift();
  run_for(kSecond);
  EXPECT_TRUE(is_detached());
  EXPECT_EQ(error(), abi::kSwapNoDeviceRoom);
  mover_.move_result = CUDA_SUCCESS;
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  EXPECT_TRUE(is_on(0, 1));
}

TEST_F(MoverMoves, WhoHasMovedAndIsStillLockedIsKnownToHaveMoved) {
  leave();
  send_to(1);
  mover_.unlock_result = CUDA_ERROR_UNKNOWN;
  lift();
  run_for(kSecond);
  EXPECT_TRUE(is_on(0, 1));
  EXPECT_EQ(mover_.exchanged, 1);
  mover_.unlock_result = CUDA_SUCCESS;
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  EXPECT_EQ(mover_.exchanged, 1);
}

// The other side is hostile.
TEST_F(MoverMoves, WhatMakesNoSenseMovesNothing) {
  leave();
  for (const std::uint32_t wish : {0u, 1u, kGpus + 1, ~0u}) {
    page().lanes[0].shall_be_on.store(wish);
    EXPECT_EQ(checkpoint::pairs_of(page(), 0).count, 0u) << wish;
  }
  send_to(1);
  EXPECT_EQ(checkpoint::pairs_of(page(), 0).count, kGpus);
  be_on(0, 7);
  EXPECT_EQ(checkpoint::pairs_of(page(), 0).count, 0u) << "not a GPU of the machine";
  for (abi::Lane& lane : page().lanes) {
    for (abi::Word64& word : lane.machine_uuid) word.store(0);
  }
  EXPECT_EQ(checkpoint::pairs_of(page(), 0).count, 0u) << "no GPU is named";
  come();
}

TEST_F(MoverMoves, AProcessSaysWhetherItsDriverCanMoveIt) {
  write_card(page(), &JobCard::swappable, "yes");
  const auto says = [](int version) {
    static int told;
    told = version;
    g_driver.cuDriverGetVersion = [](int* out) {
      *out = told;
      return CUDA_SUCCESS;
    };
    swap::residency_page::choose_swappable(1);
    return page().lanes[0].places.load();
  };
  EXPECT_EQ(says(12090), 0u);
  EXPECT_EQ(says(13000), kKnownVersion < 13000 ? 0u : 1u);
  g_driver.cuCheckpointProcessRestore = nullptr;
  EXPECT_EQ(says(13000), 0u);
  page().lanes[0].places.store(0);
}

// It goes in the pieces in which it is kept, of up to 32 chunks.
TEST_F(MoverLeavesBehind, OfWhatIsKeptOnlyWhatIsTooMuchGoesToTheHost) {
  allocate_more(12);
  constexpr std::uint64_t kWhole = kAll + 36 * kMiB2;
  allow_host(swap::pinned_pool::kSlab);
  let_stay(kWhole);
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  ASSERT_EQ(told(), kWhole);
  let_stay(kWhole - kMiB2);
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  EXPECT_LE(told(), kWhole - kMiB2);
  EXPECT_GE(told(), 9 * kMiB2);
  send_to(1);
  come();
}

}  // namespace
}  // namespace switchyard::shim
