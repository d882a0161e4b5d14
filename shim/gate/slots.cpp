#include "shim/gate/slots.h"

#include "shim/capture.h"
#include "shim/client/process.h"
#include "shim/clock.h"
#include "shim/lock.h"
#include "shim/memory/owner.h"
#include "shim/reset.h"

namespace switchyard::shim::numbers {
namespace {

struct State {
  pthread_mutex_t taking[abi::kMaxGpus] = {};
};
constinit State g_state;

// pre: the slot's lock, for both.

bool drained(const Slot& slot) {
  return !slot.open.load(std::memory_order_relaxed) &&
         slot.in_flight.load(std::memory_order_relaxed) == 0 &&
         (slot.view == nullptr || slot.done().load(std::memory_order_acquire) == slot.number);
}

void take_over(Slot& slot, std::uint64_t key, const StreamPlace& place) {
  slot.lane = place.lane;
  slot.stream = handle_of(place);
  slot.context = current_context();
  slot.owner = memory::current_owner();
  slot.before = 0;
  if (slot.view != nullptr) slot.pace.restart(slot.number, monotonic_ns());
  slot.key.store(key, std::memory_order_release);
}

}  // namespace

constinit Slot g_slots[abi::kMaxGpus][abi::kProgressSlots];

CUstream handle_of(const StreamPlace& place) {
  if (place.stream != nullptr) return place.stream;
  return place.per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

CUcontext current_context() {
  CUcontext context = nullptr;
  return driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

std::uint64_t key_of(CUstream handle) {
  if (handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
    return reinterpret_cast<std::uintptr_t>(handle);
  }
  const auto context = reinterpret_cast<std::uintptr_t>(current_context());
  if (handle == CU_STREAM_LEGACY) return context | 1;
  const auto thread = reinterpret_cast<std::uintptr_t>(&t_lane);
  return 1ull << 63 | ((thread << 16 ^ context) & ~(1ull << 63));
}

Slot* find(unsigned lane, std::uint64_t key) {
  for (Slot& slot : g_slots[lane]) {
    if (slot.key.load(std::memory_order_acquire) != key) continue;
    ::pthread_mutex_lock(&slot.lock);
    if (slot.key.load(std::memory_order_relaxed) == key) return &slot;
    ::pthread_mutex_unlock(&slot.lock);
  }
  return nullptr;
}

Slot* take(const StreamPlace& place, std::uint64_t key) {
  const Locked taking(g_state.taking[place.lane]);
  if (Slot* slot = find(place.lane, key)) return slot;
  for (const bool free : {true, false}) {
    for (Slot& slot : g_slots[place.lane]) {
      if ((slot.key.load(std::memory_order_relaxed) == 0) != free) continue;
      if (::pthread_mutex_trylock(&slot.lock) != 0) continue;
      if (drained(slot)) {
        slot.index = static_cast<unsigned>(&slot - g_slots[place.lane]);
        take_over(slot, key, place);
        return &slot;
      }
      ::pthread_mutex_unlock(&slot.lock);
    }
  }
  return nullptr;
}

bool reachable(const Slot& slot, CUcontext context) {
  return slot.key.load(std::memory_order_relaxed) != 0 && slot.context == context &&
         slot.owner == memory::owner_of(context) &&  // its handle may be another one's by now
         (slot.stream != CU_STREAM_PER_THREAD ||
          slot.key.load(std::memory_order_relaxed) == key_of(slot.stream)) &&
         !untouchable(slot.stream, false);
}

bool writable(const Slot& slot, CUcontext context) {
  return slot.open.load(std::memory_order_relaxed) &&
         slot.in_flight.load(std::memory_order_relaxed) == 0 && reachable(slot, context);
}

void clear() {
  for (auto& lane : g_slots) {
    for (Slot& slot : lane) {
      slot.lock = PTHREAD_MUTEX_INITIALIZER;
      slot.key.store(0);
      slot.open.store(false);
      slot.in_flight.store(0);
      slot.full = slot.one_by_one = false;
      slot.view = nullptr;
      slot.number = slot.lent = 0;
    }
  }
  renew(g_state);
}
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::numbers
