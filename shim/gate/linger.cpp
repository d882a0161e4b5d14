#include "shim/gate/linger.h"

#include <pthread.h>

#include "shim/client/process.h"
#include "shim/driver.h"
#include "shim/gate/numbers.h"
#include "shim/gate/view.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/memory/owner.h"
#include "shim/memory/relaxed.h"

namespace switchyard::shim::linger {
namespace {

// About 30 us: what a service needs from the end of a request to the launch of the next one.
constexpr unsigned kWrites = 32;
// Bursts may end while the writes behind the last one are still worked off, but a service of very
// short bursts would pile them up. Past this only the burst's number is written.
constexpr std::uint32_t kMostPending = 2;

struct Ours {
  CUcontext context = nullptr;
  std::uint64_t owner = 0;
  CUstream stream = nullptr;
  CUevent fence = nullptr;
  const view::View* view = nullptr;  // whose word is written
  std::uint32_t number = 0;          // the last write's
  bool refused = false;
};

Ours g_ours[abi::kMaxGpus];
pthread_mutex_t g_locks[abi::kMaxGpus];

bool complete() {
  const Driver& calls = driver();
  return calls.cuStreamBatchMemOp_v2 != nullptr && calls.cuStreamCreate != nullptr &&
         calls.cuEventCreate != nullptr && calls.cuEventRecord != nullptr &&
         calls.cuStreamWaitEvent != nullptr && calls.cuCtxGetCurrent != nullptr;
}

void refuse(Ours& ours, CUresult why) {
  ours.refused = true;
  log_line(Level::kInfo, "linger: the driver refused with %d: the GPU is given up between requests",
           static_cast<int>(why));
}

// pre: locked. Whether our stream is there, in the calling thread's context.
bool ready(Ours& ours) {
  CUcontext context = nullptr;
  if (ours.refused || !complete() || driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS) {
    return false;
  }
  if (ours.context != nullptr) return ours.context == context;
  CUresult result = driver().cuStreamCreate(&ours.stream, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS) {
    result = driver().cuEventCreate(&ours.fence, CU_EVENT_DISABLE_TIMING);
  }
  if (result != CUDA_SUCCESS) {
    refuse(ours, result);
    return false;
  }
  ours.context = context;
  ours.owner = memory::current_owner();
  return true;
}

// pre: locked, ready.
CUresult put_number(const Ours& ours, const numbers::Ended& ended) {
  if (!ended) return CUDA_SUCCESS;
  CUstreamBatchMemOpParams write = {};
  write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  write.writeValue.address = ended.word;
  write.writeValue.value = ended.number;
  return driver().cuStreamBatchMemOp_v2(ours.stream, 1, &write, 0);
}

// pre: locked, ready.
CUresult put_writes(Ours& ours, CUdeviceptr word, const numbers::Ended& ended) {
  CUstreamBatchMemOpParams writes[kWrites] = {};
  for (CUstreamBatchMemOpParams& write : writes) {
    write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    write.writeValue.address = word;
    write.writeValue.value = ours.number;  // the last one's is new
  }
  if (ended) {  // here it costs the application's own stream nothing
    writes[0].writeValue.address = ended.word;
    writes[0].writeValue.value = ended.number;
  }
  writes[kWrites - 1].writeValue.value = ++ours.number;
  return driver().cuStreamBatchMemOp_v2(ours.stream, kWrites, writes, 0);
}

bool put_fence(Ours& ours, unsigned lane, numbers::Ended& ended) {
  numbers::Latest latest(lane, ours.context);
  if (!latest || driver().cuEventRecord(ours.fence, latest.stream()) != CUDA_SUCCESS) return false;
  ended = latest.end_batch();
  return true;
}

}  // namespace

void behind_latest(unsigned lane) {
  view::View* view = view::usable(lane);
  if (view == nullptr || ::pthread_mutex_trylock(&g_locks[lane]) != 0) return;
  Ours& ours = g_ours[lane];
  const abi::Word32& word = view->gates[lane].lingered;
  {
    const memory::Relaxed relaxed(memory::Relaxed::kAlways);
    if (ours.view != view) {
      ours.view = view;
      ours.number = word.load(std::memory_order_relaxed);
    }
    const std::uint32_t pending = ours.number - word.load(std::memory_order_relaxed);
    numbers::Ended ended;
    if (ready(ours) && put_fence(ours, lane, ended)) {
      CUresult result = driver().cuStreamWaitEvent(ours.stream, ours.fence, 0);
      if (result == CUDA_SUCCESS) {
        result = pending < kMostPending ? put_writes(ours, view->at(lane, word), ended)
                                        : put_number(ours, ended);
      }
      if (result != CUDA_SUCCESS) {
        if (ended) ended.done->store(ended.number, std::memory_order_release);
        refuse(ours, result);
      }
    }
  }
  ::pthread_mutex_unlock(&g_locks[lane]);
}

void context_gone(unsigned lane, std::uint64_t owner) {
  const Locked locked(g_locks[lane]);
  if (g_ours[lane].context != nullptr && g_ours[lane].owner == owner) g_ours[lane] = {};
}

void clear() {
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    g_ours[lane] = {};
    g_locks[lane] = PTHREAD_MUTEX_INITIALIZER;
  }
}

}  // namespace switchyard::shim::linger
