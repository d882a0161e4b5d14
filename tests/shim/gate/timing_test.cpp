// Launches behind an armed gate are timed, and heavy ones make batches of their own.
#include "shim/gate/timing.h"

#include <atomic>
#include <thread>

#include "tests/shim/gate/gate_world.h"

namespace switchyard::shim::testing {
namespace {

constexpr unsigned kHeavy = 2, kLight = 1;  // grids

std::map<unsigned, float> g_takes_ms;  // by grid
std::map<CUevent, unsigned> g_stands;  // what was launched last when the event was recorded
std::set<CUevent> g_gone;              // their context has ended
bool g_touched_gone = false;
unsigned g_launched = 0;
bool g_passed = true;
int g_queries = 0;
CUresult g_record_result = CUDA_SUCCESS;
std::uintptr_t g_events = 0;

CUresult event_create(CUevent* out, unsigned flags) {
  EXPECT_EQ(flags, static_cast<unsigned>(CU_EVENT_DEFAULT));
  const std::lock_guard hold(g_gate_world->lock);
  *out = reinterpret_cast<CUevent>(++g_events);
  return CUDA_SUCCESS;
}

CUresult event_record(CUevent event, CUstream) {
  const std::lock_guard hold(g_gate_world->lock);
  g_stands[event] = g_launched;
  return g_record_result;
}

CUresult event_query(CUevent event) {
  const std::lock_guard hold(g_gate_world->lock);
  ++g_queries;
  g_touched_gone = g_touched_gone || g_gone.contains(event);
  return g_passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult elapsed(float* ms, CUevent, CUevent after) {
  const std::lock_guard hold(g_gate_world->lock);
  *ms = g_takes_ms[g_stands[after]];
  return CUDA_SUCCESS;
}

CUresult original_launch(CUfunction, unsigned x, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, CUstream stream, void**, void**) {
  const std::lock_guard hold(g_gate_world->lock);
  g_launched = x;
  g_gate_world->log[stream].push_back(x == kHeavy ? "heavy" : "light");
  return CUDA_SUCCESS;
}

class Timing : public GateTest {
 protected:
  Timing() {
    numbers::clear();  // whoever had these streams had them in another context
    g_takes_ms = {{kLight, 50}, {kHeavy, 2000}};
    g_stands.clear();
    g_gone.clear();
    g_touched_gone = false;
    g_passed = true;
    g_queries = 0;
    g_record_result = CUDA_SUCCESS;
    g_events = 0;
    world_.context = reinterpret_cast<CUcontext>(0x4000);
    g_driver.cuEventCreate = event_create;
    g_driver.cuEventRecord = event_record;
    g_driver.cuEventQuery = event_query;
    g_driver.cuEventElapsedTime = elapsed;
    gate().spacing_us.store(1'000'000);  // much more than this test itself takes
    arm();
  }
  ~Timing() override {
    numbers::clear();
    timing::clear();
  }

  void launch_grid(unsigned grid) {
    rules::launch(original_launch, function_, grid, 1u, 1u, 1u, 1u, 1u, 0u, first_,
                  static_cast<void**>(nullptr), static_cast<void**>(nullptr));
  }
  // A step of the program: then the CPU waits.
  void step() {
    for (unsigned grid : {kLight, kLight, kHeavy, kHeavy, kLight}) launch_grid(grid);
    gpu_runs();
    synchronise();
  }
  // Whether the next step, after one that was timed, has each heavy launch in a batch of its own.
  bool heavy_alone() {
    step();
    gpu_.log[first_].clear();
    step();
    const Log& log = gpu_.log[first_];
    int alone = 0;
    for (std::size_t i = 1; i + 1 < log.size(); ++i) {
      if (log[i] == "heavy" && log[i - 1] == "wait" && log[i + 1].starts_with("write")) ++alone;
    }
    return alone == 2;
  }

  const CUfunction function_ = reinterpret_cast<CUfunction>(0x1000);
};

TEST_F(Timing, AHeavyLaunchIsABatchOfItsOwn) { EXPECT_TRUE(heavy_alone()); }

TEST_F(Timing, LightLaunchesShareABatch) {
  heavy_alone();
  const Log& log = gpu_.log[first_];
  EXPECT_EQ(Log(log.begin(), log.begin() + 3), (Log{"wait", "light", "light"}));
}

TEST_F(Timing, WithoutEventsBatchesGoByTheAverage) {
  g_driver.cuEventElapsedTime = nullptr;
  EXPECT_FALSE(heavy_alone());
  EXPECT_EQ(g_events, 0u);
}

TEST_F(Timing, WhatTheGpuHasNotPassedIsReadLater) {
  g_passed = false;
  EXPECT_FALSE(heavy_alone());
  g_passed = true;
  EXPECT_TRUE(heavy_alone());
}

TEST_F(Timing, ARecordThatFailsTimesNothing) {
  g_record_result = CUDA_ERROR_INVALID_HANDLE;
  EXPECT_FALSE(heavy_alone());
}

TEST_F(Timing, AnotherContextsLaunchesGoUntimed) {
  launch_grid(kLight);
  gpu_runs();
  synchronise();
  const std::uintptr_t made = g_events;
  EXPECT_EQ(made, 2u);
  world_.context = reinterpret_cast<CUcontext>(0x5000);
  rules::launch(original_launch, function_, 7u, 1u, 1u, 1u, 1u, 1u, 0u, second_,
                static_cast<void**>(nullptr), static_cast<void**>(nullptr));
  EXPECT_EQ(g_events, made);
}

TEST_F(Timing, AfterItsContextHasGoneThePoolServesTheNext) {
  launch_grid(kLight);
  gate::context_gone(0, memory::current_owner());
  const std::uintptr_t made = g_events;
  world_.context = reinterpret_cast<CUcontext>(0x5000);
  launch_grid(kHeavy);
  EXPECT_EQ(g_events, made + 2);
}

TEST_F(Timing, WhileItsContextEndsNoEventIsTouched) {
  launch_grid(kLight);
  {
    const gate::Waiting waiting(&lane(), gate::Waiting::kEnd);
    const gate::Ending ending(0, memory::current_owner());
  }
  launch_grid(kHeavy);
  EXPECT_EQ(g_queries, 0);
  EXPECT_EQ(g_events, 2u);
}

TEST_F(Timing, AWaitInAnotherThreadTouchesNoEventOfAContextThatEnds) {
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) synchronise();
  });
  for (unsigned round = 0; round < 300; ++round) {
    for (unsigned grid = 0; grid < 10; ++grid) launch_grid(10 * round + grid);
    {
      const gate::Waiting waiting(&lane(), gate::Waiting::kEnd);
      const gate::Ending ending(0, memory::current_owner());
      const std::lock_guard hold(gpu_.lock);  // here the context ends
      for (std::uintptr_t event = 1; event <= g_events; ++event) {
        g_gone.insert(reinterpret_cast<CUevent>(event));
      }
    }
    gate::context_gone(0, memory::current_owner());
  }
  over = true;
  other.join();
  EXPECT_FALSE(g_touched_gone);
  EXPECT_GE(g_events, 300u);
}

TEST_F(Timing, AContextThatLivesOnIsTimedAgain) {
  launch_grid(kLight);
  {
    const gate::Ending ending(0, memory::current_owner());
    ending.lives_on();
  }
  launch_grid(kHeavy);
  EXPECT_EQ(g_events, 4u);
}

TEST_F(Timing, AProgramThatNeverWaitsIsTimedToo) {
  for (unsigned grid = 0; grid < 200; ++grid) launch_grid(grid);
  EXPECT_GE(g_queries, 100);
  EXPECT_LE(g_events, 128u) << "they are used again";
}

TEST_F(Timing, HalfOfTheTimersAreKeptForWhatIsNotKnown) {
  constexpr unsigned kTimers = 64;
  g_passed = false;  // none comes back
  std::uint64_t key = 1;
  const auto is_timed = [&](std::uint32_t known_ns) {
    const costs::Cost cost{.ns = known_ns, .key = key += 2};
    const timing::Timed timed = timing::begin(0, cost, world_.context, first_);
    timing::end(timed);
    return timed.running.after != nullptr;
  };
  for (unsigned i = 1; i < kTimers / 2; ++i) ASSERT_TRUE(is_timed(0)) << i;
  EXPECT_TRUE(is_timed(500));
  EXPECT_FALSE(is_timed(500)) << "half of them are on their way";
  for (unsigned i = kTimers / 2; i < kTimers; ++i) ASSERT_TRUE(is_timed(0)) << i;
  EXPECT_FALSE(is_timed(0));
}

TEST_F(Timing, CheapLaunchesDoNotMakeABatchWithoutEnd) {
  g_takes_ms[kLight] = 0.001F;
  step();
  step();
  gpu_.log[first_].clear();
  for (int i = 0; i < 200; ++i) launch_grid(kLight);
  const Log& log = gpu_.log[first_];
  EXPECT_GE(std::count(log.begin(), log.end(), "wait"), 2);
}

TEST_F(Timing, WhatIsKnownGoesWithTheContext) {
  step();
  gate::context_gone(0, memory::current_owner());
  g_passed = false;  // nothing new is learnt
  EXPECT_FALSE(heavy_alone());
}

TEST_F(Timing, WithNumbersAloneNothingIsTimed) {
  arm(abi::kProgress);
  step();
  EXPECT_EQ(g_events, 0u);
}

TEST_F(Timing, ACapturedLaunchIsNotTimed) {
  world_.captured.insert(first_);
  process().captures.store(1);
  launch_grid(kLight);
  process().captures.store(0);
  EXPECT_EQ(g_events, 0u);
}

}  // namespace
}  // namespace switchyard::shim::testing
