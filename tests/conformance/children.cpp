#include "children.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "mps_client.h"
#include "mps_daemon.h"

namespace conformance {
namespace {

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

}  // namespace

int child_main(const std::string& name) {
  if (name == "before-init") return before_init();
  if (name == "fork-before-init") return fork_before_init();
  if (name == "fork-after-init") return fork_after_init();
  if (name == "ipc") return ipc();
  if (name == "visible-one") return visible_one();
  if (name == "visible-none") return visible_none();
  if (name == "die") return die();
  if (name == "mps") return mps_child();
  if (const std::string watcher = "mps-watcher="; name.rfind(watcher, 0) == 0) {
    return MpsDaemon::watch(name.substr(watcher.size()));
  }
  return checkpoint_child(name);
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
