// job_pool: stream-ordered memory, as told. Each line on stdin is one call or two, answered by one
// line: what is told below, "did COMMAND", or "failed COMMAND CODE". Sizes are in MiB. Streams are
// 0, 1 and 2, and 3 is the legacy one.
//
//   alloc MIB STREAM      → "INDEX ADDRESS"; from the pool of `create`, where there is one
//   free INDEX STREAM     drop INDEX         cuMemFree
//   fill INDEX KEY STREAM check INDEX KEY    → "right" or "wrong"
//   hold STREAM           it waits from here on      let      all may go on
//   sync STREAM           keep MIB           the release threshold
//   trim MIB              pool               → "USED RESERVED USED_HIGH RESERVED_HIGH"
//   reset                 the high marks     create, destroy  a pool
//   capture STREAM        an allocation, a fill and its free, which `replay STREAM` runs
//   begin STREAM          a capture of nothing, until "end STREAM"
//   whose INDEX           → "ours" when the driver names the pool, else "theirs"
#include <cuda.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "conversation.h"
#include "kernels_ptx.h"

namespace {

constexpr std::uint64_t kMiB = 1u << 20;

struct Piece {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
};

class Job {
 public:
  CUresult open() {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS) result = cuDevicePrimaryCtxRetain(&context, 0);
    if (result == CUDA_SUCCESS) result = cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS) result = cuModuleLoadData(&module, kKernelsPtx);
    if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&fill_, module, "fill");
    for (int i = 0; i < 3 && result == CUDA_SUCCESS; ++i) {
      result = cuStreamCreate(&streams_[i], CU_STREAM_NON_BLOCKING);
    }
    if (result == CUDA_SUCCESS) result = cuDeviceGetDefaultMemPool(&default_, 0);
    void* word = nullptr;
    if (result == CUDA_SUCCESS) result = cuMemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP);
    go_ = static_cast<volatile std::uint32_t*>(word);
    return result == CUDA_SUCCESS ? cuMemHostGetDevicePointer(&going_, word, 0) : result;
  }

  // One line; `says`: the answer, empty for the usual one.
  CUresult act(const std::string& command, std::uint64_t a, std::uint64_t b, std::uint64_t c,
               std::string& says) {
    if (command == "alloc") return alloc(a * kMiB, streams_[b], says);
    if (command == "free") return cuMemFreeAsync(pieces_.at(a).address, streams_[b]);
    if (command == "drop") return cuMemFree(pieces_.at(a).address);
    if (command == "fill") return fill(pieces_.at(a), static_cast<unsigned>(b), streams_[c]);
    if (command == "check") return check(pieces_.at(a), static_cast<unsigned>(b), says);
    if (command == "hold") {
      return cuStreamWaitValue32(streams_[a], going_, ++held_, CU_STREAM_WAIT_VALUE_GEQ);
    }
    if (command == "let") return *go_ = held_, CUDA_SUCCESS;
    if (command == "sync") return cuStreamSynchronize(streams_[a]);
    if (command == "keep") return set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, a * kMiB);
    if (command == "trim") return cuMemPoolTrimTo(pool(), a * kMiB);
    if (command == "pool") return tell(says);
    if (command == "reset") {
      const CUresult result = set(CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
      return result == CUDA_SUCCESS ? set(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0) : result;
    }
    if (command == "create") return create();
    if (command == "destroy") {
      const CUresult result = cuMemPoolDestroy(own_);
      own_ = nullptr;
      return result;
    }
    if (command == "capture") return capture(streams_[a]);
    if (command == "replay") return cuGraphLaunch(executable_, streams_[a]);
    if (command == "begin") {
      return cuStreamBeginCapture(streams_[a], CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
    if (command == "end") return cuStreamEndCapture(streams_[a], &graph_);
    if (command == "whose") return whose(pieces_.at(a), says);
    return CUDA_ERROR_INVALID_VALUE;
  }

 private:
  CUmemoryPool pool() const { return own_ != nullptr ? own_ : default_; }

  CUresult alloc(std::size_t bytes, CUstream stream, std::string& says) {
    Piece piece{0, bytes};
    const CUresult result = own_ != nullptr
                                ? cuMemAllocFromPoolAsync(&piece.address, bytes, own_, stream)
                                : cuMemAllocAsync(&piece.address, bytes, stream);
    if (result != CUDA_SUCCESS) return result;
    std::ostringstream text;
    text << pieces_.size() << " 0x" << std::hex << piece.address;
    says = text.str();
    pieces_.push_back(piece);
    return result;
  }

  CUresult fill(Piece piece, unsigned word, CUstream stream) {
    unsigned long long words = piece.bytes / 4;
    void* parameters[] = {&piece.address, &word, &words};
    return cuLaunchKernel(fill_, 8, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr);
  }

  static CUresult check(const Piece& piece, unsigned word, std::string& says) {
    std::vector<std::uint32_t> words(piece.bytes / 4);
    const CUresult result = cuMemcpyDtoH(words.data(), piece.address, piece.bytes);
    says = "right";
    for (const std::uint32_t each : words) {
      if (each != word) says = "wrong";
    }
    return result;
  }

  CUresult set(CUmemPool_attribute which, cuuint64_t value) const {
    return cuMemPoolSetAttribute(pool(), which, &value);
  }

  CUresult tell(std::string& says) const {
    std::ostringstream text;
    for (const auto which : {CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                             CU_MEMPOOL_ATTR_USED_MEM_HIGH, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH}) {
      cuuint64_t value = 0;
      if (const CUresult bad = cuMemPoolGetAttribute(pool(), which, &value)) return bad;
      text << (text.str().empty() ? "" : " ") << value / kMiB;
    }
    says = text.str();
    return CUDA_SUCCESS;
  }

  CUresult create() {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return cuMemPoolCreate(&own_, &properties);
  }

  CUresult capture(CUstream stream) {
    Piece piece{0, 4 * kMiB};
    CUresult result = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (result == CUDA_SUCCESS) result = cuMemAllocAsync(&piece.address, piece.bytes, stream);
    if (result == CUDA_SUCCESS) result = fill(piece, 7, stream);
    if (result == CUDA_SUCCESS) result = cuMemFreeAsync(piece.address, stream);
    if (result == CUDA_SUCCESS) result = cuStreamEndCapture(stream, &graph_);
    return result == CUDA_SUCCESS ? cuGraphInstantiate(&executable_, graph_, 0) : result;
  }

  CUresult whose(const Piece& piece, std::string& says) const {
    CUmemoryPool answer = nullptr;
    const CUresult result =
        cuPointerGetAttribute(&answer, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, piece.address);
    says = answer == pool() ? "ours" : "theirs";
    return result;
  }

  CUfunction fill_ = nullptr;
  CUstream streams_[4] = {};
  CUmemoryPool default_ = nullptr;
  CUmemoryPool own_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
  volatile std::uint32_t* go_ = nullptr;
  CUdeviceptr going_ = 0;
  std::uint32_t held_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace

int main() {
  Job job;
  return jobs::converse(job.open() == CUDA_SUCCESS,
                        [&](const std::string& line, std::string& says) {
                          std::istringstream words(line);
                          std::string command;
                          std::uint64_t numbers[3] = {};
                          words >> command >> numbers[0] >> numbers[1] >> numbers[2];
                          return job.act(command, numbers[0], numbers[1], numbers[2], says);
                        });
}
