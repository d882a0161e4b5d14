#include "children.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "driver.h"

namespace conformance {
namespace {

#define CHECK(number, condition) \
  if (!(condition)) return number

int use_gpu() {
  CHECK(1, CU(cuInit)(0) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  std::uint32_t word = 0;
  CHECK(2, CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
  CHECK(3, CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
  CHECK(4, CU(cuMemAlloc)(&memory, 4096) == CUDA_SUCCESS);
  CHECK(5, CU(cuMemsetD32)(memory, 77, 1024) == CUDA_SUCCESS);
  CHECK(6, CU(cuMemcpyDtoH)(&word, memory, 4) == CUDA_SUCCESS && word == 77);
  CHECK(7, CU(cuMemFree)(memory) == CUDA_SUCCESS);
  CHECK(8, CU(cuDevicePrimaryCtxRelease)(0) == CUDA_SUCCESS);
  return 0;
}

int before_init() {
  int count = 0;
  CUdeviceptr memory = 0;
  CHECK(1, CU(cuDeviceGetCount)(&count) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(2, CU(cuMemAlloc)(&memory, 4096) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(3, CU(cuInit)(1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(4, CU(cuInit)(0) == CUDA_SUCCESS);
  CHECK(5, CU(cuInit)(0) == CUDA_SUCCESS);
  CHECK(6, CU(cuMemAlloc)(&memory, 4096) == CUDA_ERROR_INVALID_CONTEXT);
  return 0;
}

int fork_before_init() {
  driver();  // loaded, not initialised
  const pid_t child = fork();
  if (child == 0) _exit(use_gpu());
  const int mine = use_gpu();
  int status = 0;
  waitpid(child, &status, 0);
  return mine ? mine : WEXITSTATUS(status) ? 64 + WEXITSTATUS(status) : 0;
}

int fork_after_init() {
  CHECK(1, use_gpu() == 0);
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    const bool refused = CU(cuInit)(0) == CUDA_ERROR_NOT_INITIALIZED &&
                         CU(cuDeviceGetCount)(&count) == CUDA_ERROR_NOT_INITIALIZED;
    _exit(refused ? 0 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(3, use_gpu() == 0);  // the parent goes on
  return WEXITSTATUS(status);
}

// CUDA_VISIBLE_DEVICES chooses and orders: the last GPU alone, by its UUID.
int visible_one() {
  CHECK(1, CU(cuInit)(0) == CUDA_SUCCESS);
  int count = 0;
  CUuuid uuid{};
  CHECK(2, CU(cuDeviceGetCount)(&count) == CUDA_SUCCESS && count == 1);
  CHECK(3, CU(cuDeviceGetUuid)(&uuid, 0) == CUDA_SUCCESS);
  CUuuid wanted{};
  CHECK(4, ::read(0, &wanted, sizeof wanted) == static_cast<ssize_t>(sizeof wanted));
  CHECK(5, memcmp(&uuid, &wanted, sizeof uuid) == 0);
  return use_gpu();
}

int visible_none() {
  CHECK(1, CU(cuInit)(0) == CUDA_ERROR_NO_DEVICE);
  return 0;
}

// Reads an IPC handle, checks the 1024 words behind it, and changes them.
int ipc() {
  CUipcMemHandle handle;
  CHECK(1, ::read(0, &handle, sizeof handle) == static_cast<ssize_t>(sizeof handle));
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  std::vector<std::uint32_t> words(1024);
  CHECK(2, CU(cuInit)(0) == CUDA_SUCCESS);
  CHECK(3, CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
  CHECK(4, CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
  CHECK(5, CU(cuIpcOpenMemHandle)(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
               CUDA_SUCCESS);
  CHECK(6, CU(cuMemcpyDtoH)(words.data(), memory, 4096) == CUDA_SUCCESS);
  for (const std::uint32_t word : words) CHECK(7, word == 41);
  CHECK(8, CU(cuMemsetD32)(memory, 42, 1024) == CUDA_SUCCESS);
  CHECK(9, CU(cuCtxSynchronize)() == CUDA_SUCCESS);
  CUdeviceptr again = 0;
  CHECK(10,
        CU(cuIpcOpenMemHandle)(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS);
  CHECK(11, again == memory);
  CHECK(12, CU(cuIpcOpenMemHandle)(&again, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(13, CU(cuIpcCloseMemHandle)(memory) == CUDA_SUCCESS);
  CHECK(14, CU(cuMemcpyDtoH)(words.data(), memory, 4096) == CUDA_SUCCESS);
  CHECK(15, CU(cuIpcCloseMemHandle)(memory) == CUDA_SUCCESS);
  CHECK(16, CU(cuIpcCloseMemHandle)(memory) == CUDA_ERROR_INVALID_VALUE);
  return 0;
}

// Dies with memory and a context in its hands.
int die() {
  CHECK(1, use_gpu() == 0);
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CHECK(2, CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
  CHECK(3, CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
  CHECK(4, CU(cuMemAlloc)(&memory, 256 << 20) == CUDA_SUCCESS);
  kill(getpid(), SIGKILL);
  return 5;
}

// --- checkpoints ---

// A context, memory with known words, and a reservation of addresses with nothing in it.
struct Process {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0, reserved = 0;
  static constexpr std::size_t kBytes = 64 << 20;

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

constexpr unsigned kLockMs = 10'000;

CUresult lock(unsigned timeout_ms = kLockMs) {
  CUcheckpointLockArgs args{};
  args.timeoutMs = timeout_ms;
  return CU(cuCheckpointProcessLock)(getpid(), &args);
}
CUresult take() { return CU(cuCheckpointProcessCheckpoint)(getpid(), nullptr); }
CUresult unlock() { return CU(cuCheckpointProcessUnlock)(getpid(), nullptr); }
CUresult restore(std::vector<CUcheckpointGpuPair> pairs = {}) {
  switchyard::cuda::RestoreArgs args{};
  args.gpu_pairs = pairs.empty() ? nullptr : pairs.data();
  args.gpu_pairs_count = static_cast<unsigned>(pairs.size());
  return CU(cuCheckpointProcessRestore)(getpid(), args.get());
}
int state() {
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

// Each GPU takes what the one before it had.
std::vector<CUcheckpointGpuPair> next_gpus() {
  int gpus = 0;
  CU(cuDeviceGetCount)(&gpus);
  std::vector<CUcheckpointGpuPair> pairs(static_cast<std::size_t>(gpus));
  for (int gpu = 0; gpu < gpus; ++gpu) {
    CU(cuDeviceGetUuid)(&pairs[gpu].oldUuid, gpu);
    CU(cuDeviceGetUuid)(&pairs[gpu].newUuid, (gpu + 1) % gpus);
  }
  return pairs;
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

int child_main(const std::string& name) {
  if (name == "before-init") return before_init();
  if (name == "fork-before-init") return fork_before_init();
  if (name == "fork-after-init") return fork_after_init();
  if (name == "ipc") return ipc();
  if (name == "visible-one") return visible_one();
  if (name == "visible-none") return visible_none();
  if (name == "die") return die();
  if (name == "checkpoint") return checkpoint();
  if (name == "checkpoint-holds") return checkpoint_holds();
  if (name == "checkpoint-late") return checkpoint_late();
  if (name == "checkpoint-states") return checkpoint_states();
  if (name == "checkpoint-pairs") return checkpoint_pairs();
  if (name == "checkpoint-moves") return checkpoint_moves();
  return 126;
}

}  // namespace conformance

int main(int argc, char** argv) {
  const std::string flag = "--child=";
  if (argc == 2 && std::string(argv[1]).rfind(flag, 0) == 0) {
    return conformance::child_main(argv[1] + flag.size());
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
