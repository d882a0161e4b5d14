// What a thread's group gathers until it ends: communicators that are made or ended, and
// operations.
//
// Concept. Outside a group each call is a group of its own. At the end all communicators join first
// and wait then, for one thread may make all ranks of one.
//
// Threading: a group is its thread's own.
#pragma once

#include "communicator.h"

namespace fakenccl {

void begin_group();
// Its operations are launched when the outermost group ends.
ncclResult_t end_group();
// Ends it and launches nothing.
ncclResult_t drop_group();

ncclResult_t add_communicator(ncclComm_t* out, std::uint64_t id, int ranks, int rank, int device);
// `excluded`: ranks of the parent that don't call.
ncclResult_t add_child(ncclComm_t* out, ncclComm_t parent, int color, int key,
                       std::vector<int> excluded);
// Its kernels end at once. It is gone when the group ends, which waits for all kernels of the GPU,
// as freeing memory may.
ncclResult_t abort_communicator(ncclComm_t comm);
// Its kernels end at once, and it stays. The group's end waits for these alone.
ncclResult_t revoke_communicator(ncclComm_t comm);
// A window of a communicator, whose handle is there when the group has ended.
ncclResult_t add_window(ncclComm_t comm, void* memory, void** window);
ncclResult_t add_operation(ncclComm_t comm, CUstream stream, const Operation& operation);

}  // namespace fakenccl
