#include "shim/ipc/exported.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <algorithm>

#include "shim/client/client.h"
#include "shim/ipc/handle.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/memory/relaxed.h"
#include "shim/memory/stays.h"
#include "shim/reset.h"
#include "shim/swap/memory/memory_fd.h"
#include "shim/swap/mover.h"
#include "shim/work_guard.h"

namespace switchyard::shim::ipc {
namespace {

using swap::Range;
using swap::RangesLock;

// None of a pool's, as the driver: these are exported by their pool. pre: a RangesLock lives.
Range* exportable(CUdeviceptr address) {
  Range* range = swap::find(address);
  const bool can =
      range != nullptr && range->use == swap::Use::kLive && range->pool == 0 &&
      (range->properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
  return can ? range : nullptr;
}

bool make_key(wire::Key& key) {
  return ::getrandom(&key, sizeof(key), GRND_NONBLOCK) == static_cast<ssize_t>(sizeof(key));
}

// Descriptors of the chunks from `first` on, as many as go with a frame. pre: inside a WorkGuard.
CUresult export_chunks(CUdeviceptr address, unsigned first, Descriptors& batch) {
  const RangesLock held;
  const Range* range = exportable(address);
  if (range == nullptr || range->address != address || first >= range->count) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const unsigned end = std::min<unsigned>(range->count, first + wire::kMostDescriptors);
  for (unsigned i = first; i < end; ++i) {
    const swap::Chunk& chunk = range->chunks[i];
    // Only where no context was left to bring it back by is it away here.
    if (chunk.handle == 0 || chunk.contents_pending) return CUDA_ERROR_INVALID_CONTEXT;
    int fd = -1;
    const CUresult result = swap::export_chunk(chunk, fd);
    if (result != CUDA_SUCCESS) return result;
    batch.add(fd);
  }
  return CUDA_SUCCESS;
}

void take_back(const wire::Key& key) {
  Descriptors none;
  wire::Shared answer{};
  share(wire::kEndShare, {key, 0, 0}, none, answer);
  none.close();
}

// The monitor's answer may take seconds: nobody's allocation or free shall wait for it.
struct TakingBack {
  swap::Later later;  // first: it is what take_back_later() gets
  wire::Key key;
};

void take_back_later(swap::Later* later) {
  auto* const taking = reinterpret_cast<TakingBack*>(later);
  take_back(taking->key);
  ::free(taking);
}

const char* reason(bool answered, std::uint32_t verdict) {
  if (!answered) return "it does not answer";
  return verdict == wire::kNoRoomToShare ? "it has no room: raise its limit of open files"
                                         : "it takes them for none";
}

// All of them to the monitor. pre: inside a WorkGuard.
CUresult hand_over(const Range& range) {
  for (unsigned first = 0; first < range.count;) {
    const swap::memory_fd::NoFork no_fork;
    Descriptors batch;
    const CUresult result = export_chunks(range.address, first, batch);
    const std::uint32_t count = batch.count;
    if (result != CUDA_SUCCESS) {
      batch.close();
      if (first != 0) take_back(range.share);
      return result;
    }
    wire::Shared answer{};
    const bool answered = share(wire::kShare, {range.share, first, range.count}, batch, answer);
    batch.close();  // a monitor's answer brings none
    if (!answered || answer.verdict != wire::kTaken) {
      static Once said;
      log_once(said, Level::kWarn,
               "IPC: the monitor did not take the %u descriptors of the memory at %llx (%s): it "
               "gets no handle",
               range.count, static_cast<unsigned long long>(range.address),
               reason(answered, answer.verdict));
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    first += count;
  }
  return CUDA_SUCCESS;
}

// From now on others know the memory. pre: a RangesLock lives.
void stay(Range& range) {
  for (unsigned i = 0; i < range.count; ++i) {
    swap::pinned_pool::give_back(range.chunks[i].host);
    range.chunks[i].digest = {};
  }
  range.stays = true;
  swap::mover::freed(range.lane, range.bytes, range.bytes);
  memory::stays(static_cast<int>(range.lane), Stays::kIpcExported,
                static_cast<std::int64_t>(range.bytes));
}

// `told`: what the monitor was told of. False: it has been freed meanwhile.
bool note(const Range& told) {
  const RangesLock held;
  Range* range = exportable(told.address);
  if (range == nullptr || range->count != told.count) return false;
  range->share = told.share;
  range->monitor = told.monitor;
  if (!range->stays) stay(*range);
  return true;
}

// pre: inside a WorkGuard, and one thread at a time.
CUresult export_range(CUipcMemHandle& out, CUdeviceptr address) {
  Range range;
  {
    const RangesLock held;
    const Range* found = exportable(address);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    range = *found;
  }
  const std::uint32_t monitor = sharing_monitor();
  if (monitor == 0) {
    static Once said;
    log_once(said, Level::kWarn,
             "IPC: the memory at %llx is swappable, and no monitor is there that hands it on: it "
             "gets no handle",
             static_cast<unsigned long long>(address));
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!range.stays && !make_key(range.share)) return CUDA_ERROR_OPERATING_SYSTEM;
  if (!range.stays || range.monitor != monitor) {
    range.monitor = monitor;
    const CUresult result = hand_over(range);
    if (result != CUDA_SUCCESS) return result;
    if (!note(range)) {
      take_back(range.share);
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  const Handle handle{kHandleMagic, range.share, range.asked, range.bytes, swap::kChunk, {}};
  ::memcpy(&out, &handle, sizeof(out));
  return CUDA_SUCCESS;
}

bool is_exportable(CUdeviceptr address) {
  if (!swap::on()) return false;
  const RangesLock held;
  return exportable(address) != nullptr;
}

struct State {
  pthread_mutex_t exporting = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

}  // namespace

bool get_handle(CUipcMemHandle* out, CUdeviceptr address, CUresult& result) {
  if (out == nullptr || !is_exportable(address)) return false;
  CUcontext context = nullptr;
  if (driver().cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return false;
  const swap::WorkGuard entry;
  const memory::Relaxed relaxed;
  const Locked one_at_a_time(g_state.exporting);
  result = export_range(*out, address);
  return true;
}

bool can_export(CUdeviceptr address) { return sharing_monitor() != 0 && is_exportable(address); }

bool is_own(const wire::Key& key) {
  if (!swap::on()) return false;
  const RangesLock held;
  for (std::size_t i = 0; i < swap::count(); ++i) {
    if (swap::at(i).stays && swap::at(i).share == key) return true;
  }
  return false;
}

void ended(const Range& range) {
  if (range.monitor != sharing_monitor()) return;
  // Without memory for the note the monitor keeps the descriptors until this process ends.
  auto* const taking = static_cast<TakingBack*>(::calloc(1, sizeof(TakingBack)));
  if (taking == nullptr) return;
  taking->later.act = take_back_later;
  taking->key = range.share;
  swap::act_later(&taking->later);
}

SWITCHYARD_RENEW(kState, g_state);

}  // namespace switchyard::shim::ipc
