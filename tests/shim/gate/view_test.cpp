// The GPU's view of the page: registration, and what stands before an old one.
#include "shim/gate/view.h"

#include <thread>

#include "shim/clock.h"
#include "shim/memory/owner.h"
#include "shim/rules/context.h"
#include "tests/shim/gate/gate_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using Views = GateTest;

TEST_F(Views, IsRegisteredOnceAndShowsTheSameWords) {
  const view::View* view = view::usable(0);
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view::usable(0), view);
  EXPECT_EQ(gpu_.registrations, 1);
  gate().closed.store(7);
  EXPECT_EQ(view->gates[0].closed.load(), 7u);
  EXPECT_NE(view->gates, page().gates);
}

TEST_F(Views, ARefusalIsSaidAndNotTriedAgain) {
  gpu_.register_result = CUDA_ERROR_NOT_PERMITTED;
  EXPECT_EQ(view::usable(0), nullptr);
  EXPECT_EQ(view::usable(0), nullptr);
  EXPECT_EQ(gpu_.registrations, 1);
  EXPECT_EQ(gate().state.load(), abi::kGateRefused);
  EXPECT_EQ(gate().gate_error.load(), static_cast<std::uint32_t>(CUDA_ERROR_NOT_PERMITTED));
}

TEST_F(Views, AThreadWithoutAContextIsNoRefusal) {
  gpu_.register_result = CUDA_ERROR_INVALID_CONTEXT;
  EXPECT_EQ(view::usable(0), nullptr);
  EXPECT_EQ(gate().state.load(), abi::kGateUnready);
  gpu_.register_result = CUDA_SUCCESS;
  EXPECT_NE(view::usable(0), nullptr);
}

constexpr std::uint64_t kLongAgo = 1, kNeverAgain = UINT64_MAX;

TEST_F(Views, AnErrorThatMayPassIsTriedAgainButNotAtEveryLaunch) {
  gpu_.register_result = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(view::usable(0), nullptr);
  EXPECT_EQ(gate().state.load(), abi::kGateUnready);
  gpu_.register_result = CUDA_SUCCESS;
  view::current()->again_ns[0].store(kNeverAgain);
  EXPECT_EQ(view::usable(0), nullptr);
  EXPECT_EQ(gpu_.registrations, 1);
  view::current()->again_ns[0].store(kLongAgo);
  EXPECT_NE(view::usable(0), nullptr);
  EXPECT_EQ(gate().state.load(), abi::kGateReady);
}

TEST_F(Views, AnErrorThatDoesNotPassIsARefusalInTheEnd) {
  gpu_.register_result = CUDA_ERROR_OUT_OF_MEMORY;
  std::uint64_t last = 0;
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(view::usable(0), nullptr);
    EXPECT_EQ(gate().state.load(), abi::kGateUnready);
    const std::uint64_t again = view::current()->again_ns[0].exchange(kLongAgo);
    EXPECT_GT(again, last);
    last = again;
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(view::usable(0), nullptr);
  EXPECT_EQ(gpu_.registrations, 10);
  EXPECT_EQ(gate().gate_error.load(), static_cast<std::uint32_t>(CUDA_ERROR_OUT_OF_MEMORY));
}

TEST_F(Views, ARefusalEndsWithAContextOfThatGpu) {
  gpu_.register_result = CUDA_ERROR_NOT_PERMITTED;
  EXPECT_EQ(view::usable(0), nullptr);
  gpu_.register_result = CUDA_SUCCESS;
  gate::context_gone(1, 0);  // another GPU's
  EXPECT_EQ(view::usable(0), nullptr);
  gate::context_gone(0, 0);
  EXPECT_EQ(gate().state.load(), abi::kGateUnready);
  EXPECT_NE(view::usable(0), nullptr);
  EXPECT_EQ(gate().state.load(), abi::kGateReady);
}

TEST_F(Views, BeforeItsContextEndsNothingNewStandsBeforeItAndOthersFinish) {
  arm();
  launch(first_, 4);  // the primary context registers it
  world_.context = reinterpret_cast<CUcontext>(0x2000);
  memory::context_created(0, world_.context);
  launch(second_, 5);
  EXPECT_EQ(log(second_).back(), "launch");
  std::thread ends([] {
    const gate::Ending ending(0, 0);
    EXPECT_EQ(view::usable(0), nullptr);
  });
  while (view::current()->device[0].load() != 0) std::this_thread::yield();
  launch(second_, 1);
  synchronise();  // its batch gets no number any more
  EXPECT_EQ(log(second_), (Log{"wait", "launch", "launch", "launch", "launch", "write 1", "wait",
                               "launch", "launch"}));
  gpu_runs();
  ends.join();
  synchronise();  // the other thread may have looked at the slot just then
  EXPECT_EQ(gate().submitted[1].load(), 1u);
  gate::context_gone(0, 0);
  launch(second_, 1);
  synchronise();
  EXPECT_EQ(gpu_.registrations, 2);
  EXPECT_EQ(log(second_).back(), "write 2");
  memory::context_gone(world_.context, swap::made_context(world_.context));
}

// Else the GPUs that saw it would be told an address that leads nowhere any more.
TEST_F(Views, ItsContextDoesNotEndWhileAnotherGpuIsShownTheView) {
  EXPECT_NE(view::usable(0), nullptr);
  gpu_.register_result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  std::atomic<bool> at_it = false, asked = false;
  gpu_.during_registration = [&] {
    at_it = true;
    while (!asked) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  std::thread shows([] { view::usable(1); });
  while (!at_it) std::this_thread::yield();
  asked = true;
  {
    const gate::Ending ending(0, 0);
    EXPECT_EQ(view::current()->device[0].load(), 0u);
    EXPECT_EQ(view::current()->device[1].load(), 0u);
    EXPECT_EQ(view::usable(1), nullptr) << "nor is it shown meanwhile";
  }
  shows.join();
  gpu_.during_registration = nullptr;
  gpu_.register_result = CUDA_SUCCESS;
  EXPECT_NE(view::usable(1), nullptr);
}

TEST_F(Views, AnotherContextThatEndsMeanwhileLeavesItWithdrawn) {
  EXPECT_NE(view::usable(0), nullptr);
  {
    const gate::Ending ending(0, 0);
    { const gate::Ending other(0, 0x77); }
    gate::context_gone(0, 0x77);
    EXPECT_EQ(view::usable(0), nullptr);
  }
  EXPECT_NE(view::usable(0), nullptr);
}

TEST_F(Views, AContextThatStaysKeepsTheView) {
  EXPECT_NE(view::usable(0), nullptr);
  { const gate::Ending ending(0, 0); }
  gpu_.register_result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  EXPECT_NE(view::usable(0), nullptr);
  EXPECT_EQ(gate().state.load(), abi::kGateReady);
  { const gate::Ending ending(0, 0x77); }  // another's
  EXPECT_EQ(gate().state.load(), abi::kGateReady);
}

TEST_F(Views, WhenItsContextEndsAGpuThatGoesOnRegistersItAnew) {
  EXPECT_NE(view::usable(0), nullptr);
  gpu_.register_result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  EXPECT_NE(view::usable(1), nullptr);
  gpu_.register_result = CUDA_SUCCESS;
  gate::context_gone(0, 0);
  EXPECT_EQ(page().gates[1].state.load(), abi::kGateUnready);
  EXPECT_NE(view::usable(1), nullptr);
  EXPECT_EQ(gpu_.registrations, 3);
  EXPECT_EQ(page().gates[1].state.load(), abi::kGateReady);
}

TEST_F(Views, AWaitThatWasRefusedIsTriedAgainWhenAnotherContextEnds) {
  arm();
  gpu_.wait_result = CUDA_ERROR_NOT_SUPPORTED;
  launch(first_, 1);
  EXPECT_EQ(gate().state.load(), abi::kGateRefused);
  gpu_.wait_result = CUDA_SUCCESS;
  gate::context_gone(0, 0x77);
  EXPECT_EQ(gate().state.load(), abi::kGateReady);
  launch(first_, 1);
  EXPECT_EQ(log(first_), (Log{"launch", "wait", "launch"}));
  EXPECT_EQ(gpu_.registrations, 1);
}

TEST_F(Views, ARefusalEndsWithThePrimaryContextThatHadTheView) {
  arm();
  gpu_.wait_result = CUDA_ERROR_NOT_SUPPORTED;
  launch(first_, 1);
  EXPECT_EQ(gate().state.load(), abi::kGateRefused);
  static int lives;
  lives = 1;
  g_driver.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*, int* active) {
    *active = lives;
    return CUDA_SUCCESS;
  };
  const auto reset = [](CUdevice) {
    lives = 0;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(rules::primary_end(reset, CUdevice{0}), CUDA_SUCCESS);
  gpu_.wait_result = CUDA_SUCCESS;
  launch(first_, 1);
  EXPECT_EQ(gate().state.load(), abi::kGateReady);
}

TEST_F(Views, NumbersThatNeverComeAreNotWaitedForForEver) {
  constexpr std::uint64_t kMinute = 60'000'000'000;
  arm();
  launch(first_, 4);
  new_page();
  gate().closed.store(abi::kClosedByPause);
  EXPECT_TRUE(view::follow(1 * kMinute));
  EXPECT_TRUE(view::follow(100 * kMinute)) << "a pause may last";
  gate().closed.store(0);
  EXPECT_TRUE(view::follow(100 * kMinute + kMinute / 2));
  EXPECT_FALSE(view::follow(102 * kMinute));
}

TEST_F(Views, ADriverWithoutTheCallsIsARefusal) {
  g_driver.cuStreamWaitValue32_v2 = nullptr;
  EXPECT_EQ(view::usable(0), nullptr);
  EXPECT_EQ(gate().gate_error.load(), static_cast<std::uint32_t>(CUDA_ERROR_NOT_SUPPORTED));
}

TEST_F(Views, WorkBeforeAnOldViewFollowsTheNewPage) {
  arm();
  launch(first_, 4);
  synchronise();
  view::View* old = view::usable(0);
  gate().closed.store(abi::kClosedByPause);
  new_page();
  EXPECT_NE(view::usable(0), old);
  gate().closed.store(abi::kClosedByPause);
  EXPECT_TRUE(view::follow(monotonic_ns()));
  EXPECT_EQ(old->gates[0].closed.load(), abi::kClosedByPause);
  gate().closed.store(0);
  EXPECT_TRUE(view::follow(monotonic_ns()));
  EXPECT_EQ(old->gates[0].closed.load(), 0u);
  gpu_runs();
  EXPECT_FALSE(view::follow(monotonic_ns()));
  // Nothing stands before it any more, so it doesn't close either.
  gate().closed.store(abi::kClosedByTurn);
  EXPECT_FALSE(view::follow(monotonic_ns()));
  EXPECT_EQ(old->gates[0].closed.load(), 0u);
}

TEST_F(Views, ABatchEndsInTheViewThatItBeganIn) {
  arm();
  launch(first_, 1);
  view::View* old = view::usable(0);
  new_page();
  arm();
  launch(first_, 3);
  synchronise();
  EXPECT_EQ(log(first_), (Log{"wait", "launch", "launch", "launch", "launch", "write 1"}));
  gpu_runs();
  EXPECT_EQ(old->gates[0].done[0].load(), 1u);
  EXPECT_EQ(gate().submitted[0].load(), 0u);
  launch(first_, 1);
  EXPECT_EQ(gate().submitted[0].load(), 1u);
  EXPECT_EQ(old->gates[0].submitted[0].load(), 1u);
}

TEST_F(Views, APauseIsCarriedIntoAFreshPage) {
  gate().pause_until_ns.store(77);
  gate().closed.store(abi::kClosedByPause | abi::kClosedByTurn);
  static abi::Page fresh{};
  carry_pause(page(), fresh);
  EXPECT_EQ(fresh.gates[0].closed.load(), abi::kClosedByPause);
  EXPECT_EQ(fresh.gates[0].pause_until_ns.load(), 77u);
  EXPECT_EQ(fresh.lanes[0].attention.load(), abi::kGateArmed);
  EXPECT_EQ(fresh.gates[1].closed.load(), 0u);
  EXPECT_EQ(fresh.gates[1].paused.load(), 0u);
}

TEST_F(Views, WhetherAPauseStandsIsTheFreshPagesMonitorsToSay) {
  gate().closed.store(abi::kClosedByPause);
  gate().paused.store(1);
  static abi::Page fresh{};
  carry_pause(page(), fresh);
  EXPECT_EQ(fresh.gates[0].closed.load(), abi::kClosedByPause);
  EXPECT_EQ(fresh.gates[0].paused.load(), 0u) << "an older one would never clear it";
}

}  // namespace
}  // namespace switchyard::shim
