// The mover parks memory on another GPU as far as the monitor lets it, and moves it on.
#include "shim/swap/memory/parking.h"
#include "tests/shim/swap/residency/mover_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class MoverParks : public MoverTest {
 protected:
  MoverParks() {
    swap::parking::clear();
    process().swappable.store(2);
  }
  static void let_park(std::uint64_t bytes, bool only = false) {
    words().park_lane.store(2);
    words().park_bytes.store(bytes);
    words().park_only.store(only ? 1 : 0);
  }
  static std::uint64_t told() { return page().lanes[0].parked_bytes.load(); }
  bool leaves() {
    limit(0);
    return run_until([&] { return is_away(); });
  }
  // The driver gives no memory on the other GPU when it is asked first.
  static void refuse_first() {
    asked = 0;
    create = g_driver.cuMemCreate;
    g_driver.cuMemCreate = [](CUmemGenericAllocationHandle* out, size_t bytes,
                              const CUmemAllocationProp* properties, unsigned long long flags) {
      const bool there = properties->location.id == 1;
      if (there && ++asked == 1) return CUDA_ERROR_OUT_OF_MEMORY;
      return create(out, bytes, properties, flags);
    };
  }

  inline static int asked = 0;
  inline static decltype(g_driver.cuMemCreate) create = nullptr;
};

TEST_F(MoverParks, WhatItMayParkIsToldAndNeedsNoHostMemory) {
  empty_host_pool();
  allow_host(0);
  let_park(kAll, true);
  ASSERT_TRUE(leaves());
  EXPECT_EQ(told(), kAll);
  EXPECT_EQ(page().lanes[0].parked_lane.load(), 2u);
  expect_told_right();
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  EXPECT_EQ(told(), 0u);
  EXPECT_EQ(page().lanes[0].parked_lane.load(), 0u);
  expect_told_right();
}

TEST_F(MoverParks, WorkGoesOnBeforeTheOtherGpusMemoryIsGivenBack) {
  let_park(kAll);
  ASSERT_TRUE(leaves());
  static bool works;
  static std::uint64_t counted;
  static decltype(g_driver.cuMemAddressFree) unreserve;
  works = true;
  counted = 0;
  unreserve = g_driver.cuMemAddressFree;
  g_driver.cuMemAddressFree = [](CUdeviceptr at, size_t bytes) {
    works = works && phase() == abi::kResident && admits();
    if (counted == 0) counted = told();
    return unreserve(at, bytes);
  };
  lift();
  world_.wakes.store(0);
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  EXPECT_TRUE(works);
  EXPECT_EQ(counted, kAll) << "the monitor sees what is there until it is gone";
  EXPECT_EQ(told(), 0u);
  EXPECT_GE(world_.wakes.load(), 1);
  expect_told_right();
}

TEST_F(MoverParks, WithoutAnOrderToParkNothingIs) {
  ASSERT_TRUE(leaves());
  EXPECT_EQ(told(), 0u);
}

TEST_F(MoverParks, TheRestGoesToTheHost) {
  let_park(2 * kMiB2);
  ASSERT_TRUE(leaves());
  EXPECT_EQ(told(), 2 * kMiB2);
  expect_told_right();
}

TEST_F(MoverParks, WhereNothingIsWantedInTheHostItStaysAndSaysWhy) {
  let_park(2 * kMiB2, true);
  limit(0);
  ASSERT_TRUE(run_until([&] { return error() == abi::kSwapNoPeerRoom; }));
  EXPECT_EQ(phase(), abi::kResident);
  EXPECT_TRUE(admits());
  EXPECT_EQ(resident(), kAll);
  EXPECT_EQ(told(), 0u);
}

TEST_F(MoverParks, ItMovesOnWhenItMayParkLess) {
  let_park(kAll);
  ASSERT_TRUE(leaves());
  world_.wakes.store(0);
  let_park(3 * kMiB2);
  ASSERT_TRUE(run_until([&] { return told() == 3 * kMiB2; }));
  EXPECT_GE(world_.wakes.load(), 2) << "the monitor is rung for each chunk";
  EXPECT_TRUE(is_away());
  EXPECT_EQ(error(), abi::kSwapFine);
  expect_told_right();
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  expect_told_right();
}

TEST_F(MoverParks, WhatSharesAPieceOfMemoryMovesOnTogether) {
  let_park(kAll);
  ASSERT_TRUE(leaves());
  let_park(2 * kMiB2);
  ASSERT_TRUE(run_until([&] { return told() <= 2 * kMiB2; }));
  EXPECT_EQ(told(), kMiB2) << "two chunks lie in one, and half of it cannot be given back";
  EXPECT_TRUE(is_away());
  expect_told_right();
}

TEST_F(MoverParks, WithoutHostRoomItStaysParkedAndSaysSoUntilThereIsSome) {
  let_park(kAll);
  ASSERT_TRUE(leaves());
  empty_host_pool();
  allow_host(0);
  let_park(0);
  ASSERT_TRUE(run_until([&] { return error() == abi::kSwapNoHostRoom; }));
  EXPECT_EQ(told(), kAll);
  allow_host(UINT64_MAX);
  ASSERT_TRUE(run_until([&] { return told() == 0; }));
  EXPECT_EQ(error(), abi::kSwapFine);
  EXPECT_TRUE(is_away());
  expect_told_right();
}

TEST_F(MoverParks, WhatTheDriverRefusedFindsItsRoomInTheHostAtOnce) {
  empty_host_pool();
  let_park(kAll);
  refuse_first();
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away() || error() != abi::kSwapFine; }));
  EXPECT_EQ(error(), abi::kSwapFine) << "no host memory was pinned yet";
  EXPECT_TRUE(is_away());
  EXPECT_EQ(told(), 0u);
  expect_told_right();
}

TEST_F(MoverParks, WithoutHostRoomWhatTheDriverRefusedStaysAndSaysSo) {
  empty_host_pool();
  allow_host(0);
  let_park(kAll);
  refuse_first();
  limit(0);
  ASSERT_TRUE(run_until([&] { return error() == abi::kSwapNoHostRoom; }));
  EXPECT_EQ(told(), 0u);
}

TEST_F(MoverParks, AfterTheDriverRefusedItUsesTheHostForAWhile) {
  let_park(kAll);
  refuse_first();
  ASSERT_TRUE(leaves());
  EXPECT_EQ(told(), 0u);
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  ASSERT_TRUE(leaves());
  EXPECT_EQ(asked, 1) << "it was not asked again";
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  run_for(20 * kSecond);
  for (unsigned range : {0u, 1u}) change(range, 0);
  ASSERT_TRUE(leaves());
  EXPECT_EQ(told(), 2 * kMiB2) << "what has changed since";
}

TEST_F(MoverParks, WithoutAMonitorWhatAPersonReleasedMovesOn) {
  let_park(kAll);
  pause(true);
  ASSERT_TRUE(leaves());
  monitor_dies();
  ASSERT_TRUE(run_until([&] { return told() == 0; }));
  EXPECT_TRUE(is_away()) << "nobody could ask for the room any more";
  expect_told_right();
}

TEST_F(MoverParks, TheContextsLeaveOnceItHasMovedOn) {
  let_park(kAll);
  ASSERT_TRUE(leaves());
  detach();
  ASSERT_TRUE(run_until([&] { return is_detached(); }));
  EXPECT_EQ(told(), 0u);
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  expect_told_right();
}

TEST_F(MoverParks, TheFreshPageOfAnotherMonitorIsToldWhatIsParked) {
  let_park(kAll, true);
  ASSERT_TRUE(leaves());
  static abi::Page fresh;
  swap::residency_page::carry_over(fresh);
  EXPECT_EQ(fresh.lanes[0].parked_bytes.load(), kAll);
  EXPECT_EQ(fresh.lanes[0].parked_lane.load(), 2u);
  EXPECT_EQ(fresh.residencies[0].park_bytes.load(), kAll) << "until it has made up its mind";
  EXPECT_EQ(fresh.residencies[0].park_lane.load(), 2u);
  EXPECT_EQ(fresh.residencies[0].park_only.load(), 1u);
}

TEST_F(MoverParks, BesideWhatIsOnOneGpuNothingIsParkedOnAnother) {
  process().swappable.store(3);
  let_park(kAll);
  limit(kAll - 2 * kMiB2);
  ASSERT_TRUE(run_until([&] { return phase() == abi::kAbsent && told() != 0; }));
  ASSERT_EQ(told(), 2 * kMiB2);
  words().park_lane.store(3);
  ASSERT_TRUE(leaves());
  EXPECT_EQ(told(), 2 * kMiB2) << "the host has the rest";
  EXPECT_EQ(page().lanes[0].parked_lane.load(), 2u);
  expect_told_right();
}

TEST_F(MoverParks, WhatIsParkedAlreadyIsTakenOffWhatMayBe) {
  let_park(3 * kMiB2);
  limit(kAll - 2 * kMiB2);
  ASSERT_TRUE(run_until([&] { return phase() == abi::kAbsent && told() != 0; }));
  const std::uint64_t before = told();
  ASSERT_EQ(before, 2 * kMiB2);
  empty_host_pool();
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away() || error() != abi::kSwapFine; }));
  EXPECT_EQ(error(), abi::kSwapFine) << "the host's room for the rest is found before it leaves";
  EXPECT_TRUE(is_away());
  EXPECT_EQ(told(), 3 * kMiB2);
  expect_told_right();
}

}  // namespace
}  // namespace switchyard::shim
