// The host pool is unpinned while the job works, before a move that does not need it.
#include <cstdio>
#include <functional>
#include <vector>

#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/transfer/digest.h"
#include "tests/shim/swap/residency/mover_world.h"
#include "tests/support/card.h"

namespace switchyard::shim {
namespace {

using namespace testing;

namespace pinned_pool = swap::pinned_pool;
constexpr std::uint64_t kSlab = pinned_pool::kSlab;
constexpr unsigned kSlabs = 3;
constexpr std::uint64_t kUnpinsIn = 12 * kMs;  // a slab: two of them are a part

// The requests to the driver.
struct Pins {
  unsigned unpinned = 0;
  unsigned pinned = 0;
  std::uint64_t pins_in = 0;  // a slab
  CUresult result = CUDA_SUCCESS;
  std::vector<unsigned> parts;           // slabs that were unpinned while work was held once
  bool work_between = true;              // the next one begins another part
  std::function<void()> during = [] {};  // after each
};
Pins* g_pins = nullptr;

class MoverUnpins : public MoverTest {
 protected:
  MoverUnpins() {
    g_pins = &pins_;
    allow_host(kSlabs * kSlab);
    while (pinned_pool::slabs(0) < kSlabs && pinned_pool::grow(0, UINT64_MAX)) continue;
    g_driver.cuMemHostUnregister = [](void* at) {
      if (!is_of_the_pool(at)) return CUDA_SUCCESS;
      EXPECT_FALSE(admits()) << "the driver would wait for work that goes on";
      EXPECT_NE(g_world->context, nullptr);
      if (g_pins->result != CUDA_SUCCESS) return g_pins->result;
      g_mover->now_ns.fetch_add(kUnpinsIn);
      if (g_pins->work_between) g_pins->parts.push_back(0);
      g_pins->work_between = false;
      ++g_pins->parts.back();
      ++g_pins->unpinned;
      g_pins->during();
      return CUDA_SUCCESS;
    };
    g_driver.cuMemHostRegister_v2 = [](void* at, size_t, unsigned) {
      if (!is_of_the_pool(at)) return CUDA_SUCCESS;
      g_mover->now_ns.fetch_add(g_pins->pins_in);
      ++g_pins->pinned;
      return CUDA_SUCCESS;
    };
    mover_.during_sleep = [this] { pins_.work_between = pins_.work_between || admits(); };
    page().lanes[0].unpinned.store(abi::kAnswersNone);
  }
  ~MoverUnpins() override {
    mover_.during_sleep = nullptr;
    page().lanes[0].unpin.store(0);
    page().lanes[0].precopy.store(0);
    page().lanes[0].unpinned.store(0);
  }
  // And not of a kernel of ours.
  static bool is_of_the_pool(void* at) {
    return pinned_pool::slab_of({.at = at, .bytes = kSlab}) < pinned_pool::slabs(0);
  }
  static void ask(std::uint32_t request) { page().lanes[0].unpin.store(request); }
  static bool has_answered(std::uint32_t request) {
    return page().lanes[0].unpinned.load() == request;
  }
  static void ask_to_precopy(std::uint32_t request) {
    page().lanes[0].precopy.store(1);
    ask(request);
  }
  static std::uint64_t copied_out() { return page().memories[0].moved_out_bytes.load(); }
  static void expect_copies_to_pinned_memory() {
    static const auto copy = g_driver.cuMemcpyDtoHAsync_v2;
    g_driver.cuMemcpyDtoHAsync_v2 = [](void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
      const unsigned slab = pinned_pool::slab_of({.at = to, .bytes = bytes});
      EXPECT_FALSE(pinned_pool::is_unpinned(0, slab)) << "slow";
      return copy(to, from, bytes, stream);
    };
  }
  // The move has ended.
  void come_back() {
    lift();
    ask(0);
    ASSERT_TRUE(run_until([&] { return is_back(); }));
    expect_told_right();
  }
  void unpin(std::uint32_t request) {
    ask(request);
    ASSERT_TRUE(run_until([&] { return has_answered(request); }));
    EXPECT_TRUE(is_back()) << "it works";
    EXPECT_EQ(resident(), kAll);
  }

  Pins pins_;
};

TEST_F(MoverUnpins, APartAtATimeWhileWorkIsHeldAndGoesOnBetween) {
  unpin(1);
  EXPECT_EQ(pins_.unpinned, kSlabs);
  EXPECT_EQ(pins_.parts, (std::vector<unsigned>{2, 1}));
  EXPECT_EQ(world_.waits.size(), 2u) << "work is drained for each part";
  EXPECT_EQ(pinned_pool::pinned_bytes(0), kSlabs * kSlab) << "they are the pool's";
}

TEST_F(MoverUnpins, WorkHasAsLongBetweenTwoParts) {
  std::vector<std::uint64_t> ends;  // of each slab's unpinning
  pins_.during = [&] { ends.push_back(now()); };
  unpin(1);
  pins_.during = [] {};
  ASSERT_EQ(ends.size(), kSlabs);
  EXPECT_GE(ends[2] - kUnpinsIn - ends[1], 2 * kUnpinsIn);
}

TEST_F(MoverUnpins, WhereTheDrainTakesLongAPartDoesToo) {
  world_.during_wait = [this] { mover_.now_ns.fetch_add(60 * kMs); };
  unpin(1);
  EXPECT_EQ(pins_.parts, std::vector<unsigned>{3});
}

TEST_F(MoverUnpins, NothingIsPinnedUntilTheMoveHasEndedThenAllIs) {
  unpin(1);
  run_for(5 * kSecond);
  EXPECT_EQ(pins_.pinned, 0u);
  EXPECT_EQ(pins_.unpinned, kSlabs);
  ask(0);
  run_for(kSecond);
  EXPECT_EQ(pins_.pinned, kSlabs);
  EXPECT_FALSE(pinned_pool::any_unpinned(0));
}

// The driver keeps launches waiting meanwhile.
TEST_F(MoverUnpins, LaunchesHaveAsLongBetweenTwoSlabsThatArePinned) {
  unpin(1);
  pins_.pins_in = 20 * kMs;
  ask(0);
  ASSERT_TRUE(run_until([&] { return pins_.pinned == 1; }));
  const std::uint64_t then = now();
  ASSERT_TRUE(run_until([&] { return pins_.pinned == 3; }));
  EXPECT_GE(now() - then, 4 * pins_.pins_in);
}

TEST_F(MoverUnpins, TheContextsFindNothingLeftToUnpin) {
  unpin(1);
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  // The memory that left by the host was pinned for that, and no more.
  EXPECT_EQ(pins_.unpinned, kSlabs + pins_.pinned);
  come_back();
}

TEST_F(MoverUnpins, WhatLeavesByTheHostAfterAllIsCopiedToPinnedMemory) {
  unpin(1);
  expect_copies_to_pinned_memory();
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(pins_.pinned, 1u) << "all of it fits into one slab";
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  expect_told_right();
}

TEST_F(MoverUnpins, WhatTheDriverDoesNotKeepAfterAllIsCopiedToPinnedMemory) {
  unpin(1);
  page().lanes[0].uuid[0] = 1;
  words().park_lane.store(1);
  words().park_bytes.store(kAll);
  detach();
  g_driver.cuMemExportToShareableHandle = nullptr;
  expect_copies_to_pinned_memory();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  EXPECT_EQ(pins_.pinned, 1u) << "all of it fits into one slab";
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  expect_told_right();
}

TEST_F(MoverUnpins, AnOrderComesBeforeTheRest) {
  ask(1);
  ASSERT_TRUE(run_until([&] { return pins_.unpinned == 2; }));
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  EXPECT_EQ(pins_.unpinned, 2u);
  run_for(kSecond);
  EXPECT_EQ(pins_.unpinned, 2u) << "nothing is spare while it is away";
  EXPECT_FALSE(has_answered(1));
}

TEST_F(MoverUnpins, WhoLeavesBeforeAllIsDoneIsNotHeldForTheRestWhenItIsBack) {
  ask(1);
  ASSERT_TRUE(run_until([&] { return pins_.unpinned == 2; }));
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  EXPECT_TRUE(has_answered(1));
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  const std::size_t waits = world_.waits.size();
  run_for(kSecond);
  EXPECT_EQ(world_.waits.size(), waits);
  expect_told_right();
}

TEST_F(MoverUnpins, ASlabInWhichMemoryIsAwayStaysPinned) {
  pinned_pool::HostPiece away = pinned_pool::take(0, kMiB2);
  unpin(1);
  EXPECT_EQ(pins_.unpinned, kSlabs - 1);
  EXPECT_FALSE(pinned_pool::is_unpinned(0, pinned_pool::slab_of(away)));
  pinned_pool::give_back(away);
}

TEST_F(MoverUnpins, KeptCopiesStayInASlabThatIsUnpinned) {
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  ASSERT_LT(pinned_pool::free_bytes(0), kSlabs * kSlab) << "copies are kept";
  const std::uint64_t free = pinned_pool::free_bytes(0);
  unpin(1);
  EXPECT_EQ(pins_.unpinned, kSlabs);
  EXPECT_EQ(pinned_pool::free_bytes(0), free);
  expect_told_right();
}

TEST_F(MoverUnpins, WhatGoesByTheHostIsCopiedThereBeforeWhileWorkIsHeld) {
  const std::uint64_t before = copied_out();
  g_driver.cuMemcpyDtoHAsync_v2 = [](void*, CUdeviceptr, size_t, CUstream) {
    EXPECT_FALSE(admits());
    return CUDA_ERROR_UNKNOWN;
  };
  ask_to_precopy(1);
  ASSERT_TRUE(run_until([&] { return has_answered(1); }));
  EXPECT_EQ(copied_out(), before) << "and what fails is left to the move";
  EXPECT_EQ(pins_.unpinned, kSlabs - 1) << "which needs room that is pinned";
  expect_nothing_lost();
}

TEST_F(MoverUnpins, ThePoolGrowsForWhatIsCopiedBeforeWhileWorkGoesOn) {
  g_driver.cuMemHostUnregister = [](void*) { return CUDA_SUCCESS; };
  empty_host_pool();
  allow_host(kSlab);
  static const auto map = g_driver.cuMemHostRegister_v2;
  g_driver.cuMemHostRegister_v2 = [](void* at, size_t bytes, unsigned flags) {
    EXPECT_TRUE(admits() || bytes != kSlab) << "but for what a digest needs";
    return map(at, bytes, flags);
  };
  const std::uint64_t before = copied_out();
  ask_to_precopy(1);
  ASSERT_TRUE(run_until([&] { return has_answered(1); }));
  EXPECT_EQ(copied_out(), before + kAll);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), kSlab);
  expect_told_right();
}

TEST_F(MoverUnpins, OnlyWhatHasChangedSinceItWasCopiedIsCopiedInTheMove) {
  const std::uint64_t before = copied_out();
  ask_to_precopy(1);
  ASSERT_TRUE(run_until([&] { return has_answered(1); }));
  EXPECT_EQ(copied_out(), before + kAll);
  EXPECT_EQ(resident(), kAll);
  EXPECT_EQ(pins_.unpinned, kSlabs);
  expect_nothing_lost();
  change(1, 0);
  expect_copies_to_pinned_memory();
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  EXPECT_EQ(copied_out(), before + kAll + kMiB2);
  EXPECT_EQ(pins_.pinned, 1u) << "for that copy alone";
  come_back();
}

// It would have to be pinned again while the job is held.
TEST_F(MoverUnpins, WhatChangesAllTheTimeHasItsPlaceInPinnedMemory) {
  const std::uint64_t before = copied_out();
  const auto notes = mover_.during_sleep;
  mover_.during_sleep = [&, notes] {
    notes();
    if (copied_out() != before) change(0, 0, now() % kMiB2);
  };
  ask_to_precopy(1);
  ASSERT_TRUE(run_until([&] { return has_answered(1); }));
  EXPECT_EQ(copied_out(), before + kAll);
  EXPECT_EQ(pins_.unpinned, kSlabs - 1);
  mover_.during_sleep = notes;
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  EXPECT_EQ(copied_out(), before + kAll + kMiB2);
  EXPECT_EQ(pins_.pinned, 0u);
  EXPECT_EQ(pins_.unpinned, kSlabs);
  come_back();
}

TEST_F(MoverUnpins, WhatTheLastMoveNeededTheNextNeedsNot) {
  const std::uint64_t before = copied_out();
  const auto notes = mover_.during_sleep;
  mover_.during_sleep = [&, notes] {
    notes();
    if (copied_out() != before) change(0, 0, now() % kMiB2);
  };
  ask_to_precopy(1);
  ASSERT_TRUE(run_until([&] { return has_answered(1); }));
  ASSERT_EQ(pins_.unpinned, kSlabs - 1);
  mover_.during_sleep = notes;
  ask(0);
  run_for(kSecond);
  ASSERT_FALSE(pinned_pool::any_unpinned(0));
  ask_to_precopy(2);
  ASSERT_TRUE(run_until([&] { return has_answered(2); }));
  EXPECT_EQ(pins_.unpinned, kSlabs - 1 + kSlabs);
  expect_nothing_lost();
}

TEST_F(MoverUnpins, WithoutDigestsAsMuchAsTheMoveCopiesStaysPinned) {
  SWITCHYARD_WATCH(faults(), cuLaunchKernel);
  faults().refuse("cuLaunchKernel", CUDA_ERROR_UNKNOWN);
  swap::clear_digests();
  ask_to_precopy(1);
  ASSERT_TRUE(run_until([&] { return has_answered(1); }));
  EXPECT_EQ(pins_.unpinned, kSlabs - 1);
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  EXPECT_EQ(pins_.pinned, 0u);
  come_back();
}

TEST_F(MoverUnpins, TheNextMonitorsFirstRequestBeginsAnew) {
  const std::uint64_t before = copied_out();
  ask_to_precopy(1);
  ASSERT_TRUE(run_until([&] { return copied_out() == before + kAll; }));
  monitor_dies();
  run_for(kSecond);
  change(0, 0);
  page().lanes[0].unpinned.store(abi::kAnswersNone);
  process().joined.store(1);
  ASSERT_TRUE(run_until([&] { return has_answered(1); }));
  EXPECT_EQ(copied_out(), before + kAll + kMiB2);
}

TEST_F(MoverUnpins, ADriverThatRefusesIsAnsweredForAtOnceAndNotAskedAgain) {
  pins_.result = CUDA_ERROR_UNKNOWN;
  unpin(1);
  EXPECT_EQ(world_.waits.size(), 1u);
  run_for(kSecond);
  EXPECT_EQ(world_.waits.size(), 1u);
  pins_.result = CUDA_SUCCESS;
  unpin(2);
  EXPECT_EQ(pins_.unpinned, kSlabs);
}

TEST_F(MoverUnpins, WorkThatDoesNotDrainIsAnsweredForAndGoesOn) {
  world_.wait_result = CUDA_ERROR_NOT_READY;
  unpin(1);
  EXPECT_EQ(pins_.unpinned, 0u);
  EXPECT_TRUE(admits());
}

TEST_F(MoverUnpins, NothingIsHeldWhileAPersonPausesOrNoContextIsLeft) {
  pause(true);
  ask(1);
  ASSERT_TRUE(run_until([&] { return has_answered(1); }));
  pause(false);
  end_primary();
  ask(2);
  ASSERT_TRUE(run_until([&] { return has_answered(2); }));
  EXPECT_TRUE(world_.waits.empty());
  EXPECT_EQ(pins_.unpinned, 0u);
}

TEST_F(MoverUnpins, WithoutAMonitorThePoolIsPinnedAgain) {
  unpin(1);
  monitor_dies();
  run_for(kSecond);
  EXPECT_EQ(pins_.pinned, kSlabs);
}

TEST_F(MoverUnpins, AnAnswerToTheLastMonitorIsNoneToTheNextOnesFirstRequest) {
  pins_.during = [this] {
    if (pins_.unpinned != kSlabs) return;
    ask(0);
    page().lanes[0].unpinned.store(abi::kAnswersNone);
  };
  ask(1);
  ASSERT_TRUE(run_until([&] { return pins_.pinned == kSlabs; }));
  EXPECT_FALSE(has_answered(1));
  pins_.during = [] {};
  unpin(1);
  EXPECT_EQ(pins_.unpinned, 2 * kSlabs);
}

TEST_F(MoverUnpins, WhoKnowsOfItSaysSoOnEachPage) {
  write_card(page(), &JobCard::swappable, "yes");
  page().lanes[0].unpinned.store(0);
  page().lanes[0].precopies.store(0);
  swap::residency_page::choose_swappable(1);
  EXPECT_EQ(page().lanes[0].unpinned.load(), abi::kAnswersNone);
  EXPECT_EQ(page().lanes[0].precopies.load(), 1u);
  unpin(1);
  static abi::Page fresh{};
  swap::residency_page::carry_over(fresh);
  EXPECT_EQ(fresh.lanes[0].unpinned.load(), abi::kAnswersNone) << "another monitor's numbers";
  EXPECT_EQ(fresh.lanes[0].precopies.load(), 1u);
}

}  // namespace
}  // namespace switchyard::shim
