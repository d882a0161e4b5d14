// What the gate puts into streams, and what it must not.
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "tests/shim/gate/gate_world.h"

namespace switchyard::shim {
namespace testing {

GateWorld* g_gate_world = nullptr;

namespace {

void note(CUstream stream, const std::string& what) {
  const std::lock_guard hold(g_gate_world->lock);
  g_gate_world->log[stream].push_back(what);
}

CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  EXPECT_EQ(value, 0u);
  EXPECT_EQ(flags, static_cast<unsigned>(CU_STREAM_WAIT_VALUE_EQ));
  if (g_gate_world->wait_result != CUDA_SUCCESS) return g_gate_world->wait_result;
  const auto* word = reinterpret_cast<const abi::Word32*>(address);
  note(stream, word->load() == 0 ? "wait" : "wait (closed)");
  return CUDA_SUCCESS;
}

CUresult write_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  EXPECT_EQ(flags, 0u);
  if (g_gate_world->write_result != CUDA_SUCCESS) return g_gate_world->write_result;
  note(stream, "write " + std::to_string(value));
  const std::lock_guard hold(g_gate_world->lock);
  g_gate_world->writes.emplace_back(address, value);
  return CUDA_SUCCESS;
}

CUresult register_memory(void*, size_t bytes, unsigned flags) {
  EXPECT_EQ(bytes, abi::kPageBytes - abi::kGatesOffset);
  EXPECT_EQ(flags,
            static_cast<unsigned>(CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE));
  ++g_gate_world->registrations;
  return g_gate_world->register_result;
}

CUresult device_pointer(CUdeviceptr* out, void* pointer, unsigned) {
  *out = reinterpret_cast<CUdeviceptr>(pointer);
  return CUDA_SUCCESS;
}

CUresult is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  if (g_gate_world->legacy_untouchable && (stream == nullptr || stream == CU_STREAM_LEGACY)) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  const bool captured = g_gate_world->captured.contains(stream);
  *status = captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult original_launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, CUstream stream, void**, void**) {
  if (g_gate_world->during_launch) g_gate_world->during_launch(stream);
  note(stream, "launch");
  return CUDA_SUCCESS;
}

}  // namespace

GateTest::GateTest() {
  g_gate_world = &gpu_;
  g_driver.cuStreamWaitValue32_v2 = wait_value;
  g_driver.cuStreamWriteValue32_v2 = write_value;
  g_driver.cuMemHostRegister_v2 = register_memory;
  g_driver.cuMemHostGetDevicePointer_v2 = device_pointer;
  g_driver.cuStreamIsCapturing = is_capturing;
  g_driver.cuStreamIsCapturing_ptsz = is_capturing;
  new_page();
}

GateTest::~GateTest() {
  map_page(-1);
  g_gate_world = nullptr;
}

int GateTest::new_page() {
  const int fd = ::memfd_create("page", MFD_CLOEXEC);
  EXPECT_EQ(::ftruncate(fd, abi::kPageBytes), 0);
  EXPECT_TRUE(map_page(fd));
  view::make(fd);
  ::close(fd);
  return fd;
}

CUresult GateTest::launch(CUstream stream) {
  return rules::launch(original_launch, nullptr, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream,
                       static_cast<void**>(nullptr), static_cast<void**>(nullptr));
}

CUresult GateTest::launch_per_thread(CUstream stream) {
  return rules::launch_per_thread(original_launch, nullptr, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream,
                                  static_cast<void**>(nullptr), static_cast<void**>(nullptr));
}

CUresult GateTest::synchronise() {
  return rules::synchronise<gate::Waiting::kStream>([] { return CUDA_SUCCESS; });
}

void GateTest::gpu_runs() {
  const std::lock_guard hold(gpu_.lock);
  for (const auto& [address, value] : gpu_.writes) {
    reinterpret_cast<abi::Word32*>(address)->store(value);
  }
  gpu_.writes.clear();
}

Log GateTest::log(CUstream stream) {
  const std::lock_guard hold(gpu_.lock);
  return gpu_.log[stream];
}

}  // namespace testing

namespace {

using testing::GateTest;
using testing::Log;
using testing::stream_number;
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
  EXPECT_EQ(log(first_), (Log{"wait", "launch", "launch", "launch", "launch", "write 1"}));
  EXPECT_EQ(gpu_.registrations, 1);
  EXPECT_EQ(gate().state.load(), abi::kGateReady);
  EXPECT_EQ(gate().waits.load(), 1u);
  EXPECT_EQ(gate().submitted[0].load(), 1u);
  EXPECT_EQ(gate().done[0].load(), 0u);
  gpu_runs();
  EXPECT_EQ(gate().done[0].load(), 1u);
}

TEST_F(Gate, FromTheFirstLaunchOnTheMonitorSeesWork) {
  arm();
  gpu_.during_launch = [this](CUstream) { EXPECT_TRUE(numbered()); };
  launch(first_, 1);
  EXPECT_TRUE(numbered());
}

TEST_F(Gate, WithProgressAloneNumbersStandWithoutWaits) {
  arm(abi::kProgress);
  launch(first_, 4);
  EXPECT_EQ(log(first_), (Log{"launch", "launch", "launch", "launch", "write 1"}));
}

TEST_F(Gate, BeforeTheCpuWaitsAnOpenBatchGetsItsNumber) {
  arm();
  launch(first_, 1);
  launch(second_, 2);
  synchronise();
  EXPECT_EQ(log(first_), (Log{"wait", "launch", "write 1"}));
  EXPECT_EQ(log(second_), (Log{"wait", "launch", "launch", "write 1"}));
  synchronise();
  EXPECT_EQ(log(first_).size(), 3u);  // once
}

TEST_F(Gate, ABatchThatNobodyEndsCountsAsDoneAfterASecond) {
  arm();
  launch(first_, 1);
  numbers::give_up_stale(monotonic_ns());
  EXPECT_TRUE(numbered());
  numbers::give_up_stale(monotonic_ns() + 2'000'000'000);
  EXPECT_FALSE(numbered());
  launch(first_, 4);
  EXPECT_TRUE(numbered());
  gpu_runs();
  EXPECT_FALSE(numbered());
}

TEST_F(Gate, AQuestionAndAHostFunctionEndABatchToo) {
  arm();
  launch(first_, 1);
  rules::ask([](CUstream) { return CUDA_ERROR_NOT_READY; }, first_);
  EXPECT_EQ(log(first_).back(), "write 1");
  launch(first_, 1);
  rules::call_back([](CUstream, int) { return CUDA_SUCCESS; }, first_, 0);
  EXPECT_EQ(log(first_).back(), "write 2");
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

TEST_F(Gate, APerThreadStreamIsOnlyWrittenToByItsThread) {
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

TEST_F(Gate, NothingIsPutIntoACapturedStream) {
  arm();
  launch(second_, 1);
  rules::begin_capture([](CUstream) { return CUDA_SUCCESS; }, first_);
  gpu_.captured.insert(first_);
  launch(first_, 10);
  EXPECT_EQ(log(first_), Log(10, "launch"));
  // The other stream joins the capture with its batch open.
  launch(second_, 1);
  gpu_.captured.insert(second_);
  synchronise();
  EXPECT_EQ(log(second_), (Log{"wait", "launch", "write 1", "wait", "launch"}));
}

TEST_F(Gate, TheLegacyStreamIsLeftAloneWhileTheDriverWouldRefuseIt) {
  arm();
  rules::begin_capture([](CUstream) { return CUDA_SUCCESS; }, first_);
  gpu_.legacy_untouchable = true;
  launch(nullptr);
  EXPECT_TRUE(log(CU_STREAM_LEGACY).empty());
}

TEST_F(Gate, AnotherThreadsCaptureOpensNothing) {
  arm();
  rules::begin_capture([](CUstream) { return CUDA_SUCCESS; }, first_);
  gpu_.captured.insert(first_);
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

TEST_F(Gate, ADestroyedStreamIsNeverWrittenToAgain) {
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

TEST_F(Gate, MoreBusyStreamsThanSlotsAreGatedWithoutNumbers) {
  arm();
  for (unsigned i = 1; i <= abi::kProgressSlots; ++i) launch(stream_number(i), 4);
  const CUstream extra = stream_number(99);
  launch(extra, 2);
  EXPECT_EQ(log(extra), (Log{"wait", "launch", "wait", "launch"}));
  gpu_runs();
  launch(extra, 4);  // a drained slot goes on with its numbers
  EXPECT_EQ(log(extra).back(), "write 2");
}

TEST_F(Gate, AContextsEndEndsItsNumbers) {
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

TEST_F(Gate, AThreadOfAnotherContextLeavesABatchAlone) {
  arm();
  launch(first_, 1);
  world_.context = reinterpret_cast<CUcontext>(0x2000);
  synchronise();
  EXPECT_EQ(log(first_), (Log{"wait", "launch"}));
}

TEST_F(Gate, ABatchIsNotEndedUnderAnotherThreadsLaunch) {
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

TEST_F(Gate, ManyThreadsOnOneStreamKeepItsNumbersInOrder) {
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

TEST_F(Gate, AWaitThatTheDriverDoesNotKnowRefusesTheGateAndWorkGoesOn) {
  gpu_.wait_result = CUDA_ERROR_NOT_SUPPORTED;
  arm();
  launch(first_, 3);
  EXPECT_EQ(log(first_), Log(3, "launch"));
  EXPECT_EQ(gate().state.load(), abi::kGateRefused);
  EXPECT_EQ(gate().gate_error.load(), static_cast<std::uint32_t>(CUDA_ERROR_NOT_SUPPORTED));
  EXPECT_FALSE(numbered());
}

TEST_F(Gate, ANumberThatCannotBeWrittenIsNoWorkForEver) {
  gpu_.write_result = CUDA_ERROR_LAUNCH_FAILED;
  arm();
  launch(first_, 4);
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

}  // namespace
}  // namespace switchyard::shim
