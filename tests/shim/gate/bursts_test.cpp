// For how long the CPU waits within its bursts, as the page shows it, and what that costs launches.
#include <thread>

#include "tests/shim/gate/gate_world.h"

namespace switchyard::shim::testing {
namespace {

using namespace std::chrono_literals;

class Bursts : public GateTest {
 protected:
  static void wait_for(std::chrono::microseconds time,
                       gate::Waiting::What what = gate::Waiting::kStream) {
    const gate::Waiting waiting(what);
    std::this_thread::sleep_for(time);
  }
  CUresult copy(std::chrono::microseconds time) {
    return rules::copy(
        [time](int, CUstream) {
          std::this_thread::sleep_for(time);
          return CUDA_SUCCESS;
        },
        1, first_);
  }
  // A copy to memory of the host, of which the driver says `known`. `during` runs within it.
  template <typename During>
  void copy_to_host(CUresult known, During during) {
    static CUresult answer;
    answer = known;
    g_driver.cuPointerGetAttribute = [](void*, CUpointer_attribute, CUdeviceptr) { return answer; };
    char to = 0;
    rules::copy_to(
        [during](char*, CUstream) {
          during();
          return CUDA_SUCCESS;
        },
        &to, first_);
  }
  // Another thread comes to the closed gate, which opens after a while. When it was opened.
  template <typename Work>
  std::uint64_t held(Work work) {
    gate().closed.store(abi::kClosedByTurn);
    std::thread other(work);
    while (gate().held_threads.load() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(150ms);
    const std::uint64_t opened = monotonic_ns();
    gate().closed.store(0);
    wake_held(gate().closed);
    other.join();
    return opened;
  }
  std::uint64_t waited() { return gate().waited_ns.load(); }
  std::uint64_t burst() { return gate().burst_ns.load(); }
};

TEST_F(Bursts, NothingIsTimedUnasked) {
  launch(first_, 1);
  wait_for(1ms);
  EXPECT_EQ(waited() + burst() + gate().bursts.load(), 0u);
  EXPECT_EQ(lane().attention.load(), 0u);
}

TEST_F(Bursts, ABurstGoesFromTheFirstLaunchAfterAWaitToTheEndOfTheNext) {
  arm(abi::kTimeBursts);
  launch(first_, 1);
  wait_for(0us);  // from here on launches know that they are the first
  const std::uint64_t waited_before = waited(), burst_before = burst();
  std::this_thread::sleep_for(5ms);  // between two bursts
  const std::uint64_t began = monotonic_ns();
  launch(first_, 1);
  std::this_thread::sleep_for(2ms);
  launch(first_, 1);
  wait_for(3ms);
  const std::uint64_t whole = monotonic_ns() - began;
  EXPECT_GE(waited() - waited_before, 3'000'000u);
  EXPECT_GE(burst() - burst_before, 5'000'000u);
  EXPECT_LE(burst() - burst_before, whole);
  EXPECT_GE(burst() - waited(), 2'000'000u);
  EXPECT_EQ(gate().bursts.load(), 1u);
}

TEST_F(Bursts, OnlyTheFirstLaunchAfterAWaitLooksAtTheClock) {
  arm(abi::kTimeBursts);
  wait_for(0us);
  EXPECT_EQ(lane().attention.load(), abi::kTimeBursts | abi::kBurstBegins);
  launch(first_, 1);
  EXPECT_EQ(lane().attention.load(), abi::kTimeBursts);
  launch(first_, 3);
  EXPECT_EQ(log(first_), Log(4, "launch"));  // and nothing is put into streams for it
  EXPECT_EQ(gpu_.registrations, 0);
}

// A hold by the monitor is no work of the CPU, and no wait for the GPU.
TEST_F(Bursts, AHoldBeforeTheFirstLaunchIsNoPartOfTheBurst) {
  arm(abi::kTimeBursts | abi::kGateArmed);
  wait_for(0us);
  const std::uint64_t before = burst();
  const std::uint64_t opened = held([this] { launch(first_, 1); });
  wait_for(0us);
  EXPECT_EQ(gate().bursts.load(), 1u);
  EXPECT_LE(burst() - before, monotonic_ns() - opened);
}

TEST_F(Bursts, ABurstThatWasHeldCountsForNothing) {
  arm(abi::kTimeBursts | abi::kGateArmed);
  wait_for(0us);
  launch(first_, 1);
  held([this] { launch(first_, 1); });
  wait_for(0us);
  EXPECT_EQ(gate().bursts.load(), 0u);
  EXPECT_EQ(waited(), burst());
}

TEST_F(Bursts, ACopyThatWasHeldWaitsOnlyForTheDriver) {
  arm(abi::kTimeBursts | abi::kGateArmed);
  wait_for(0us);
  const std::uint64_t before = waited();
  const std::uint64_t opened = held([this] { copy(0us); });
  EXPECT_LE(waited() - before, monotonic_ns() - opened);
}

TEST_F(Bursts, ALaunchBehindBothSortsOfBitsBeginsABurstOnce) {
  arm(abi::kTimeBursts | abi::kProgress);
  wait_for(0us);
  launch(first_, 2);
  EXPECT_EQ(lane().attention.load(), abi::kTimeBursts | abi::kProgress);
  wait_for(0us);
  EXPECT_EQ(gate().bursts.load(), 1u);
}

TEST_F(Bursts, ACopyInWhichTheDriverWaitsIsAWait) {
  arm(abi::kTimeBursts);
  wait_for(0us);
  launch(first_, 1);
  // This thread may lose its processor in a copy, which makes that one a wait.
  bool quick = false;
  for (int tries = 0; tries < 10'000 && !quick; ++tries) {
    const std::uint32_t before = gate().bursts.load();
    const std::uint64_t began = monotonic_ns();
    copy(0us);
    quick = monotonic_ns() - began < 20'000;
    EXPECT_TRUE(!quick || gate().bursts.load() == before);
    launch(first_, 1);
  }
  EXPECT_TRUE(quick);
  gate().bursts.store(0);
  copy(2ms);
  EXPECT_EQ(gate().bursts.load(), 1u);
  EXPECT_GE(waited(), 2'000'000u);
}

// The driver returns from such a copy when it is done, so it waits for all before it.
TEST_F(Bursts, ACopyToPageableMemoryIsAWaitThatIsToldWhenItBegins) {
  arm(abi::kTimeBursts | abi::kTellWaits);
  wait_for(0us);
  launch(first_, 3);
  const int before = world_.wakes;
  copy_to_host(CUDA_ERROR_INVALID_VALUE, [&] {
    EXPECT_EQ(gate().waiting.load(), 1u);
    EXPECT_EQ(world_.wakes, before + 1);
  });
  EXPECT_EQ(world_.wakes, before + 2);
  EXPECT_EQ(gate().waiting.load(), 0u);
  EXPECT_EQ(gate().bursts.load(), 1u) << "however short it was";
  EXPECT_EQ(gate().counts[1].load(), 3u);
}

TEST_F(Bursts, ACopyToPinnedMemoryIsNoWait) {
  arm(abi::kTimeBursts | abi::kTellWaits);
  wait_for(0us);
  launch(first_, 1);
  const int before = world_.wakes;
  copy_to_host(CUDA_SUCCESS, [&] {
    EXPECT_EQ(gate().waiting.load(), 0u);
    EXPECT_EQ(world_.wakes, before);
  });
}

TEST_F(Bursts, AWaitWithoutALaunchIsNoBurst) {
  arm(abi::kTimeBursts);
  wait_for(1ms);
  wait_for(1ms);
  EXPECT_EQ(gate().bursts.load(), 0u);
  EXPECT_EQ(waited(), burst());
}

TEST_F(Bursts, ALaunchLongAgoIsNoBeginning) {
  arm(abi::kTimeBursts);
  wait_for(0us);
  launch(first_, 1);
  std::this_thread::sleep_for(600ms);
  wait_for(1ms);
  EXPECT_EQ(gate().bursts.load(), 0u);
  EXPECT_EQ(waited(), burst());
}

TEST_F(Bursts, OfEachBurstItIsSaidHowLongTheCpuWorkedAndWaited) {
  arm(abi::kTimeBursts);
  wait_for(0us);
  launch(first_, 1);
  std::this_thread::sleep_for(3ms);
  wait_for(2ms);
  EXPECT_GE(lane().burst_cpu_us[1].load(), 3000u);
  EXPECT_GE(lane().burst_waited_us[1].load(), 2000u);
  EXPECT_LE(lane().burst_cpu_us[1].load() + lane().burst_waited_us[1].load(), burst() / 1000);
  launch(first_, 1);
  wait_for(70ms);
  EXPECT_GE(lane().burst_cpu_us[2].load(), 1u) << "0 would be an older library";
  EXPECT_EQ(lane().burst_waited_us[2].load(), 65'535u) << "it has room for no more";
}

TEST_F(Bursts, LaunchesOfEachBurstAreCountedGraphsToo) {
  arm(abi::kTimeBursts);
  wait_for(0us);
  for (const int launches : {3, 1, 20}) {
    launch(first_, launches);
    wait_for(0us);
  }
  EXPECT_EQ(gate().bursts.load(), 3u);
  EXPECT_EQ(gate().counts[1].load(), 3u);
  EXPECT_EQ(gate().counts[2].load(), 1u);
  EXPECT_EQ(gate().counts[3].load(), 20u);
  lane().graph_launches.fetch_add(2);
  launch(first_, 1);
  EXPECT_EQ(lane().launches.load() + lane().graph_launches.load() - gate().launched.load(), 3u);
  wait_for(0us);
  EXPECT_EQ(gate().counts[4].load(), 3u);
}

TEST_F(Bursts, ThePageSaysThatTheCpuWaits) {
  arm(abi::kTimeBursts);
  {
    const gate::Waiting waiting(gate::Waiting::kStream);
    EXPECT_EQ(gate().waiting.load(), 1u);
  }
  EXPECT_EQ(gate().waiting.load(), 0u);
}

TEST_F(Bursts, NobodyRingsUnasked) {
  arm(abi::kTimeBursts);
  gate().ring_after.store(2);
  wait_for(0us);
  launch(first_, 5);
  wait_for(0us);
  EXPECT_EQ(world_.wakes, 0);
}

TEST_F(Bursts, TheMonitorHearsAWaitBeginAndEnd) {
  arm(abi::kTimeBursts | abi::kTellWaits);
  {
    const gate::Waiting waiting(gate::Waiting::kStream);
    EXPECT_EQ(world_.wakes, 1);
  }
  EXPECT_EQ(world_.wakes, 2);
}

TEST_F(Bursts, AForeseenWaitBeginsWithoutARing) {
  arm(abi::kTimeBursts | abi::kTellWaits);
  gate().ring_after.store(abi::kWaitForeseen | 100);
  {
    const gate::Waiting waiting(gate::Waiting::kStream);
    EXPECT_EQ(world_.wakes, 0);
  }
  EXPECT_EQ(world_.wakes, 1);
}

TEST_F(Bursts, ItRingsOnceAfterSoManyLaunchesSinceEachWait) {
  arm(abi::kTimeBursts | abi::kTellWaits);
  gate().ring_after.store(abi::kWaitForeseen | 5);
  for (int burst = 0; burst < 3; ++burst) {
    wait_for(0us);
    const int before = world_.wakes;
    launch(first_, 4);
    EXPECT_EQ(world_.wakes, before);
    launch(first_, 1);
    EXPECT_EQ(world_.wakes, before + 1);
    launch(first_, 10);
    EXPECT_EQ(world_.wakes, before + 1);
  }
}

TEST_F(Bursts, AnotherNumberIsRungForInTheSameBurst) {
  arm(abi::kTimeBursts | abi::kTellWaits);
  wait_for(0us);
  const int before = world_.wakes;
  gate().ring_after.store(2);
  launch(first_, 3);
  gate().ring_after.store(5);
  launch(first_, 1);
  EXPECT_EQ(world_.wakes, before + 1);
  launch(first_, 1);
  EXPECT_EQ(world_.wakes, before + 2);
}

TEST_F(Bursts, RingsPutNothingIntoStreams) {
  arm(abi::kTimeBursts | abi::kTellWaits);
  gate().ring_after.store(2);
  launch(first_, 3);
  wait_for(0us);
  EXPECT_EQ(log(first_), Log(3, "launch"));
  EXPECT_EQ(gpu_.registrations, 0);
}

TEST_F(Bursts, AContextsEndIsNoWait) {
  arm(abi::kTimeBursts);
  wait_for(1ms, gate::Waiting::kEnd);
  EXPECT_EQ(waited(), 0u);
}

TEST_F(Bursts, TheGatesOwnWorkGoesOnBesideIt) {
  arm(abi::kTimeBursts | abi::kGateArmed);
  launch(first_, 1);
  synchronise();
  EXPECT_EQ(log(first_), (Log{"wait", "launch", "write 1"}));
  EXPECT_EQ(lane().attention.load(), abi::kTimeBursts | abi::kGateArmed | abi::kBurstBegins);
}

}  // namespace
}  // namespace switchyard::shim::testing
