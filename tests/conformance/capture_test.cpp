// Stream capture: what becomes a graph, and what is refused meanwhile.
#include <thread>

#include "driver.h"

namespace conformance {
namespace {

class Capture : public Gpu {
 protected:
  CUstreamCaptureStatus status_of(CUstream s) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_OK(CU(cuStreamIsCapturing)(s, &status));
    return status;
  }
  std::size_t nodes_of(CUgraph graph) {
    std::size_t count = 0;
    EXPECT_OK(CU(cuGraphGetNodes)(graph, nullptr, &count));
    return count;
  }
  // Later work in `to` waits for the work in `from`, so both are one capture's.
  void join(CUstream from, CUstream to) {
    CUevent edge = event(CU_EVENT_DISABLE_TIMING);
    ASSERT_CU(CU(cuEventRecord)(edge, from));
    ASSERT_CU(CU(cuStreamWaitEvent)(to, edge, 0));
  }
  // The end of a capture whose graph nobody wants, and of one that a call has spoilt.
  static void expect_ends(CUstream s) {
    CUgraph graph = nullptr;
    EXPECT_OK(CU(cuStreamEndCapture)(s, &graph));
    EXPECT_OK(CU(cuGraphDestroy)(graph));
  }
  static void expect_invalidated(CUstream s) {
    CUgraph graph = nullptr;
    EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuStreamEndCapture)(s, &graph));
  }
  void run(CUgraph graph, CUstream s, int times = 1) {
    CUgraphExec exec = nullptr;
    ASSERT_CU(CU(cuGraphInstantiate)(&exec, graph, 0));
    for (int i = 0; i < times; ++i) ASSERT_CU(CU(cuGraphLaunch)(exec, s));
    ASSERT_CU(CU(cuStreamSynchronize)(s));
    EXPECT_OK(CU(cuGraphExecDestroy)(exec));
  }
};

TEST_F(Capture, RecordsWithoutRunning) {
  CUstream s = stream();
  CUdeviceptr memory = alloc(4096);
  ASSERT_CU(CU(cuMemsetD32)(memory, 1, 1024));
  ASSERT_CU(CU(cuCtxSynchronize)());
  ASSERT_CU(CU(cuStreamBeginCapture)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status_of(s));
  ASSERT_CU(launch(s, "add_words", memory, 2u, std::uint64_t{1024}));
  ASSERT_CU(launch(s, "add_words", memory, 3u, std::uint64_t{1024}));
  CUgraph graph = nullptr;
  ASSERT_CU(CU(cuStreamEndCapture)(s, &graph));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(s));
  EXPECT_EQ(2u, nodes_of(graph));
  EXPECT_EQ(1u, read(memory, 1)[0]);
  run(graph, s, 3);
  EXPECT_EQ(std::vector<std::uint32_t>(1024, 16), read(memory, 1024));
  EXPECT_OK(CU(cuGraphDestroy)(graph));
}

TEST_F(Capture, TakesCopiesSetsHostFunctionsAndValues) {
  CUstream s = stream();
  CUdeviceptr memory = alloc(4096);
  std::uint32_t* host = pinned(1024);
  std::uint32_t* word = pinned(1);
  CUdeviceptr word_on_device = 0;
  ASSERT_CU(CU(cuMemHostGetDevicePointer)(&word_on_device, word, 0));
  int calls = 0;
  ASSERT_CU(CU(cuStreamBeginCapture)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(CU(cuMemsetD32Async)(memory, 4, 1024, s));
  ASSERT_CU(launch(s, "add_words", memory, 1u, std::uint64_t{1024}));
  ASSERT_CU(CU(cuMemcpyDtoHAsync)(host, memory, 4096, s));
  ASSERT_CU(CU(cuLaunchHostFunc)(
      s, [](void* at) { ++*static_cast<int*>(at); }, &calls));
  ASSERT_CU(CU(cuStreamWriteValue32)(s, word_on_device, 9, 0));
  CUgraph graph = nullptr;
  ASSERT_CU(CU(cuStreamEndCapture)(s, &graph));
  EXPECT_EQ(5u, nodes_of(graph));
  run(graph, s, 2);
  EXPECT_EQ(5u, host[1023]);
  EXPECT_EQ(2, calls);
  EXPECT_EQ(9u, *word);
  EXPECT_OK(CU(cuGraphDestroy)(graph));
}

TEST_F(Capture, ForksAndJoinsByEvents) {
  CUstream a = stream(), b = stream();
  CUdeviceptr memory = alloc(4096);
  ASSERT_CU(CU(cuStreamBeginCapture)(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(CU(cuMemsetD32Async)(memory, 1, 1024, a));
  join(a, b);
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status_of(b));
  ASSERT_CU(launch(b, "add_words", memory, 1u, std::uint64_t{512}));
  ASSERT_CU(launch(a, "add_words", CUdeviceptr{memory + 2048}, 2u, std::uint64_t{512}));
  join(b, a);
  ASSERT_CU(launch(a, "add_words", memory, 10u, std::uint64_t{1024}));
  CUgraph graph = nullptr;
  ASSERT_CU(CU(cuStreamEndCapture)(a, &graph));
  EXPECT_EQ(4u, nodes_of(graph));
  std::size_t roots = 0;
  EXPECT_OK(CU(cuGraphGetRootNodes)(graph, nullptr, &roots));
  EXPECT_EQ(1u, roots);
  run(graph, a);
  const auto words = read(memory, 1024);
  EXPECT_EQ(12u, words[0]);
  EXPECT_EQ(13u, words[1023]);
  EXPECT_OK(CU(cuGraphDestroy)(graph));
}

TEST_F(Capture, UnjoinedWorkIsRefused) {
  CUstream a = stream(), b = stream();
  ASSERT_CU(CU(cuStreamBeginCapture)(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  join(a, b);
  ASSERT_CU(launch(b, "nop"));
  CUgraph graph = nullptr;
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, CU(cuStreamEndCapture)(a, &graph));
  EXPECT_EQ(nullptr, graph);
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(b));
}

TEST_F(Capture, GlobalModeRefusesUnsafeCallsOfEveryThread) {
  CUstream s = stream();
  ASSERT_CU(CU(cuStreamBeginCapture)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUresult theirs = CUDA_SUCCESS;
  std::thread([&] {
    CU(cuCtxSetCurrent)(context_);
    CUdeviceptr memory = 0;
    theirs = CU(cuMemAlloc)(&memory, 64 << 20);
  }).join();
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, theirs);
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status_of(s));
  expect_invalidated(s);
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(s));
}

TEST_F(Capture, ThreadLocalModeRefusesItsOwnThreadOnly) {
  CUstream s = stream();
  ASSERT_CU(CU(cuStreamBeginCapture)(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CUresult theirs = CUDA_ERROR_UNKNOWN;
  CUdeviceptr memory = 0;
  std::thread([&] {
    CU(cuCtxSetCurrent)(context_);
    theirs = CU(cuMemAlloc)(&memory, 64 << 20);
    if (theirs == CUDA_SUCCESS) theirs = CU(cuMemFree)(memory);
  }).join();
  EXPECT_OK(theirs);
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status_of(s));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuMemAlloc)(&memory, 64 << 20));
  expect_invalidated(s);
}

TEST_F(Capture, RelaxedModeRefusesNothingUnsafe) {
  CUstream s = stream();
  ASSERT_CU(CU(cuStreamBeginCapture)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUdeviceptr memory = 0;
  EXPECT_OK(CU(cuMemAlloc)(&memory, 64 << 20));
  EXPECT_OK(CU(cuMemFree)(memory));
  expect_ends(s);
}

TEST_F(Capture, ARelaxedThreadMayDoUnsafeThings) {
  CUstream s = stream();
  ASSERT_CU(CU(cuStreamBeginCapture)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUresult theirs = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CU(cuThreadExchangeStreamCaptureMode)(&mode);
    CU(cuCtxSetCurrent)(context_);
    CUdeviceptr memory = 0;
    theirs = CU(cuMemAlloc)(&memory, 64 << 20);
    if (theirs == CUDA_SUCCESS) theirs = CU(cuMemFree)(memory);
  }).join();
  EXPECT_OK(theirs);
  expect_ends(s);
}

TEST_F(Capture, WaitingForACapturingStreamIsRefused) {
  CUstream s = stream();
  ASSERT_CU(CU(cuStreamBeginCapture)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuStreamSynchronize)(s));
  expect_invalidated(s);
}

TEST_F(Capture, TheLegacyStreamMayNotMeetABlockingCapture) {
  CUstream s = stream(CU_STREAM_DEFAULT);
  ASSERT_CU(CU(cuStreamBeginCapture)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, launch(CU_STREAM_LEGACY, "nop"));
  expect_invalidated(s);
}

TEST_F(Capture, TheLegacyStreamIsNotCaptured) {
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            CU(cuStreamBeginCapture)(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));
}

TEST_F(Capture, EndsOnlyWhereItBegan) {
  CUstream a = stream(), b = stream();
  ASSERT_CU(CU(cuStreamBeginCapture)(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  join(a, b);
  CUgraph graph = nullptr;
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, CU(cuStreamEndCapture)(b, &graph));
  EXPECT_NE(CUDA_SUCCESS, CU(cuStreamEndCapture)(a, &graph));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(a));
}

TEST_F(Capture, ACapturedEventCannotBeAsked) {
  CUstream s = stream();
  CUevent inside = event(CU_EVENT_DISABLE_TIMING);
  ASSERT_CU(CU(cuStreamBeginCapture)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(CU(cuEventRecord)(inside, s));
  EXPECT_CU(CUDA_ERROR_CAPTURED_EVENT, CU(cuEventQuery)(inside));
  CUgraph graph = nullptr;
  CU(cuStreamEndCapture)(s, &graph);
  if (graph) {
    EXPECT_OK(CU(cuGraphDestroy)(graph));
  }
}

TEST_F(Capture, TellsItsIdGraphAndTail) {
  CUstream s = stream();
  ASSERT_CU(CU(cuStreamBeginCapture)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(launch(s, "nop"));
  auto info = call<CUresult (*)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                const CUgraphNode**, std::size_t*)>("cuStreamGetCaptureInfo_v2");
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph inside = nullptr, graph = nullptr;
  const CUgraphNode* tail = nullptr;
  std::size_t count = 0;
  EXPECT_OK(info(s, &status, &id, &inside, &tail, &count));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  EXPECT_NE(0u, id);
  EXPECT_EQ(1u, count);
  EXPECT_OK(CU(cuStreamEndCapture)(s, &graph));
  EXPECT_EQ(inside, graph);
  EXPECT_OK(CU(cuGraphDestroy)(graph));
}

TEST_F(Capture, TakesStreamOrderedMemory) {
  CUstream s = stream();
  CUdeviceptr out = alloc(4096), temporary = 0;
  ASSERT_CU(CU(cuStreamBeginCapture)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(CU(cuMemAllocAsync)(&temporary, 1 << 20, s));
  ASSERT_CU(launch(s, "fill", temporary, 21u, std::uint64_t{1024}));
  ASSERT_CU(CU(cuMemcpyDtoDAsync)(out, temporary, 4096, s));
  ASSERT_CU(CU(cuMemFreeAsync)(temporary, s));
  CUgraph graph = nullptr;
  ASSERT_CU(CU(cuStreamEndCapture)(s, &graph));
  EXPECT_EQ(4u, nodes_of(graph));
  run(graph, s, 2);
  EXPECT_EQ(std::vector<std::uint32_t>(1024, 21), read(out, 1024));
  EXPECT_OK(CU(cuGraphDestroy)(graph));
}

}  // namespace
}  // namespace conformance
