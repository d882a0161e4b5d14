// Batches and their numbers: the monitor sees work from the first launch to the last, and no
// longer.
#include <thread>
#include <utility>

#include "shim/clock.h"
#include "shim/gate/slots.h"
#include "tests/shim/gate/gate_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using Numbers = GateTest;

TEST_F(Numbers, FromTheFirstLaunchOnTheMonitorSeesWork) {
  arm();
  gpu_.during_launch = [this](CUstream) { EXPECT_TRUE(numbered()); };
  launch(first_, 1);
  EXPECT_TRUE(numbered());
}

TEST_F(Numbers, ASlotWithALaunchUnderWayIsNotTakenOver) {
  auto& slots = numbers::g_slots[0];
  std::uint64_t key = 1000;
  for (numbers::Slot& slot : slots) {
    slot.key.store(++key);
    slot.in_flight.store(1);
  }
  const auto taken = [] {
    numbers::Slot* slot = numbers::take({.lane = 0, .stream = stream_number(77)}, 77);
    if (slot != nullptr) ::pthread_mutex_unlock(&slot->lock);
    return slot;
  };
  EXPECT_EQ(taken(), nullptr);
  slots[3].in_flight.store(0);
  EXPECT_EQ(taken(), &slots[3]);
  numbers::clear();
}

TEST_F(Numbers, WithProgressAloneNumbersStandWithoutWaits) {
  arm(abi::kProgress);
  launch(first_, 4);
  EXPECT_EQ(log(first_), (Log{"launch", "launch", "launch", "launch", "write 1"}));
}

TEST_F(Numbers, BeforeTheCpuWaitsAnOpenBatchGetsItsNumber) {
  arm();
  launch(first_, 1);
  launch(second_, 2);
  synchronise();
  EXPECT_EQ(log(first_), (Log{"wait", "launch", "write 1"}));
  EXPECT_EQ(log(second_), (Log{"wait", "launch", "launch", "write 1"}));
  synchronise();
  EXPECT_EQ(log(first_).size(), 3u);  // once
}

TEST_F(Numbers, WhereTheGpuIsDoneBeforeTheCpuWaitsTheCpuWritesTheNumberItself) {
  arm();
  launch(first_, 1);
  gpu_.query_result = CUDA_SUCCESS;
  synchronise();
  EXPECT_EQ(log(first_), (Log{"wait", "launch"}));
  EXPECT_FALSE(numbered());
  launch(first_, 1);
  EXPECT_EQ(log(first_), (Log{"wait", "launch", "wait", "launch"}));
  EXPECT_TRUE(numbered());
}

TEST_F(Numbers, ANumberOnItsWayIsNotOvertakenByTheCpus) {
  arm();
  launch(first_, 1);
  synchronise();  // number 1 is in the stream and has not landed
  launch(first_, 1);
  gpu_.query_result = CUDA_SUCCESS;
  synchronise();
  EXPECT_EQ(log(first_).back(), "write 2");
  gpu_runs();
  EXPECT_FALSE(numbered());
}

TEST_F(Numbers, AStreamThatFailedGetsItsNumberFromTheGpu) {
  arm();
  launch(first_, 1);
  gpu_.query_result = CUDA_ERROR_ILLEGAL_ADDRESS;
  synchronise();
  EXPECT_EQ(log(first_).back(), "write 1");
}

TEST_F(Numbers, ABatchThatNobodyEndsCountsAsDoneAfterASecond) {
  arm();
  launch(first_, 1);
  numbers::give_up_stale(monotonic_ns());
  EXPECT_TRUE(numbered());
  numbers::give_up_stale(monotonic_ns() + 2'000'000'000);
  EXPECT_FALSE(numbered());
  launch(first_, 4);
  EXPECT_TRUE(numbered());
  synchronise();
  gpu_runs();
  EXPECT_FALSE(numbered());
}

TEST_F(Numbers, ABatchThatBeganAfterTheLookIsNotGivenUp) {
  arm();
  const std::uint64_t look = monotonic_ns();
  launch(first_, 1);
  numbers::give_up_stale(look);
  EXPECT_TRUE(numbered());
}

TEST_F(Numbers, GoOnBeyondHalfOfTheWord) {
  arm();
  launch(first_, 1);
  synchronise();
  gpu_runs();
  constexpr std::uint32_t kNearHalf = 0x7ffffffe;
  numbers::Slot& slot = numbers::g_slots[0][0];
  slot.number = kNearHalf;
  gate().submitted[0].store(kNearHalf);
  gate().done[0].store(kNearHalf);
  slot.pace.restart(kNearHalf, monotonic_ns());
  for (std::uint32_t i = 1; i <= 6; ++i) {
    launch(first_, 1);
    synchronise();
    gpu_runs();
    EXPECT_EQ(gate().submitted[0].load(), kNearHalf + i);
    EXPECT_EQ(gate().done[0].load(), kNearHalf + i);
  }
}

TEST_F(Numbers, AQuestionAndAHostFunctionEndABatchToo) {
  arm();
  launch(first_, 1);
  rules::ask([](CUstream) { return CUDA_ERROR_NOT_READY; }, first_);
  EXPECT_EQ(log(first_).back(), "write 1");
  launch(first_, 1);
  rules::call_back([](CUstream, int) { return CUDA_SUCCESS; }, first_, 0);
  EXPECT_EQ(log(first_).back(), "write 2");
}

TEST_F(Numbers, APerThreadStreamIsOnlyWrittenToByItsThread) {
  arm();
  launch_per_thread(nullptr);
  std::thread([this] {
    synchronise();
    EXPECT_EQ(log(CU_STREAM_PER_THREAD), (Log{"wait"}));
    launch_per_thread(nullptr);
    synchronise();
    EXPECT_EQ(log(CU_STREAM_PER_THREAD), (Log{"wait", "wait", "write 1"}));
  }).join();
  synchronise();
  EXPECT_EQ(log(CU_STREAM_PER_THREAD), (Log{"wait", "wait", "write 1", "write 1"}));
}

TEST_F(Numbers, ADestroyedStreamIsNeverWrittenToAgain) {
  arm();
  launch(first_, 1);
  rules::stream_destroy([](CUstream) { return CUDA_SUCCESS; }, first_);
  EXPECT_EQ(log(first_), (Log{"wait", "launch", "write 1"}));
  synchronise();
  EXPECT_EQ(log(first_).size(), 3u);
  // The next stream may have its address: its numbers go on.
  launch(first_, 1);
  synchronise();
  EXPECT_EQ(log(first_).back().substr(0, 5), "write");
}

TEST_F(Numbers, ADestroyedStreamsWorkIsSeenUntilItsOwnNumberHasCome) {
  arm(abi::kProgress);
  launch(first_, 4);
  rules::stream_destroy([](CUstream) { return CUDA_SUCCESS; }, first_);
  const auto still_runs = std::exchange(gpu_.writes, {});
  launch(second_, 4);
  gpu_runs();
  EXPECT_TRUE(numbered());
  gpu_.writes = still_runs;
  gpu_runs();
  EXPECT_FALSE(numbered());
}

TEST_F(Numbers, MoreBusyStreamsThanSlotsAreGatedWithoutNumbers) {
  arm();
  for (unsigned i = 1; i <= abi::kProgressSlots; ++i) launch(stream_number(i), 4);
  const CUstream extra = stream_number(99);
  launch(extra, 2);
  EXPECT_EQ(log(extra), (Log{"wait", "launch", "wait", "launch"}));
  synchronise();
  gpu_runs();
  launch(extra, 4);  // a drained slot goes on with its numbers
  synchronise();
  EXPECT_EQ(log(extra).back(), "write 2");
}

TEST_F(Numbers, AContextsEndEndsItsNumbers) {
  arm();
  launch(first_, 1);
  EXPECT_TRUE(numbered());
  gate::context_gone(0, 0);
  EXPECT_FALSE(numbered());
  EXPECT_EQ(gate().state.load(), abi::kGateUnready);
  launch(first_, 1);
  EXPECT_EQ(gpu_.registrations, 2);
  EXPECT_EQ(gate().state.load(), abi::kGateReady);
}

TEST_F(Numbers, AThreadOfAnotherContextLeavesABatchAlone) {
  arm();
  launch(first_, 1);
  world_.context = reinterpret_cast<CUcontext>(0x2000);
  synchronise();
  EXPECT_EQ(log(first_), (Log{"wait", "launch"}));
}

TEST_F(Numbers, ABatchIsNotEndedUnderAnotherThreadsLaunch) {
  arm();
  std::atomic<bool> inside{false}, go{false};
  gpu_.during_launch = [&](CUstream) {
    inside = true;
    while (!go) std::this_thread::yield();
  };
  std::thread launcher([&] { launch(first_); });
  while (!inside) std::this_thread::yield();
  synchronise();
  EXPECT_EQ(log(first_), (Log{"wait"}));
  go = true;
  launcher.join();
  synchronise();
  EXPECT_EQ(log(first_), (Log{"wait", "launch", "write 1"}));
}

TEST_F(Numbers, ManyThreadsOnOneStreamKeepItsNumbersInOrder) {
  arm();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this] {
      for (int n = 0; n < 500; ++n) {
        launch(first_);
        if (n % 10 == 0) synchronise();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  gpu_runs();
  synchronise();
  unsigned last = 0, launches = 0;
  for (const std::string& word : log(first_)) {
    if (word == "launch") ++launches;
    if (word.rfind("write ", 0) != 0) continue;
    const unsigned number = static_cast<unsigned>(std::stoul(word.substr(6)));
    EXPECT_EQ(number, last + 1);
    last = number;
  }
  EXPECT_EQ(launches, 4000u);
  EXPECT_EQ(gate().submitted[0].load(), last);
  EXPECT_TRUE(log(first_).back().rfind("write", 0) == 0);
}

TEST_F(Numbers, ANumberThatCannotBeWrittenIsNoWorkForEver) {
  gpu_.write_result = CUDA_ERROR_LAUNCH_FAILED;
  arm();
  launch(first_, 4);
  synchronise();
  EXPECT_FALSE(numbered());
}

// Streams whose queue may be full belong to who names them.
class FullStream : public GateTest {
 protected:
  // As much as the GPU hasn't begun, and a batch that is open.
  void fill(CUstream stream) {
    for (int i = 0; i < 300; ++i) {
      launch(stream, 1);
      rules::call_back([](CUstream, int) { return CUDA_SUCCESS; }, stream, 0);
    }
    launch(stream, 1);
    EXPECT_EQ(log(stream).back(), "launch");
  }
};

TEST_F(FullStream, IsNotWrittenToByWhoWaitsForSomethingElse) {
  arm();
  fill(second_);
  launch(first_, 1);
  rules::synchronise<gate::Waiting::kStream>(
      [this](CUstream) {
        EXPECT_EQ(log(first_).back(), "write 1");
        EXPECT_EQ(log(second_).back(), "launch");
        return CUDA_SUCCESS;
      },
      first_);
  rules::ask([](CUstream) { return CUDA_ERROR_NOT_READY; }, first_);
  EXPECT_EQ(log(second_).back(), "launch");
}

TEST_F(FullStream, GetsItsNumberOnceTheCpuHasWaitedForIt) {
  arm();
  fill(second_);
  rules::synchronise<gate::Waiting::kStream>(
      [this](CUstream) {
        EXPECT_EQ(log(second_).back(), "launch");
        gpu_runs();
        return CUDA_SUCCESS;
      },
      second_);
  EXPECT_EQ(log(second_).back(), "write 301");
}

TEST_F(FullStream, IsWrittenToByWhoPutsSomethingBehindIt) {
  arm();
  fill(second_);
  rules::call_back([](CUstream, int) { return CUDA_SUCCESS; }, first_, 0);
  EXPECT_EQ(log(second_).back(), "launch");
  rules::call_back([](CUstream, int) { return CUDA_SUCCESS; }, second_, 0);
  EXPECT_EQ(log(second_).back(), "write 301");
}

TEST_F(FullStream, IsNotWrittenToAtItsContextsEnd) {
  arm();
  fill(second_);
  {
    const gate::Waiting waiting(&lane(), gate::Waiting::kEnd);
    gpu_runs();
  }
  EXPECT_EQ(log(second_).back(), "launch");
}

// Whatever ends without its number: the numbers before it still land, one after the other.
class AbandonedNumbers : public GateTest {
 protected:
  void put_one_and_begin_another() {
    arm();
    launch(first_, 4);
    launch(first_, 1);
    EXPECT_EQ(gate().submitted[0].load(), 2u);
  }
  void expect_the_first_alone_is_awaited() {
    EXPECT_TRUE(numbered());
    gpu_runs();
    EXPECT_FALSE(numbered());
    EXPECT_EQ(gate().done[0].load(), 1u);
  }
};

TEST_F(AbandonedNumbers, WhenNobodyEndsABatch) {
  put_one_and_begin_another();
  numbers::give_up_stale(monotonic_ns() + 2'000'000'000);
  expect_the_first_alone_is_awaited();
}

TEST_F(AbandonedNumbers, WhenTheStreamIsDestroyedWhereNothingCanBePut) {
  put_one_and_begin_another();
  process().captures.store(1);
  world_.captured.insert(first_);
  gate::forget(first_);
  process().captures.store(0);
  expect_the_first_alone_is_awaited();
}

TEST_F(AbandonedNumbers, WhenAWriteFails) {
  put_one_and_begin_another();
  gpu_.write_result = CUDA_ERROR_OUT_OF_MEMORY;
  synchronise();
  expect_the_first_alone_is_awaited();
  gpu_.write_result = CUDA_SUCCESS;
  launch(first_, 1);
  synchronise();
  EXPECT_EQ(log(first_).back(), "write 2");
}

TEST_F(AbandonedNumbers, WhenAWaitIsRefused) {
  arm();
  launch(first_, 4);
  gpu_.wait_result = CUDA_ERROR_NOT_SUPPORTED;
  launch(first_, 1);
  expect_the_first_alone_is_awaited();
}

TEST_F(AbandonedNumbers, InADeadContextTheEarlierOnesDoNotComeEither) {
  put_one_and_begin_another();
  gpu_.write_result = CUDA_ERROR_ILLEGAL_ADDRESS;
  synchronise();
  EXPECT_FALSE(numbered());
}

}  // namespace
}  // namespace switchyard::shim
