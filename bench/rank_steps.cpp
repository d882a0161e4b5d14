// A gang that starts in a moment: ranks without a framework, which all-reduce without end.
//
//   rank_steps RANKS FOLDER [MIB]
//
// It forks a process for each rank, before any of them touches CUDA; rank n works on GPU n. Each
// has MIB of memory, and writes how many steps it has made into FOLDER/steps-n, 8 bytes. NCCL is
// the libnccl.so.2 that the loader finds. It ends with its standard input; a rank that fails ends
// all of them.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <vector>

#include "driver.h"

// NCCL's interface, as far as it is called here (nccl.h). The enumerations are ints in it.
struct ncclComm;
struct ncclUniqueId {
  char internal[128];
};
extern "C" {
int ncclGetUniqueId(ncclUniqueId* id);
int ncclCommInitRank(ncclComm** comm, int ranks, ncclUniqueId id, int rank);
int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int op, ncclComm* comm,
                  CUstream stream);
}

namespace {

using namespace switchyard::bench;

// clang-format off
#define RANK_CALLS(CALL) \
  CALL(cuInit) CALL(cuDevicePrimaryCtxRetain) CALL(cuCtxSetCurrent) CALL(cuStreamCreate) \
  CALL(cuStreamSynchronize) CALL(cuMemAlloc) CALL(cuMemsetD8)
// clang-format on
SWITCHYARD_CUDA_FUNCTIONS(Cuda, RANK_CALLS);

#define NCCL_CALLS(CALL) CALL(ncclGetUniqueId) CALL(ncclCommInitRank) CALL(ncclAllReduce)
SWITCHYARD_CUDA_FUNCTIONS(Nccl, NCCL_CALLS);

void check_nccl(int result, const char* call) {
  if (result == 0) return;
  std::fprintf(stderr, "rank_steps: %s returned %d\n", call, result);
  std::exit(1);
}

Nccl nccl() {
  Nccl calls;
  const char* missing =
      calls.fill(switchyard::cuda::in_library(::dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL)));
  if (missing == nullptr) return calls;
  std::fprintf(stderr, "rank_steps: libnccl.so.2 has no %s: %s\n", missing, ::dlerror());
  std::exit(1);
}

// Rank 0 makes it, and the others wait for the file.
ncclUniqueId agree(const Nccl& calls, const std::string& file, int rank) {
  ncclUniqueId id{};
  if (rank == 0) {
    check_nccl(calls.ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::ofstream(file + ".new", std::ios::binary).write(id.internal, sizeof id.internal);
    ::rename((file + ".new").c_str(), file.c_str());
    return id;
  }
  for (;; ::usleep(1000)) {
    std::ifstream in(file, std::ios::binary);
    if (in.read(id.internal, sizeof id.internal)) return id;
  }
}

std::atomic<std::uint64_t>& counter(const std::string& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  void* at = fd >= 0 && ::ftruncate(fd, 8) == 0
                 ? ::mmap(nullptr, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                 : MAP_FAILED;
  if (at == MAP_FAILED) {
    std::perror(file.c_str());
    std::exit(1);
  }
  return *static_cast<std::atomic<std::uint64_t>*>(at);
}

[[noreturn]] void work(int ranks, int rank, const std::string& folder, std::size_t bytes) {
  auto& steps = counter(folder + "/steps-" + std::to_string(rank));
  const Cuda cuda = loaded<Cuda>();
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  check(cuda.cuInit(0), "cuInit");
  check(cuda.cuDevicePrimaryCtxRetain(&context, rank), "cuDevicePrimaryCtxRetain");
  check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  check(cuda.cuMemAlloc(&memory, bytes), "cuMemAlloc");
  check(cuda.cuMemsetD8(memory, 0, bytes), "cuMemsetD8");
  const Nccl calls = nccl();
  const ncclUniqueId id = agree(calls, folder + "/id", rank);
  ncclComm* comm = nullptr;
  check_nccl(calls.ncclCommInitRank(&comm, ranks, id, rank), "ncclCommInitRank");
  constexpr int kInt32 = 2, kSum = 0;
  constexpr std::size_t kCount = 16384;
  for (void* at = reinterpret_cast<void*>(memory);;) {
    check_nccl(calls.ncclAllReduce(at, at, kCount, kInt32, kSum, comm, stream), "ncclAllReduce");
    check(cuda.cuStreamSynchronize(stream), "cuStreamSynchronize");
    steps.fetch_add(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int ranks = std::atoi(argv[1]);
  const std::size_t bytes = static_cast<std::size_t>(argc > 3 ? std::atoi(argv[3]) : 256) << 20;
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      work(ranks, rank, argv[2], bytes);
    }
    children.push_back(child);
  }
  pollfd input{STDIN_FILENO, POLLIN, 0};
  int status = 0;
  char byte = 0;
  bool ended = false;
  while (!ended) {
    if (::waitpid(-1, &status, WNOHANG) > 0) break;
    ended = ::poll(&input, 1, 100) > 0 && ::read(STDIN_FILENO, &byte, 1) <= 0;
  }
  for (const pid_t child : children) ::kill(child, SIGKILL);
  return ended ? 0 : 1;
}
