// What the calling thread has begun with NCCL: groups, and calls that are on.
//
// Concept. NCCL's groups belong to a thread. What is called inside one is launched when the
// outermost ends, so it is counted then. NCCL calls itself by its exported names (ncclBcast by
// ncclBroadcast), and a profiler calls the twin of what it replaces: such a call is inside another,
// and passes. A thread that interleaves groups of two copies of NCCL is not foreseen.
//
// Threading: the thread's own.
#pragma once

#include "shim/driver.h"
#include "shim/gate/hold.h"
#include "shim/gate/spans.h"
#include "shim/nccl/communicators.h"
#include "shim/nccl/norms.h"
#include "shim/no_copy.h"

namespace switchyard::shim::nccl {

// A communicator whose birth a group holds: its handle may be there only when the group ends.
struct Expected {
  ncclComm_t* where = nullptr;
  Birth birth;
};
inline constexpr unsigned kMostExpected = 16;

// Where the group has operations of a communicator, or of its twin (group_streams.h).
struct GroupStream {
  int slot = 0;
  CUstream stream = nullptr;
  bool twin = false;
  bool operator==(const GroupStream&) const = default;
};
inline constexpr unsigned kMostGroupStreams = 16;
// Sums of a group that may be measured.
inline constexpr unsigned kMostSums = 64;

struct Thread {
  unsigned inside = 0;     // calls of NCCL that are on
  unsigned groups = 0;     // that are open
  bool any = false;        // the group holds operations
  bool registers = false;  // memory, with a communicator and its twin
  // The group's operations are all of one communicator, and in one stream: this.
  bool together = false;
  int slot = 0;
  CUstream only = nullptr;
  // An operation of a communicator that does not block: NCCL launches it later.
  ncclComm_t later = nullptr;
  spans::Begun begun;
  unsigned expecting = 0;  // more than there is room for: the others are only counted
  Expected expected[kMostExpected];
  Step pending[abi::kMostCommunicators];
  unsigned streams = 0;
  GroupStream stream[kMostGroupStreams];
  unsigned summing = 0;  // more than there is room for: none of the group's is measured
  norms::Sum sums[kMostSums];
};
static_assert(std::is_trivially_destructible_v<Thread>);

// Not thread_local, as t_lane (client/process.h).
extern __thread Thread t_nccl;

// Lives while a call of NCCL is on. Nobody holds the thread then: others may wait for it.
class Inside : NoCopy {
 public:
  Inside() {
    ++t_nccl.inside;
    ++t_not_held;
  }
  ~Inside() {
    --t_not_held;
    --t_nccl.inside;
  }
};

}  // namespace switchyard::shim::nccl
