#include "shim/swap/memory/stream_event.h"

#include <atomic>
#include <cstdint>

#include "shim/capture.h"
#include "shim/contexts.h"
#include "shim/memory/owner.h"
#include "shim/memory/relaxed.h"
#include "shim/reset.h"

namespace switchyard::shim::swap::pooled {
namespace {

constinit std::atomic<bool> g_green{false};

CUresult record(CUevent& event, Order order) {
  const auto put = order.per_thread ? driver().cuEventRecord_ptsz : driver().cuEventRecord;
  CUresult result = driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) result = put(event, order.stream);
  if (result != CUDA_SUCCESS && event != nullptr) {
    driver().cuEventDestroy_v2(event);
    event = nullptr;
  }
  return result;
}

}  // namespace

bool may_stand_behind() {
  const Driver& calls = driver();
  return !g_green.load(std::memory_order_relaxed) && calls.cuStreamGetCtx != nullptr &&
         calls.cuStreamGetId != nullptr && calls.cuStreamGetId_ptsz != nullptr &&
         calls.cuEventCreate != nullptr && calls.cuEventRecord != nullptr &&
         calls.cuEventRecord_ptsz != nullptr;
}

CUresult place_of(Order order, FreePoint& place) {
  const bool named = reinterpret_cast<std::uintptr_t>(order.stream) > 2;
  const CUresult found = named ? driver().cuStreamGetCtx(order.stream, &place.context)
                               : driver().cuCtxGetCurrent(&place.context);
  if (found != CUDA_SUCCESS) return found;
  if (place.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  unsigned long long number = 0;
  const auto ask = order.per_thread ? driver().cuStreamGetId_ptsz : driver().cuStreamGetId;
  const CUresult asked = ask(order.stream, &number);
  place.stream = number;
  return asked;
}

bool stand_behind(FreePoint& place, Order order) {
  if (!may_stand_behind() || untouchable(order.stream, order.per_thread)) return false;
  const memory::Relaxed relaxed;
  CUcontext current = nullptr;
  driver().cuCtxGetCurrent(&current);
  if (current == place.context) return record(place.event, order) == CUDA_SUCCESS;
  if (driver().cuCtxPushCurrent_v2(place.context) != CUDA_SUCCESS) return false;
  const CUresult result = record(place.event, order);
  driver().cuCtxPopCurrent_v2(&current);
  return result == CUDA_SUCCESS;
}

void bind_lifetime(Range& range, CUcontext context) {
  range.owner = memory::owner_of(context);
  const bool may_be_green = range.owner == 0 && g_green.load(std::memory_order_relaxed);
  // The wait for the primary context is one for the green ones, too.
  range.context = may_be_green ? PrimaryContext(static_cast<CUdevice>(range.lane)).get() : context;
}

CUresult bind_lifetime_to_current(Range& range) {
  CUcontext current = nullptr;
  if (const CUresult bad = driver().cuCtxGetCurrent(&current)) return bad;
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  bind_lifetime(range, current);
  return CUDA_SUCCESS;
}

void green_context_made() { g_green.store(true, std::memory_order_relaxed); }

void clear_order() { g_green.store(false, std::memory_order_relaxed); }
SWITCHYARD_RESET(kState, clear_order);

}  // namespace switchyard::shim::swap::pooled
