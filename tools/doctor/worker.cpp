#include "tools/doctor/worker.h"

#include <cuda.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <iostream>
#include <string>
#include <thread>

#include "kernels_ptx.h"
#include "switchyard/cuda_library.h"
#include "switchyard/status.h"

namespace switchyard::tools {
namespace {

// clang-format off
#define WORKER_CALLS(CALL) \
  CALL(cuInit) CALL(cuDeviceGetCount) CALL(cuDeviceGet) CALL(cuDeviceGetUuid_v2) \
  CALL(cuDevicePrimaryCtxRetain) CALL(cuCtxSetCurrent) CALL(cuModuleLoadData) \
  CALL(cuModuleGetFunction) CALL(cuStreamCreate) CALL(cuEventCreate) CALL(cuEventRecord) \
  CALL(cuEventSynchronize) CALL(cuLaunchKernel)
// clang-format on
SWITCHYARD_CUDA_FUNCTIONS(Driver, WORKER_CALLS);

// The 32 hexadecimal digits of a UUID in any writing.
std::string digits_of(const std::string& uuid) {
  std::string digits;
  const auto start = uuid.find('-');  // behind GPU or MIG
  for (const char c : uuid.substr(start == std::string::npos ? 0 : start)) {
    if (c != '-') digits += c;
  }
  return digits;
}

std::string digits_of(const CUuuid& uuid) {
  std::string digits;
  for (const char byte : uuid.bytes)
    digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return digits;
}

class Worker {
 public:
  // Null, or what failed.
  const char* prepare(const std::string& wanted) {
    if (driver_.fill(cuda::in_library(cuda::open_library())) != nullptr) {
      return "libcuda.so.1 does not load";
    }
    if (driver_.cuInit(0) != CUDA_SUCCESS) return "cuInit fails";
    int count = 0;
    driver_.cuDeviceGetCount(&count);
    CUdevice device = -1;
    for (int i = 0; i < count && device < 0; ++i) {
      CUdevice candidate = 0;
      CUuuid uuid{};
      if (driver_.cuDeviceGet(&candidate, i) == CUDA_SUCCESS &&
          driver_.cuDeviceGetUuid_v2(&uuid, candidate) == CUDA_SUCCESS &&
          digits_of(uuid) == digits_of(wanted)) {
        device = candidate;
      }
    }
    if (device < 0) return "this process does not see that GPU (CUDA_VISIBLE_DEVICES?)";
    CUcontext context = nullptr;
    if (driver_.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
        driver_.cuCtxSetCurrent(context) != CUDA_SUCCESS) {
      return "no context can be made (memory full?)";
    }
    CUmodule module = nullptr;
    if (driver_.cuModuleLoadData(&module, kKernelsPtx) != CUDA_SUCCESS ||
        driver_.cuModuleGetFunction(&busy_, module, "busy") != CUDA_SUCCESS) {
      return "the kernel does not load";
    }
    if (driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
      return "no stream";
    for (CUevent& event : marks_) {
      if (driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return "no event";
      if (!queue(event)) return "the kernel does not start";
    }
    return step() ? nullptr : "the kernel does not end";
  }

  // One batch ends, the next is queued behind the one that runs, so that the GPU never waits.
  bool step() {
    CUevent& oldest = marks_[turn_];
    turn_ = (turn_ + 1) % marks_.size();
    if (driver_.cuEventSynchronize(oldest) != CUDA_SUCCESS) return false;
    done_.fetch_add(kBatch, std::memory_order_relaxed);
    return queue(oldest);
  }

  std::uint64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  static constexpr unsigned kBatch = 8;
  static constexpr unsigned kMicroseconds = 100;

  bool queue(CUevent mark) {
    unsigned microseconds = kMicroseconds;
    void* parameters[] = {&microseconds};
    for (unsigned i = 0; i < kBatch; ++i) {
      if (driver_.cuLaunchKernel(busy_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr) !=
          CUDA_SUCCESS) {
        return false;
      }
    }
    return driver_.cuEventRecord(mark, stream_) == CUDA_SUCCESS;
  }

  Driver driver_;
  CUfunction busy_ = nullptr;
  CUstream stream_ = nullptr;
  std::array<CUevent, 3> marks_{};
  std::size_t turn_ = 0;
  std::atomic<std::uint64_t> done_{0};
};

void answer(const Worker& worker) {
  for (std::string line; std::getline(std::cin, line);) {
    const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
    fmt::print("{} {:.6f}\n", worker.done(), now.count());
    std::fflush(stdout);
  }
  ::_exit(kOk);  // whatever the GPU does; nobody listens any more
}

}  // namespace

int run_worker(const std::string& uuid) {
  static Worker worker;  // the answering thread outlives this frame
  if (const char* why = worker.prepare(uuid)) {
    fmt::print("error {}\n", why);
    return kFailure;
  }
  fmt::print("ready\n");
  std::fflush(stdout);
  std::thread(answer, std::cref(worker)).detach();
  while (worker.step()) {
  }
  return kFailure;
}

}  // namespace switchyard::tools
