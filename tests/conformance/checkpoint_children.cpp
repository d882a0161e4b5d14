// The processes of checkpoint_test.cpp.
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "checkpointed.h"
#include "children.h"
#include "driver.h"

namespace conformance {
namespace {

int checkpoint() {
  Process process;
  if (const int wrong = process.begin()) return wrong;
  for (int turn = 0; turn < 2; ++turn) {
    const int wrong = elsewhere([] {
      CHECK(1, state() == CU_PROCESS_STATE_RUNNING);
      CHECK(2, lock() == CUDA_SUCCESS && state() == CU_PROCESS_STATE_LOCKED);
      CHECK(3, take() == CUDA_SUCCESS && state() == CU_PROCESS_STATE_CHECKPOINTED);
      CHECK(4, restore() == CUDA_SUCCESS && state() == CU_PROCESS_STATE_LOCKED);
      CHECK(5, unlock() == CUDA_SUCCESS && state() == CU_PROCESS_STATE_RUNNING);
      return 0;
    });
    if (wrong) return wrong;
  }
  return process.check();
}

int checkpoint_holds() {
  Process process;
  if (const int wrong = process.begin()) return wrong;
  std::atomic<bool> go{false}, done{false};
  std::thread other([&] {
    while (!go) std::this_thread::yield();
    CUdeviceptr more = 0;
    CU(cuCtxSetCurrent)(process.context);
    if (CU(cuMemAlloc)(&more, 4096) == CUDA_SUCCESS) done = true;
  });
  const int wrong = elsewhere([&] {
    CHECK(1, lock() == CUDA_SUCCESS);
    go = true;
    usleep(100'000);
    CHECK(2, !done);
    CHECK(3, unlock() == CUDA_SUCCESS);
    return 0;
  });
  if (wrong) _exit(wrong);
  other.join();
  CHECK(4, done);
  return process.check();
}

// Work that does not end: the process goes on.
int checkpoint_late() {
  Process process;
  if (const int wrong = process.begin()) return wrong;
  std::uint32_t* word = nullptr;
  CUdeviceptr address = 0;
  CUstream stream = nullptr;
  CHECK(1, CU(cuMemHostAlloc)(reinterpret_cast<void**>(&word), 4, CU_MEMHOSTALLOC_DEVICEMAP) ==
               CUDA_SUCCESS);
  *word = 0;
  CHECK(2, CU(cuMemHostGetDevicePointer)(&address, word, 0) == CUDA_SUCCESS);
  CHECK(3, CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(4, CU(cuStreamWaitValue32)(stream, address, 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
  const int wrong = elsewhere([] {
    CHECK(5, lock(200) == CUDA_ERROR_NOT_READY);
    CHECK(6, state() == CU_PROCESS_STATE_RUNNING);
    return 0;
  });
  __atomic_store_n(word, 1u, __ATOMIC_RELEASE);
  if (wrong) return wrong;
  CHECK(7, CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
  return process.check();
}

int checkpoint_states() {
  Process process;
  if (const int wrong = process.begin()) return wrong;
  return elsewhere([] {
    CHECK(1, take() == CUDA_ERROR_ILLEGAL_STATE);
    CHECK(2, restore() == CUDA_ERROR_ILLEGAL_STATE);
    CHECK(3, unlock() == CUDA_ERROR_ILLEGAL_STATE);
    CHECK(4, lock() == CUDA_SUCCESS);
    CHECK(5, lock() == CUDA_ERROR_ILLEGAL_STATE);
    CHECK(6, unlock() == CUDA_SUCCESS);
    return 0;
  });
}

int checkpoint_pairs() {
  Process process;
  if (const int wrong = process.begin()) return wrong;
  CUcheckpointGpuPair nowhere = next_gpus()[0];
  memset(&nowhere.newUuid, 9, sizeof nowhere.newUuid);
  const int wrong = elsewhere([&] {
    CHECK(1, lock() == CUDA_SUCCESS && take() == CUDA_SUCCESS);
    CHECK(2, restore({nowhere}) == CUDA_ERROR_INVALID_VALUE);
    CHECK(3, restore() == CUDA_SUCCESS && unlock() == CUDA_SUCCESS);
    return 0;
  });
  return wrong ? wrong : process.check();
}

int checkpoint_moves() {
  Process process;
  if (const int wrong = process.begin()) return wrong;
  const std::vector<CUcheckpointGpuPair> pairs = next_gpus();
  const int wrong = elsewhere([&] {
    CHECK(1, lock() == CUDA_SUCCESS && take() == CUDA_SUCCESS);
    CHECK(2, restore({pairs[0]}) == CUDA_ERROR_INVALID_VALUE);
    CHECK(3, restore(pairs) == CUDA_SUCCESS && unlock() == CUDA_SUCCESS);
    return 0;
  });
  return wrong ? wrong : process.check();
}

}  // namespace

int checkpoint_child(const std::string& name) {
  if (name == "checkpoint") return checkpoint();
  if (name == "checkpoint-holds") return checkpoint_holds();
  if (name == "checkpoint-late") return checkpoint_late();
  if (name == "checkpoint-states") return checkpoint_states();
  if (name == "checkpoint-pairs") return checkpoint_pairs();
  if (name == "checkpoint-moves") return checkpoint_moves();
  return checkpoint_part_child(name);
}

}  // namespace conformance
