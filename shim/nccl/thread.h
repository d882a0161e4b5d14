// The calling thread's state in NCCL: its groups, and the calls that it is inside of.
//
// Concept. NCCL's groups belong to a thread. A call inside a group is launched when the outermost
// group ends, so it is counted then. NCCL calls itself by its exported names (ncclBcast by
// ncclBroadcast), and a profiler calls the twin of the name that it replaces. Such a call is inside
// another, and passes. A thread that interleaves groups of two copies of NCCL is not foreseen.
//
// Each thread of each program pays for the library's thread-local storage, also without CUDA. So
// only a few words are there. An open group has memory of its own, from its first operation or
// birth on. Groups that have ended leave theirs to later ones.
//
// Threading: the thread's own.
#pragma once

#include "shim/driver.h"
#include "shim/gate/hold.h"
#include "shim/gate/spans.h"
#include "shim/nccl/norms.h"
#include "shim/nccl/steps.h"
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

// What an open group holds.
struct Group {
  bool any = false;  // operations that count
  // They are all of one communicator, and in one stream: this.
  bool together = false;
  int slot = 0;
  CUstream only = nullptr;
  unsigned births = 0;
  Expected expected[kMostExpected];
  Steps pending;
  unsigned streams = 0;
  GroupStream stream[kMostGroupStreams];
  unsigned summing = 0;  // more than there is room for: none of the group's is measured
  norms::Sum sums[kMostSums];
};
static_assert(std::is_trivially_destructible_v<Group>);

struct Thread {
  unsigned inside = 0;     // calls of NCCL that are on
  unsigned groups = 0;     // that are open
  unsigned expecting = 0;  // births; those that the group has no room for are only counted
  bool registers = false;  // memory, with a communicator and its twin
  Group* group = nullptr;  // null: it holds nothing
  // An operation of a communicator that does not block: NCCL launches it later.
  ncclComm_t later = nullptr;
  spans::Begun begun;
};
static_assert(std::is_trivially_destructible_v<Thread>);

// Not thread_local, as t_lane (client/process.h).
extern __thread Thread t_nccl;

// That of the calling thread. Null: there is no memory for one, which is said once; what the group
// would hold is not counted.
Group* group();
void say_no_memory();
// It has ended. So many that have are kept for later ones: more are rarely open at one time.
inline constexpr unsigned kMostKeptGroups = 16;
void end_group();

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
