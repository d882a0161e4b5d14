// Slots: which stream has which of the page's words.
//
// Concept. A slot belongs to one stream at a time, found by a key. When it is drained, another
// stream takes it over and goes on with its numbers. numbers.h says what the numbers mean.
//
// Threading: a slot's lock guards it; key, open and in_flight may be looked at without. Slots
// change hands under one more lock for each GPU, which is taken first.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "shim/gate/costs.h"
#include "shim/gate/numbers.h"
#include "shim/gate/spacing.h"

namespace switchyard::shim::numbers {

struct Slot {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<std::uint64_t> key{0};        // the stream; 0: nobody's
  std::atomic<bool> open{false};            // a batch has begun and has not ended
  std::atomic<std::uint32_t> in_flight{0};  // launches between begin() and end()

  // --- under the lock ---
  unsigned lane = 0;
  unsigned index = 0;
  CUstream stream = nullptr;
  CUcontext context = nullptr;
  std::uint64_t owner = 0;
  view::View* view = nullptr;  // whose numbers these are
  std::uint32_t number = 0;
  std::uint32_t lent = 0;      // the last number that another stream writes (linger.h)
  std::uint32_t launches = 0;  // in this batch
  costs::Sum worth;            // and what they cost
  std::uint32_t most = 0;      // launches that are worth the spacing by the average; 0: a graph
  bool full = false;           // the next launch ends it
  bool one_by_one = false;     // the driver refused to put two of ours at once
  std::uint64_t before = 0;    // the kernel that was launched last, hashed (costs.h)
  std::uint64_t began_ns = 0;
  spacing::Pace pace;

  abi::Word32& submitted() const { return view->gates[lane].submitted[index]; }
  abi::Word32& done() const { return view->gates[lane].done[index]; }
};

extern Slot g_slots[abi::kMaxGpus][abi::kProgressSlots];

// As explicit handles, so that the plain calls serve per-thread twins too.
CUstream handle_of(const StreamPlace& place);

CUcontext current_context();

// Streams have addresses. The default ones are told apart by context and thread: addresses are
// even and below 2^47.
std::uint64_t key_of(CUstream handle);

// The slot of a stream, locked; null when it has none.
Slot* find(unsigned lane, std::uint64_t key);

// The same, for one that had none: a drained one, locked; null when all have work.
Slot* take(const StreamPlace& place, std::uint64_t key);

// Whether this thread may put something into the slot's stream. pre: the slot's lock.
bool reachable(const Slot& slot, CUcontext context);

// Whether it may end the slot's batch. pre: the slot's lock.
bool writable(const Slot& slot, CUcontext context);

}  // namespace switchyard::shim::numbers
