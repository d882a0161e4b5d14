// The owner of an allocation: its context, whose end frees it as a free does.
//
// Concept. An allocation made in a context of cuCtxCreate (contexts.h) is owned by it, that is, by
// its number. Books that are put right after its end must not meet a newer context with the same
// handle. Everything else, green contexts included, is owned by the GPU's primary context (0).
// PrimaryHeld lives while its books are put right.
//
// Threading: any thread.
#pragma once

#include <cstdint>

#include "shim/contexts.h"
#include "shim/driver.h"
#include "switchyard/abi.h"

namespace switchyard::shim::memory {

// The owner of what is allocated in a context, and of what the calling thread allocates now.
std::uint64_t owner_of(CUcontext context);
std::uint64_t current_owner();

void context_created(int lane, CUcontext context);

// The context, made_context() before its end, has ended, and the driver has freed what it owned.
void context_gone(CUcontext context, const swap::Made& made);
void primary_gone(int lane);

}  // namespace switchyard::shim::memory
