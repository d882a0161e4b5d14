// Twins: a second communicator of the same ranks, to which reduce-scatters go
// (--urgent-collectives).
//
// Concept. NCCL runs the operations of one communicator one after the other. FSDP2 puts its
// reduce-scatters and its all-gathers on one. So the all-gather that the next layer waits for
// stands behind a reduce-scatter that no layer waits for. On two communicators it overtakes.
//
// A twin is made when its original is, by a split of that, and only if all ranks do so
// (agreement.h). So each rank decides by its own knowledge whether it takes part, and nobody waits
// in vain:
//
//     before the original is made   attend, unless the option is off or the communicator is unfit
//     it is made                    vote "make": yes if all ranks attend and NCCL has succeeded
//     all make                      split; vote "keep": yes if the twin is there and watched
//     all keep                      reduce-scatters go to the twin; else the twin is aborted
//
// Where a reduce-scatter goes must be the same on all ranks. So it depends on what NCCL wants to be
// the same on all ranks, and on nothing else: the operation, and whether it is captured. A captured
// one, and one with an operator that was made for the original, stays on the original. A group
// changes nothing: what one rank puts into a group another may call alone.
//
// To the gradient noise a twin and its original are one communicator with one sequence of numbers.
// That is the sequence of the program's calls, which is the same on all ranks.
//
// A call that ends the original, or asks for its errors, does so for the twin as well
// (communicator_rules.h).
//
// Threading: any thread. route() and of() take no lock.
#pragma once

#include "shim/capture.h"
#include "shim/nccl/agreement.h"
#include "shim/nccl/group_streams.h"
#include "shim/nccl/thread.h"

namespace switchyard::shim::nccl {

// Calls of the copy of NCCL that has the original; null: it lacks one.
struct Calls {
  decltype(ncclCommSplit)* split = nullptr;
  decltype(ncclCommAbort)* abort = nullptr;
  decltype(ncclCommUserRank)* rank = nullptr;
  decltype(ncclCommCount)* ranks = nullptr;
  decltype(ncclGroupStart)* group_start = nullptr;
  decltype(ncclGroupEnd)* group_end = nullptr;

  bool complete() const {
    return split != nullptr && abort != nullptr && rank != nullptr && ranks != nullptr &&
           group_start != nullptr && group_end != nullptr;
  }
};

namespace twins {

// How many there are, and which, by their originals' slots.
extern std::atomic<std::uint32_t> g_count;
extern std::atomic<ncclComm_t> g_twin[abi::kMostCommunicators];
// By slot: that of its twin, or of what it is a twin of, plus 1; 0: it has none.
extern std::atomic<unsigned> g_other[abi::kMostCommunicators];

// Null: it has none.
inline ncclComm_t of(ncclComm_t comm) {
  if (g_count.load(std::memory_order_relaxed) == 0) return nullptr;
  const int slot = communicators::find(comm);
  return slot < 0 ? nullptr : g_twin[slot].load(std::memory_order_acquire);
}

// -1: it has none.
inline int other(int slot) {
  if (g_count.load(std::memory_order_relaxed) == 0) return -1;
  return static_cast<int>(g_other[slot].load(std::memory_order_relaxed)) - 1;
}
// The slot of the communicator that the program knows.
inline int original(int slot) {
  const int there = other(slot);
  return there >= 0 && g_twin[there].load(std::memory_order_relaxed) != nullptr ? there : slot;
}
// Operations that count in the other one, so far.
inline std::uint64_t launched_in_other(int slot) {
  const int there = other(slot);
  return there < 0 ? 0 : communicators::launched(there);
}

// The communicator that a reduce-scatter goes to.
inline ncclComm_t route(ncclComm_t comm, ncclRedOp_t op, CUstream stream) {
  if (t_nccl.inside != 0 || op >= kNcclOwnOps) return comm;
  const ncclComm_t twin = of(comm);
  if (twin == nullptr || captured(stream, false)) return comm;
  if (t_nccl.groups != 0) group_streams::note(communicators::find(comm), stream, true);
  return twin;
}

// An operation that goes to the communicator in `slot`, in a group.
inline void stays(int slot, CUstream stream) {
  if (g_count.load(std::memory_order_relaxed) == 0) return;
  if (g_twin[slot].load(std::memory_order_acquire) != nullptr) {
    group_streams::note(slot, stream, false);
  }
}

// A communicator is about to be made, of `ranks` ranks (0: not known yet); `parent`: the slot of
// the one that it is made from, or -1.
void expect(Birth& birth, const ncclConfig_t* config, int parent);

// It could not be made.
void refuse(Birth& birth);

// Communicators were made by one call or one group, which answered `result`. They come to life, and
// get twins where all ranks agree. Answers what the program is told: `result`, or the error of a
// split for a twin, by which the original may be spoilt.
ncclResult_t settle(Expected* births, unsigned count, ncclResult_t result, const Calls& calls);

// The original ends: forgets its twin, which the caller then ends. Null: it has none.
ncclComm_t take(ncclComm_t comm);

}  // namespace twins
}  // namespace switchyard::shim::nccl
