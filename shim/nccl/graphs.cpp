#include "shim/nccl/graphs.h"

#include <pthread.h>
#include <stdlib.h>

#include "shim/gate/spans.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/nccl/thread.h"
#include "shim/reset.h"

namespace switchyard::shim::nccl::graphs {

std::atomic<std::uint32_t> g_noted{0};

namespace {

// A graph's handle and an executable graph's, both even, are told apart by the lowest bit.
using Key = std::uint64_t;
constexpr Key kEmpty = 0;
constexpr Key kGone = 2;
Key key_of(CUgraph graph) { return reinterpret_cast<std::uintptr_t>(graph); }
Key key_of(CUgraphExec executable) { return reinterpret_cast<std::uintptr_t>(executable) | 1; }

using Notes = Steps;

// Enough for a server that captures each of its layers for each size of a batch.
constexpr std::size_t kMost = 16384;
struct State {
  std::atomic<Key> key[kMost];
  std::atomic<Notes*> notes[kMost];
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

std::size_t first_place(Key key) { return (key * 0x9E3779B97F4A7C15u) >> 50; }
static_assert(kMost == 1u << 14, "first_place() makes numbers of 14 bits");

Notes* find(Key key) {
  for (std::size_t i = 0, place = first_place(key); i < kMost; ++i, place = (place + 1) % kMost) {
    const Key there = g_state.key[place].load(std::memory_order_acquire);
    if (there == key) return g_state.notes[place].load(std::memory_order_relaxed);
    if (there == kEmpty) return nullptr;
  }
  return nullptr;
}

// pre: the lock is held, for all below. Null: there is no room.
Notes* make(Key key) {
  if (Notes* there = find(key)) return there;
  std::size_t place = first_place(key);
  for (std::size_t i = 0; i < kMost; ++i, place = (place + 1) % kMost) {
    const Key there = g_state.key[place].load(std::memory_order_relaxed);
    if (there != kEmpty && there != kGone) continue;
    Notes* notes = g_state.notes[place].load(std::memory_order_relaxed);
    if (notes == nullptr) notes = static_cast<Notes*>(::calloc(1, sizeof(Notes)));
    if (notes == nullptr) return nullptr;
    notes->clear();
    g_state.notes[place].store(notes, std::memory_order_relaxed);
    g_state.key[place].store(key, std::memory_order_release);
    g_noted.fetch_add(1, std::memory_order_relaxed);
    return notes;
  }
  static Once said;
  log_once(said, Level::kWarn, "collectives of more than %zu graphs are not counted", kMost);
  return nullptr;
}

Key key_at(std::size_t place) { return g_state.key[place].load(std::memory_order_relaxed); }

// A key of the past makes lookups go on behind it. Where nothing is behind it, they may end there:
// else they would pass all keys that ever were. No launch that looks meanwhile misses its key: that
// one is before these places, or does not exist.
void empty_up_to(std::size_t place) {
  if (key_at((place + 1) % kMost) != kEmpty) return;
  for (; key_at(place) == kGone; place = (place + kMost - 1) % kMost)
    g_state.key[place].store(kEmpty, std::memory_order_relaxed);
}

void take_out(Key key) {
  std::size_t place = first_place(key);
  for (std::size_t i = 0; i < kMost; ++i, place = (place + 1) % kMost) {
    const Key there = g_state.key[place].load(std::memory_order_relaxed);
    if (there == kEmpty) return;
    if (there != key) continue;
    g_state.key[place].store(kGone, std::memory_order_release);
    // No launch reads them: the graph is about to be destroyed.
    Notes* notes = g_state.notes[place].exchange(nullptr, std::memory_order_relaxed);
    notes->give_back();
    ::free(notes);
    g_noted.fetch_sub(1, std::memory_order_relaxed);
    empty_up_to(place);
    return;
  }
}

void merge(Key from, Key to) {
  if (!any()) return;
  const Locked locked(g_state.lock);
  const Notes* source = find(from);
  Notes* target = source != nullptr ? make(to) : nullptr;
  if (target != nullptr && !target->add(*source)) say_no_memory();
}

void drop(Key key) {
  if (!any()) return;
  const Locked locked(g_state.lock);
  take_out(key);
}

template <typename Each>
void for_steps(CUgraphExec executable, Each each) {
  const Notes* notes = find(key_of(executable));
  if (notes != nullptr) notes->for_each(each);
}

void forget() {
  g_noted.store(0, std::memory_order_relaxed);
  for (std::size_t place = 0; place < kMost; ++place) {
    if (key_at(place) == kEmpty) continue;
    // A thread of the parent may have been at its notes: they are left alone.
    g_state.notes[place].store(nullptr, std::memory_order_relaxed);
    g_state.key[place].store(kEmpty, std::memory_order_relaxed);
  }
  g_state.lock = PTHREAD_MUTEX_INITIALIZER;
}

}  // namespace
SWITCHYARD_RESET(kState, forget);

CUgraph captured_into(CUstream stream) {
  if (stream == nullptr) stream = CU_STREAM_PER_THREAD;  // the legacy one is never captured
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  if (driver().cuStreamGetCaptureInfo_v2 == nullptr ||
      driver().cuStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, nullptr, nullptr) !=
          CUDA_SUCCESS) {
    return nullptr;
  }
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? graph : nullptr;
}

void note(CUgraph graph, int slot, const CountStep& step) {
  if (graph == nullptr) return;
  const Locked locked(g_state.lock);
  Notes* notes = make(key_of(graph));
  if (notes != nullptr && !step.empty() && !notes->add(slot, step)) say_no_memory();
}

void copy(CUgraph from, CUgraph to) { merge(key_of(from), key_of(to)); }
void copy(CUgraphExec from, CUgraph to) { merge(key_of(from), key_of(to)); }
void instantiated(CUgraph from, CUgraphExec to) { merge(key_of(from), key_of(to)); }
void gone(CUgraph graph) { drop(key_of(graph)); }
void gone(CUgraphExec executable) { drop(key_of(executable)); }

std::size_t size() {
  const Locked locked(g_state.lock);
  std::size_t taken = 0;
  for (std::size_t place = 0; place < kMost; ++place) taken += key_at(place) != kEmpty;
  return taken;
}

bool counts(CUgraphExec executable) {
  bool any = false;
  for_steps(executable, [&](int, const CountStep&) { any = true; });
  return any;
}

bool stops(CUgraphExec executable) {
  bool any = false;
  for_steps(executable, [&](int, const CountStep& step) { any = any || step.launched != 0; });
  return any;
}

void count(CUgraphExec executable) {
  for_steps(executable, [](int slot, const CountStep& step) {
    communicators::count(slot, step);
    const auto lane = static_cast<unsigned>(communicators::lane(slot));
    if (spans::wanted(page().lanes[lane])) spans::graph(lane);
  });
}

void take_back(CUgraphExec executable) {
  for_steps(executable,
            [](int slot, const CountStep& step) { communicators::take_back(slot, step); });
}

}  // namespace switchyard::shim::nccl::graphs
