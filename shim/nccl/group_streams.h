// Streams of a group that has operations of a communicator and of its twin.
//
// Concept. A group's operations on one communicator are one kernel. All streams that the group
// names there wait for all of it, and it waits for all of them. With a twin it is two. So where one
// group names several streams for the two, they are made to wait for each other, before it and
// behind it.
//
// Threading: the thread's own.
#pragma once

#include "shim/driver.h"

namespace switchyard::shim::nccl::group_streams {

// An operation of the open group: of the original in `slot`, or of its twin.
void note(int slot, CUstream stream, bool twin);
// Before the group is launched, and once more behind it.
void join();

}  // namespace switchyard::shim::nccl::group_streams
