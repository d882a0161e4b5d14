// Wait and write values on streams: what gates are made of.
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "driver.h"

namespace conformance {
namespace {

using Values = Gpu;

TEST_F(Values, WriteIsSeenAfterTheWorkBefore) {
  CUstream s = stream();
  std::uint32_t* word = pinned(4);
  CUdeviceptr address = 0;
  ASSERT_CU(CU(cuMemHostGetDevicePointer)(&address, word, 0));
  Opener opener{word};
  hold(s, word);
  ASSERT_CU(launch(s, "busy", 500u));
  ASSERT_CU(CU(cuStreamWriteValue32)(s, address + 8, 7, 0));
  EXPECT_EQ(0u, __atomic_load_n(word + 2, __ATOMIC_ACQUIRE));
  opener.open();
  ASSERT_CU(CU(cuStreamSynchronize)(s));
  EXPECT_EQ(7u, word[2]);
}

TEST_F(Values, WaitsComparedInEveryWay) {
  CUstream waiter = stream();
  std::uint32_t* words = pinned(4);
  CUdeviceptr address = 0;
  ASSERT_CU(CU(cuMemHostGetDevicePointer)(&address, words, 0));
  struct Case {
    unsigned flags;
    std::uint32_t before, wanted, after;
  };
  for (const Case c : {Case{CU_STREAM_WAIT_VALUE_GEQ, 4, 5, 6},
                       {CU_STREAM_WAIT_VALUE_EQ, 4, 5, 5},
                       {CU_STREAM_WAIT_VALUE_AND, 2, 5, 4},
                       {CU_STREAM_WAIT_VALUE_GEQ, 0xfffffff0u, 5, 5}}) {
    __atomic_store_n(words, c.before, __ATOMIC_RELEASE);
    ASSERT_CU(CU(cuStreamWaitValue32)(waiter, address, c.wanted, c.flags));
    ASSERT_CU(launch(waiter, "nop"));
    EXPECT_CU(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(waiter));
    __atomic_store_n(words, c.after, __ATOMIC_RELEASE);
    EXPECT_OK(CU(cuStreamSynchronize)(waiter));
  }
}

TEST_F(Values, SixtyFourBitsAndBatches) {
  CUstream s = stream();
  std::uint32_t* words = pinned(8);
  CUdeviceptr address = 0;
  ASSERT_CU(CU(cuMemHostGetDevicePointer)(&address, words, 0));
  ASSERT_CU(CU(cuStreamWriteValue64)(s, address, 0x1234567890ull, 0));
  ASSERT_CU(CU(cuStreamWaitValue64)(s, address, 0x1234567890ull, CU_STREAM_WAIT_VALUE_EQ));
  CUstreamBatchMemOpParams ops[2] = {};
  ops[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  ops[0].writeValue.address = address + 16;
  ops[0].writeValue.value = 3;
  ops[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  ops[1].waitValue.address = address + 16;
  ops[1].waitValue.value = 3;
  ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  ASSERT_CU(CU(cuStreamBatchMemOp)(s, 2, ops, 0));
  ASSERT_CU(CU(cuStreamSynchronize)(s));
  std::uint64_t written = 0;
  memcpy(&written, words, 8);
  EXPECT_EQ(0x1234567890ull, written);
  EXPECT_EQ(3u, words[4]);
}

TEST_F(Values, OneStreamOpensAnother) {
  CUstream waiter = stream(), writer = stream();
  CUdeviceptr word = alloc(4), memory = alloc(4);
  ASSERT_CU(CU(cuMemsetD32)(word, 0, 1));
  ASSERT_CU(CU(cuMemsetD32)(memory, 1, 1));
  ASSERT_CU(CU(cuCtxSynchronize)());
  ASSERT_CU(CU(cuStreamWaitValue32)(waiter, word, 1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CU(launch(waiter, "add_words", memory, 1u, std::uint64_t{1}));
  ASSERT_CU(CU(cuMemsetD32Async)(memory, 10, 1, writer));
  ASSERT_CU(CU(cuStreamWriteValue32)(writer, word, 1, 0));
  ASSERT_CU(CU(cuStreamSynchronize)(waiter));
  EXPECT_EQ(11u, read(memory, 1)[0]);
}

// Memory that processes share, registered: what gates are made of.
TEST_F(Values, AnotherProcessesStoreIntoSharedMemoryOpensAStream) {
  constexpr std::size_t kBytes = 8192;
  const int file = memfd_create("shared", MFD_CLOEXEC);
  ASSERT_EQ(0, ftruncate(file, kBytes));
  const auto map = [file] {
    return static_cast<std::uint32_t*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  };
  std::uint32_t *registered = map(), *mine = map();
  ASSERT_CU(CU(cuMemHostRegister)(registered, kBytes,
                                  CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            CU(cuMemHostRegister)(registered, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr address = 0;
  ASSERT_CU(CU(cuMemHostGetDevicePointer)(&address, registered, 0));
  __atomic_store_n(mine, 3u, __ATOMIC_RELEASE);  // closed, for two reasons
  CUstream s = stream();
  ASSERT_CU(CU(cuStreamWaitValue32)(s, address, 0, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CU(launch(s, "busy", 100u));
  ASSERT_CU(CU(cuStreamWriteValue32)(s, address + 256, 9, 0));
  const auto store = [mine](std::uint32_t value) {
    const pid_t child = fork();
    if (child == 0) {
      __atomic_store_n(mine, value, __ATOMIC_RELEASE);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  };
  store(1);
  EXPECT_CU(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(s));
  EXPECT_EQ(0u, __atomic_load_n(mine + 64, __ATOMIC_ACQUIRE));
  store(0);
  EXPECT_OK(CU(cuStreamSynchronize)(s));
  EXPECT_EQ(9u, __atomic_load_n(mine + 64, __ATOMIC_ACQUIRE));
  EXPECT_OK(CU(cuMemHostUnregister)(registered));
  munmap(registered, kBytes);
  munmap(mine, kBytes);
  close(file);
}

TEST_F(Values, DefaultStreamsTakeThemByTheirHandles) {
  std::uint32_t* words = pinned(8);
  CUdeviceptr address = 0;
  ASSERT_CU(CU(cuMemHostGetDevicePointer)(&address, words, 0));
  ASSERT_CU(CU(cuStreamWaitValue32)(CU_STREAM_LEGACY, address, 0, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CU(CU(cuStreamWriteValue32)(CU_STREAM_LEGACY, address + 4, 1, 0));
  ASSERT_CU(CU(cuStreamWaitValue32)(CU_STREAM_PER_THREAD, address, 0, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CU(CU(cuStreamWriteValue32)(CU_STREAM_PER_THREAD, address + 8, 2, 0));
  auto write = call<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>(
      "cuStreamWriteValue32_v2_ptsz");
  ASSERT_CU(write(nullptr, address + 12, 3, 0));
  EXPECT_OK(CU(cuStreamSynchronize)(CU_STREAM_PER_THREAD));
  EXPECT_OK(CU(cuStreamSynchronize)(CU_STREAM_LEGACY));
  EXPECT_EQ(1u, words[1]);
  EXPECT_EQ(2u, words[2]);
  EXPECT_EQ(3u, words[3]);
}

// While a stream is captured, asking about the legacy one is refused and harms nothing.
TEST_F(Values, AskingWhetherTheLegacyStreamIsCapturedHarmsNoCapture) {
  CUstream s = stream(CU_STREAM_DEFAULT);
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  ASSERT_CU(CU(cuStreamBeginCapture)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CU(cuStreamIsCapturing)(CU_STREAM_LEGACY, &status));
  EXPECT_OK(CU(cuStreamEndCapture)(s, &graph));
  EXPECT_OK(CU(cuGraphDestroy)(graph));
}

// In relaxed mode a thread may register memory while another captures.
TEST_F(Values, RegisteringInRelaxedModeHarmsNoCapture) {
  CUstream s = stream();
  CUgraph graph = nullptr;
  void* memory = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_CU(CU(cuStreamBeginCapture)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUresult registered = CUDA_ERROR_UNKNOWN, waited = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    CU(cuCtxSetCurrent)(context_);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CU(cuThreadExchangeStreamCaptureMode)(&mode);
    registered = CU(cuMemHostRegister)(memory, 8192, CU_MEMHOSTREGISTER_DEVICEMAP);
    CUdeviceptr address = 0;
    CU(cuMemHostGetDevicePointer)(&address, memory, 0);
    CU(cuThreadExchangeStreamCaptureMode)(&mode);
    waited = CU(cuStreamWaitValue32)(CU_STREAM_PER_THREAD, address, 0, CU_STREAM_WAIT_VALUE_EQ);
  }).join();
  EXPECT_OK(registered);
  EXPECT_OK(waited);
  EXPECT_OK(CU(cuStreamEndCapture)(s, &graph));
  EXPECT_OK(CU(cuGraphDestroy)(graph));
  EXPECT_OK(CU(cuCtxSynchronize)());
  EXPECT_OK(CU(cuMemHostUnregister)(memory));
  munmap(memory, 8192);
}

TEST_F(Values, RefuseWhatMakesNoSense) {
  CUdeviceptr word = alloc(8);
  CUstream s = stream();
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            CU(cuStreamWriteValue32)(s, word, 1, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, CU(cuStreamWriteValue32)(s, word + 2, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, CU(cuStreamWaitValue32)(s, word + 2, 1, 0));
}

}  // namespace
}  // namespace conformance
