// job_swap MEMORY...: device memory with known contents, and work over it all, when told to. MEMORY
// is BYTES, by cuMemAlloc, or BYTES/PIECE, made by the job itself (own_memory.h). An x behind that
// makes it exportable, an e exports it before it is mapped. BYTES@ is allocated and freed in the
// order of the job's stream. BYTES:GPU is by cuMemAlloc on another GPU than the first. Then each
// kernel is launched on a buffer's own GPU and on the next one by turns, as peers do.
//
// Each buffer begins as a sequence with a key of its own, and every kernel adds one to each word of
// one buffer, by turns. So each word is known at any time, and a kernel that ran without its
// memory, over old memory or not at all is seen. Each line on stdin is answered by one line, after
// the call: what is told below, "did COMMAND", or "failed COMMAND CODE". "count", "begin", "export"
// and "reset" don't wait for the launcher. Memory that has an importer is checked by its addresses,
// too.
//
//   check             reads every word back   → "right", "wrong INDEX ADDRESS", or "moved INDEX
//                     ADDRESS" when the driver says that the allocation at it is another
//   launch N          N kernels               graph        captures a kernel for each buffer
//   begin             launches until "end"    replay N     launches that graph N times
//   sync              waits for the stream    count        → "count KERNELS" launched so far
//   alloc MEMORY      → "did alloc INDEX"     free INDEX
//   touch INDEX KEY   a new sequence          zero INDEX   nothing but zeros
//   remap INDEX       unmaps and maps again   drop INDEX   releases its handles
//   export INDEX      and imports it here    unmapped INDEX  the same while it is mapped nowhere
//   captured INDEX    exports it while a stream captures, in relaxed mode
//   captured-alloc BYTES, captured-free INDEX  the same while one captures in global mode
//   reset             the primary context     renew        retains it, as if begun anew
//   create            a context of its own    busy US        one kernel that takes so long
//   quit
#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "conversation.h"
#include "kernels_ptx.h"
#include "own_memory.h"

namespace {

constexpr std::uint32_t kStep = 40503;

struct Buffer {
  CUdeviceptr address = 0;  // 0: freed
  std::size_t bytes = 0;
  std::uint32_t key = 0;
  std::uint32_t step = kStep;  // from word to word
  std::uint32_t added = 0;
  OwnMemory own = {};
  bool ordered = false;
  std::size_t gpu = 0;
};

// A GPU that the job uses.
struct Gpu {
  CUcontext context = nullptr;
  CUfunction add = nullptr;
  CUfunction busy = nullptr;
  CUstream stream = nullptr;

  bool begin() {
    CUmodule module = nullptr;
    return cuCtxSetCurrent(context) == CUDA_SUCCESS &&
           cuModuleLoadData(&module, kKernelsPtx) == CUDA_SUCCESS &&
           cuModuleGetFunction(&add, module, "add_words") == CUDA_SUCCESS &&
           cuModuleGetFunction(&busy, module, "busy") == CUDA_SUCCESS &&
           cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
  }
};

class Memory {
 public:
  bool open() {
    gpus_.resize(1);
    return cuInit(0) == CUDA_SUCCESS &&
           begin_in(cuDevicePrimaryCtxRetain(&gpus_.front().context, 0));
  }
  // In a context of its own instead.
  bool create() {
#if CUDA_VERSION >= 13000
    return begin_in(cuCtxCreate(&gpus_.front().context, nullptr, 0, 0));
#else
    return begin_in(cuCtxCreate(&gpus_.front().context, 0, 0));
#endif
  }

  CUresult alloc(const std::string& memory) {
    Buffer buffer;
    char* end = nullptr;
    buffer.bytes = std::strtoull(memory.c_str(), &end, 10);
    buffer.ordered = *end == '@';
    buffer.gpu = *end == ':' ? std::strtoull(end + 1, &end, 10) : 0;
    if (!open_up_to(buffer.gpu)) return CUDA_ERROR_INVALID_DEVICE;
    use(gpus_[buffer.gpu]);
    const std::size_t piece = *end == '/' ? std::strtoull(end + 1, &end, 10) : 0;
    const auto kind = static_cast<OwnMemory::Kind>(piece != 0 ? *end : '\0');
    const CUresult bad = piece != 0 ? buffer.own.make(buffer.bytes, piece, kind)
                         : buffer.ordered
                             ? cuMemAllocAsync(&buffer.address, buffer.bytes, first().stream)
                             : cuMemAlloc(&buffer.address, buffer.bytes);
    if (bad != CUDA_SUCCESS) return bad;
    if (piece != 0) buffer.address = buffer.own.address();
    buffers_.push_back(buffer);
    return touch(buffers_.size() - 1, static_cast<std::uint32_t>(buffers_.size()));
  }
  std::size_t newest() const { return buffers_.size() - 1; }

  CUresult free(std::size_t index) {
    Buffer& buffer = buffers_.at(index);
    const CUresult result = buffer.own.exists() ? buffer.own.end()
                            : buffer.ordered    ? cuMemFreeAsync(buffer.address, first().stream)
                                                : cuMemFree(buffer.address);
    if (result == CUDA_SUCCESS) buffer = Buffer{};
    return result;
  }

  CUresult remap(std::size_t index) {
    const CUresult bad = sync();
    return bad != CUDA_SUCCESS ? bad : buffers_.at(index).own.remap();
  }
  CUresult drop(std::size_t index) { return buffers_.at(index).own.drop(); }
  CUresult share(std::size_t index) { return buffers_.at(index).own.share(); }
  CUresult share_unmapped(std::size_t index) {
    const CUresult bad = sync();
    return bad != CUDA_SUCCESS ? bad : buffers_.at(index).own.share_unmapped();
  }
  // What `call` says while the stream captures.
  template <typename Call>
  CUresult captured(CUstreamCaptureMode mode, Call call) {
    CUgraph graph = nullptr;
    if (const CUresult bad = cuStreamBeginCapture(first().stream, mode)) return bad;
    const CUresult result = call();
    const CUresult ended = cuStreamEndCapture(first().stream, &graph);
    return result != CUDA_SUCCESS ? result : ended;
  }
  static CUresult reset() { return cuDevicePrimaryCtxReset(0); }

  CUresult touch(std::size_t index, std::uint32_t key) {
    Buffer& buffer = buffers_.at(index);
    if (const CUresult bad = sync()) return bad;  // kernels still add to the old sequence
    buffer.key = key;
    buffer.step = kStep;
    buffer.added = 0;
    const std::vector<std::uint32_t> words = expected(buffer);
    return cuMemcpyHtoD(buffer.address, words.data(), 4 * words.size());
  }

  CUresult zero(std::size_t index) {
    Buffer& buffer = buffers_.at(index);
    if (const CUresult bad = sync()) return bad;
    buffer.key = buffer.step = buffer.added = 0;
    if (const CUresult bad = cuMemsetD8Async(buffer.address, 0, buffer.bytes, first().stream))
      return bad;
    return sync();
  }

  CUresult launch(unsigned number) {
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < number && result == CUDA_SUCCESS; ++i) result = launch_next();
    return result;
  }

  void begin() {
    if (launcher_.joinable()) return;
    ending_ = false;
    launched_ = CUDA_SUCCESS;
    launcher_ = std::thread([this] {
      launched_ = use(first());
      // Never far ahead: what is queued has to end before memory can move.
      while (!ending_ && launched_ == CUDA_SUCCESS) {
        launched_ = launch(8);
        if (launched_ == CUDA_SUCCESS) launched_ = sync();
      }
    });
  }

  CUresult end() {
    ending_ = true;
    if (launcher_.joinable()) launcher_.join();
    return launched_;
  }

  CUresult capture() {
    CUgraph graph = nullptr;
    if (const CUresult bad = cuStreamBeginCapture(first().stream, CU_STREAM_CAPTURE_MODE_GLOBAL)) {
      return bad;
    }
    captured_.clear();
    CUresult result = CUDA_SUCCESS;
    for (std::size_t i = 0; i < buffers_.size() && result == CUDA_SUCCESS; ++i) {
      if (buffers_[i].address == 0) continue;
      result = add_one(first(), buffers_[i]);
      captured_.push_back(i);
    }
    if (const CUresult bad = cuStreamEndCapture(first().stream, &graph)) return bad;
    return result != CUDA_SUCCESS ? result : cuGraphInstantiate(&executable_, graph, 0);
  }

  CUresult replay(unsigned number) {
    for (unsigned i = 0; i < number; ++i) {
      if (const CUresult bad = cuGraphLaunch(executable_, first().stream)) return bad;
      for (const std::size_t index : captured_) ++buffers_[index].added;
    }
    return CUDA_SUCCESS;
  }

  CUresult busy(unsigned microseconds) {
    void* parameters[] = {&microseconds};
    return cuLaunchKernel(first().busy, 1, 1, 1, 1, 1, 1, 0, first().stream, parameters, nullptr);
  }
  CUresult sync() {
    CUresult result = CUDA_SUCCESS;
    // The first GPU's context is current afterwards.
    for (std::size_t i = gpus_.size(); i-- > 0 && result == CUDA_SUCCESS;) {
      result = use(gpus_[i]);
      if (result == CUDA_SUCCESS) result = cuStreamSynchronize(gpus_[i].stream);
    }
    ++synchronised_;
    return result;
  }
  unsigned long count() const { return count_; }

  // `says`: the answer, when the calls went well.
  CUresult check(std::string& says) {
    if (const CUresult bad = sync()) return bad;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const Buffer& buffer = buffers_[i];
      if (buffer.address == 0) continue;
      for (const CUdeviceptr address : {buffer.address, buffer.own.shared()}) {
        if (address == 0) continue;
        std::vector<std::uint32_t> words(buffer.bytes / 4);
        if (const CUresult bad = cuMemcpyDtoH(words.data(), address, 4 * words.size())) return bad;
        const std::size_t wrong = first_wrong(words, expected(buffer));
        if (wrong < words.size()) return say(says, "wrong", i, address + 4 * wrong);
      }
      CUdeviceptr base = 0;
      std::size_t bytes = 0;
      if (const CUresult bad =
              cuMemGetAddressRange(&base, &bytes, buffer.address + buffer.bytes - 1)) {
        return bad;
      }
      const bool own = buffer.own.exists();
      if (base != (own ? buffer.own.last() : buffer.address) ||
          bytes != (own ? buffer.own.last_bytes() : buffer.bytes)) {
        return say(says, "moved", i, base);
      }
    }
    says = "right";
    return CUDA_SUCCESS;
  }

 private:
  // `made`: what the context's making said.
  bool begin_in(CUresult made) {
    launched_ = made;
    return made == CUDA_SUCCESS && first().begin();
  }
  bool open_up_to(std::size_t gpu) {
    while (gpus_.size() <= gpu) {
      Gpu next;
      const auto device = static_cast<CUdevice>(gpus_.size());
      if (cuDevicePrimaryCtxRetain(&next.context, device) != CUDA_SUCCESS || !next.begin()) {
        return false;
      }
      for (Gpu& each : gpus_) {
        use(next);
        if (cuCtxEnablePeerAccess(each.context, 0) != CUDA_SUCCESS) return false;
        use(each);
        if (cuCtxEnablePeerAccess(next.context, 0) != CUDA_SUCCESS) return false;
      }
      gpus_.push_back(next);
    }
    return true;
  }
  static CUresult use(const Gpu& gpu) { return cuCtxSetCurrent(gpu.context); }
  Gpu& first() { return gpus_.front(); }

  static CUresult say(std::string& says, const char* what, std::size_t index, CUdeviceptr at) {
    std::ostringstream text;
    text << what << ' ' << index << " 0x" << std::hex << at;
    says = text.str();
    return CUDA_SUCCESS;
  }

  static std::vector<std::uint32_t> expected(const Buffer& buffer) {
    std::vector<std::uint32_t> words(buffer.bytes / 4);
    std::uint32_t next = buffer.key * 2654435761u + buffer.added;
    for (std::uint32_t& word : words) {
      word = next;
      next += buffer.step;
    }
    return words;
  }

  static std::size_t first_wrong(const std::vector<std::uint32_t>& have,
                                 const std::vector<std::uint32_t>& want) {
    std::size_t at = 0;
    while (at < have.size() && have[at] == want[at]) ++at;
    return at;
  }

  static CUresult add_one(const Gpu& gpu, const Buffer& buffer) {
    CUdeviceptr at = buffer.address;
    unsigned one = 1;
    unsigned long long words = buffer.bytes / 4;
    void* parameters[] = {&at, &one, &words};
    return cuLaunchKernel(gpu.add, 8, 1, 1, 256, 1, 1, 0, gpu.stream, parameters, nullptr);
  }

  CUresult launch_next() {
    for (std::size_t tried = 0; tried < buffers_.size(); ++tried) {
      Buffer& buffer = buffers_[next_++ % buffers_.size()];
      if (buffer.address == 0) continue;
      // Until the next synchronisation always on the same one: two at once would not add right.
      const Gpu& gpu = gpus_[(buffer.gpu + synchronised_) % gpus_.size()];
      CUresult result = gpus_.size() > 1 ? use(gpu) : CUDA_SUCCESS;
      if (result == CUDA_SUCCESS) result = add_one(gpu, buffer);
      if (result != CUDA_SUCCESS) return result;
      ++buffer.added;
      ++count_;
      return result;
    }
    return CUDA_ERROR_INVALID_VALUE;  // nothing is left
  }

  std::vector<Gpu> gpus_;
  std::size_t synchronised_ = 0;  // how often
  CUgraphExec executable_ = nullptr;
  std::vector<Buffer> buffers_;  // the launcher's between begin and end
  std::vector<std::size_t> captured_;
  std::size_t next_ = 0;
  std::atomic<unsigned long> count_{0};
  std::atomic<bool> ending_{false};
  std::thread launcher_;
  CUresult launched_ = CUDA_SUCCESS;
};

// One line. `says`: the answer, empty for the usual one.
CUresult act(Memory& job, const std::string& line, std::string& says) {
  std::istringstream words(line);
  std::string command;
  std::string memory;
  std::uint32_t second = 0;
  words >> command >> memory >> second;
  const std::size_t first = memory.empty() ? 1 : std::strtoull(memory.c_str(), nullptr, 10);
  if (command == "count") says = "count " + std::to_string(job.count());
  if (command == "begin") job.begin();
  if (command == "count" || command == "begin") return CUDA_SUCCESS;
  if (command == "reset") return Memory::reset();
  if (command == "export") return job.share(first);
  // The rest needs the buffers for itself.
  const CUresult ended = job.end();
  if (command == "renew") return job.open() ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
  if (command == "create") return job.create() ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
  if (command == "end" || ended != CUDA_SUCCESS) return ended;
  if (command == "check") return job.check(says);
  if (command == "launch") return job.launch(static_cast<unsigned>(first));
  if (command == "sync") return job.sync();
  if (command == "busy") return job.busy(static_cast<unsigned>(first));
  if (command == "free") return job.free(first);
  if (command == "touch") return job.touch(first, second);
  if (command == "zero") return job.zero(first);
  if (command == "remap") return job.remap(first);
  if (command == "drop") return job.drop(first);
  if (command == "unmapped") return job.share_unmapped(first);
  if (command == "captured") {
    return job.captured(CU_STREAM_CAPTURE_MODE_RELAXED, [&] { return job.share(first); });
  }
  if (command == "captured-alloc") {
    return job.captured(CU_STREAM_CAPTURE_MODE_GLOBAL, [&] { return job.alloc(memory); });
  }
  if (command == "captured-free") {
    return job.captured(CU_STREAM_CAPTURE_MODE_GLOBAL, [&] { return job.free(first); });
  }
  if (command == "graph") return job.capture();
  if (command == "replay") return job.replay(static_cast<unsigned>(first));
  if (command != "alloc") return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = job.alloc(memory);
  says = "did alloc " + std::to_string(job.newest());
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  Memory memory;
  bool ok = memory.open();
  for (int i = 1; i < argc && ok; ++i) {
    ok = memory.alloc(argv[i]) == CUDA_SUCCESS;
  }
  return jobs::converse(
      ok, [&](const std::string& line, std::string& says) { return act(memory, line, says); });
}
