// Islands: jobs whose kernels run at once, in the channel groups of one MPS server.
//
// Concept. The members of an island have no channel group of their own. Its server has one on the
// GPU, and does nothing by itself. So for all others the island is one client: it has the work of
// its members, their weights together, and the slices of its server. decide() sees only that one.
// What it orders of gates goes to each member, what it orders of slices to the server.
//
//     members, server ──fold──► one client ──decide()──► plan ──► gates of all, slice of the server
//        │                                                 ▲
//        └──────decide(), without slices, for themselves───┘ limits, unequal weights
//
// Inside, another decide() sees the members alone, as jobs on a GPU without slices. There ceilings
// and unequal weights are kept by gates. A member with the same weight as the others waits for
// nobody. Of the island's time each member that works is charged the same part, for their kernels
// overlap.
//
// A member with channel groups of its own runs beside the island, as a job. An island whose server
// is not known (yet) is a client whose slices are refused. Two servers of one island, as after the
// death of its daemon, are two channel groups, so none of them is short.
//
// Threading: pure functions over plain values.
#pragma once

#include <cstdint>
#include <map>

#include "monitor/policy/policy.h"

namespace switchyard::monitor::policy {

// The memory between two looks at one island on one GPU.
struct IslandState {
  State members;
  double part = 1;  // of the time in which it worked, what it had of the GPU
};
using IslandStates = std::map<std::uint64_t, IslandState>;

// decide() for a snapshot that may have islands in it; `state` knows each by its key.
Plan decide_with_islands(const Snapshot& snapshot, Time now, State& state, IslandStates& islands);

}  // namespace switchyard::monitor::policy
