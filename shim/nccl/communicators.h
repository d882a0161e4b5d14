// The communicators of this process: which it is in, and how many operations it has launched there.
//
// Concept. A table of kMostCommunicators slots, found by NCCL's handle. The lowest free slot is
// taken, so that the monitor, a cut and a fork look at few of them. The figures for the monitor and
// people stand in the page (abi.h: Communicator). The true count is kept here. A page may be
// replaced between two operations, and a lost count would make this rank look as if it lagged
// behind for ever. The page's count is only ever raised to the truth, so the order of two writers
// is no matter.
//
// All ranks must find the same id without talking to each other. It is a hash of NCCL's unique id.
// That of a child communicator is a hash of its parent's, of how many children the parent has had,
// and of the child's colour. The hash can't be turned back: the unique id lets a process in.
//
// Threading: any thread. find(), count() and take_back() take no lock; the rest takes one.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/nccl/abi.h"
#include "switchyard/abi.h"
#include "switchyard/agreement.h"
#include "switchyard/collectives.h"

namespace switchyard::shim::nccl {

// What operations add to a communicator's counts.
struct CountStep {
  std::uint32_t launched = 0;
  std::uint32_t sent = 0;
  std::uint64_t bytes = 0;
  std::uint64_t last_bytes = 0;
  Collective last = Collective::kNone;
  std::uint32_t kinds[abi::kMostCollectives] = {};
  std::uint64_t kind_bytes[abi::kMostCollectives] = {};

  bool empty() const { return launched == 0 && sent == 0; }
  void add(const CountStep& more) {
    launched += more.launched;
    sent += more.sent;
    bytes += more.bytes;
    last_bytes = more.last_bytes;
    last = more.last;
    for (unsigned kind = 0; kind < abi::kMostCollectives; ++kind) {
      kinds[kind] += more.kinds[kind];
      kind_bytes[kind] += more.kind_bytes[kind];
    }
  }
};

// A communicator that comes to life. `ranks` 0: it can't be asked yet. `id` 0: nobody knows it, so
// it is counted and not watched.
struct Birth {
  std::uint64_t id = 0;
  int rank = 0;
  int ranks = 0;
  int lane = 0;
  agreement::Board* board = nullptr;  // where its ranks agree about a twin (twins.h)
  bool unfit = false;                 // for twins, as are children with its configuration
};

// Hashes.
std::uint64_t id_of(const ncclUniqueId* ids, int count);
// `maker` tells the ways apart in which a child is made; -1 `slot`: 0, which is no id.
enum class Maker : std::uint64_t { kSplit = 1, kShrink = 2 };
std::uint64_t next_child(int slot, Maker maker);
std::uint64_t with_color(std::uint64_t child, std::uint64_t color);
// Of communicators that one process makes for itself.
std::uint64_t own_id();

namespace communicators {

// By slot; null: it is free.
extern std::atomic<ncclComm_t> g_handles[abi::kMostCommunicators];
// All slots that were ever in use have lower numbers.
extern std::atomic<unsigned> g_used;

// Where a handle is looked for: twice as many places as slots, so that a search is short.
struct Place {
  std::atomic<ncclComm_t> comm;
  std::atomic<unsigned> slot;
};
inline constexpr unsigned kPlaces = 2 * abi::kMostCommunicators;
extern Place g_places[kPlaces];
// Marks a place whose communicator has ended: a search goes on behind it.
inline const ncclComm_t kGone = reinterpret_cast<ncclComm_t>(1);

inline unsigned first_place(ncclComm_t comm) {
  const auto bits = reinterpret_cast<std::uintptr_t>(comm);
  return static_cast<unsigned>((bits * 0x9E3779B97F4A7C15u) >> 40) % kPlaces;
}

// Its place; null: it has none.
inline Place* find_place(ncclComm_t comm) {
  for (unsigned i = 0, place = first_place(comm); i < kPlaces; ++i, place = (place + 1) % kPlaces) {
    const ncclComm_t there = g_places[place].comm.load(std::memory_order_acquire);
    if (there == comm) return &g_places[place];
    if (there == nullptr) return nullptr;
  }
  return nullptr;
}

// Its slot; -1: it isn't watched.
inline int find(ncclComm_t comm) {
  const Place* place = comm != nullptr ? find_place(comm) : nullptr;
  return place != nullptr ? static_cast<int>(place->slot.load(std::memory_order_relaxed)) : -1;
}

inline ncclComm_t handle(int slot) { return g_handles[slot].load(std::memory_order_relaxed); }

// Its slot; -1: there is none for it, or its handle is not known yet (null). Such a one is counted
// until a communicator without a slot ends.
int add(ncclComm_t comm, const Birth& birth);
void end(ncclComm_t comm);

// 0: not known yet; then ask NCCL and say it by learn().
int ranks(int slot);
int rank(int slot);
int lane(int slot);
std::uint64_t id(int slot);
// Operations that count, so far: the number of the last one.
std::uint64_t launched(int slot);
void learn(int slot, int rank, int ranks);

// Whether every communicator has reached the target that the monitor has set for it.
bool at_targets();

// A launch begins, and has returned (abi.h: entered, left).
void enter();
void leave();

// pre: slot is one that find() answered, for both.
// Answers how many are launched, with these.
std::uint64_t count(int slot, const CountStep& step);
void take_back(int slot, const CountStep& step);

// Into a page that nobody sees yet; and once more when it is in its place, for what was counted in
// between.
void carry_over(abi::Page& fresh);
void tell();

}  // namespace communicators
}  // namespace switchyard::shim::nccl
