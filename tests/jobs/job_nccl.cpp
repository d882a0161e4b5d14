// job_nccl FILE RANKS RANK [DEVICE]: a rank of a communicator, which works when told to.
//
// The ranks find each other by the unique id that rank 0 writes into FILE. Each has 4 MiB of device
// memory with numbers of its own, which stay, and a float that each step changes. A kernel adds to
// the float, and an all-reduce adds those of all ranks. So the sum shows a step that ran on the
// wrong data. With an even number of ranks the sum forgets early steps. So the kernel adds to a
// word of the rank's own, too, which shows a step that ran twice or not at all. Each line on stdin
// is answered by one line (conversation.h):
//
//   reduce N     N all-reduces of the float             group N      the same, in one group
//   kinds        each other collective once             twins        one all-reduce by pnccl's name
//   gather N     N all-gathers                      empty        a group that is only simulated
//   pass         to the next rank and from the previous
//   capture N    captures N all-reduces             replay N     launches that graph N times
//   split COLOR  a child; -1: none                  shrink RANK  a child without that rank
//   survive RANK as shrink, and ends what is on the GPU
//   child N      N all-reduces in the child         destroy      the child
//   abort        the parent                         abortall     both, in one group
//   more N       N communicators of one rank        sync         waits for the stream
//   scatter N    N reduce-scatters                  scattered    → whether their result is right
//   scatters N   the same, in one group             mixed        a group with an all-gather, too
//   apart        as mixed, the all-gather on the second stream
//   third        as apart, the reduce-scatter on a third stream
//   gathered     → "gathered 1" when its result is there; sidebusy → "busy 1" while that works
//   frozen N     captures N, for "replay"
//   side         an all-gather on a second stream   syncside     waits for that stream
//   late         the first stream waits for "free"  busy         → "busy 1" while the first works
//   register     a buffer and a window, deregister: both; registered → "registered N"
//   shard        from now on a step reduce-scatters and gathers, too
//   configured   as kinds, each with a configuration, and an all-reduce
//   put N        N times into the next rank's window, and a signal; waits for the previous rank's
//   came         → "right" when what the previous rank has put is there
//   grow         makes a communicator of all ranks from the child; grown N: N all-reduces there
//   ungrow       ends it                            suspend, resume  the parent
//   error        → "error N" of the parent          live         → "live N" communicators
//   finalize, close (destroy) and revoke            the parent
//   begin [N]    steps on a thread of its own, N ms apart, until "end", which says "end STEPS"
//   pace N       steps are N ms apart from now on
//   hidden N     as "begin", but each step computes for 20 ms in a stream of its own, beside an
//                all-reduce that is launched N ms late; exposed N: one after the other
//   until N      as "end", once N steps have been made  steps        → "steps N"
//   hold         begins one more step at most, until "until"; as "steps"
//   sum          → "sum BITS" of the float, and "wrong" if the numbers that stay have changed,
//                or the rank's own word is not that of its steps
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "conversation.h"
#include "kernels_ptx.h"
#include "nccl_meeting.h"

extern "C" decltype(ncclAllReduce) pncclAllReduce;

namespace {

constexpr std::size_t kBytes = 4 << 20;
constexpr std::size_t kWords = kBytes / 4;
constexpr CUresult kNcclFailed = CUDA_ERROR_UNKNOWN;

CUresult cuda(ncclResult_t result) { return result == kNcclSuccess ? CUDA_SUCCESS : kNcclFailed; }

class Rank {
 public:
  bool open(const std::string& file, int ranks, int rank, int device) {
    file_ = file;
    ranks_ = ranks;
    rank_ = rank;
    CUmodule module = nullptr;
    ncclUniqueId id;
    return cuInit(0) == CUDA_SUCCESS &&
           cuDevicePrimaryCtxRetain(&context_, device) == CUDA_SUCCESS &&
           cuCtxSetCurrent(context_) == CUDA_SUCCESS &&
           cuModuleLoadData(&module, kKernelsPtx) == CUDA_SUCCESS &&
           cuModuleGetFunction(&add_, module, "add_words") == CUDA_SUCCESS &&
           cuModuleGetFunction(&busy_, module, "busy") == CUDA_SUCCESS &&
           cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           cuStreamCreate(&side_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           cuStreamCreate(&third_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           cuStreamCreate(&freeing_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           cuStreamCreate(&compute_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
           cuMemAlloc(&kept_, kBytes) == CUDA_SUCCESS &&
           cuMemAlloc(&value_, kBytes) == CUDA_SUCCESS && fill() && jobs::agree(file, rank, id) &&
           ncclCommInitRank(&comm_, ranks, id, rank) == kNcclSuccess;
  }

  CUresult act(const std::string& line, std::string& says) {
    std::istringstream words(line);
    std::string command;
    int number = 0;
    words >> command >> number;
    if (command == "reduce") return repeat(number, [this] { return reduce(comm_); });
    if (command == "child") return repeat(number, [this] { return reduce(child_); });
    if (command == "gather") return repeat(number, [this] { return gather(stream_); });
    if (command == "group") return group(number, [this] { return reduce(comm_); });
    if (command == "scatter") return repeat(number, [this] { return scatter(); });
    if (command == "scatters") return group(number, [this] { return scatter(); });
    if (command == "mixed") return group(1, [this] { return both(stream_, stream_); });
    if (command == "apart") return group(1, [this] { return both(stream_, side_); });
    if (command == "third") return group(1, [this] { return both(third_, side_); });
    if (command == "gathered") return gathered(says);
    if (command == "sidebusy") return busy(side_, says);
    if (command == "frozen") return capture(number, [this] { return scatter(); });
    if (command == "scattered") return scattered(says);
    if (command == "side") return gather(side_);
    if (command == "syncside") return cuStreamSynchronize(side_);
    if (command == "late") return cuStreamWaitValue32(stream_, value_ + 4 * kWord, 1, 0);
    if (command == "free") return cuStreamWriteValue32(freeing_, value_ + 4 * kWord, 1, 0);
    if (command == "busy") return busy(stream_, says);
    if (command == "error") return error(says);
    if (command == "live" || command == "registered") return counted(command, says);
    if (command == "configured") return configured();
    if (command == "put") return put(number);
    if (command == "came") return came(says);
    if (command == "grow") return grow();
    if (command == "grown") return repeat(number, [this] { return reduce(grown_); });
    if (command == "ungrow") return cuda(ncclCommDestroy(grown_));
    if (command == "suspend") return cuda(ncclCommSuspend(comm_, 1));
    if (command == "resume") return cuda(ncclCommResume(comm_));
    if (command == "register") return register_memory();
    if (command == "deregister") return deregister_memory();
    if (command == "shard") return shards_ = true, CUDA_SUCCESS;
    if (command == "finalize") return cuda(ncclCommFinalize(comm_));
    if (command == "close") return cuda(ncclCommDestroy(comm_));
    if (command == "revoke") return cuda(ncclCommRevoke(comm_, 0));
    if (command == "kinds") return kinds();
    if (command == "twins")
      return cuda(pncclAllReduce(at(), at(), 1, kNcclFloat32, 0, comm_, stream_));
    if (command == "pass") return pass();
    if (command == "empty") return empty();
    if (command == "capture") return capture(number, [this] { return reduce(comm_); });
    if (command == "replay") {
      return repeat(number, [this] { return cuGraphLaunch(executable_, stream_); });
    }
    if (command == "split") return cuda(ncclCommSplit(comm_, number, rank_, &child_, nullptr));
    if (command == "shrink") return cuda(ncclCommShrink(comm_, &number, 1, &child_, nullptr, 0));
    if (command == "survive") {
      return cuda(ncclCommShrink(comm_, &number, 1, &child_, nullptr, kNcclShrinkAbort));
    }
    if (command == "destroy") return cuda(ncclCommDestroy(child_));
    if (command == "abort") return cuda(ncclCommAbort(comm_));
    if (command == "abortall") return abort_all();
    if (command == "more") return repeat(number, [this] { return alone(); });
    if (command == "sync") return cuStreamSynchronize(stream_);
    if (command == "pace") return apart_ms_ = number, CUDA_SUCCESS;
    if (command == "begin") return begin(number, [this] { return step(); });
    if (command == "hidden" || command == "exposed") {
      const bool beside = command == "hidden";
      return begin(0, [=, this] { return train(beside, number); });
    }
    if (command == "hold") holds_ = true;
    if (command == "steps" || command == "hold") {
      return says = "steps " + std::to_string(steps_), CUDA_SUCCESS;
    }
    if (command == "end" || command == "until") return end(number, says);
    if (command == "sum") return sum(says);
    return CUDA_ERROR_INVALID_VALUE;
  }

 private:
  void* at(std::size_t word = 0) { return reinterpret_cast<void*>(value_ + 4 * word); }

  bool fill() {
    std::vector<std::uint32_t> numbers(kWords);
    for (std::size_t i = 0; i < kWords; ++i) numbers[i] = number_at(i);
    const float one = 1.0f / static_cast<float>(rank_ + 1);
    return cuMemcpyHtoD(kept_, numbers.data(), kBytes) == CUDA_SUCCESS &&
           cuMemsetD32(value_, 0, kWords) == CUDA_SUCCESS &&
           cuMemcpyHtoD(value_, &one, sizeof one) == CUDA_SUCCESS;
  }
  std::uint32_t number_at(std::size_t index) const { return number_at(index, rank_); }
  static std::uint32_t number_at(std::size_t index, int rank) {
    return static_cast<std::uint32_t>(index) * 40503u + static_cast<std::uint32_t>(rank);
  }

  template <typename Call>
  CUresult repeat(int times, Call call) {
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < times && result == CUDA_SUCCESS; ++i) result = call();
    return result;
  }

  CUresult reduce(ncclComm_t comm) {
    return cuda(ncclAllReduce(at(), at(), 1, kNcclFloat32, kNcclSum, comm, stream_));
  }

  CUresult gather(CUstream stream) {
    return cuda(ncclAllGather(at(1024), at(65536), 16, kNcclInt32, comm_, stream));
  }

  // The numbers that each rank gives to the others depend on both.
  CUresult scatter() { return scatter(stream_); }
  CUresult scatter(CUstream stream) {
    std::vector<std::uint32_t> numbers(kPart * static_cast<std::size_t>(ranks_));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = number_at(i);
    if (!filled_ &&
        (cuMemcpyHtoD(value_ + 4 * kFrom, numbers.data(), numbers.size() * 4) != CUDA_SUCCESS ||
         cuMemsetD32(value_ + 4 * 1024, 1, 16) != CUDA_SUCCESS)) {
      return CUDA_ERROR_UNKNOWN;
    }
    filled_ = true;
    return cuda(ncclReduceScatter(at(kFrom), at(kTo), kPart, kNcclInt32, kNcclSum, comm_, stream));
  }
  CUresult scattered(std::string& says) {
    std::vector<std::uint32_t> numbers(kPart);
    if (const CUresult bad = cuMemcpyDtoH(numbers.data(), value_ + 4 * kTo, kPart * 4)) return bad;
    bool right = true;
    for (std::size_t i = 0; i < kPart; ++i) {
      std::uint32_t sum = 0;
      for (int rank = 0; rank < ranks_; ++rank) {
        sum += number_at(static_cast<std::size_t>(rank_) * kPart + i, rank);
      }
      right = right && numbers[i] == sum;
    }
    return says = right ? "right" : "wrong", CUDA_SUCCESS;
  }
  CUresult gathered(std::string& says) {
    std::uint32_t number = 0;
    const CUresult result = cuMemcpyDtoH(&number, value_ + 4 * 65536, sizeof number);
    return says = "gathered " + std::to_string(number), result;
  }
  CUresult both(CUstream stream, CUstream other) {
    const CUresult result = scatter(stream);
    return result == CUDA_SUCCESS ? gather(other) : result;
  }

  static CUresult busy(CUstream stream, std::string& says) {
    const CUresult result = cuStreamQuery(stream);
    says = result == CUDA_ERROR_NOT_READY ? "busy 1" : "busy 0";
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
  }
  CUresult error(std::string& says) {
    ncclResult_t error = kNcclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(comm_, &error);
    return says = "error " + std::to_string(error), cuda(result);
  }
  static CUresult counted(const std::string& what, std::string& says) {
    const char* name = what == "live" ? "fakencclLive" : "fakencclRegistered";
    auto* count = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, name));
    return says = what + " " + std::to_string(count != nullptr ? count() : -1), CUDA_SUCCESS;
  }
  CUresult register_memory() {
    if (ncclCommRegister(comm_, at(), kBytes, &buffer_) != kNcclSuccess) return kNcclFailed;
    if (ncclGroupStart() != kNcclSuccess) return kNcclFailed;
    const auto result = ncclCommWindowRegister(comm_, at(), kBytes, &window_, 0);
    return ncclGroupEnd() == kNcclSuccess ? cuda(result) : kNcclFailed;
  }
  CUresult deregister_memory() {
    const auto result = ncclCommDeregister(comm_, buffer_);
    return result == kNcclSuccess ? cuda(ncclCommWindowDeregister(comm_, window_)) : kNcclFailed;
  }

  template <typename Call>
  CUresult group(int number, Call call) {
    if (ncclGroupStart() != kNcclSuccess) return kNcclFailed;
    const CUresult result = repeat(number, call);
    return ncclGroupEnd() == kNcclSuccess ? result : kNcclFailed;
  }

  CUresult abort_all() {
    if (ncclGroupStart() != kNcclSuccess) return kNcclFailed;
    const ncclResult_t parent = ncclCommAbort(comm_);
    const ncclResult_t child = ncclCommAbort(child_);
    return ncclGroupEnd() == kNcclSuccess && parent == kNcclSuccess ? cuda(child) : kNcclFailed;
  }

  CUresult empty() {
    if (ncclGroupStart() != kNcclSuccess) return kNcclFailed;
    const CUresult result = reduce(comm_);
    return ncclGroupSimulateEnd(nullptr) == kNcclSuccess ? result : kNcclFailed;
  }

  CUresult kinds() {
    constexpr std::size_t kFrom = 1024, kTo = 65536, kCount = 16;
    const ncclDataType_t type = kNcclInt32;
    const ncclResult_t results[] = {
        ncclBroadcast(at(kFrom), at(kTo), kCount, type, 0, comm_, stream_),
        ncclBcast(at(kFrom), kCount, type, 0, comm_, stream_),
        ncclReduce(at(kFrom), at(kTo), kCount, type, kNcclSum, 0, comm_, stream_),
        ncclAllGather(at(kFrom), at(kTo), kCount, type, comm_, stream_),
        ncclReduceScatter(at(kFrom), at(kTo), kCount, type, kNcclSum, comm_, stream_),
        ncclAlltoAll(at(kFrom), at(kTo), kCount, type, comm_, stream_),
        ncclGather(at(kFrom), at(kTo), kCount, type, 0, comm_, stream_),
        ncclScatter(at(kFrom), at(kTo), kCount, type, 0, comm_, stream_)};
    for (const ncclResult_t result : results) {
      if (result != kNcclSuccess) return kNcclFailed;
    }
    return CUDA_SUCCESS;
  }

  CUresult configured() {
    constexpr std::size_t kFrom = 1024, kTo = 65536, kCount = 16;
    const ncclDataType_t type = kNcclInt32;
    const ncclRedOp_t sum = kNcclSum;
    const ncclResult_t results[] = {
        ncclAllReduceConfig(at(kFrom), at(kTo), kCount, type, sum, comm_, stream_, nullptr),
        ncclBroadcastConfig(at(kFrom), at(kTo), kCount, type, 0, comm_, stream_, nullptr),
        ncclReduceConfig(at(kFrom), at(kTo), kCount, type, sum, 0, comm_, stream_, nullptr),
        ncclAllGatherConfig(at(kFrom), at(kTo), kCount, type, comm_, stream_, nullptr),
        ncclReduceScatterConfig(at(kFrom), at(kTo), kCount, type, sum, comm_, stream_, nullptr),
        ncclAlltoAllConfig(at(kFrom), at(kTo), kCount, type, comm_, stream_, nullptr),
        ncclGatherConfig(at(kFrom), at(kTo), kCount, type, 0, comm_, stream_, nullptr),
        ncclScatterConfig(at(kFrom), at(kTo), kCount, type, 0, comm_, stream_, nullptr)};
    for (const ncclResult_t result : results) {
      if (result != kNcclSuccess) return kNcclFailed;
    }
    return CUDA_SUCCESS;
  }

  // pre: "register". One wait for all signals.
  CUresult put(int times) {
    const int next = (rank_ + 1) % ranks_;
    ncclWaitSignalDesc_t awaited{times + 1, (rank_ + ranks_ - 1) % ranks_, 0, 0};
    const auto mine = static_cast<unsigned>(rank_ + 1);
    if (const CUresult bad = cuMemsetD32(value_ + 4 * kPutFrom, mine, kPart)) return bad;
    if (ncclGroupStart() != kNcclSuccess) return kNcclFailed;
    const CUresult result = repeat(times, [&] {
      return cuda(ncclPutSignal(at(kPutFrom), kPart, kNcclInt32, next, window_, 4 * kPutTo, 0, 0, 0,
                                comm_, stream_));
    });
    const bool sent = ncclSignal(next, 0, 0, 0, comm_, stream_) == kNcclSuccess;
    const bool waits = ncclWaitSignal(1, &awaited, comm_, stream_) == kNcclSuccess;
    return ncclGroupEnd() == kNcclSuccess && sent && waits ? result : kNcclFailed;
  }
  CUresult came(std::string& says) {
    std::vector<std::uint32_t> numbers(kPart);
    if (const CUresult bad = cuMemcpyDtoH(numbers.data(), value_ + 4 * kPutTo, kPart * 4)) {
      return bad;
    }
    const auto theirs = static_cast<std::uint32_t>((rank_ + ranks_ - 1) % ranks_ + 1);
    const bool right = std::all_of(numbers.begin(), numbers.end(),
                                   [&](std::uint32_t number) { return number == theirs; });
    return says = right ? "right" : "wrong", CUDA_SUCCESS;
  }

  // The ranks of the child are the old ones, the others are new.
  CUresult grow() {
    const bool is_new = child_ == nullptr;
    ncclUniqueId id;
    if (rank_ == 0) {
      const ncclResult_t result = ncclCommGetUniqueId(child_, &id);
      if (result != kNcclSuccess || !jobs::tell(file_ + "-grown", id)) return kNcclFailed;
    } else if (is_new) {
      id = jobs::told(file_ + "-grown");
    }
    return cuda(ncclCommGrow(child_, ranks_, rank_ == 0 || is_new ? &id : nullptr,
                             is_new ? rank_ : -1, &grown_, nullptr));
  }

  CUresult pass() {
    if (ncclGroupStart() != kNcclSuccess) return kNcclFailed;
    const int next = (rank_ + 1) % ranks_;
    const int previous = (rank_ + ranks_ - 1) % ranks_;
    const bool sent = ncclSend(at(2048), 16, kNcclFloat32, next, comm_, stream_) == kNcclSuccess;
    const bool received =
        ncclRecv(at(4096), 16, kNcclFloat32, previous, comm_, stream_) == kNcclSuccess;
    return ncclGroupEnd() == kNcclSuccess && sent && received ? CUDA_SUCCESS : kNcclFailed;
  }

  template <typename Call>
  CUresult capture(int number, Call call) {
    CUgraph graph = nullptr;
    if (const auto bad = cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) {
      return bad;
    }
    const CUresult result = repeat(number, call);
    if (const CUresult bad = cuStreamEndCapture(stream_, &graph)) return bad;
    if (result != CUDA_SUCCESS) return result;
    const CUresult made = cuGraphInstantiate(&executable_, graph, 0);
    return made == CUDA_SUCCESS ? cuGraphDestroy(graph) : made;
  }

  CUresult alone() {
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    if (ncclGetUniqueId(&id) != kNcclSuccess) return kNcclFailed;
    return cuda(ncclCommInitRank(&comm, 1, id, 0));
  }

  // The kernel adds to the bits of the float of a rank by its number, so an all-reduce that is
  // missed or done twice shows.
  CUresult step() {
    CUdeviceptr address = value_;
    unsigned addend = static_cast<unsigned>(rank_) + 1;
    unsigned long long count = 2;
    void* parameters[] = {&address, &addend, &count};
    ++added_;
    const CUresult launched =
        cuLaunchKernel(add_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr);
    if (launched != CUDA_SUCCESS) return launched;
    if (const ncclResult_t bad =
            ncclAllReduce(at(), at(), 1, kNcclInt32, kNcclSum, comm_, stream_)) {
      return static_cast<CUresult>(bad);
    }
    if (shards_) {
      if (const CUresult bad = scatter()) return bad;
      if (const CUresult bad = gather(side_)) return bad;
      if (const CUresult bad = cuStreamSynchronize(side_)) return bad;
    }
    return cuStreamSynchronize(stream_);
  }

  CUresult compute() {
    unsigned microseconds = 20'000;
    void* parameters[] = {&microseconds};
    return cuLaunchKernel(busy_, 1, 1, 1, 1, 1, 1, 0, compute_, parameters, nullptr);
  }
  // Later work in `second` waits for the work in `first`.
  CUresult behind(CUstream first, CUstream second) {
    const CUresult recorded = cuEventRecord(event_, first);
    return recorded == CUDA_SUCCESS ? cuStreamWaitEvent(second, event_, 0) : recorded;
  }
  CUresult train(bool beside, int late_ms) {
    if (!beside) {
      if (const CUresult bad = compute()) return bad;
      if (const CUresult bad = behind(compute_, stream_)) return bad;
    }
    if (late_ms != 0) ::usleep(static_cast<unsigned>(late_ms) * 1000);
    if (const CUresult bad = reduce(comm_)) return bad;
    if (beside) {
      if (const CUresult bad = compute()) return bad;
    }
    if (const CUresult bad = behind(stream_, compute_)) return bad;
    return cuStreamSynchronize(compute_);
  }

  template <typename Step>
  CUresult begin(int apart_ms, Step one) {
    end_at_ = ~0ull;
    apart_ms_ = apart_ms;
    thread_ = std::thread([this, one] {
      cuCtxSetCurrent(context_);
      while (steps_ < end_at_ && failed_ == CUDA_SUCCESS) {
        if (holds_) {
          ::usleep(100);
          continue;
        }
        failed_ = one();
        ++steps_;
        if (const int apart = apart_ms_) ::usleep(static_cast<unsigned>(apart) * 1000);
      }
    });
    return CUDA_SUCCESS;
  }
  // All ranks must make as many steps, else the last of one would wait for ever.
  CUresult end(int number, std::string& says) {
    end_at_ = static_cast<unsigned long>(number);
    holds_ = false;
    thread_.join();
    says = "end " + std::to_string(steps_);
    return failed_;
  }

  CUresult sum(std::string& says) {
    std::vector<std::uint32_t> numbers(kWords);
    std::uint32_t words[2] = {};  // the float, and what grows with each step
    if (const CUresult bad = cuMemcpyDtoH(numbers.data(), kept_, kBytes)) return bad;
    if (const CUresult bad = cuMemcpyDtoH(words, value_, sizeof words)) return bad;
    bool right = words[1] == added_ * (static_cast<std::uint32_t>(rank_) + 1);
    for (std::size_t i = 0; i < kWords; ++i) right = right && numbers[i] == number_at(i);
    says = (right ? "sum " : "wrong ") + std::to_string(words[0]);
    return CUDA_SUCCESS;
  }

  // Words of `value_`: what reduce-scatters read and write, and what "late" waits for.
  static constexpr std::size_t kFrom = 131072, kTo = 262144, kPart = 1024, kWord = 524288;
  static constexpr std::size_t kPutFrom = 8192, kPutTo = 16384;
  std::string file_;
  bool filled_ = false, shards_ = false;
  void* buffer_ = nullptr;
  void* window_ = nullptr;
  int ranks_ = 0, rank_ = 0;
  CUcontext context_ = nullptr;
  CUfunction add_ = nullptr, busy_ = nullptr;
  CUstream stream_ = nullptr, side_ = nullptr, third_ = nullptr, freeing_ = nullptr;
  CUstream compute_ = nullptr;
  CUevent event_ = nullptr;
  CUgraphExec executable_ = nullptr;
  CUdeviceptr kept_ = 0, value_ = 0;
  ncclComm_t comm_ = nullptr, child_ = nullptr, grown_ = nullptr;
  std::thread thread_;
  std::atomic<int> apart_ms_{0};
  std::atomic<unsigned long> steps_{0}, end_at_{0};
  std::atomic<bool> holds_{false};
  std::atomic<std::uint32_t> added_{0};  // steps that the kernel was launched for
  std::atomic<CUresult> failed_{CUDA_SUCCESS};
};

}  // namespace

int main(int argc, char** argv) {
  static Rank rank;  // its thread outlives this frame
  const bool open = argc > 3 && rank.open(argv[1], std::atoi(argv[2]), std::atoi(argv[3]),
                                          argc > 4 ? std::atoi(argv[4]) : 0);
  return jobs::converse(
      open, [&](const std::string& line, std::string& says) { return rank.act(line, says); });
}
