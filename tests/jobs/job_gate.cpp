// job_gate: threads that put work on the GPU when told to, and say when a call came back.
//
// A line on stdin is "THREAD COMMAND [NUMBER]"; the thread answers "did THREAD COMMAND" after its
// call, or "failed THREAD COMMAND CODE". The line "count" is answered at once, by no CUDA call,
// with the number of kernels that have run. Thread 0 uses a stream of its own, 1 the legacy default
// stream, 2 its per-thread one, 3 and more non-blocking streams of their own.
//
//   launch N   N kernels, each adding one to the thread's word      graph N  the same, by graphs
//   capture N  captures N kernels into a graph that is not run      sync     waits for its stream
//   hold       its stream waits for "release" (any thread's)        all      waits for the context
//   free       allocates and frees device memory                    copy N   N copies of the word
//   cross      kernels on two streams, in order by an event, and a host function after them
//   query      asks its stream
#include <cuda.h>

#include <array>
#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <memory>
#include <mutex>
#include <queue>
#include <sstream>
#include <string>
#include <thread>

#include "kernels_ptx.h"

namespace {

constexpr int kThreads = 8;

CUcontext g_context = nullptr;
CUfunction g_add = nullptr;
unsigned* g_words = nullptr;  // pinned: one for each thread, then the one of `hold`, then copies

unsigned word(int index) { return __atomic_load_n(g_words + index, __ATOMIC_ACQUIRE); }
CUdeviceptr address(int index) { return reinterpret_cast<CUdeviceptr>(g_words + index); }

extern "C" CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned,
                                        unsigned, unsigned, unsigned, CUstream, void**, void**);
extern "C" CUresult cuStreamSynchronize_ptsz(CUstream);

class Worker {
 public:
  explicit Worker(int index) : index_(index), thread_([this] { run(); }) { thread_.detach(); }

  void push(std::string command, unsigned number) {
    const std::lock_guard hold(lock_);
    commands_.emplace(std::move(command), number);
    wake_.notify_one();
  }

 private:
  void run() {
    cuCtxSetCurrent(g_context);
    if (index_ == 0) cuStreamCreate(&stream_, CU_STREAM_DEFAULT);
    if (index_ > 2) cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING);
    cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING);
    for (;;) {
      std::unique_lock held(lock_);
      wake_.wait(held, [this] { return !commands_.empty(); });
      const auto [command, number] = commands_.front();
      commands_.pop();
      held.unlock();
      const CUresult result = act(command, number);
      if (result == CUDA_SUCCESS) {
        std::printf("did %d %s\n", index_, command.c_str());
      } else {
        std::printf("failed %d %s %d\n", index_, command.c_str(), static_cast<int>(result));
      }
      std::fflush(stdout);
    }
  }

  CUresult launch(CUstream stream, bool per_thread = false) {
    CUdeviceptr at = address(index_);
    unsigned one = 1;
    unsigned long long count = 1;
    void* parameters[] = {&at, &one, &count};
    return (per_thread ? cuLaunchKernel_ptsz : cuLaunchKernel)(g_add, 1, 1, 1, 1, 1, 1, 0, stream,
                                                               parameters, nullptr);
  }
  CUresult repeat(unsigned number, auto call) {
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < number && result == CUDA_SUCCESS; ++i) result = call();
    return result;
  }
  CUstream capturable() { return index_ < 3 ? other_ : stream_; }

  CUresult capture(unsigned number, CUgraphExec* executable) {
    CUgraph graph = nullptr;
    if (const auto bad = cuStreamBeginCapture(capturable(), CU_STREAM_CAPTURE_MODE_GLOBAL)) {
      return bad;
    }
    const CUresult launched = repeat(number, [this] { return launch(capturable()); });
    if (const CUresult bad = cuStreamEndCapture(capturable(), &graph)) return bad;
    if (launched != CUDA_SUCCESS) return launched;
    return cuGraphInstantiate(executable, graph, 0);
  }

  CUresult cross() {
    CUresult result = launch(stream_);
    if (result == CUDA_SUCCESS) result = cuEventRecord(event_, stream_);
    if (result == CUDA_SUCCESS) result = cuStreamWaitEvent(other_, event_, 0);
    if (result == CUDA_SUCCESS) result = launch(other_);
    if (result == CUDA_SUCCESS)
      result = cuLaunchHostFunc(
          other_, [](void*) {}, nullptr);
    if (result == CUDA_SUCCESS) result = cuEventRecord(event_, other_);
    return result == CUDA_SUCCESS ? cuEventSynchronize(event_) : result;
  }

  CUresult act(const std::string& command, unsigned number) {
    const bool per_thread = index_ == 2;
    if (command == "launch") {
      return repeat(number, [&] { return launch(stream_, per_thread); });
    }
    if (command == "capture") {
      CUgraphExec executable = nullptr;
      return capture(number, &executable);
    }
    if (command == "graph") {
      CUgraphExec executable = nullptr;
      if (const CUresult bad = capture(1, &executable)) return bad;
      return repeat(number, [&] { return cuGraphLaunch(executable, stream_); });
    }
    if (command == "copy") {
      return repeat(number, [&] {
        return cuMemcpyDtoDAsync(address(kThreads + 1 + index_), address(index_), 4, stream_);
      });
    }
    if (command == "hold") {
      return cuStreamWaitValue32(stream_, address(kThreads), 1, CU_STREAM_WAIT_VALUE_EQ);
    }
    if (command == "free") {
      CUdeviceptr memory = 0;
      if (const CUresult bad = cuMemAlloc(&memory, 4096)) return bad;
      return cuMemFree(memory);
    }
    if (command == "cross") return cross();
    if (command == "all") return cuCtxSynchronize();
    if (command == "query") {
      const CUresult answer = cuStreamQuery(stream_);
      return answer == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : answer;
    }
    if (command == "sync") {
      return per_thread ? cuStreamSynchronize_ptsz(nullptr) : cuStreamSynchronize(stream_);
    }
    return CUDA_ERROR_INVALID_VALUE;
  }

  int index_;
  CUstream stream_ = nullptr;
  CUstream other_ = nullptr;
  CUevent event_ = nullptr;
  std::mutex lock_;
  std::condition_variable wake_;
  std::queue<std::pair<std::string, unsigned>> commands_;
  std::thread thread_;
};

bool open_gpu() {
  CUmodule module = nullptr;
  void* words = nullptr;
  const bool ok = cuInit(0) == CUDA_SUCCESS &&
                  cuDevicePrimaryCtxRetain(&g_context, 0) == CUDA_SUCCESS &&
                  cuCtxSetCurrent(g_context) == CUDA_SUCCESS &&
                  cuModuleLoadData(&module, kKernelsPtx) == CUDA_SUCCESS &&
                  cuModuleGetFunction(&g_add, module, "add_words") == CUDA_SUCCESS &&
                  cuMemHostAlloc(&words, 4096, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS;
  g_words = static_cast<unsigned*>(words);
  return ok;
}

}  // namespace

int main() {
  if (!open_gpu()) {
    std::printf("error\n");
    return 1;
  }
  std::array<std::unique_ptr<Worker>, kThreads> workers;
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "count") {
      unsigned sum = 0;
      for (int i = 0; i < kThreads; ++i) sum += word(i);
      std::printf("count %u\n", sum);
      std::fflush(stdout);
    } else if (line == "release") {
      __atomic_store_n(g_words + kThreads, 1u, __ATOMIC_RELEASE);
    } else {
      std::istringstream words(line);
      int index = 0;
      std::string command;
      unsigned number = 1;
      words >> index >> command >> number;
      auto& worker = workers.at(static_cast<std::size_t>(index));
      if (worker == nullptr) worker = std::make_unique<Worker>(index);
      worker->push(command, number);
    }
  }
  std::_Exit(0);
}
