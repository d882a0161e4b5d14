// The simulated GPU from outside: processes that share it, and the control device.
//
// A worker process saturates the GPU with kernels until it is told to stop. Its share is read from
// the simulation's own clocks, so the machine's speed doesn't matter.
#include <cuda.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "loaded.h"
#include "report.h"
#include "stop.h"
#include "switchyard/nvml_abi.h"

using namespace fakecuda_tests;

namespace {

// --- the requests of the driver's kernel module, as a program that interposes ioctl sees them ---
struct AllocCall {
  std::uint32_t root, parent, object, object_class;
  std::uint64_t params, rights;
  std::uint32_t params_size, flags, status, reserved;
};
struct ControlCall {
  std::uint32_t client, object, command, flags;
  std::uint64_t params;
  std::uint32_t params_size, status;
};
constexpr unsigned long kControl = 0xc020462a;

struct Seen {
  int fd = -1;
  std::uint32_t client = 0, group = 0;
  std::uint64_t slice_us = 0;
};
Seen seen;
std::vector<std::uint32_t> group_engines;

using Ioctl = int (*)(int, unsigned long, void*);

// Sets the slice of this process's compute group as an interposer does: through libcuda's ioctl.
std::uint32_t set_slice(int fd, std::uint32_t object, std::uint64_t us) {
  ControlCall call{};
  call.client = seen.client;
  call.object = object;
  call.command = 0xa06c0103;
  call.params = reinterpret_cast<std::uint64_t>(&us);
  call.params_size = sizeof us;
  if (symbol<Ioctl>("ioctl")(fd, kControl, &call) != 0) return ~0u;
  return call.status;
}

// The worker: kernels of 105 us (106 with their start) without end.
void saturate(std::uint64_t slice_us) {
  CUfunction busy = start_gpu();
  if (!busy || set_slice(seen.fd, seen.group, slice_us) != 0) _exit(1);
  unsigned us = 105;
  void* arguments[] = {&us};
  CUstream stream = nullptr;
  CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
  for (;;) CU(cuLaunchKernel)(busy, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
}

struct Process {
  explicit Process(const std::function<void()>& body) : pid(fork()) {
    if (pid != 0) return;
    body();
    _exit(0);
  }
  ~Process() { end(); }
  int end() {
    if (pid <= 0) return 0;
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    pid = -1;
    return status;
  }
  pid_t pid;
};

FakecudaEngine compute_engine() {
  FakecudaEngine engine{};
  symbol<decltype(&fakecuda_engine)>("fakecuda_engine")(0, 0, &engine);
  return engine;
}

struct Shares {
  std::uint32_t slice_a, slice_b;
  double kernels_a, kernels_b;  // a second, as measured
};

class MeasuredShares : public Simulation, public testing::WithParamInterface<Shares> {};

TEST_P(MeasuredShares, AreReproducedWithinFivePercent) {
  const Shares row = GetParam();
  Process a([&] { saturate(row.slice_a); }), b([&] { saturate(row.slice_b); });
  ASSERT_TRUE(eventually([&] {
    return group_of(a.pid).operations > 10 && group_of(b.pid).operations > 10 &&
           group_of(a.pid).slice_us == row.slice_a && group_of(b.pid).slice_us == row.slice_b;
  }));
  const FakecudaGroup a0 = group_of(a.pid), b0 = group_of(b.pid);
  const FakecudaEngine e0 = compute_engine();
  constexpr std::uint64_t kPlayNs = 700'000'000;
  ASSERT_TRUE(eventually([&] {
    return group_of(a.pid).busy_ns - a0.busy_ns + group_of(b.pid).busy_ns - b0.busy_ns > kPlayNs;
  }));
  const FakecudaGroup a1 = group_of(a.pid), b1 = group_of(b.pid);
  const FakecudaEngine e1 = compute_engine();
  const double busy_a = static_cast<double>(a1.busy_ns - a0.busy_ns);
  const double busy_b = static_cast<double>(b1.busy_ns - b0.busy_ns);
  const double all = busy_a + busy_b + static_cast<double>(e1.switch_ns - e0.switch_ns);
  EXPECT_NEAR(9455 * busy_a / all / row.kernels_a, 1, 0.05);
  EXPECT_NEAR(9455 * busy_b / all / row.kernels_b, 1, 0.05);
}

INSTANTIATE_TEST_SUITE_P(TwoSaturatingProcesses, MeasuredShares,
                         testing::Values(Shares{2048, 2048, 4275, 4272},
                                         Shares{10000, 10000, 4615, 4641},
                                         Shares{8000, 2000, 7278, 1805},
                                         Shares{20000, 5000, 7435, 1866},
                                         Shares{200, 200, 2038, 2019}),
                         [](const auto& param) {
                           return "Slices" + std::to_string(param.param.slice_a) + "And" +
                                  std::to_string(param.param.slice_b);
                         });

TEST_F(Simulation, AKilledHolderLosesTheEngine) {
  Process a([] { saturate(50'000); }), b([] { saturate(2048); });
  ASSERT_TRUE(eventually(
      [&] { return group_of(a.pid).operations > 10 && group_of(b.pid).operations > 10; }));
  const pid_t gone = a.pid;
  a.end();
  const std::uint64_t before = group_of(b.pid).operations;
  EXPECT_TRUE(eventually([&] { return group_of(b.pid).operations > before + 1000; }));
  EXPECT_EQ(0, group_of(gone).pid);
}

TEST_F(Simulation, AStoppedHolderKeepsNobodyWaiting) {
  Process a([] { saturate(2048); }), b([] { saturate(2048); });
  ASSERT_TRUE(eventually(
      [&] { return group_of(a.pid).operations > 10 && group_of(b.pid).operations > 10; }));
  ASSERT_TRUE(fakecuda::stop_process(state_file(), a.pid));
  const std::uint64_t before = group_of(b.pid).operations;
  EXPECT_TRUE(eventually([&] { return group_of(b.pid).operations > before + 20'000; }));
  const std::uint64_t stopped = group_of(a.pid).operations;
  kill(a.pid, SIGCONT);
  EXPECT_TRUE(eventually([&] { return group_of(a.pid).operations > stopped + 1000; }));
}

TEST_F(Simulation, ASliceMustBeSetOnTheOpenFileThatMadeTheGroup) {
  EXPECT_EQ(0, in_process([&] {
              if (!start_gpu()) return 1;
              if (seen.slice_us != 2048 || seen.group == 0) return 2;
              if (group_engines != std::vector<std::uint32_t>{1, 11, 12, 13}) return 3;
              if (set_slice(seen.fd, seen.group, 777) != 0) return 4;
              if (group_of(getpid()).slice_us != 777) return 5;
              const int copy = dup(seen.fd), fresh = open(state_file().c_str(), O_RDWR);
              if (set_slice(copy, seen.group, 778) != 0) return 6;
              if (set_slice(fresh, seen.group, 779) != 0x23) return 7;
              if (set_slice(seen.fd, 0x1234, 779) != 0x57) return 8;
              return group_of(getpid()).slice_us == 778 ? 0 : 9;
            }));
}

TEST_F(Simulation, WithoutAnInterposerTheDriverAnswersItself) {
  EXPECT_EQ(0, in_process([] {
              seen.fd = -2;  // our ioctl below stands aside
              if (!start_gpu()) return 1;
              return group_of(getpid()).slice_us == 2048 ? 0 : 2;
            }));
}

TEST_F(Simulation, MemoryAndDevicesAreWhatTheFirstProcessSays) {
  EXPECT_EQ(0, in_process([] {
              const OwnGpus three("3");
              if (!start_gpu()) return 1;
              int count = 0;
              std::size_t total = 0, free = 0;
              CUdeviceptr memory = 0;
              CU(cuDeviceGetCount)(&count);
              CU(cuMemGetInfo)(&free, &total);
              if (count != 3 || total != 1u << 30) return 2;
              if (total - free != 8u << 20) return 3;  // the context
              if (CU(cuMemAlloc)(&memory, (1u << 30) - (8u << 20)) != CUDA_SUCCESS) return 4;
              if (CU(cuMemFree)(memory) != CUDA_SUCCESS) return 5;
              return CU(cuMemAlloc)(&memory, 1u << 30) == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 6;
            }));
}

// What a program prints there would be the state's, and the simulated GPU's end.
TEST_F(Simulation, AProgramWithoutStandardFilesPrintsNothingIntoTheState) {
  EXPECT_EQ(0, in_process([] {
              const OwnGpus one("1");
              for (const int fd : {0, 1, 2}) close(fd);
              if (!start_gpu()) return 1;
              for (const int fd : {0, 1, 2}) {
                if (fcntl(fd, F_GETFD) != -1) return 2 + fd;
              }
              return 0;
            }));
}

TEST_F(Simulation, MoreGpusThanItHasRoomForAreAnError) {
  EXPECT_EQ(0, in_process([] {
              const OwnGpus most("20");
              if (!start_gpu()) return 1;
              int count = 0;
              CU(cuDeviceGetCount)(&count);
              return count == 20 ? 0 : 2;
            }));
  EXPECT_EQ(0, in_process([] {
              const OwnGpus too_many("21");
              return CU(cuInit)(0) == CUDA_ERROR_SYSTEM_NOT_READY ? 0 : 1;
            }));
}

// 0-1-2: the outer ones do not reach each other.
TEST_F(Simulation, OnlyGpusThatAreLinkedReachEachOthersMemory) {
  setenv("FAKECUDA_PEERS", "0-1,1-2", 1);
  EXPECT_EQ(0, in_process([] {
              const OwnGpus three("3");
              CUcontext contexts[3] = {};
              if (CU(cuInit)(0) != CUDA_SUCCESS) return 1;
              for (int i = 0; i < 3; ++i) {
                if (CU(cuDevicePrimaryCtxRetain)(&contexts[i], i) != CUDA_SUCCESS) return 2;
              }
              for (int from = 0; from < 3; ++from) {
                if (CU(cuCtxSetCurrent)(contexts[from]) != CUDA_SUCCESS) return 3;
                for (int to = 0; to < 3; ++to) {
                  int can = -1;
                  CU(cuDeviceCanAccessPeer)(&can, from, to);
                  if (can != (from - to == 1 || to - from == 1)) return 4;
                  if (from == to) continue;
                  const CUresult said = CU(cuCtxEnablePeerAccess)(contexts[to], 0);
                  if (said != (can ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)) return 5;
                }
              }
              CUdeviceptr at = 0;
              CUmemAllocationProp prop{};
              prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
              prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
              CUmemGenericAllocationHandle memory = 0;
              CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 1},
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
              if (CU(cuMemCreate)(&memory, 2 << 20, &prop, 0) != CUDA_SUCCESS) return 6;
              if (CU(cuMemAddressReserve)(&at, 2 << 20, 0, 0, 0) != CUDA_SUCCESS) return 7;
              if (CU(cuMemMap)(at, 2 << 20, 0, memory, 0) != CUDA_SUCCESS) return 8;
              if (CU(cuMemSetAccess)(at, 2 << 20, &access, 1) != CUDA_SUCCESS) return 9;
              access.location.id = 2;
              const CUresult said = CU(cuMemSetAccess)(at, 2 << 20, &access, 1);
              return said == CUDA_ERROR_INVALID_DEVICE ? 0 : 10;
            }));
  unsetenv("FAKECUDA_PEERS");
}

TEST_F(Simulation, ATouchOfMemoryWithoutAccessFaults) {
  EXPECT_EQ(0, in_process([] {
              if (!start_gpu()) return 1;
              CUdeviceptr at = 0;
              CUmemAllocationProp prop{};
              prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
              prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
              CUmemGenericAllocationHandle handle = 0;
              if (CU(cuMemAddressReserve)(&at, 2 << 20, 0, 0, 0) != CUDA_SUCCESS) return 2;
              if (CU(cuMemCreate)(&handle, 2 << 20, &prop, 0) != CUDA_SUCCESS) return 3;
              if (CU(cuMemMap)(at, 2 << 20, 0, handle, 0) != CUDA_SUCCESS) return 4;
              return CU(cuMemsetD8)(at, 1, 1) == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 5;
            }));
}

TEST_F(Simulation, ALaunchIntoAFullQueueBlocksWithTheContextsLockHeld) {
  EXPECT_EQ(0, in_process([] {
              CUfunction busy = start_gpu();
              CUcontext context = nullptr;
              CUstream stream = nullptr;
              void* word = nullptr;
              CU(cuCtxGetCurrent)(&context);
              CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
              if (CU(cuMemHostAlloc)(&word, 4, CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS) return 1;
              const auto address = reinterpret_cast<CUdeviceptr>(word);
              if (CU(cuStreamWaitValue32)(stream, address, 1, CU_STREAM_WAIT_VALUE_EQ)) return 2;
              std::atomic<int> launched{0};
              std::thread launcher([&] {
                unsigned us = 0;
                void* arguments[] = {&us};
                CU(cuCtxSetCurrent)(context);
                for (int i = 0; i < 2000; ++i, ++launched) {
                  CU(cuLaunchKernel)(busy, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
                }
              });
              if (!eventually([&] { return launched == 1023; })) return 3;
              // Once the launcher is inside with its next launch, allocations come to a halt.
              std::atomic<long> allocations{0};
              std::atomic<bool> enough{false};
              std::thread allocator([&] {
                CU(cuCtxSetCurrent)(context);
                CUdeviceptr memory = 0;
                for (; !enough; ++allocations) CU(cuMemAlloc)(&memory, 512);
              });
              const bool held = eventually([&] {
                const long before = allocations;
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                return allocations == before;
              });
              enough = true;
              __atomic_store_n(static_cast<std::uint32_t*>(word), 1u, __ATOMIC_RELEASE);
              launcher.join();
              allocator.join();
              return held && launched == 2000 ? 0 : 4;
            }));
}

TEST_F(Simulation, NvmlTellsWhatProcessesUse) {
  Process worker([] {
    CUdeviceptr memory = 0;
    if (!start_gpu() || CU(cuMemAlloc)(&memory, 100 << 20) != CUDA_SUCCESS) _exit(1);
    pause();
  });
  nvmlDevice_t device = nullptr;
  ASSERT_EQ(NVML_SUCCESS, symbol<nvmlReturn_t (*)()>("nvmlInit_v2")());
  auto by_index =
      symbol<nvmlReturn_t (*)(unsigned, nvmlDevice_t*)>("nvmlDeviceGetHandleByIndex_v2");
  ASSERT_EQ(NVML_SUCCESS, by_index(0, &device));
  auto list = symbol<nvmlReturn_t (*)(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*)>(
      "nvmlDeviceGetComputeRunningProcesses_v3");
  nvmlProcessInfo_t info[4];
  EXPECT_TRUE(eventually([&] {
    unsigned count = 4;
    return list(device, &count, info) == NVML_SUCCESS && count == 1 &&
           info[0].pid == static_cast<unsigned>(worker.pid) &&
           info[0].usedGpuMemory == 108ull << 20;
  }));
  auto memory = symbol<nvmlReturn_t (*)(nvmlDevice_t, nvmlMemory_t*)>("nvmlDeviceGetMemoryInfo");
  nvmlMemory_t told{};
  EXPECT_EQ(NVML_SUCCESS, memory(device, &told));
  EXPECT_EQ(108ull << 20, told.used);
  worker.end();
  unsigned count = 4;
  EXPECT_EQ(NVML_SUCCESS, list(device, &count, info));
  EXPECT_EQ(0u, count);
  EXPECT_EQ(NVML_SUCCESS, memory(device, &told));
  EXPECT_EQ(0u, told.used);
}

}  // namespace

// As an interposer stands before libc's: it sees what the driver allocates, and forwards.
extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void* argument = va_arg(list, void*);
  va_end(list);
  if (seen.fd == -2) {
    errno = ENOTTY;
    return -1;
  }
  const int result = symbol<Ioctl>("ioctl")(fd, request, argument);
  if ((request & 0xff) == 0x2b) {
    const auto* call = static_cast<AllocCall*>(argument);
    seen.fd = fd;
    if (call->object_class == 0x41) seen.client = call->object;
    if (call->object_class == 0xa06c) {
      const std::uint32_t engine = reinterpret_cast<std::uint32_t*>(call->params)[3];
      group_engines.push_back(engine);
      if (engine == 1) seen.group = call->object;
    }
  }
  if (request == kControl) {
    seen.slice_us = *reinterpret_cast<std::uint64_t*>(static_cast<ControlCall*>(argument)->params);
  }
  return result;
}
