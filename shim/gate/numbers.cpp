#include "shim/gate/numbers.h"

#include <pthread.h>

#include <algorithm>

#include "shim/capture.h"
#include "shim/clock.h"
#include "shim/gate/errors.h"
#include "shim/gate/slots.h"
#include "shim/lock.h"

namespace switchyard::shim::numbers {
namespace {

constexpr std::uint32_t kLooksEvery = 8;  // launches between two looks at the clock
constexpr std::uint64_t kStaleNs = 1'000'000'000;
constexpr std::uint64_t kMostDrainNs = 2'000'000'000;
// A stream's queue holds about 1000 entries, and not all of them are ours to know.
constexpr std::uint32_t kMostEntries = 512;

struct State {
  std::atomic<unsigned> latest[abi::kMaxGpus] = {};  // the slot that was launched into last
};
constinit State g_state;

std::uint64_t spacing_ns(unsigned lane) {
  const std::uint32_t us = page().gates[lane].spacing_us.load(std::memory_order_relaxed);
  return std::uint64_t{us == 0 ? abi::kDefaultSpacingUs : us} * 1000;
}

// pre: the slot's lock, for all below.

// Two streams write a slot's word. The second waits until the first's has come, or the word would
// go back.
bool lent_out(Slot& slot) {
  const std::uint32_t done = slot.done().load(std::memory_order_acquire);
  if (static_cast<std::int32_t>(done - slot.lent) < 0) return true;
  slot.lent = done;  // or it would lie ahead once more than half of all numbers have passed
  return false;
}

// The batch's number is in a stream. A graph is no measure of a launch.
void finish(Slot& slot) {
  slot.pace.ended(slot.number, slot.most == 0 ? 0 : slot.launches, slot.worth.knows());
  slot.open.store(false, std::memory_order_relaxed);
}

// Nobody writes the open batch's number: it never was, and the next batch has it. `done` is left
// alone, because it would go back when an earlier number lands, and never be equal again.
void abandon(Slot& slot) {
  slot.submitted().store(--slot.number, std::memory_order_release);
  slot.open.store(false, std::memory_order_relaxed);
}

void close_batch(Slot& slot) {
  if (lent_out(slot)) return;  // it goes on; the next one ends both
  const CUdeviceptr word = slot.view->at(slot.lane, slot.done());
  const CUresult result = word == 0
                              ? CUDA_ERROR_INVALID_VALUE
                              : driver().cuStreamWriteValue32_v2(slot.stream, word, slot.number, 0);
  if (result == CUDA_SUCCESS) {
    finish(slot);
    return;
  }
  abandon(slot);
  // Then the earlier numbers don't come either.
  if (ends_context(result)) slot.done().store(slot.number, std::memory_order_release);
}

// Where the GPU has done all of the stream's work, the CPU writes the batch's number itself. The
// question costs a tenth of a number in the stream, and the waiting thread does not wait for the
// number, too (docs/measurements.md). A number on its way would land later and set `done` back.
bool done_already(Slot& slot) {
  const Driver& calls = driver();
  if (lent_out(slot) || slot.done().load(std::memory_order_acquire) != slot.number - 1 ||
      calls.cuStreamQuery == nullptr || calls.cuStreamQuery(slot.stream) != CUDA_SUCCESS) {
    return false;
  }
  finish(slot);
  slot.done().store(slot.number, std::memory_order_release);
  slot.pace.look(slot.number, slot.number, false, monotonic_ns());
  return true;
}

// Whether a write may have to wait for room in the queue, behind who knows what. The caller of a
// launch into this stream takes that upon itself; who only passes by doesn't.
bool may_be_full(const Slot& slot) {
  if (!slot.open.load(std::memory_order_relaxed)) return false;
  const std::uint32_t done = slot.done().load(std::memory_order_relaxed);
  return slot.launches + slot.pace.entries(done, slot.number - 1, kMostEntries) >= kMostEntries;
}

// Puts the wait before what comes. False: the driver doesn't do that here.
bool put_wait(CUstream stream, view::View& view, unsigned lane) {
  abi::Gate& gate = view.gates[lane];
  const CUdeviceptr word = view.at(lane, gate.closed);
  if (word == 0) return true;  // withdrawn just now
  const CUresult result = driver().cuStreamWaitValue32_v2(stream, word, 0, CU_STREAM_WAIT_VALUE_EQ);
  if (result == CUDA_SUCCESS) {
    gate.waits.fetch_add(1, std::memory_order_relaxed);
  } else if (unable(result)) {
    view::refuse(view, lane, result);
    return false;
  }
  return true;
}

// One call for the batch's number and the next one's wait costs the GPU less than two: about 1 us
// of each half millisecond (docs/measurements.md). False: neither is in the stream.
bool turn_over(Slot& slot, view::View& view) {
  if (slot.one_by_one || slot.view != &view || lent_out(slot) ||
      driver().cuStreamBatchMemOp_v2 == nullptr) {
    return false;
  }
  abi::Gate& gate = view.gates[slot.lane];
  CUstreamBatchMemOpParams both[2] = {};
  both[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  both[0].writeValue.address = view.at(slot.lane, slot.done());
  both[0].writeValue.value = slot.number;
  both[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  both[1].waitValue.address = view.at(slot.lane, gate.closed);
  both[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  if (both[0].writeValue.address == 0 || both[1].waitValue.address == 0) return false;
  const CUresult result = driver().cuStreamBatchMemOp_v2(slot.stream, 2, both, 0);
  slot.one_by_one = unable(result);
  if (result != CUDA_SUCCESS) return false;
  gate.waits.fetch_add(1, std::memory_order_relaxed);
  finish(slot);
  return true;
}

// `waits`: a wait has to be put before it.
void open_batch(Slot& slot, view::View& view, bool waits) {
  const std::uint64_t now = monotonic_ns();
  if (slot.view != &view) {
    slot.view = &view;
    slot.number = slot.lent = slot.submitted().load(std::memory_order_relaxed);
    slot.pace.restart(slot.number, now);
  }
  slot.pace.look(slot.done().load(std::memory_order_acquire), slot.number, false, now);
  slot.submitted().store(++slot.number, std::memory_order_release);
  slot.launches = 0;
  slot.full = false;
  slot.worth = {};
  slot.most = slot.pace.launches(spacing_ns(slot.lane));
  slot.began_ns = now;
  slot.open.store(true, std::memory_order_relaxed);
  if (waits && !put_wait(slot.stream, view, slot.lane)) abandon(slot);
}

// Whether so much is in the batch that it ends after this launch. A queue that is full lets the
// launcher through at the GPU's own pace, which the clock shows before any number does.
bool fills(const Slot& slot) {
  const std::uint32_t most = slot.most * costs::kMostOverUsual;
  if (slot.launches >= std::min(most, spacing::kMostLaunches)) return true;
  if (slot.worth.fills(spacing_ns(slot.lane), slot.most)) return true;
  return slot.launches % kLooksEvery == 0 &&
         monotonic_ns() - slot.began_ns > 2 * spacing_ns(slot.lane);
}

// What the launch costs, as far as it is known. Without waits nobody asks how long a batch is.
costs::Cost cost_of(Slot& slot, const Work& work) {
  const std::uint64_t kernel = costs::hash_of(work.kernel);
  const std::uint64_t key = costs::key_of(kernel, slot.before);
  slot.before = kernel;
  return kernel == 0 ? costs::Cost{} : timing::cost(slot.lane, key);
}

// Whether the open batch ends before this launch. It ends when it is full, before a graph, which is
// a batch of its own, and before a long launch, which would delay others.
bool ends_before(const Slot& slot, bool graph, costs::Cost cost) {
  if (!slot.open.load(std::memory_order_relaxed) || slot.in_flight.load() != 0) return false;
  return graph || slot.full || slot.worth.overflows(cost, spacing_ns(slot.lane), slot.most);
}

// Whether the launch that was just counted ends its batch. While the gate is armed the next one
// does, unless others were in flight then.
bool ends_after(Slot& slot, bool graph, Asked asked) {
  if (graph) return !asked.linger;
  if (!fills(slot)) return false;
  const bool again = slot.full;
  slot.full = true;
  return again || !asked.armed;
}

}  // namespace

BegunLaunch begin(const StreamPlace& place, view::View& view, Work work, Asked asked) {
  const bool armed = asked.armed;
  const CUstream handle = handle_of(place);
  const std::uint64_t key = key_of(handle);
  Slot* found = find(place.lane, key);
  if (found == nullptr) found = take(place, key);
  if (found == nullptr) {
    if (armed) put_wait(handle, view, place.lane);
    return {};
  }
  Slot& slot = *found;
  const bool graph = work.kind == WorkKind::kGraph;
  const costs::Cost cost = armed ? cost_of(slot, work) : costs::Cost{};
  g_state.latest[place.lane].store(static_cast<unsigned>(&slot - g_slots[place.lane]),
                                   std::memory_order_relaxed);
  bool waits = armed;
  if (ends_before(slot, graph, cost)) {
    if (armed && turn_over(slot, view)) {
      waits = false;
    } else {
      close_batch(slot);
    }
  }
  if (!slot.open.load(std::memory_order_relaxed)) {
    open_batch(slot, view, waits);
  } else if (graph && armed) {
    put_wait(handle, view, place.lane);
  }
  BegunLaunch piece{};
  if (slot.open.load(std::memory_order_relaxed)) {
    ++slot.launches;
    slot.worth.add(cost);
    slot.in_flight.fetch_add(1);
    if (graph) slot.most = 0;
    piece = {&slot, ends_after(slot, graph, asked), {}};
  }
  const CUcontext context = slot.context;
  ::pthread_mutex_unlock(&slot.lock);
  if (cost.wanted && piece.slot != nullptr) {
    piece.timed = timing::begin(place.lane, cost, context, handle);
  }
  return piece;
}

void end(const BegunLaunch& piece) {
  if (piece.slot == nullptr) return;
  timing::end(piece.timed);
  Slot& slot = *piece.slot;
  // Others are still putting theirs into the same batch: the last of them, or the next, ends it.
  if (slot.in_flight.fetch_sub(1) != 1 || !piece.last) return;
  const Locked locked(slot.lock);
  if (!slot.open.load(std::memory_order_relaxed) || slot.in_flight.load() != 0) return;
  close_batch(slot);
}

bool settle(unsigned lane, const StreamPlace* named) {
  // A stream may join somebody's capture between the question and our write.
  const swap::Askable may_touch;
  if (!may_touch) return true;
  const std::uint64_t key = named != nullptr ? key_of(handle_of(*named)) : 0;
  CUcontext context = nullptr;
  bool all = true;
  for (Slot& slot : g_slots[lane]) {
    if (!slot.open.load(std::memory_order_relaxed)) continue;
    if (context == nullptr && (context = current_context()) == nullptr) return true;
    // The lock's holder is putting work there, and will end the batch in its turn.
    if (::pthread_mutex_trylock(&slot.lock) != 0) continue;
    if (writable(slot, context)) {
      const bool full = slot.key.load(std::memory_order_relaxed) != key && may_be_full(slot);
      if (!full && !done_already(slot)) close_batch(slot);
      all = all && !full;
    }
    ::pthread_mutex_unlock(&slot.lock);
  }
  return all;
}

Latest::Latest(unsigned lane, CUcontext context) {
  if (!may_touch_) return;  // as in settle()
  Slot& slot = g_slots[lane][g_state.latest[lane].load(std::memory_order_relaxed)];
  if (::pthread_mutex_trylock(&slot.lock) != 0) return;
  if (reachable(slot, context) && !may_be_full(slot)) {
    slot_ = &slot;
  } else {
    ::pthread_mutex_unlock(&slot.lock);
  }
}

Latest::~Latest() {
  if (slot_ != nullptr) ::pthread_mutex_unlock(&slot_->lock);
}

CUstream Latest::stream() const { return slot_->stream; }

Due Latest::due() const {
  const Slot& slot = *slot_;
  if (!slot.open.load(std::memory_order_relaxed) || slot.in_flight.load() != 0) return {};
  return {slot.view->at(slot.lane, slot.done()), slot.number};
}

void Latest::lent() {
  finish(*slot_);
  slot_->lent = slot_->number;
}

void look(unsigned lane) {
  timing::collect(lane);
  std::uint64_t now = 0;
  for (Slot& slot : g_slots[lane]) {
    if (slot.key.load(std::memory_order_relaxed) == 0) continue;
    if (::pthread_mutex_trylock(&slot.lock) != 0) continue;
    if (slot.view != nullptr && !slot.open.load(std::memory_order_relaxed)) {
      if (now == 0) now = monotonic_ns();
      slot.pace.look(slot.done().load(std::memory_order_acquire), slot.number, true, now);
    }
    ::pthread_mutex_unlock(&slot.lock);
  }
}

void give_up_stale(std::uint64_t now_ns) {
  for (auto& lane : g_slots) {
    for (Slot& slot : lane) {
      if (!slot.open.load(std::memory_order_relaxed)) continue;
      if (::pthread_mutex_trylock(&slot.lock) != 0) continue;
      // It may have begun since the look did.
      if (slot.open.load(std::memory_order_relaxed) && slot.in_flight.load() == 0 &&
          now_ns > slot.began_ns && now_ns - slot.began_ns > kStaleNs) {
        abandon(slot);
      }
      ::pthread_mutex_unlock(&slot.lock);
    }
  }
}

void forget(CUstream stream) {
  // Whatever GPU is current: a stream may be destroyed, and may have been used, under another.
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    Slot* slot = find(lane, reinterpret_cast<std::uintptr_t>(stream));
    if (slot == nullptr) continue;
    if (slot->open.load(std::memory_order_relaxed) && !untouchable(stream, false)) {
      close_batch(*slot);
    }
    if (slot->open.load(std::memory_order_relaxed)) abandon(*slot);  // nobody can end it any more
    slot->key.store(0, std::memory_order_release);
    ::pthread_mutex_unlock(&slot->lock);
  }
}

void wait_for_others(const view::View& view, unsigned lane, std::uint64_t owner) {
  const auto waits = [&](Slot& slot) {
    // The lock's holder may be inside the driver.
    if (::pthread_mutex_trylock(&slot.lock) != 0) return true;
    const bool others = slot.view == &view && (slot.lane != lane || slot.owner != owner);
    // An open batch doesn't get its number any more.
    const std::uint32_t last = slot.number - (slot.open.load() ? 1 : 0);
    const bool waits = others && slot.done().load(std::memory_order_acquire) != last;
    ::pthread_mutex_unlock(&slot.lock);
    return waits;
  };
  const auto any = [&] {
    for (auto& slots : g_slots) {
      for (Slot& slot : slots) {
        if (waits(slot)) return true;
      }
    }
    return false;
  };
  const std::uint64_t limit = monotonic_ns() + kMostDrainNs;
  while (any() && monotonic_ns() < limit) sleep_ns(1'000'000);
}

void context_gone(unsigned lane, std::uint64_t owner) {
  for (Slot& slot : g_slots[lane]) {
    const Locked locked(slot.lock);
    if (slot.view == nullptr || slot.owner != owner) continue;
    slot.done().store(slot.number, std::memory_order_release);
    slot.open.store(false, std::memory_order_relaxed);
    slot.key.store(0, std::memory_order_release);
  }
}

}  // namespace switchyard::shim::numbers
