// Work: what a call puts on a stream, or into a graph when the stream is being captured.
//
// Concept. One value for both lives of a piece of work. `make` builds the ops that do it on a
// stream, once for every time it runs. The parameters are kept for the graph calls that ask. `put`
// is the one door from the API to streams: it finds the stream, holds the context's lock, captures
// or enqueues.
//
// Threading: any thread.
#pragma once

#include "context.h"

namespace fakecuda {

struct Kernel;

// A launch with its arguments packed, as the graph and the queue keep it.
struct Launch {
  Kernel* kernel = nullptr;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<unsigned char> arguments;
  std::vector<void*> pointers;  // into arguments, filled when asked for
};

struct Work {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::function<std::vector<OpRef>(Stream*)> make;

  std::shared_ptr<Launch> launch;
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS set{};
  CUDA_HOST_NODE_PARAMS host{};
  CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
  CUdeviceptr freed = 0;
  CUevent event = nullptr;
  CUgraph child = nullptr;
  std::vector<CUstreamBatchMemOpParams> memory_ops;
};

CUresult put(CUstream stream, const Work& work, OpRef* last = nullptr);

// Work of each kind.
Work kernel_work(std::shared_ptr<Launch> launch);
Work host_work(CUhostFn function, void* data);
Work memory_op_work(const CUstreamBatchMemOpParams* ops, unsigned count);
// A copy of `bytes`, done by `effect` on the stream's GPU at the speed of the engine that from → to
// asks for.
Work copy_work(const CUDA_MEMCPY3D& params, Engine engine, std::size_t bytes,
               std::function<CUresult(int gpu)> effect);
Work set_work(const CUDA_MEMSET_NODE_PARAMS& params);
// Whether a set stays in known memory.
bool set_fits(const CUDA_MEMSET_NODE_PARAMS& params);

// Capture (capture.cpp). All REQUIRE ops_lock.
CUresult check_capture(Stream* stream);                     // may work be put on it?
CUresult add_to_capture(Stream* stream, const Work& work);  // REQUIRES stream->capture
// A call that is unsafe while some capture goes on: refuses and invalidates, by the thread's mode.
CUresult refuse_unsafe();
// Waiting for the stream or context: refused while it captures.
CUresult refuse_wait(Stream* stream);
CUresult refuse_wait(Context* context);
CUresult wait_in_capture(Stream* stream, Event* event);
void record_in_capture(Stream* stream, Event* event);

// Pools give memory above their threshold back when something was waited for (pool_calls.cpp).
void trim_pools_after_wait();

}  // namespace fakecuda

#define FAKE_REFUSE_UNSAFE()                                                  \
  {                                                                           \
    std::lock_guard held_(::fakecuda::ops_lock());                            \
    if (const CUresult status_ = ::fakecuda::refuse_unsafe()) return status_; \
  }
