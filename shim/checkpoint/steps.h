// What a checkpoint of this process asks of the driver, step by step.
//
// Concept. take() locks the process's calls and takes its checkpoint; what fails is undone. bring()
// asks how far the process is, and goes on from there. So after any failure bring() leads back.
//
//   running ── lock, checkpoint ──► checkpointed ── restore, unlock ──► running
//
// Threading: the mover's thread.
#pragma once

#include "shim/driver.h"

namespace switchyard::shim::checkpoint {

struct Outcome {
  CUresult result = CUDA_SUCCESS;  // of the first step that failed
  CUprocessState state = CU_PROCESS_STATE_RUNNING;
};

// Whether the driver has the calls.
bool has_calls();
Outcome take_steps();
Outcome bring_steps();

}  // namespace switchyard::shim::checkpoint
