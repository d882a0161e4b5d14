// Device and pinned memory of the simulated GPU, as a program that moves memory away and back
// relies on it: nothing of what was freed comes back by itself, and pinned memory has an end.
#include <signal.h>

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

TEST_F(Simulation, WhatWasUnmappedAndReleasedIsGone) {
  EXPECT_EQ(0, in_process([] {
              const CUfunction kernel = start_gpu("fill");
              Mapped memory;
              if (!kernel || !memory.reserve() || !memory.bring()) return 1;
              fill(kernel, memory.at, 7);
              if (count_of(words_at(memory.at), 7) != kWords) return 2;
              if (!memory.send_away() || !memory.bring()) return 3;
              return count_of(words_at(memory.at), 7) == 0 ? 0 : 4;
            }));
}

TEST_F(Simulation, FreshMemoryHasThePatternWhenAskedFor) {
  EXPECT_EQ(0, in_process([] {
              setenv("FAKECUDA_PATTERN", "1", 1);
              const CUfunction kernel = start_gpu("fill");
              Mapped memory;
              CUdeviceptr plain = 0;
              if (!kernel || !memory.reserve() || !memory.bring()) return 1;
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
  EXPECT_EQ(128 + SIGSEGV, in_process([] {
              const CUfunction kernel = start_gpu("fill");
              Mapped memory;
              if (!kernel || !memory.reserve() || !memory.bring() || !memory.send_away()) return 1;
              signal(SIGSEGV, SIG_DFL);  // a sanitizer would turn it into an exit
              fill(kernel, memory.at, 7);
              return 0;
            }));
}

TEST_F(Simulation, ACopyOutOfUnmappedMemoryFaults) {
  EXPECT_EQ(128 + SIGSEGV, in_process([] {
              Mapped memory;
              if (!start_gpu() || !memory.reserve() || !memory.bring()) return 1;
              if (!memory.send_away()) return 2;
              signal(SIGSEGV, SIG_DFL);
              words_at(memory.at);
              return 0;
            }));
}

TEST_F(Simulation, AGraphOverUnmappedMemoryFaultsAndOverMemoryThatIsBackDoesNot) {
  const auto replay = [](bool back) {
    CUfunction kernel = start_gpu("fill");
    Mapped memory;
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec executable = nullptr;
    if (!kernel || !memory.reserve() || !memory.bring()) return 1;
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
    signal(SIGSEGV, SIG_DFL);
    CU(cuGraphLaunch)(executable, nullptr);
    CU(cuCtxSynchronize)();
    return count_of(words_at(memory.at), 9) == kWords ? 0 : 6;
  };
  EXPECT_EQ(128 + SIGSEGV, in_process([&] { return replay(false); }));
  EXPECT_EQ(0, in_process([&] { return replay(true); }));
}

}  // namespace
