// Collectives and the waits of the busiest stream are timed, on a made-up GPU whose streams have a
// clock each.
#include "shim/gate/spans.h"

#include <thread>

#include "shim/rules/launch.h"
#include "tests/shim/nccl/nccl_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using abi::TimingMark;

// Milliseconds all.
struct SpanGpu {
  double now = 0;  // of the CPU
  std::map<CUstream, double> streams;
  std::map<CUevent, double> events;
  std::uintptr_t made = 0;
  CUresult elapsed = CUDA_SUCCESS;
  CUresult record = CUDA_SUCCESS;
  std::vector<CUstream> recorded;  // into which streams

  void run(CUstream stream, double takes) {
    double& at = streams[stream];
    at = std::max(at, now) + takes;
  }
};
SpanGpu* g_span_gpu = nullptr;

CUresult span_create(CUevent* out, unsigned) {
  *out = reinterpret_cast<CUevent>(++g_span_gpu->made);
  return CUDA_SUCCESS;
}
CUresult span_record(CUevent event, CUstream stream) {
  g_span_gpu->run(stream, 0);
  g_span_gpu->events[event] = g_span_gpu->streams[stream];
  g_span_gpu->recorded.push_back(stream);
  return g_span_gpu->record;
}
// Not passed in the same moment, so a call that takes long on a slow machine is no matter.
CUresult span_query(CUevent event) {
  return g_span_gpu->events[event] < g_span_gpu->now ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult span_elapsed(float* ms, CUevent from, CUevent to) {
  *ms = static_cast<float>(g_span_gpu->events[to] - g_span_gpu->events[from]);
  return g_span_gpu->elapsed;
}

class Spans : public NcclTest {
 protected:
  struct Told {
    std::uint32_t what = 0;
    double began = 0, took = 0;
  };

  Spans() {
    g_span_gpu = &gpu_;
    use_current_context();
    use_streams();
    g_driver.cuEventCreate = span_create;
    g_driver.cuEventRecord = span_record;
    g_driver.cuEventQuery = span_query;
    g_driver.cuEventElapsedTime = span_elapsed;
    spans::clear();
    lane().attention.store(abi::kTimeCollectives);
    page().process.timed.store(0);
    page().process.timing_until.store(100);
    page().head.lane_count.store(1);
    make(first_, 2);
  }
  ~Spans() override {
    lane().attention.store(0);
    spans::clear();
    g_span_gpu = nullptr;
  }

  void kernel(CUstream stream, double takes) {
    rules::launch(
        [&](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
            CUstream) {
          gpu_.run(stream, takes);
          return CUDA_SUCCESS;
        },
        reinterpret_cast<CUfunction>(0x10), 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream);
  }
  NcclCall taking(CUstream stream, double takes, ncclResult_t result = kNcclSuccess) {
    NcclCall call;
    call.call = [=, this] {
      gpu_.run(stream, takes);
      return result;
    };
    return call;
  }
  // Of 3 ms of the CPU.
  NcclCall slow_call() {
    NcclCall call;
    call.call = [this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      gpu_.now += 3;
      gpu_.run(comm_, 1);
      return kNcclSuccess;
    };
    return call;
  }
  ncclResult_t collective(CUstream stream, double takes, ncclResult_t result = kNcclSuccess) {
    return reduce(first_, taking(stream, takes, result), stream);
  }
  static ncclResult_t state_is(ncclComm_t comm, ncclResult_t state) {
    ncclResult_t out = kNcclInternalError;
    const auto original = [state](ncclComm_t, ncclResult_t* to) {
      *to = state;
      return kNcclSuccess;
    };
    return nccl::rules::async_error(original, comm, &out);
  }
  void wait(CUstream stream, double until) {
    rules::stream_wait(
        [&](CUstream, CUevent, unsigned) {
          double& at = gpu_.streams[stream];
          at = std::max(at, until);
          return CUDA_SUCCESS;
        },
        stream, CUevent{}, 0u);
  }
  // The GPU has done it all, and what was timed is read with the next collective, which is left
  // out.
  std::vector<Told> told() {
    gpu_.now += 1000;
    collective(comm_, 0);
    std::vector<Told> out;
    EXPECT_LE(page().process.timed.load(), abi::kTimings);
    for (std::uint32_t i = 0; i < page().process.timed.load() && i < abi::kTimings; ++i) {
      const abi::Record& at = page().timings[i];
      out.push_back({at.what.load(), at.time_us.load() / 1e3, at.bytes.load() / 1e6});
    }
    return out;
  }
  static std::uint32_t number(std::uint64_t launched, ncclComm_t comm,
                              Collective kind = Collective::kAllReduce) {
    return abi::collective_record(static_cast<unsigned>(nccl::communicators::find(comm)),
                                  static_cast<std::uint32_t>(kind), launched);
  }
  static constexpr std::uint32_t mark(TimingMark which) { return abi::timing_mark(0, which); }
  static std::vector<std::uint32_t> whats(const std::vector<Told>& all) {
    std::vector<std::uint32_t> out;
    for (const Told& each : all) out.push_back(each.what);
    return out;
  }

  SpanGpu gpu_;
  const CUstream compute_ = reinterpret_cast<CUstream>(0x10000);
  const CUstream comm_ = reinterpret_cast<CUstream>(0x20000);
};

TEST_F(Spans, NothingIsPutIntoStreamsUnasked) {
  lane().attention.store(0);
  kernel(compute_, 1);
  collective(comm_, 1);
  wait(compute_, 5);
  EXPECT_EQ(gpu_.made, 0u);
  EXPECT_EQ(page().process.timed.load(), 0u);
}

TEST_F(Spans, ACollectiveIsTimedFromWhenItsStreamHasComeThere) {
  kernel(compute_, 1);
  gpu_.run(comm_, 3);
  collective(comm_, 2);
  const auto all = told();
  ASSERT_EQ(whats(all), (std::vector{mark(TimingMark::kUntimed), number(1, first_)}));
  EXPECT_NEAR(all[1].took, 2, 1e-3);
}

TEST_F(Spans, BeginningsAreOnOneClock) {
  kernel(compute_, 10);
  collective(comm_, 2);  // 0 to 2
  gpu_.run(comm_, 3);    // to 5
  collective(comm_, 6);  // 5 to 11
  wait(compute_, 11);    // 10 to 11
  const auto all = told();
  ASSERT_EQ(whats(all), (std::vector{mark(TimingMark::kUntimed), number(1, first_),
                                     number(2, first_), mark(TimingMark::kStalled)}));
  EXPECT_NEAR(all[2].began - all[1].began, 5, 1e-2);
  EXPECT_NEAR(all[2].took, 6, 1e-3);
  EXPECT_NEAR(all[3].began - all[1].began, 10, 1e-2);
  EXPECT_NEAR(all[3].took, 1, 1e-3);
}

TEST_F(Spans, WaitsOfOtherStreamsAreNotTimed) {
  for (int i = 0; i < 3; ++i) kernel(compute_, 1);
  kernel(comm_, 1);
  wait(comm_, 20);
  wait(nullptr, 20);
  EXPECT_EQ(gpu_.made, 0u);
}

TEST_F(Spans, TheBusiestStreamIsTheOneWithMostLaunches) {
  for (int i = 0; i < 5; ++i) kernel(comm_, 1);
  for (int i = 0; i < 11; ++i) kernel(compute_, 1);
  EXPECT_TRUE(spans::is_busiest(0, compute_, false));
  EXPECT_FALSE(spans::is_busiest(0, comm_, false));
}

TEST_F(Spans, AStreamThatWasTheBusiestForLongIsFollowedByAnother) {
  for (int i = 0; i < 20'000; ++i) kernel(comm_, 0);
  for (int i = 0; i < 5'000; ++i) kernel(compute_, 0);
  EXPECT_TRUE(spans::is_busiest(0, compute_, false));
}

TEST_F(Spans, OperationsOfAnotherGpuThanTheThreadsAreNotTimed) {
  page().lanes[1].attention.store(abi::kTimeCollectives);
  ncclComm_t both[2] = {comm_at(0x3000), comm_at(0x4000)};
  const int devices[2] = {1, 0};
  nccl::rules::init_all(NcclCall{}, both, 2, devices);
  reduce(both[0], {}, comm_);
  page().lanes[1].attention.store(0);
  EXPECT_EQ(gpu_.made, 0u);
}

TEST_F(Spans, AWholeRingOnItsWayKeepsTheOrder) {
  page().process.timing_until.store(10'000);
  kernel(compute_, 1);
  for (int i = 0; i < 5; ++i) collective(comm_, 1);
  gpu_.now += 100;
  for (int i = 0; i < 300; ++i) collective(comm_, 1);
  gpu_.now += 1000;
  collective(comm_, 1);
  // The page's ring has the last of them.
  std::uint32_t last = 0;
  for (std::uint32_t back = 200; back != 0; --back) {
    const abi::Record& at = page().timings[(page().process.timed.load() - back) % abi::kTimings];
    if ((at.what.load() & abi::kLaunchRecord) != 0) continue;
    EXPECT_GE(at.time_us.load(), last);
    last = at.time_us.load();
  }
  EXPECT_GT(last, 100'000u);
}

TEST_F(Spans, WhatBeganInAContextThatHasGoneIsNoMatter) {
  kernel(compute_, 1);
  spans::Span later;
  NcclCall call;
  call.call = [&] {
    gate::context_gone(0, memory::current_owner());
    world_.context = context_number(0x5000);
    later.begin(0, comm_, false, number(9, first_));
    return kNcclSuccess;
  };
  reduce(first_, call, comm_);
  gpu_.now += 100;
  collective(comm_, 1);
  EXPECT_EQ(page().process.timed.load(), 0u) << "it has not been launched yet";
  later.end(false);
}

TEST_F(Spans, WhatIsInAnotherContextLeavesAMark) {
  kernel(compute_, 1);
  collective(comm_, 1);
  world_.context = context_number(0x5000);
  collective(comm_, 1);
  world_.context = context_number(0x1000);
  collective(comm_, 1);
  EXPECT_EQ(whats(told()), (std::vector{mark(TimingMark::kUntimed), number(1, first_),
                                        mark(TimingMark::kUntimed), number(3, first_)}));
}

TEST_F(Spans, TheLegacyStreamHasTwoNames) {
  kernel(nullptr, 1);
  EXPECT_TRUE(spans::is_busiest(0, CU_STREAM_LEGACY, false));
  EXPECT_FALSE(spans::is_busiest(0, nullptr, true)) << "a thread's own";
}

TEST_F(Spans, WhatNcclLaunchesAndAwaitsIsNotTheProgramsWork) {
  kernel(compute_, 1);
  NcclCall call;
  call.call = [this] {
    for (int i = 0; i < 5; ++i) kernel(comm_, 1);
    wait(compute_, 50);
    return kNcclSuccess;
  };
  reduce(first_, call, comm_);
  EXPECT_TRUE(spans::is_busiest(0, compute_, false));
  EXPECT_EQ(whats(told()).size(), 2u);
}

TEST_F(Spans, ACollectiveInTheBusiestStreamStallsIt) {
  kernel(compute_, 1);
  collective(compute_, 2);
  const auto all = told();
  ASSERT_EQ(whats(all), (std::vector{mark(TimingMark::kUntimed), number(1, first_),
                                     mark(TimingMark::kStalled)}));
  EXPECT_EQ(all[2].began, all[1].began);
  EXPECT_EQ(all[2].took, all[1].took);
}

TEST_F(Spans, WhereNothingIsComputedACollectiveIsNotHidden) {
  collective(comm_, 2);
  EXPECT_EQ(whats(told()).back(), mark(TimingMark::kStalled));
}

TEST_F(Spans, WhatTheMonitorDoesNotAllowIsNotTimedAndLeavesAMark) {
  kernel(compute_, 1);
  page().process.timing_until.store(2);
  collective(comm_, 1);
  collective(comm_, 1);
  collective(comm_, 1);
  gpu_.now = 100;
  page().process.timing_until.store(50);
  collective(comm_, 1);  // reads the first
  const auto all = told();
  EXPECT_EQ(whats(all),
            (std::vector{mark(TimingMark::kUntimed), number(1, first_), number(2, first_),
                         mark(TimingMark::kUntimed), number(4, first_)}));
}

TEST_F(Spans, AGroupIsTimedAsOne) {
  kernel(compute_, 1);
  start();
  reduce(first_, {}, comm_);
  reduce(first_, {}, comm_);
  nccl::rules::group_end(taking(comm_, 7));
  const auto all = told();
  ASSERT_EQ(whats(all), (std::vector{mark(TimingMark::kUntimed), number(2, first_)}));
  EXPECT_NEAR(all[1].took, 7, 1e-3);
}

TEST_F(Spans, AGroupInSeveralStreamsOrCommunicatorsIsNotTimed) {
  make(second_, 2, 0, 'b');
  start();
  reduce(first_, {}, comm_);
  reduce(first_, {}, compute_);
  reduce(first_, {}, compute_);
  finish();
  start();
  reduce(first_, {}, comm_);
  reduce(second_, {}, comm_);
  finish();
  EXPECT_EQ(gpu_.made, 0u);
  start();
  reduce(second_, {}, comm_);
  finish();
  EXPECT_EQ(gpu_.made, 2u) << "the next group is its own";
}

TEST_F(Spans, WhatNcclRefusesIsNotTimed) {
  kernel(compute_, 1);
  collective(comm_, 1, kNcclInvalidArgument);
  EXPECT_EQ(gpu_.recorded.size(), 1u) << "its stream may have gone";
  collective(comm_, 3);
  const auto all = told();
  ASSERT_EQ(whats(all), (std::vector{mark(TimingMark::kUntimed), number(1, first_)}));
  EXPECT_NEAR(all[1].took, 3, 1e-3);
}

TEST_F(Spans, WhatNcclLaunchesLaterEndsWhenItSaysSo) {
  kernel(compute_, 1);
  collective(comm_, 0, kNcclInProgress);
  EXPECT_EQ(state_is(second_, kNcclSuccess), kNcclSuccess) << "another's";
  EXPECT_EQ(state_is(first_, kNcclInProgress), kNcclSuccess);
  gpu_.run(comm_, 4);
  state_is(first_, kNcclSuccess);
  gpu_.run(comm_, 7);
  state_is(first_, kNcclSuccess);
  const auto all = told();
  ASSERT_EQ(whats(all), (std::vector{mark(TimingMark::kUntimed), number(1, first_)}));
  EXPECT_NEAR(all[1].took, 4, 1e-3);
}

TEST_F(Spans, AGroupThatIsLaunchedLaterEndsLikewise) {
  kernel(compute_, 1);
  start();
  reduce(first_, {}, comm_);
  finish(kNcclInProgress);
  gpu_.run(comm_, 4);
  state_is(first_, kNcclSuccess);
  EXPECT_EQ(whats(told()).back(), number(1, first_));
}

TEST_F(Spans, WhatFailedLaterOrIsNeverAskedForIsNotTimed) {
  kernel(compute_, 1);
  collective(comm_, 1, kNcclInProgress);
  state_is(first_, kNcclRemoteError);
  collective(comm_, 1, kNcclInProgress);
  collective(comm_, 3);
  const auto all = told();
  EXPECT_EQ(whats(all), (std::vector{mark(TimingMark::kUntimed), number(3, first_)}));
}

TEST_F(Spans, AnOperationOfOneRankIsNoCommunication) {
  make(second_, 1, 0, 'b');
  reduce(second_, {}, comm_);
  EXPECT_EQ(gpu_.made, 0u);
}

TEST_F(Spans, NothingIsPutIntoACapture) {
  kernel(compute_, 1);
  world_.captured = {comm_, compute_};
  process().captures.store(1);
  collective(comm_, 1);
  wait(compute_, 5);
  process().captures.store(0);
  world_.captured.clear();
  EXPECT_EQ(gpu_.made, 0u);
}

TEST_F(Spans, ALaunchOfAGraphWithCollectivesLeavesAMark) {
  const auto graph = reinterpret_cast<CUgraph>(0x300);
  const auto executable = reinterpret_cast<CUgraphExec>(0x400);
  nccl::CountStep step;
  step.launched = 1;
  nccl::graphs::note(graph, nccl::communicators::find(first_), step);
  nccl::graphs::instantiated(graph, executable);
  rules::graph_launch([](CUgraphExec, CUstream) { return CUDA_SUCCESS; }, executable, compute_);
  nccl::graphs::gone(graph);
  nccl::graphs::gone(executable);
  ASSERT_EQ(page().process.timed.load(), 1u);
  EXPECT_EQ(page().timings[0].what.load(), mark(TimingMark::kGraph));
  kernel(compute_, 1);
  collective(comm_, 1);
  EXPECT_EQ(whats(told())[1], mark(TimingMark::kUntimed));
}

TEST_F(Spans, ACallThatConnectsTheRanksIsNotTimed) {
  kernel(compute_, 1);
  // Its stream is there already, and the CPU waits for the others meanwhile.
  reduce(first_, slow_call(), comm_);
  EXPECT_EQ(whats(told()), std::vector<std::uint32_t>{});
}

TEST_F(Spans, ACallThatWaitsForRoomInTheQueueIsTimed) {
  kernel(compute_, 1);
  gpu_.run(comm_, 50);
  reduce(first_, slow_call(), comm_);
  EXPECT_EQ(whats(told()).size(), 2u);
}

TEST_F(Spans, WhatTheDriverRefusesToTimeIsTold) {
  kernel(compute_, 1);
  gpu_.elapsed = CUDA_ERROR_NOT_SUPPORTED;
  collective(comm_, 1);
  EXPECT_EQ(whats(told()).back(), mark(TimingMark::kRefused));
}

TEST_F(Spans, AfterAnErrorTheClockBeginsAnew) {
  kernel(compute_, 1);
  gpu_.elapsed = CUDA_ERROR_INVALID_HANDLE;
  collective(comm_, 1);
  gpu_.now = 10;
  collective(comm_, 1);  // reads the first, in vain
  gpu_.elapsed = CUDA_SUCCESS;
  EXPECT_EQ(whats(told()), (std::vector{mark(TimingMark::kUntimed), number(2, first_)}));
}

TEST_F(Spans, ARecordThatFailsTimesNothing) {
  kernel(compute_, 1);
  gpu_.record = CUDA_ERROR_INVALID_HANDLE;
  collective(comm_, 1);
  gpu_.record = CUDA_SUCCESS;
  EXPECT_EQ(whats(told()), std::vector<std::uint32_t>{});
}

TEST_F(Spans, EventsAreUsedAgain) {
  page().process.timing_until.store(10'000);
  kernel(compute_, 1);
  for (int i = 0; i < 1000; ++i) {
    gpu_.now += 10;
    collective(comm_, 1);
  }
  EXPECT_LE(gpu_.made, 512u);
  EXPECT_GE(page().process.timed.load(), 999u);
}

TEST_F(Spans, WhatIsOnItsWayCountsAgainstWhatIsAllowed) {
  page().process.timing_until.store(3);
  for (int i = 0; i < 10; ++i) collective(comm_, 1);
  EXPECT_EQ(gpu_.recorded.size(), 6u);
}

TEST_F(Spans, WithAContextItsEventsGo) {
  kernel(compute_, 1);
  collective(comm_, 1);
  gate::context_gone(0, memory::current_owner());
  EXPECT_FALSE(spans::is_busiest(0, compute_, false));
  const std::uintptr_t made = gpu_.made;
  world_.context = context_number(0x5000);
  collective(comm_, 1);
  EXPECT_EQ(gpu_.made, made + 2);
}

TEST_F(Spans, WhileItsContextEndsNoEventIsTouched) {
  kernel(compute_, 1);
  collective(comm_, 1);
  {
    const gate::Ending ending(0, memory::current_owner());
    collective(comm_, 1);
    EXPECT_EQ(gpu_.recorded.size(), 2u);
    ending.lives_on();
  }
  collective(comm_, 1);
  EXPECT_EQ(gpu_.recorded.size(), 4u);
}

}  // namespace
}  // namespace switchyard::shim
