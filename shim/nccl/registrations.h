// Memory that a program registers with a communicator is registered with its twin as well.
//
// Concept. NCCL answers a registration with a handle, and is given it back when that ends. The
// twin's handle is kept here, by the original's. Inside a group the handle of a window is there
// when the group ends.
//
// Threading: any thread; one lock, a leaf.
#pragma once

#include "shim/nccl/abi.h"

namespace switchyard::shim::nccl::registrations {

struct Pair;

// Room for the twin's handle of what the original is about to register; null: no memory is left.
// `where`: where NCCL puts the original's.
Pair* begin(ncclComm_t comm, void** where);
void** twins_handle(Pair* pair);
// This thread's registrations have their handles now; a failed one is dropped.
void settle(ncclResult_t result);

// The twin's handle, which is kept no longer; null: there is none.
void* take(ncclComm_t comm, void* handle);
// The communicator ends, and with it all that was registered.
void drop(ncclComm_t comm);

}  // namespace switchyard::shim::nccl::registrations
