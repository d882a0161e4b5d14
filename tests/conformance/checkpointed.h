// A process that takes a checkpoint of itself, and each step of it.
//
// Threading: a thread for the steps that has nothing to do with CUDA (elsewhere).
#pragma once

#include <unistd.h>

#include <thread>
#include <utility>
#include <vector>

#include "children.h"
#include "driver.h"

namespace conformance {

// A context, memory with known words, and a reservation of addresses with nothing in it.
struct Process {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0, reserved = 0;
  static constexpr std::size_t kBytes = 16 << 20;

  int begin() {
    CHECK(101, CU(cuInit)(0) == CUDA_SUCCESS);
    CHECK(102, CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
    CHECK(103, CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
    CHECK(104, CU(cuMemAlloc)(&memory, kBytes) == CUDA_SUCCESS);
    CHECK(105, CU(cuMemsetD32)(memory, 77, kBytes / 4) == CUDA_SUCCESS);
    CHECK(106, CU(cuMemAddressReserve)(&reserved, kBytes, 0, 0, 0) == CUDA_SUCCESS);
    return 0;
  }
  // Memory where nothing was.
  int map() const {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle = 0;
    CHECK(111, CU(cuMemCreate)(&handle, kBytes, &prop, 0) == CUDA_SUCCESS);
    CHECK(112, CU(cuMemMap)(reserved, kBytes, 0, handle, 0) == CUDA_SUCCESS);
    CHECK(113, CU(cuMemSetAccess)(reserved, kBytes, &access, 1) == CUDA_SUCCESS);
    CHECK(114, CU(cuMemsetD32)(reserved, 5, kBytes / 4) == CUDA_SUCCESS);
    return 0;
  }
  int check() const {
    std::vector<std::uint32_t> words(kBytes / 4);
    CHECK(121, CU(cuMemcpyDtoH)(words.data(), memory, kBytes) == CUDA_SUCCESS);
    for (const std::uint32_t word : words) CHECK(122, word == 77);
    return map();
  }
};

inline constexpr unsigned kLockMs = 10'000;

inline CUresult lock(unsigned timeout_ms = kLockMs) {
  CUcheckpointLockArgs args{};
  args.timeoutMs = timeout_ms;
  return CU(cuCheckpointProcessLock)(getpid(), &args);
}
inline CUresult take() { return CU(cuCheckpointProcessCheckpoint)(getpid(), nullptr); }
inline CUresult unlock() { return CU(cuCheckpointProcessUnlock)(getpid(), nullptr); }
inline CUresult restore(std::vector<CUcheckpointGpuPair> pairs = {}) {
  switchyard::cuda::RestoreArgs args{};
  args.gpu_pairs = pairs.empty() ? nullptr : pairs.data();
  args.gpu_pairs_count = static_cast<unsigned>(pairs.size());
  return CU(cuCheckpointProcessRestore)(getpid(), args.get());
}
inline int state() {
  CUprocessState now{};
  return CU(cuCheckpointProcessGetState)(getpid(), &now) == CUDA_SUCCESS ? now : -1;
}

// On a thread that has nothing to do with CUDA, as a library's own.
template <class Body>
int elsewhere(Body body) {
  int result = 0;
  std::thread([&] { result = body(); }).join();
  return result;
}

// Each GPU takes what the one before it had.
inline std::vector<CUcheckpointGpuPair> next_gpus() {
  int gpus = 0;
  CU(cuDeviceGetCount)(&gpus);
  std::vector<CUcheckpointGpuPair> pairs(static_cast<std::size_t>(gpus));
  for (int gpu = 0; gpu < gpus; ++gpu) {
    CU(cuDeviceGetUuid)(&pairs[gpu].oldUuid, gpu);
    CU(cuDeviceGetUuid)(&pairs[gpu].newUuid, (gpu + 1) % gpus);
  }
  return pairs;
}

// The first two GPUs take each other's place; with one, nothing moves.
inline std::vector<CUcheckpointGpuPair> exchanged_gpus() {
  int gpus = 0;
  CU(cuDeviceGetCount)(&gpus);
  std::vector<CUcheckpointGpuPair> pairs(static_cast<std::size_t>(gpus));
  for (int gpu = 0; gpu < gpus; ++gpu) {
    CU(cuDeviceGetUuid)(&pairs[gpu].oldUuid, gpu);
    pairs[gpu].newUuid = pairs[gpu].oldUuid;
  }
  if (gpus > 1) std::swap(pairs[0].newUuid, pairs[1].newUuid);
  return gpus > 1 ? pairs : std::vector<CUcheckpointGpuPair>();
}

}  // namespace conformance
