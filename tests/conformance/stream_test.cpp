// Streams, events, launches, wait and write values: what comes before what.
#include <string.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "driver.h"
#include "kernels_ptx.h"

namespace conformance {
namespace {

using Streams = Gpu;
using Events = Gpu;
using Launches = Gpu;

TEST_F(Launches, RefuseWhatMakesNoSense) {
  CUfunction nop = kernel("nop");
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            CU(cuLaunchKernel)(nop, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            CU(cuLaunchKernel)(nop, 1, 1, 1, 2048, 1, 1, 0, nullptr, nullptr, nullptr));
  CUfunction missing = nullptr;
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, CU(cuModuleGetFunction)(&missing, module_, "no_such_kernel"));
}

TEST_F(Launches, ArgumentsMayComeInABuffer) {
  struct {
    CUdeviceptr to;
    std::uint32_t word;
    std::uint32_t padding;
    std::uint64_t count;
  } packed{alloc(4096), 6, 0, 1024};
  std::size_t bytes = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  ASSERT_CU(CU(cuLaunchKernel)(kernel("fill"), 4, 1, 1, 64, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(std::vector<std::uint32_t>(1024, 6), read(packed.to, 1024));
}

TEST_F(Launches, ExtendedAndCooperativeOnesRunToo) {
  CUdeviceptr memory = alloc(4096);
  std::uint32_t word = 3;
  std::uint64_t count = 1024;
  void* arguments[] = {&memory, &word, &count};
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 128;
  config.blockDimY = config.blockDimZ = 1;
  ASSERT_CU(CU(cuLaunchKernelEx)(&config, kernel("fill"), arguments, nullptr));
  EXPECT_EQ(std::vector<std::uint32_t>(1024, 3), read(memory, 1024));
  word = 4;
  ASSERT_CU(
      CU(cuLaunchCooperativeKernel)(kernel("fill"), 2, 1, 1, 64, 1, 1, 0, nullptr, arguments));
  EXPECT_EQ(std::vector<std::uint32_t>(1024, 4), read(memory, 1024));
}

TEST_F(Launches, FunctionsTellAboutThemselves) {
  int threads = 0, blocks = 0;
  EXPECT_OK(
      CU(cuFuncGetAttribute)(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel("nop")));
  EXPECT_GE(threads, 256);
  EXPECT_OK(CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, kernel("nop"), 256, 0));
  EXPECT_GE(blocks, 1);
}

TEST_F(Launches, LibrariesGiveTheSameKernels) {
  CUmodule from_library = nullptr;
  CUlibrary library = nullptr;
  CUkernel loaded = nullptr;
  CUfunction function = nullptr;
  // The module's image again, as a library.
  ASSERT_CU(CU(cuLibraryLoadData)(&library, kKernelsPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(CU(cuLibraryGetKernel)(&loaded, library, "fill"));
  ASSERT_CU(CU(cuKernelGetFunction)(&function, loaded));
  ASSERT_CU(CU(cuLibraryGetModule)(&from_library, library));
  CUdeviceptr memory = alloc(4096);
  std::uint32_t word = 8;
  std::uint64_t count = 1024;
  void* arguments[] = {&memory, &word, &count};
  ASSERT_CU(launch_kernel(nullptr, function, arguments));
  // A CUkernel may be launched where a CUfunction is asked for.
  ASSERT_CU(launch_kernel(nullptr, reinterpret_cast<CUfunction>(loaded), arguments));
  EXPECT_EQ(std::vector<std::uint32_t>(1024, 8), read(memory, 1024));
  EXPECT_OK(CU(cuLibraryUnload)(library));
}

TEST_F(Launches, HostFunctionsRunInOrder) {
  CUstream s = stream();
  std::atomic<int> calls{0};
  const Opener opener = held(s);
  ASSERT_CU(CU(cuLaunchHostFunc)(
      s, [](void* at) { ++*static_cast<std::atomic<int>*>(at); }, &calls));
  EXPECT_EQ(0, calls);
  opener.open();
  ASSERT_CU(CU(cuStreamSynchronize)(s));
  EXPECT_EQ(1, calls);
  ASSERT_CU(CU(cuStreamAddCallback)(
      s, [](CUstream, CUresult, void* at) { ++*static_cast<std::atomic<int>*>(at); }, &calls, 0));
  ASSERT_CU(CU(cuStreamSynchronize)(s));
  EXPECT_EQ(2, calls);
}

TEST_F(Streams, AreIndependentWhenNonBlocking) {
  CUstream full = stream(), free_one = stream();
  const Opener opener = held(full);
  ASSERT_CU(launch(full, "nop"));
  ASSERT_CU(launch(free_one, "nop"));
  EXPECT_OK(CU(cuStreamSynchronize)(free_one));
  EXPECT_CU(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(full));
  opener.open();
  EXPECT_OK(CU(cuStreamSynchronize)(full));
  EXPECT_OK(CU(cuStreamQuery)(full));
}

TEST_F(Streams, TheLegacyStreamWaitsForBlockingOnes) {
  CUstream blocking = stream(CU_STREAM_DEFAULT);
  const Opener opener = held(blocking);
  ASSERT_CU(launch(nullptr, "nop"));
  EXPECT_CU(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(nullptr));
  opener.open();
  EXPECT_OK(CU(cuStreamSynchronize)(nullptr));
}

TEST_F(Streams, BlockingOnesWaitForTheLegacyStream) {
  CUstream blocking = stream(CU_STREAM_DEFAULT), other = stream(CU_STREAM_NON_BLOCKING);
  const Opener opener = held(CU_STREAM_LEGACY);
  ASSERT_CU(launch(blocking, "nop"));
  ASSERT_CU(launch(other, "nop"));
  EXPECT_OK(CU(cuStreamSynchronize)(other));
  EXPECT_CU(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(blocking));
  opener.open();
  EXPECT_OK(CU(cuStreamSynchronize)(blocking));
}

TEST_F(Streams, PerThreadOnesDiffer) {
  const Opener opener = held(CU_STREAM_PER_THREAD);
  EXPECT_CU(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(CU_STREAM_PER_THREAD));
  CUresult theirs = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    CU(cuCtxSetCurrent)(context_);
    void* none[] = {nullptr};
    launch_kernel(CU_STREAM_PER_THREAD, kernel("nop"), none);
    theirs = CU(cuStreamSynchronize)(CU_STREAM_PER_THREAD);
  }).join();
  EXPECT_OK(theirs);
  // The per-thread name of a call takes null for the thread's stream.
  auto query = call<CUresult (*)(CUstream)>("cuStreamQuery_ptsz");
  EXPECT_CU(CUDA_ERROR_NOT_READY, query(nullptr));
  opener.open();
  EXPECT_OK(CU(cuStreamSynchronize)(CU_STREAM_PER_THREAD));
}

TEST_F(Streams, TellAboutThemselves) {
  CUstream s = stream(CU_STREAM_NON_BLOCKING);
  unsigned flags = 0;
  EXPECT_OK(CU(cuStreamGetFlags)(s, &flags));
  EXPECT_EQ(static_cast<unsigned>(CU_STREAM_NON_BLOCKING), flags);
  auto get_context = call<CUresult (*)(CUstream, CUcontext*)>("cuStreamGetCtx");
  CUcontext owner = nullptr;
  EXPECT_OK(get_context(s, &owner));
  EXPECT_EQ(context_, owner);
  unsigned long long one = 0, two = 0;
  EXPECT_OK(CU(cuStreamGetId)(s, &one));
  EXPECT_OK(CU(cuStreamGetId)(stream(), &two));
  EXPECT_NE(one, two);
}

TEST_F(Streams, ManyLaunchesKeepTheirOrder) {
  CUdeviceptr memory = alloc(4);
  CUstream s = stream();
  ASSERT_CU(CU(cuMemsetD32Async)(memory, 0, 1, s));
  for (int i = 0; i < 5000; ++i) ASSERT_CU(launch(s, "add_words", memory, 1u, std::uint64_t{1}));
  ASSERT_CU(CU(cuStreamSynchronize)(s));
  EXPECT_EQ(5000u, read(memory, 1)[0]);
}

TEST_F(Streams, AFullQueueBlocksTheLauncherUntilItDrains) {
  CUstream s = stream();
  const Opener opener = held(s);
  std::atomic<int> launched{0};
  std::atomic<bool> ended{false};
  std::thread launcher([&] {
    CU(cuCtxSetCurrent)(context_);
    void* none[] = {nullptr};
    CUfunction nop = kernel("nop");
    for (int i = 0; i < 20'000; ++i) {
      if (launch_kernel(s, nop, none) != CUDA_SUCCESS) break;
      ++launched;
    }
    ended = true;
  });
  // It stops somewhere before the end: the queue is bounded.
  int seen = -1;
  for (int i = 0; i < 1000 && (seen != launched || seen == 0); ++i) {
    seen = launched;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_FALSE(ended);
  EXPECT_LT(launched, 20'000);
  opener.open();
  launcher.join();
  EXPECT_EQ(20'000, launched);
  EXPECT_OK(CU(cuStreamSynchronize)(s));
}

TEST_F(Events, OrderStreamsAcross) {
  CUstream first = stream(), second = stream();
  CUevent done = event();
  std::uint32_t* word = pinned(1);
  Opener opener{word};
  CUdeviceptr memory = alloc(4);
  ASSERT_CU(CU(cuMemsetD32)(memory, 0, 1));
  ASSERT_CU(CU(cuCtxSynchronize)());
  hold(first, word);
  ASSERT_CU(CU(cuMemsetD32Async)(memory, 5, 1, first));
  ASSERT_CU(CU(cuEventRecord)(done, first));
  ASSERT_CU(CU(cuStreamWaitEvent)(second, done, 0));
  ASSERT_CU(launch(second, "add_words", memory, 1u, std::uint64_t{1}));
  EXPECT_CU(CUDA_ERROR_NOT_READY, CU(cuEventQuery)(done));
  EXPECT_CU(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(second));
  opener.open();
  EXPECT_OK(CU(cuStreamSynchronize)(second));
  EXPECT_OK(CU(cuEventQuery)(done));
  EXPECT_EQ(6u, read(memory, 1)[0]);
}

TEST_F(Events, NeverRecordedIsDone) {
  CUevent fresh = event();
  EXPECT_OK(CU(cuEventQuery)(fresh));
  EXPECT_OK(CU(cuEventSynchronize)(fresh));
  EXPECT_OK(CU(cuStreamWaitEvent)(stream(), fresh, 0));
}

TEST_F(Events, MeasureTime) {
  CUstream s = stream();
  CUevent begin = event(), end = event();
  ASSERT_CU(launch(s, "busy", 100u));
  ASSERT_CU(CU(cuEventRecord)(begin, s));
  for (int i = 0; i < 20; ++i) ASSERT_CU(launch(s, "busy", 1000u));
  ASSERT_CU(CU(cuEventRecord)(end, s));
  ASSERT_CU(CU(cuEventSynchronize)(end));
  float ms = 0;
  ASSERT_CU(CU(cuEventElapsedTime)(&ms, begin, end));
  EXPECT_GT(ms, 10.f);
  EXPECT_LT(ms, 200.f);
  CUevent untimed = event(CU_EVENT_DISABLE_TIMING);
  ASSERT_CU(CU(cuEventRecord)(untimed, s));
  ASSERT_CU(CU(cuEventSynchronize)(untimed));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, CU(cuEventElapsedTime)(&ms, untimed, end));
}

}  // namespace
}  // namespace conformance
