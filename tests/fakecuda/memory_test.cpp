// Device and pinned memory of the simulated GPU, as a program that moves memory away and back
// relies on it. Freed contents do not come back by themselves, and pinned memory has an end.
#include <algorithm>
#include <vector>

#include "loaded.h"

using namespace fakecuda_tests;

namespace {

constexpr std::size_t kBytes = 4 << 20, kWords = kBytes / 4;

// Two chunks' worth of addresses with memory behind them.
struct Mapped {
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle handle = 0;

  bool reserve() { return CU(cuMemAddressReserve)(&at, kBytes, 0, 0, 0) == CUDA_SUCCESS; }
  bool bring() {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access{};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CU(cuMemCreate)(&handle, kBytes, &prop, 0) == CUDA_SUCCESS &&
           CU(cuMemMap)(at, kBytes, 0, handle, 0) == CUDA_SUCCESS &&
           CU(cuMemSetAccess)(at, kBytes, &access, 1) == CUDA_SUCCESS;
  }
  bool send_away() {
    return CU(cuMemUnmap)(at, kBytes) == CUDA_SUCCESS && CU(cuMemRelease)(handle) == CUDA_SUCCESS;
  }
};

std::vector<std::uint32_t> words_at(CUdeviceptr at) {
  std::vector<std::uint32_t> words(kWords);
  if (CU(cuMemcpyDtoH)(words.data(), at, kBytes) != CUDA_SUCCESS) words.clear();
  return words;
}

std::size_t count_of(const std::vector<std::uint32_t>& words, std::uint32_t word) {
  return static_cast<std::size_t>(std::count(words.begin(), words.end(), word));
}

void fill(CUfunction kernel, CUdeviceptr at, std::uint32_t word) {
  std::uint64_t count = kWords;
  void* arguments[] = {&at, &word, &count};
  CU(cuLaunchKernel)(kernel, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr);
  CU(cuCtxSynchronize)();
}

// The kernel that fills; null: no GPU, or no memory.
CUfunction begin(Mapped& memory) {
  const CUfunction kernel = start_gpu("fill");
  return kernel && memory.reserve() && memory.bring() ? kernel : nullptr;
}

TEST_F(Simulation, WhatWasUnmappedAndReleasedIsGone) {
  EXPECT_EQ(0, in_process([] {
              Mapped memory;
              const CUfunction kernel = begin(memory);
              if (!kernel) return 1;
              fill(kernel, memory.at, 7);
              if (count_of(words_at(memory.at), 7) != kWords) return 2;
              if (!memory.send_away() || !memory.bring()) return 3;
              return count_of(words_at(memory.at), 7) == 0 ? 0 : 4;
            }));
}

TEST_F(Simulation, WorkOfAGpuWithoutAccessIsAnErrorOfItsContext) {
  EXPECT_EQ(0, in_process([] {
              const OwnGpus two("2");
              Mapped memory;
              if (!begin(memory)) return 1;
              CUcontext first = nullptr, second = nullptr;
              CU(cuCtxGetCurrent)(&first);
              CU(cuDevicePrimaryCtxRetain)(&second, 1);
              // By a copy between the two it needs none.
              CUdeviceptr there = 0;
              CU(cuCtxSetCurrent)(second);
              if (CU(cuMemAlloc)(&there, kBytes) != CUDA_SUCCESS) return 2;
              if (CU(cuMemcpyPeer)(memory.at, first, there, second, kBytes)) return 3;
              CUmemAccessDesc access{};
              access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {1}};
              access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
              if (CU(cuMemSetAccess)(memory.at, kBytes, &access, 1)) return 4;
              if (CU(cuMemcpyDtoD)(there, memory.at, kBytes)) return 5;
              if (CU(cuMemsetD8)(memory.at, 1, 1) != CUDA_ERROR_ILLEGAL_ADDRESS) return 6;
              CU(cuCtxSetCurrent)(first);
              return CU(cuMemsetD8)(memory.at, 1, 1) == CUDA_SUCCESS ? 0 : 7;
            }));
}

TEST_F(Simulation, ACopyPastTheEndIsRefused) {
  EXPECT_EQ(0, in_process([] {
              CUdeviceptr small = 0, at = 0;
              std::vector<char> host(2 * kBytes);
              if (!start_gpu("fill")) return 1;
              CU(cuMemAlloc)(&small, 4096);
              CU(cuMemAlloc)(&at, kBytes);
              const CUresult wrong = CUDA_ERROR_INVALID_VALUE;
              if (CU(cuMemcpyHtoD)(at, host.data(), kBytes + 1) != wrong) return 2;
              if (CU(cuMemcpyDtoH)(host.data(), at + kBytes, 1) != wrong) return 3;
              if (CU(cuMemcpyDtoD)(at, small, 4097) != wrong) return 4;
              if (CU(cuMemsetD8)(at, 0, kBytes + 1) != wrong) return 5;
              if (CU(cuMemcpyHtoD)(0x1000, host.data(), 1) != wrong) return 6;
              return CU(cuMemcpyHtoD)(at, host.data(), kBytes) == CUDA_SUCCESS ? 0 : 7;
            }));
}

TEST_F(Simulation, WorkOnMemoryThatHasGoneIsAnErrorOfTheContext) {
  EXPECT_EQ(0, in_process([] {
              Mapped memory;
              const CUfunction kernel = begin(memory);
              if (!kernel) return 1;
              fill(kernel, memory.at, 7);
              if (CU(cuCtxSynchronize)() != CUDA_SUCCESS || !memory.send_away()) return 2;
              fill(kernel, memory.at, 8);
              if (CU(cuCtxSynchronize)() != CUDA_ERROR_ILLEGAL_ADDRESS) return 3;
              CUdeviceptr more = 0;
              if (CU(cuMemAlloc)(&more, kBytes) != CUDA_ERROR_ILLEGAL_ADDRESS) return 4;
              // Another context begins without it.
              CUcontext anew = nullptr;
              CU(cuDevicePrimaryCtxReset)(0);
              CU(cuDevicePrimaryCtxRetain)(&anew, 0);
              CU(cuCtxSetCurrent)(anew);
              return CU(cuMemAlloc)(&more, kBytes) == CUDA_SUCCESS ? 0 : 5;
            }));
}

TEST_F(Simulation, WorkPutBeforeAFreeInStreamOrderStillHasItsMemory) {
  EXPECT_EQ(0, in_process([] {
              CUstream stream = nullptr;
              CUdeviceptr at = 0;
              if (!start_gpu("fill")) return 1;
              CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
              for (int i = 0; i < 50; ++i) {
                if (CU(cuMemAllocAsync)(&at, kBytes, stream) != CUDA_SUCCESS) return 2;
                if (CU(cuMemsetD8Async)(at, 1, kBytes, stream) != CUDA_SUCCESS) return 3;
                if (CU(cuMemFreeAsync)(at, stream) != CUDA_SUCCESS) return 4;
                if (CU(cuMemFreeAsync)(at, stream) == CUDA_SUCCESS) return 5;
              }
              return CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS ? 0 : 6;
            }));
}

TEST_F(Simulation, FreshMemoryHasThePatternWhenAskedFor) {
  EXPECT_EQ(0, in_process([] {
              setenv("FAKECUDA_PATTERN", "1", 1);
              Mapped memory;
              const CUfunction kernel = begin(memory);
              CUdeviceptr plain = 0;
              if (!kernel) return 1;
              if (CU(cuMemAlloc)(&plain, kBytes) != CUDA_SUCCESS) return 2;
              const std::uint32_t pattern = 0xdeadf00d;  // memory.h: kPattern
              for (const CUdeviceptr at : {memory.at, plain}) {
                const auto words = words_at(at);
                if (words.empty() || words[0] != pattern) return 3;
                if (count_of(words, pattern) != kWords / 16) return 4;
              }
              fill(kernel, memory.at, 0);  // what is zero is the contents, too
              if (!memory.send_away() || !memory.bring()) return 5;
              return count_of(words_at(memory.at), 0) < kWords ? 0 : 6;
            }));
}

TEST_F(Simulation, PinnedMemoryHasAnEnd) {
  EXPECT_EQ(0, in_process([] {
              setenv("FAKECUDA_PINNED", "6MiB", 1);
              if (!start_gpu()) return 1;
              std::vector<char> own(kBytes);
              void* pinned = nullptr;
              void* more = nullptr;
              if (CU(cuMemHostRegister)(own.data(), kBytes, 0) != CUDA_SUCCESS) return 2;
              if (CU(cuMemHostAlloc)(&pinned, 4 << 20, 0) != CUDA_ERROR_OUT_OF_MEMORY) return 3;
              if (CU(cuMemHostAlloc)(&pinned, 2 << 20, 0) != CUDA_SUCCESS) return 4;
              if (CU(cuMemAllocHost)(&more, 4096) != CUDA_ERROR_OUT_OF_MEMORY) return 5;
              if (CU(cuMemHostUnregister)(own.data()) != CUDA_SUCCESS) return 6;
              if (CU(cuMemHostAlloc)(&more, 4 << 20, 0) != CUDA_SUCCESS) return 7;
              if (CU(cuMemHostRegister)(own.data(), kBytes, 0) != CUDA_ERROR_OUT_OF_MEMORY)
                return 8;
              if (CU(cuMemFreeHost)(more) != CUDA_SUCCESS) return 9;
              return CU(cuMemHostRegister)(own.data(), kBytes, 0) == CUDA_SUCCESS ? 0 : 10;
            }));
}

// What a kernel or a copy does that comes too late for its memory. A real GPU answers with
// CUDA_ERROR_ILLEGAL_ADDRESS from then on and the context is lost; here the process ends.
TEST_F(Simulation, AKernelOverUnmappedMemoryFaults) {
  EXPECT_EQ(0, in_process([] {
              Mapped memory;
              const CUfunction kernel = begin(memory);
              if (!kernel || !memory.send_away()) return 1;
              fill(kernel, memory.at, 7);
              return CU(cuCtxSynchronize)() == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 2;
            }));
}

TEST_F(Simulation, ACopyOutOfUnmappedMemoryIsRefused) {
  EXPECT_EQ(0, in_process([] {
              Mapped memory;
              if (!start_gpu() || !memory.reserve() || !memory.bring()) return 1;
              if (!memory.send_away()) return 2;
              return words_at(memory.at).empty() ? 0 : 3;
            }));
}

TEST_F(Simulation, AGraphOverUnmappedMemoryFaultsAndOverMemoryThatIsBackDoesNot) {
  const auto replay = [](bool back) {
    Mapped memory;
    CUfunction kernel = begin(memory);
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec executable = nullptr;
    if (!kernel) return 1;
    std::uint32_t word = 9;
    std::uint64_t count = kWords;
    void* arguments[] = {&memory.at, &word, &count};
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = kernel;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = arguments;
    if (CU(cuGraphCreate)(&graph, 0) != CUDA_SUCCESS) return 2;
    if (CU(cuGraphAddKernelNode)(&node, graph, nullptr, 0, &params) != CUDA_SUCCESS) return 3;
    if (CU(cuGraphInstantiateWithFlags)(&executable, graph, 0) != CUDA_SUCCESS) return 4;
    if (!memory.send_away() || (back && !memory.bring())) return 5;
    CU(cuGraphLaunch)(executable, nullptr);
    if (CU(cuCtxSynchronize)() == CUDA_ERROR_ILLEGAL_ADDRESS) return 7;
    return count_of(words_at(memory.at), 9) == kWords ? 0 : 6;
  };
  EXPECT_EQ(7, in_process([&] { return replay(false); }));
  EXPECT_EQ(0, in_process([&] { return replay(true); }));
}

// A graph that allocates, fills and frees; the stream stands between its two launches.
TEST_F(Simulation, GraphMemoryOfALaunchThatIsQueuedIsNotTrimmed) {
  EXPECT_EQ(0, in_process([] {
              const CUfunction kernel = start_gpu("fill");
              CUgraph graph = nullptr;
              CUgraphNode made = nullptr, filled = nullptr, freed = nullptr;
              CUgraphExec executable = nullptr;
              CUstream stream = nullptr;
              CUevent first = nullptr;
              void* word = nullptr;
              CUDA_MEM_ALLOC_NODE_PARAMS memory{};
              memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
              memory.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
              memory.bytesize = kBytes;
              if (!kernel || CU(cuGraphCreate)(&graph, 0) != CUDA_SUCCESS) return 1;
              if (CU(cuGraphAddMemAllocNode)(&made, graph, nullptr, 0, &memory)) return 2;
              std::uint32_t value = 9;
              std::uint64_t count = kWords;
              void* arguments[] = {&memory.dptr, &value, &count};
              CUDA_KERNEL_NODE_PARAMS params{};
              params.func = kernel;
              params.gridDimX = params.gridDimY = params.gridDimZ = 1;
              params.blockDimX = params.blockDimY = params.blockDimZ = 1;
              params.kernelParams = arguments;
              if (CU(cuGraphAddKernelNode)(&filled, graph, &made, 1, &params)) return 3;
              if (CU(cuGraphAddMemFreeNode)(&freed, graph, &filled, 1, memory.dptr)) return 4;
              if (CU(cuGraphInstantiateWithFlags)(&executable, graph, 0)) return 5;
              if (CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING)) return 6;
              if (CU(cuEventCreate)(&first, CU_EVENT_DISABLE_TIMING)) return 7;
              if (CU(cuMemHostAlloc)(&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP)) return 8;
              const auto at = reinterpret_cast<CUdeviceptr>(word);
              if (CU(cuGraphLaunch)(executable, stream)) return 9;
              if (CU(cuEventRecord)(first, stream)) return 10;
              if (CU(cuStreamWaitValue32)(stream, at, 1, CU_STREAM_WAIT_VALUE_EQ)) return 11;
              if (CU(cuGraphLaunch)(executable, stream)) return 12;
              if (CU(cuEventSynchronize)(first)) return 13;
              if (CU(cuDeviceGraphMemTrim)(0)) return 14;
              __atomic_store_n(static_cast<std::uint32_t*>(word), 1, __ATOMIC_SEQ_CST);
              if (CU(cuStreamSynchronize)(stream)) return 15;
              cuuint64_t reserved = 1;
              if (CU(cuDeviceGraphMemTrim)(0)) return 16;
              if (CU(cuDeviceGetGraphMemAttribute)(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                                   &reserved)) {
                return 17;
              }
              return reserved == 0 ? 0 : 18;
            }));
}

}  // namespace
