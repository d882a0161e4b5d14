// This process's contexts leave the GPU by the driver's checkpoint, and come back.
//
// Concept. Swapping leaves contexts, modules, graphs and small allocations on the GPU. The driver
// (12.8 and newer) can take these to the host, too, and keeps every handle and address valid. It
// locks the process's calls meanwhile, and a call that gets through ends the process. So no thread
// may be inside a call (inside.h), and the mover makes no other call until they are back.
//
// A failure on the way out is undone at once. bring() asks the driver how far it is and goes on
// from there, so it can be called again after any failure.
//
// Threading: the mover's thread alone.
#pragma once

#include "shim/driver.h"

namespace switchyard::shim::checkpoint {

// Takes all that the process has on its GPU, which is that of `lane`. away() says whether it is.
// pre: its work is held and done, and no context is current to this thread.
CUresult take(unsigned lane);
bool away();

// Brings it back, on the GPU where the monitor wants it. CUDA_ERROR_OUT_OF_MEMORY: the GPU has no
// room for it (yet). `refused`: why it is back where it was; CUDA_SUCCESS: it is where it shall be.
CUresult bring(unsigned lane, CUresult& refused);
// The driver can't bring it back any more: the program's calls go on, and fail.
bool lost();

}  // namespace switchyard::shim::checkpoint
