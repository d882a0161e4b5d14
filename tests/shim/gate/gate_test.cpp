// What the gate puts into streams, and what it must not.
#include <thread>

#include "tests/shim/gate/gate_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using Gate = GateTest;

TEST_F(Gate, UnarmedNothingIsPutAnywhere) {
  launch(first_, 100);
  EXPECT_EQ(log(first_), Log(100, "launch"));
  EXPECT_EQ(gpu_.registrations, 0);
  EXPECT_EQ(lane().launches.load(), 100u);
}

TEST_F(Gate, ArmedAWaitStandsBeforeABatchAndItsNumberBehind) {
  arm();
  launch(first_, 4);
  EXPECT_EQ(gate().waits.load(), 1u);
  EXPECT_EQ(gate().submitted[0].load(), 1u);
  synchronise();
  EXPECT_EQ(log(first_), (Log{"wait", "launch", "launch", "launch", "launch", "write 1"}));
  EXPECT_EQ(gpu_.registrations, 1);
  EXPECT_EQ(gate().state.load(), abi::kGateReady);
  EXPECT_EQ(gate().done[0].load(), 0u);
  gpu_runs();
  EXPECT_EQ(gate().done[0].load(), 1u);
}

TEST_F(Gate, AFullBatchIsEndedByTheNextLaunchInOneCallWithItsWait) {
  arm();
  launch(first_, 4);
  EXPECT_EQ(log(first_), (Log{"wait", "launch", "launch", "launch", "launch"}));
  launch(first_, 1);
  EXPECT_EQ(log(first_),
            (Log{"wait", "launch", "launch", "launch", "launch", "write 1", "wait", "launch"}));
  EXPECT_EQ(gpu_.batches, 1);
  EXPECT_EQ(gate().waits.load(), 2u);
  EXPECT_EQ(gate().submitted[0].load(), 2u);
}

TEST_F(Gate, ADriverThatPutsNoTwoAtOnceIsAskedOnceAndGetsThemOneByOne) {
  gpu_.batch_result = CUDA_ERROR_NOT_SUPPORTED;
  arm();
  launch(first_, 4);
  launch(first_, 1);
  EXPECT_EQ(log(first_),
            (Log{"wait", "launch", "launch", "launch", "launch", "write 1", "wait", "launch"}));
  launch(first_, 8);
  EXPECT_EQ(gpu_.batches, 1);
  EXPECT_EQ(gate().waits.load(), 4u);
}

TEST_F(Gate, AGraphIsABatchOfItsOwn) {
  arm();
  launch(first_, 1);
  const auto original = [this](CUgraphExec, CUstream stream) {
    gpu_.log[stream].emplace_back("graph");
    return CUDA_SUCCESS;
  };
  rules::graph_launch(original, nullptr, first_);
  rules::graph_launch(original, nullptr, first_);
  EXPECT_EQ(log(first_), (Log{"wait", "launch", "write 1", "wait", "graph", "write 2", "wait",
                              "graph", "write 3"}));
}

TEST_F(Gate, CopiesWithAStreamAreWorkForItAndOthersAreWaits) {
  arm();
  const auto async = [this](int, CUstream stream) {
    gpu_.log[stream].emplace_back("copy");
    return CUDA_SUCCESS;
  };
  rules::copy(async, 1, first_);
  EXPECT_EQ(log(first_), (Log{"wait", "copy"}));
  rules::copy([](int) { return CUDA_SUCCESS; }, 1);
  EXPECT_EQ(log(first_), (Log{"wait", "copy", "write 1"}));
  EXPECT_EQ(lane().copies.load(), 2u);
}

TEST_F(Gate, DefaultStreamsAreMeantByWhatTheCallMeans) {
  arm();
  launch(nullptr);
  launch_per_thread(nullptr);
  synchronise();
  EXPECT_EQ(log(CU_STREAM_LEGACY), (Log{"wait", "write 1"}));
  EXPECT_EQ(log(CU_STREAM_PER_THREAD), (Log{"wait", "write 1"}));
  EXPECT_EQ(log(nullptr), (Log{"launch", "launch"}));
}

TEST_F(Gate, NothingIsPutIntoACapturedStream) {
  arm();
  launch(second_, 1);
  rules::begin_capture([](CUstream) { return CUDA_SUCCESS; }, first_);
  world_.captured.insert(first_);
  launch(first_, 10);
  EXPECT_EQ(log(first_), Log(10, "launch"));
  // The other stream joins the capture with its batch open.
  launch(second_, 1);
  world_.captured.insert(second_);
  synchronise();
  EXPECT_EQ(log(second_), (Log{"wait", "launch", "write 1", "wait", "launch"}));
}

TEST_F(Gate, ACaptureThatBeginsMeanwhileWaitsForAQuestionToAStream) {
  arm();
  launch(first_, 1);
  CaptureElsewhere elsewhere;
  gpu_.during_query = [&] {
    elsewhere.begin(second_);
    EXPECT_FALSE(elsewhere.in_the_driver());
  };
  synchronise();
  elsewhere.join();
  EXPECT_TRUE(elsewhere.in_the_driver());
}

TEST_F(Gate, TheLegacyStreamIsLeftAloneWhileTheDriverWouldRefuseIt) {
  arm();
  rules::begin_capture([](CUstream) { return CUDA_SUCCESS; }, first_);
  world_.legacy_untouchable = true;
  launch(nullptr);
  EXPECT_TRUE(log(CU_STREAM_LEGACY).empty());
}

TEST_F(Gate, AnotherThreadsCaptureOpensNothing) {
  arm();
  rules::begin_capture([](CUstream) { return CUDA_SUCCESS; }, first_);
  world_.captured.insert(first_);
  gate().closed.store(abi::kClosedByTurn);
  std::atomic<bool> through{false};
  std::thread other([&] {
    launch(second_);
    through = true;
  });
  while (gate().held_threads.load() == 0) std::this_thread::yield();
  launch(first_, 5);  // captured: runs nothing, passes
  EXPECT_FALSE(through);
  gate().closed.store(0);
  wake_held(gate().closed);
  other.join();
  EXPECT_EQ(log(second_).front(), "wait");
}

TEST_F(Gate, AWaitThatTheDriverDoesNotKnowRefusesTheGateAndWorkGoesOn) {
  gpu_.wait_result = CUDA_ERROR_NOT_SUPPORTED;
  arm();
  launch(first_, 3);
  EXPECT_EQ(log(first_), Log(3, "launch"));
  EXPECT_EQ(gate().state.load(), abi::kGateRefused);
  EXPECT_EQ(gate().gate_error.load(), static_cast<std::uint32_t>(CUDA_ERROR_NOT_SUPPORTED));
  EXPECT_FALSE(numbered());
}

TEST_F(Gate, TheMonitorIsRungOnceWhenItAskedAndWhenTheGateIsReady) {
  lane().attention.store(abi::kWakeMonitor);
  launch(first_, 3);
  EXPECT_EQ(world_.wakes, 1);
  arm();
  launch(first_, 3);
  EXPECT_EQ(world_.wakes, 2);
}

CUresult ends_with(CUresult result, CUstream stream) {
  return rules::synchronise<gate::Waiting::kStream>([=](CUstream) { return result; }, stream);
}
CUresult launch_ends_with(CUresult result, CUstream stream) {
  const auto original = [=](auto...) { return result; };
  return rules::launch(original, nullptr, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, nullptr, nullptr);
}

TEST_F(Gate, AMemberTellsTheFirstErrorThatEndsItsContext) {
  arm(abi::kTellFaults);
  EXPECT_EQ(ends_with(CUDA_ERROR_INVALID_VALUE, first_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ends_with(CUDA_ERROR_DEINITIALIZED, first_), CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(lane().fault.load(), 0u);
  EXPECT_EQ(ends_with(CUDA_ERROR_ILLEGAL_ADDRESS, first_), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(lane().fault.load(), 700u);
  EXPECT_EQ(world_.wakes, 1);
  EXPECT_EQ(ends_with(CUDA_ERROR_LAUNCH_FAILED, first_), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(lane().fault.load(), 700u) << "the first one";
  EXPECT_EQ(world_.wakes, 1);
}

TEST_F(Gate, ALaunchOfAMemberTellsTheEndOfItsServerAndPutsNothing) {
  arm(abi::kTellFaults);
  launch(first_, 2);
  EXPECT_EQ(log(first_), Log(2, "launch"));
  EXPECT_EQ(launch_ends_with(CUDA_ERROR_MPS_RPC_FAILURE, first_), CUDA_ERROR_MPS_RPC_FAILURE);
  EXPECT_EQ(lane().fault.load(), 806u);
}

TEST_F(Gate, WhoIsInNoIslandTellsNoFaults) {
  EXPECT_EQ(ends_with(CUDA_ERROR_ILLEGAL_ADDRESS, first_), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(launch_ends_with(CUDA_ERROR_ILLEGAL_ADDRESS, first_), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(lane().fault.load(), 0u);
}

}  // namespace
}  // namespace switchyard::shim
