#include "shim/swap/calls/allocate.h"

#include <atomic>

#include "shim/client/process.h"
#include "shim/gate/gate.h"
#include "shim/memory/owner.h"
#include "shim/swap/calls/pooled.h"
#include "shim/swap/memory/lifetime.h"
#include "shim/swap/memory/range_table.h"
#include "shim/swap/memory/retry_on_oom.h"
#include "shim/swap/mover.h"

namespace switchyard::shim::swap {
namespace {

// More than any GPU has: the driver shall refuse it.
constexpr std::uint64_t kMost = 1ull << 46;

// Ranges that are kept aside. A hint: the ranges themselves say so.
constinit std::atomic<std::uint32_t> g_deferred{0};

// Waits for all that `context` has to do.
CUresult wait_for(CUcontext context) {
  CUcontext current = nullptr;
  if (driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context) {
    return driver().cuCtxSynchronize();
  }
  // It has ended: there is nothing to wait for.
  if (driver().cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return CUDA_SUCCESS;
  const CUresult result = driver().cuCtxSynchronize();
  driver().cuCtxPopCurrent_v2(&current);
  return result;
}

bool spoils_a_capture(CUresult result) {
  return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
         result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

// A range that this thread alone ends now.
struct Ending {
  CUdeviceptr address = 0;
  CUcontext context = nullptr;
  Use was = Use::kLive;

  // pre: a RangesLock lives.
  void claim(Range& range) {
    address = range.address;
    context = range.context;
    was = range.use;
    range.use = Use::kEnding;
  }

  // Waits for the work that may touch it, then gives it back. Where the driver refuses to wait it
  // stays as it was. pre: nothing of ours is held: the mover may have to come first.
  CUresult finish() const {
    const CUresult waited = wait_unless_captured(context);
    const RangesLock held;
    Range* range = find(address);
    if (range == nullptr || range->use != Use::kEnding) return CUDA_SUCCESS;  // with its owner
    if (waited == CUDA_SUCCESS) {
      end(range);
    } else if (was == Use::kDeferredFree || spoils_a_capture(waited)) {
      defer_free(*range);
      return CUDA_SUCCESS;
    } else {
      range->use = Use::kLive;
      if (range->pool != 0) range->owner = kNobody;
    }
    return waited;
  }
};

bool claim_one_deferred(Ending& ending) {
  const RangesLock held;
  for (std::size_t i = 0; i < count(); ++i) {
    if (at(i).use != Use::kDeferredFree) continue;
    ending.claim(at(i));
    g_deferred.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  g_deferred.store(0, std::memory_order_relaxed);  // what a forked child has of its parent's
  return false;
}

// Ends what was kept aside: each once, because what can't be ended now is kept again.
void reap() {
  Ending ending;
  std::uint32_t left = g_deferred.load(std::memory_order_relaxed);
  while (left-- != 0 && may_wait() && claim_one_deferred(ending)) ending.finish();
}

}  // namespace

CUresult wait_unless_captured(CUcontext context) {
  const Askable may_ask;
  return may_ask ? wait_for(context) : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

bool may_wait() {
  return process().captures.load(std::memory_order_seq_cst) == 0 && !admission::inside();
}

bool takes(std::uint64_t bytes) {
  return on() && bytes >= kSmallestChunk && bytes <= kMost && current_lane() != nullptr &&
         driver().cuMemAddressReserve != nullptr;
}

CUresult allocate(CUdeviceptr* address, std::uint64_t bytes) {
  Range range;
  range.asked = bytes;
  range.bytes = (bytes + kSmallestChunk - 1) / kSmallestChunk * kSmallestChunk;
  range.lane = static_cast<unsigned>(lane_index(current_lane()));
  range.properties = plain_memory(static_cast<int>(range.lane));
  // A green context ends unseen, so a free of its memory waits for the primary context.
  if (const CUresult bad = pooled::bind_lifetime_to_current(range)) return bad;
  if (range.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult made = create_where_room(range);
  if (made == CUDA_SUCCESS) *address = range.address;
  return made;
}

CUresult create_where_room(Range& range) {
  mover::start(range.lane);
  CUresult made = create(range);
  if (made != CUDA_ERROR_OUT_OF_MEMORY) return made;
  // Reclaim deferred frees last: that must wait for the GPU, which an allocation else doesn't.
  if (reclaim()) made = create(range);
  if (made != CUDA_ERROR_OUT_OF_MEMORY) return made;
  return retry_on_oom([&] { return create(range); });
}

bool reclaim() {
  const bool any = pooled::reclaim();
  if (g_deferred.load(std::memory_order_relaxed) == 0) return any;
  const gate::Waiting waiting(gate::Waiting::kContext);
  reap();
  return true;
}

void defer_free(Range& range) {
  range.use = Use::kDeferredFree;
  g_deferred.fetch_add(1, std::memory_order_relaxed);
}

Range* live(CUdeviceptr address) {
  Range* range = find(address);
  return range != nullptr && range->use == Use::kLive ? range : nullptr;
}

bool free(CUdeviceptr address, CUresult& result, Free how) {
  if (how == Free::kWaits) reap();
  Ending ending;
  {
    const RangesLock held;
    Range* range = live(address);
    if (range == nullptr) return false;
    result = address == range->address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) return true;
    if (resident_bytes(*range) == 0) {
      end(range);
      return true;
    }
    if (range->pool != 0) result = pooled::bind_lifetime_to_current(*range);
    if (result != CUDA_SUCCESS) return true;
    if (how == Free::kLater || !may_wait()) {
      defer_free(*range);
      return true;
    }
    ending.claim(*range);
  }
  result = ending.finish();
  return true;
}

bool keep_charge(CUdeviceptr address, std::uint64_t bytes) {
  if (g_deferred.load(std::memory_order_relaxed) == 0) return false;
  const RangesLock held;
  Range* range = find(address);
  if (range == nullptr || range->charged != 0) return false;
  if (range->use != Use::kDeferredFree && range->use != Use::kEnding) return false;
  range->charged = bytes;
  return true;
}

bool is_away(CUdeviceptr address) {
  const RangesLock held;
  const Range* range = live(address);
  return range != nullptr && resident_bytes(*range) == 0;
}

bool bounds_at(CUdeviceptr address, Bounds& bounds) {
  const RangesLock held;
  const Range* range = live(address);
  if (range == nullptr) return false;
  bounds = {range->address, range->asked, range->bytes, range->context, range->id, range->sync};
  return true;
}

bool set_sync_memops(CUdeviceptr address, bool on) {
  const RangesLock held;
  Range* range = live(address);
  if (range == nullptr) return false;
  set_sync(range->sync, on ? SyncMemops::kOn : SyncMemops::kOff);
  return true;
}

CUcontext context_of(CUdeviceptr address) {
  const RangesLock held;
  const Range* range = live(address);
  return range != nullptr ? range->context : nullptr;
}

void free_owned(int lane, std::uint64_t owner) {
  const RangesLock held;
  for (std::size_t i = count(); i-- > 0;) {
    const Range& range = at(i);
    if (range.use == Use::kMapped) continue;  // it belongs to no context
    if (static_cast<int>(range.lane) != lane || range.owner != owner) continue;
    if (range.use == Use::kDeferredFree) g_deferred.fetch_sub(1, std::memory_order_relaxed);
    end(i);
  }
}

}  // namespace switchyard::shim::swap
