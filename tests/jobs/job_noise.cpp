// job_noise FILE RANKS RANK [DEVICE]: a rank of a data-parallel training, which steps when told to.
//
// The ranks find each other by the unique id that rank 0 writes into FILE. Each step has the
// gradients of tests/support/gradients.h, a small all-reduce as for a loss, and now and then a
// large one as for a metric. Each line on stdin is answered by one line (conversation.h):
//
//   train N TYPE WAY    N steps; TYPE fp32, fp16 or bf16; WAY sum, average, group, scatter, apart,
//                       graph: all-reduces of sums, of averages, in one group, reduce-scatters,
//                       from one buffer into another, or in a captured graph
//   norms               → "norms N": kernels that the GPU ran and that are none of its collectives
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "conversation.h"
#include "nccl_meeting.h"
#include "tests/fakecuda/report.h"
#include "tests/support/gradients.h"

namespace {

namespace gradients = switchyard::gradients;

constexpr CUresult kNcclFailed = CUDA_ERROR_UNKNOWN;
constexpr std::size_t kBytes = 1 << 20;  // of a bucket's room
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
           cuMemAlloc(&memory_, 2 * kRooms * kBytes) == CUDA_SUCCESS &&
           cuMemsetD8(memory_, 0, 2 * kRooms * kBytes) == CUDA_SUCCESS &&
           jobs::agree(file, rank, id) &&
           ncclCommInitRank(&comm_, ranks, id, rank) == kNcclSuccess && (own_ = kernels()) >= 0;
  }

  CUresult act(const std::string& line, std::string& says) {
    std::istringstream words(line);
    std::string command, type, way;
    int steps = 0;
    words >> command >> steps >> type >> way;
    if (command == "norms") {
      return says = "norms " + std::to_string(kernels() - own_), CUDA_SUCCESS;
    }
    if (command != "train") return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < steps && result == CUDA_SUCCESS; ++i, ++step_) {
      result = step(gradients::type_of(type), way);
    }
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

  bool sum(std::size_t bucket, ncclDataType_t type, const std::string& way) {
    const std::size_t count = gradients::kBuckets[bucket];
    void* from = at(room(bucket));
    if (way == "scatter") {
      const auto parts = static_cast<std::size_t>(ranks_);
      return ncclReduceScatter(from, at(room(kRooms + bucket)), count / parts, type, kNcclSum,
                               comm_, stream_) == kNcclSuccess;
    }
    void* to = way == "apart" ? at(room(kRooms + bucket)) : from;
    const ncclRedOp_t op = way == "average" ? kNcclAvg : kNcclSum;
    return ncclAllReduce(from, to, count, type, op, comm_, stream_) == kNcclSuccess;
  }

  bool sums(ncclDataType_t type, const std::string& way) {
    bool all = way != "group" || ncclGroupStart() == kNcclSuccess;
    for (std::size_t bucket = 0; bucket < std::size(gradients::kBuckets); ++bucket) {
      all = all && sum(bucket, type, way);
    }
    own_ += way == "group" ? 1 : static_cast<long>(std::size(gradients::kBuckets));
    return all && (way != "group" || ncclGroupEnd() == kNcclSuccess);
  }

  CUresult run_graph(ncclDataType_t type) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CUresult result = cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (result != CUDA_SUCCESS) return result;
    const bool put = sums(type, "sum");
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

  CUresult step(ncclDataType_t type, const std::string& way) {
    for (std::size_t bucket = 0; bucket < std::size(gradients::kBuckets); ++bucket) {
      const auto numbers = gradients::bucket_of(rank_, step_, bucket, type);
      if (const auto bad = cuMemcpyHtoD(room(bucket), numbers.data(), numbers.size())) return bad;
    }
    if (way == "graph") return run_graph(type);
    void* rest = at(room(kRooms - 1));
    const auto reduce = [&](std::size_t count) {
      ++own_;
      return ncclAllReduce(rest, rest, count, kNcclFloat32, kNcclSum, comm_, stream_) ==
             kNcclSuccess;
    };
    const bool metric = step_ % gradients::kMetricEvery == 3;
    if (!sums(type, way) || !reduce(1) || (metric && !reduce(gradients::kMetric))) {
      return kNcclFailed;
    }
    return cuStreamSynchronize(stream_);
  }

  int ranks_ = 0, rank_ = 0, step_ = 0;
  long own_ = 0;  // kernels before the first step, and its collectives
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  Rank rank;
  const bool open = argc > 3 && rank.open(argv[1], std::atoi(argv[2]), std::atoi(argv[3]),
                                          argc > 4 ? std::atoi(argv[4]) : 0);
  return jobs::converse(
      open, [&](const std::string& line, std::string& says) { return rank.act(line, says); });
}
