// job_noise FILE RANKS RANK [DEVICE]: a rank of a data-parallel training, which steps when told to.
//
// The ranks find each other by the unique id that rank 0 writes into FILE. Each step has the
// gradients of tests/support/gradients.h, a small all-reduce as for a loss, and now and then a
// large one as for a metric. Each line on stdin is answered by one line (conversation.h):
//
//   train N TYPE WAY    N steps; TYPE fp32, fp16 or bf16; WAY sum, average, group, scatter, apart,
//                       graph: all-reduces of sums, of averages, in one group, reduce-scatters,
//                       from one buffer into another, or in a captured graph; sharded: as scatter,
//                       each behind an all-gather on a second stream; layers: as scatter, the
//                       first of 24 layers alike; mixed: all-reduces and reduce-scatters;
//                       mixedgroup: these in one group
//   sums                → "sums right" when all sums of the last step are, but for averages
//   step TYPE WAY       the collectives of a step, without waiting
//   split               a child of all ranks takes the communicator's place; close, abort: it ends
//   sync                waits for the GPU           live → "live N" communicators
//   norms               → "norms N": kernels that the GPU ran and that are none of its collectives
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "conversation.h"
#include "nccl_meeting.h"
#include "tests/fakecuda/report.h"
#include "tests/support/gradients.h"

namespace {

namespace gradients = switchyard::gradients;

constexpr CUresult kNcclFailed = CUDA_ERROR_UNKNOWN;
CUresult cuda(ncclResult_t result) { return result == kNcclSuccess ? CUDA_SUCCESS : kNcclFailed; }

constexpr std::size_t kBytes = 1 << 20;  // of a bucket's room
constexpr int kLayers = 24;
constexpr std::size_t kRooms = std::size(gradients::kBuckets) + 1;

class Rank {
 public:
  bool open(const std::string& file, int ranks, int rank, int device) {
    ranks_ = ranks;
    rank_ = rank;
    ncclUniqueId id;
    return cuInit(0) == CUDA_SUCCESS &&
           cuDevicePrimaryCtxRetain(&context_, device) == CUDA_SUCCESS &&
           cuCtxSetCurrent(context_) == CUDA_SUCCESS &&
           cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           cuStreamCreate(&side_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           cuMemAlloc(&memory_, 2 * kRooms * kBytes) == CUDA_SUCCESS &&
           cuMemsetD8(memory_, 0, 2 * kRooms * kBytes) == CUDA_SUCCESS &&
           jobs::agree(file, rank, id) &&
           ncclCommInitRank(&comm_, ranks, id, rank) == kNcclSuccess && (own_ = kernels()) >= 0;
  }

  CUresult act(const std::string& line, std::string& says) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "norms") return says = "norms " + std::to_string(kernels() - own_), CUDA_SUCCESS;
    if (command == "sums") return says = sums_right() ? "sums right" : "sums wrong", CUDA_SUCCESS;
    if (command == "split") return split();
    if (command == "close") return cuda(ncclCommDestroy(comm_));
    if (command == "abort") return cuda(ncclCommAbort(comm_));
    if (command == "sync") return wait();
    if (command == "live") return live(says);
    int steps = 1;
    if (command == "train") words >> steps;
    std::string type;
    words >> type >> way_;
    type_ = gradients::type_of(type);
    if (command == "step") return put();
    if (command != "train") return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < steps && result == CUDA_SUCCESS; ++i) result = step();
    return result;
  }

 private:
  CUdeviceptr room(std::size_t bucket) const { return memory_ + bucket * kBytes; }
  static void* at(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

  // That this process has run on the GPU; -1: nobody knows.
  static long kernels() {
    auto* groups =
        reinterpret_cast<decltype(&fakecuda_groups)>(::dlsym(RTLD_DEFAULT, "fakecuda_groups"));
    if (groups == nullptr) return -1;
    FakecudaGroup all[256];
    const int count = std::min(groups(all, std::size(all)), static_cast<int>(std::size(all)));
    long out = 0;
    for (int i = 0; i < count; ++i) {
      const bool computes = all[i].pid == ::getpid() && all[i].engine == 0;
      if (computes) out += static_cast<long>(all[i].operations);
    }
    return out;
  }

  bool is_scattered(std::size_t bucket) const {
    if (way_.starts_with("mixed")) return bucket != 1;
    return way_ == "scatter" || way_ == "sharded" || way_ == "layers";
  }
  bool in_group() const { return way_ == "group" || way_ == "mixedgroup"; }
  // Where a bucket's sum is put.
  CUdeviceptr received(std::size_t bucket) const {
    return room(is_scattered(bucket) || way_ == "apart" ? kRooms + bucket : bucket);
  }
  std::size_t part(std::size_t bucket) const {
    const std::size_t all = gradients::kBuckets[bucket];
    return is_scattered(bucket) ? all / static_cast<std::size_t>(ranks_) : all;
  }

  bool gather() {
    if (way_ != "sharded") return true;
    ++own_;
    const CUdeviceptr parameters = room(2 * kRooms - 1);
    return ncclAllGather(at(parameters), at(parameters + kBytes / 2), 1024, kNcclInt32, comm_,
                         side_) == kNcclSuccess;
  }
  bool sum(std::size_t bucket) {
    void* from = at(room(bucket));
    void* to = at(received(bucket));
    if (is_scattered(bucket)) {
      return gather() && ncclReduceScatter(from, to, part(bucket), type_, kNcclSum, comm_,
                                           stream_) == kNcclSuccess;
    }
    const ncclRedOp_t op = way_ == "average" ? kNcclAvg : kNcclSum;
    return ncclAllReduce(from, to, part(bucket), type_, op, comm_, stream_) == kNcclSuccess;
  }
  bool sums() {
    bool all = !in_group() || ncclGroupStart() == kNcclSuccess;
    for (int layer = 1; layer < kLayers && way_ == "layers"; ++layer, ++own_) all = all && sum(0);
    for (std::size_t bucket = 0; bucket < std::size(gradients::kBuckets); ++bucket) {
      all = all && sum(bucket);
    }
    own_ += way_ == "group" ? 1 : static_cast<long>(std::size(gradients::kBuckets));
    return all && (!in_group() || ncclGroupEnd() == kNcclSuccess);
  }

  // The sum of all ranks' data, in their order as NCCL does it.
  std::vector<unsigned char> right_sum(std::size_t bucket) const {
    auto sum = gradients::bucket_of(0, step_ - 1, bucket, type_);
    for (int rank = 1; rank < ranks_; ++rank) {
      const auto more = gradients::bucket_of(rank, step_ - 1, bucket, type_);
      gradients::add(sum, more, type_);
    }
    return sum;
  }
  bool sums_right() const {
    for (std::size_t bucket = 0; bucket < std::size(gradients::kBuckets); ++bucket) {
      const std::size_t bytes = part(bucket) * nccl_type_bytes(type_);
      std::vector<unsigned char> there(bytes);
      if (cuMemcpyDtoH(there.data(), received(bucket), bytes) != CUDA_SUCCESS) return false;
      const auto right = right_sum(bucket);
      const std::size_t offset = is_scattered(bucket) ? static_cast<std::size_t>(rank_) * bytes : 0;
      if (std::memcmp(there.data(), right.data() + offset, bytes) != 0) return false;
    }
    return true;
  }

  CUresult split() {
    ncclComm_t child = nullptr;
    if (ncclCommSplit(comm_, 0, rank_, &child, nullptr) != kNcclSuccess) return kNcclFailed;
    return cuda(ncclCommDestroy(std::exchange(comm_, child)));
  }
  static CUresult live(std::string& says) {
    auto* count = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "fakencclLive"));
    return says = "live " + std::to_string(count != nullptr ? count() : -1), CUDA_SUCCESS;
  }
  CUresult wait() {
    const CUresult result = cuStreamSynchronize(stream_);
    return result == CUDA_SUCCESS ? cuStreamSynchronize(side_) : result;
  }

  CUresult run_graph() {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CUresult result = cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (result != CUDA_SUCCESS) return result;
    const bool put = sums();
    result = cuStreamEndCapture(stream_, &graph);
    if (result != CUDA_SUCCESS || !put) return put ? result : kNcclFailed;
    size_t nodes = 0;
    result = cuGraphGetNodes(graph, nullptr, &nodes);
    if (result != CUDA_SUCCESS) return result;
    // Nothing but what was put there.
    if (nodes != std::size(gradients::kBuckets)) return CUDA_ERROR_ILLEGAL_STATE;
    result = cuGraphInstantiate(&executable, graph, 0);
    if (result == CUDA_SUCCESS) result = cuGraphLaunch(executable, stream_);
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(stream_);
    cuGraphExecDestroy(executable);
    cuGraphDestroy(graph);
    return result;
  }

  // A step up to where it waits for the GPU.
  CUresult put() {
    for (std::size_t bucket = 0; bucket < std::size(gradients::kBuckets); ++bucket) {
      const auto numbers = gradients::bucket_of(rank_, step_, bucket, type_);
      if (const auto bad = cuMemcpyHtoD(room(bucket), numbers.data(), numbers.size())) return bad;
    }
    const bool metric = step_++ % gradients::kMetricEvery == 3;
    if (way_ == "graph") return run_graph();
    void* rest = at(room(kRooms - 1));
    const auto reduce = [&](std::size_t count) {
      ++own_;
      return ncclAllReduce(rest, rest, count, kNcclFloat32, kNcclSum, comm_, stream_) ==
             kNcclSuccess;
    };
    const bool all = sums() && reduce(1) && (!metric || reduce(gradients::kMetric));
    return all ? CUDA_SUCCESS : kNcclFailed;
  }
  CUresult step() {
    const CUresult result = put();
    return result == CUDA_SUCCESS ? wait() : result;
  }

  int ranks_ = 0, rank_ = 0, step_ = 0;
  long own_ = 0;  // kernels before the first step, and its collectives
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr, side_ = nullptr;
  CUdeviceptr memory_ = 0;
  ncclComm_t comm_ = nullptr;
  ncclDataType_t type_ = kNcclFloat32;
  std::string way_;
};

}  // namespace

int main(int argc, char** argv) {
  Rank rank;
  const bool open = argc > 3 && rank.open(argv[1], std::atoi(argv[2]), std::atoi(argv[3]),
                                          argc > 4 ? std::atoi(argv[4]) : 0);
  return jobs::converse(
      open, [&](const std::string& line, std::string& says) { return rank.act(line, says); });
}
