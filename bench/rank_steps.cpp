// A gang that starts in a moment: ranks without a framework, which all-reduce without end.
//
//   rank_steps RANKS FOLDER [MIB [MICROSECONDS]]
//
// It forks a process for each rank, before any of them touches CUDA; rank n works on GPU n. Each
// has MIB of memory, and writes how many steps it has made into FOLDER/steps-n, 8 bytes. With
// MICROSECONDS each step begins with a kernel of a fixed number of instructions, which takes so
// long. NCCL is the libnccl.so.2 that the loader finds. A rank that fails ends all of them.
//
// When its standard input ends, all ranks make as many steps and compare each word of their memory
// with what it must be then. It says "right", or which rank is "wrong". Ranks that have not come to
// that after a minute are killed.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <new>
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
  CALL(cuStreamSynchronize) CALL(cuMemAlloc) CALL(cuMemcpyHtoD) CALL(cuMemcpyDtoH) \
  CALL(cuMemsetD32Async) CALL(cuModuleLoadData) CALL(cuModuleGetFunction) CALL(cuLaunchKernel)
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

// Of a rank's memory, in words: so many are summed over all ranks in each step. As many behind them
// grow by the rank's number plus one. The others stay. With an even number of ranks a sum of sums
// is soon the same in each step; what grows tells how many there were.
constexpr std::size_t kCount = 16384;
// The last of them: how many ranks want to end. All see the same sum, so all end at one step.
constexpr std::size_t kEnds = kCount - 1;
constexpr int kWrong = 3;

std::uint32_t word_at(std::size_t index, int rank) {
  return static_cast<std::uint32_t>(index) * 40503u + static_cast<std::uint32_t>(rank) + 1;
}

// All words are multiplied by the same number in each step but the first.
std::uint32_t factor_after(std::uint64_t steps, int ranks) {
  std::uint32_t factor = 1;
  for (std::uint64_t i = 1; i < steps; ++i) factor *= static_cast<std::uint32_t>(ranks);
  return factor;
}

std::uint32_t summed_word(std::size_t index, int ranks) {
  std::uint32_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += word_at(index, rank);
  return sum;
}

// `steps`: at least one.
bool is_right(const std::vector<std::uint32_t>& words, int ranks, int rank, std::uint64_t steps) {
  const std::uint32_t factor = factor_after(steps, ranks);
  const auto grown = static_cast<std::uint32_t>(steps) * static_cast<std::uint32_t>(rank + 1);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i == kEnds) continue;
    std::uint32_t wanted = word_at(i, rank);
    if (i < kCount) wanted = summed_word(i, ranks) * factor;
    if (i >= kCount && i < 2 * kCount) wanted += grown;
    if (words[i] != wanted) return false;
  }
  return true;
}

struct Memory {
  CUdeviceptr at = 0;
  std::size_t bytes = 0;

  Memory(const Cuda& cuda, std::size_t size, int rank) : bytes(size) {
    std::vector<std::uint32_t> words(bytes / 4);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = word_at(i, rank);
    check(cuda.cuMemAlloc(&at, bytes), "cuMemAlloc");
    check(cuda.cuMemcpyHtoD(at, words.data(), bytes), "cuMemcpyHtoD");
  }
  std::vector<std::uint32_t> words(const Cuda& cuda) const {
    std::vector<std::uint32_t> out(bytes / 4);
    check(cuda.cuMemcpyDtoH(out.data(), at, bytes), "cuMemcpyDtoH");
    return out;
  }
};

// What the parent and its ranks share.
struct Shared {
  std::atomic<bool> ends{false};
};

[[noreturn]] void work(int ranks, int rank, const std::string& folder, std::size_t bytes,
                       unsigned microseconds, const Shared& shared) {
  auto& steps = counter(folder + "/steps-" + std::to_string(rank));
  const Cuda cuda = loaded<Cuda>();
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUmodule module = nullptr;
  CUfunction add = nullptr, busy = nullptr;
  check(cuda.cuInit(0), "cuInit");
  check(cuda.cuDevicePrimaryCtxRetain(&context, rank), "cuDevicePrimaryCtxRetain");
  check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuda.cuModuleLoadData(&module, kKernelsPtx), "cuModuleLoadData");
  check(cuda.cuModuleGetFunction(&add, module, "add_words"), "cuModuleGetFunction");
  check(cuda.cuModuleGetFunction(&busy, module, "busy"), "cuModuleGetFunction");
  check(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const Memory memory(cuda, bytes, rank);
  const Nccl calls = nccl();
  const ncclUniqueId id = agree(calls, folder + "/id", rank);
  ncclComm* comm = nullptr;
  check_nccl(calls.ncclCommInitRank(&comm, ranks, id, rank), "ncclCommInitRank");
  constexpr int kInt32 = 2, kSum = 0;
  void* const at = reinterpret_cast<void*>(memory.at);
  CUdeviceptr grows = memory.at + 4 * kCount;
  unsigned by = static_cast<unsigned>(rank) + 1;
  unsigned long long count = kCount;
  void* parameters[] = {&grows, &by, &count};
  void* busy_for[] = {&microseconds};
  for (std::uint32_t end = 0; end == 0; steps.fetch_add(1)) {
    const unsigned wants = shared.ends.load() ? 1 : 0;
    if (microseconds > 0) {
      check(cuda.cuLaunchKernel(busy, 1, 1, 1, 32, 1, 1, 0, stream, busy_for, nullptr),
            "cuLaunchKernel");
    }
    check(cuda.cuMemsetD32Async(memory.at + 4 * kEnds, wants, 1, stream), "cuMemsetD32Async");
    check(cuda.cuLaunchKernel(add, 64, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr),
          "cuLaunchKernel");
    check_nccl(calls.ncclAllReduce(at, at, kCount, kInt32, kSum, comm, stream), "ncclAllReduce");
    check(cuda.cuStreamSynchronize(stream), "cuStreamSynchronize");
    check(cuda.cuMemcpyDtoH(&end, memory.at + 4 * kEnds, sizeof end), "cuMemcpyDtoH");
  }
  const bool right = is_right(memory.words(cuda), ranks, rank, steps.load());
  ::_exit(right ? 0 : kWrong);
}

// All have ended, or a minute has passed. The words for it.
std::string end_all(const std::vector<pid_t>& children) {
  std::string said = "right";
  for (std::size_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    bool ended = false;
    for (int nap = 0; nap < 6000 && !ended; ++nap) {
      ended = ::waitpid(children[rank], &status, WNOHANG) != 0;
      if (!ended) ::usleep(10'000);
    }
    if (ended && status == 0) continue;
    said = "wrong: rank " + std::to_string(rank) + (ended ? "" : " does not come to an end");
    break;
  }
  for (const pid_t child : children) ::kill(child, SIGKILL);
  return said;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int ranks = std::atoi(argv[1]);
  const std::string folder = argv[2];
  const std::size_t bytes = static_cast<std::size_t>(argc > 3 ? std::atoi(argv[3]) : 256) << 20;
  const auto microseconds = static_cast<unsigned>(argc > 4 ? std::atoi(argv[4]) : 0);
  void* const mapped =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return 1;
  auto* shared = new (mapped) Shared;
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      work(ranks, rank, folder, bytes, microseconds, *shared);
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
  if (!ended) {
    for (const pid_t child : children) ::kill(child, SIGKILL);
    return 1;
  }
  shared->ends.store(true);
  const std::string said = end_all(children);
  std::printf("%s\n", said.c_str());
  return said == "right" ? 0 : 1;
}
