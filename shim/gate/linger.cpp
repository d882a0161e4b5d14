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
#include "shim/reset.h"

namespace switchyard::shim::linger {
namespace {

// About 105 us. A service needs some 45 from the end of a request to the launch of one that already
// waits, on a slower host more.
constexpr unsigned kWrites = 112;
// When the application's stream runs dry, the hardware may find ours still waiting for the fence,
// and hand the GPU over. So the first few stand in the application's stream too. Without them 2 to
// 58 % of the requests that follow at once found the GPU gone, with them 1 of 204
// (docs/measurements/tuning.md). A wait for the stream itself includes them, too.
constexpr unsigned kBridge = 16;
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

struct State {
  Ours ours[abi::kMaxGpus];
  pthread_mutex_t locks[abi::kMaxGpus] = {};
};
constinit State g_state;

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
  if (ours.context != nullptr) {
    // Another context may have the handle of one that has just ended.
    return ours.context == context && ours.owner == memory::owner_of(context);
  }
  const memory::Relaxed relaxed(memory::Relaxed::kAlways);
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

CUstreamBatchMemOpParams write_of(CUdeviceptr word, std::uint32_t value) {
  CUstreamBatchMemOpParams write = {};
  write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  write.writeValue.address = word;
  write.writeValue.value = value;
  return write;
}

struct Writes {
  CUstreamBatchMemOpParams list[kWrites];
  unsigned count = 0;

  void add(CUdeviceptr word, std::uint32_t value) { list[count++] = write_of(word, value); }
  CUresult put(CUstream stream) {
    if (count == 0) return CUDA_SUCCESS;
    return driver().cuStreamBatchMemOp_v2(stream, count, list, 0);
  }
};

// pre: locked, ready. What the word says already, or will soon.
CUresult put_bridge(const Ours& ours, CUdeviceptr word, CUstream stream) {
  Writes writes;
  while (writes.count < kBridge) writes.add(word, ours.number);
  return writes.put(stream);
}

// pre: locked, ready. The batch's number comes first: here it costs the application's stream
// nothing.
CUresult put_writes(Ours& ours, CUdeviceptr word, const numbers::Due& due, bool lingers) {
  Writes writes;
  if (due) writes.add(due.word, due.number);
  if (lingers) {
    while (writes.count < kWrites - 1) writes.add(word, ours.number);
    writes.add(word, ours.number + 1);
  }
  const CUresult result = writes.put(ours.stream);
  if (result == CUDA_SUCCESS && lingers) ++ours.number;
  return result;
}

// pre: locked, ready. The latest stream's lock is held until the number is put, so that a number
// that can't be is still the batch's own to write.
CUresult put_behind(Ours& ours, unsigned lane, CUdeviceptr word, bool lingers) {
  numbers::Latest latest(lane, ours.context);
  if (!latest) return CUDA_SUCCESS;
  // Before the fence: a launch that is under way may come behind it.
  const numbers::Due due = latest.due();
  if (driver().cuEventRecord(ours.fence, latest.stream()) != CUDA_SUCCESS) return CUDA_SUCCESS;
  CUresult result = driver().cuStreamWaitEvent(ours.stream, ours.fence, 0);
  if (result == CUDA_SUCCESS && lingers) result = put_bridge(ours, word, latest.stream());
  if (result == CUDA_SUCCESS) result = put_writes(ours, word, due, lingers);
  if (result == CUDA_SUCCESS && due) latest.lent();
  return result;
}

}  // namespace

void behind_latest(unsigned lane) {
  view::View* view = view::usable(lane);
  if (view == nullptr || ::pthread_mutex_trylock(&g_state.locks[lane]) != 0) return;
  Ours& ours = g_state.ours[lane];
  const abi::Word32& word = view->gates[lane].lingered;
  if (ours.view != view) {
    ours.view = view;
    ours.number = word.load(std::memory_order_relaxed);
  }
  const std::uint32_t pending = ours.number - word.load(std::memory_order_relaxed);
  const CUdeviceptr at = view->at(lane, word);
  if (at != 0 && ready(ours)) {
    const CUresult result = put_behind(ours, lane, at, pending < kMostPending);
    if (result != CUDA_SUCCESS) refuse(ours, result);
  }
  ::pthread_mutex_unlock(&g_state.locks[lane]);
}

void context_gone(unsigned lane, std::uint64_t owner) {
  const Locked locked(g_state.locks[lane]);
  if (g_state.ours[lane].context != nullptr && g_state.ours[lane].owner == owner)
    g_state.ours[lane] = {};
}

SWITCHYARD_RENEW(kState, g_state);

}  // namespace switchyard::shim::linger
