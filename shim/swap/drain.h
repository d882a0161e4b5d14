// The drain: before memory moves, nobody is inside a call that puts work, and the GPU has finished
// what was accepted.
//
// Concept. The steps of admission.h up to "draining". Both are bounded: a thread inside a call may
// stand behind work that waits for a held thread, and so may the GPU.
//
// Threading: the mover's thread alone.
#pragma once

#include "shim/driver.h"

namespace switchyard::shim::swap {

// Nobody new is admitted, and the calls that were have ended. False: not in time. Not while anybody
// captures: the capture's next call might stand outside, and a wait for the context would end the
// capture.
bool shut();

// The accepted work has ended: of every context of the GPU, for each can touch the memory. Whether
// in time says admission::begin_moving(). pre: shut(). Another context is current afterwards.
CUresult drain(unsigned lane);

}  // namespace switchyard::shim::swap
