// What a checkpoint of this process asks of the driver, step by step.
//
// Concept. take() locks the process's calls and takes its checkpoint; what fails is undone. bring()
// asks how far the process is, and goes on from there. So after any failure bring() leads back.
//
//   running ── lock, checkpoint ──► checkpointed ── restore, unlock ──► running
//
// A restore may put what was on one GPU on another. The driver wants to hear where each GPU of the
// machine goes (Pairs). A restore that the driver refuses to put there goes back to the old place.
//
// Threading: the mover's thread.
#pragma once

#include <cstdint>

#include "shim/driver.h"
#include "switchyard/abi.h"

namespace switchyard::shim::checkpoint {

// How long each step of the driver's took; 0: it was not taken.
struct Spent {
  std::uint64_t lock_ns = 0;
  std::uint64_t checkpoint_ns = 0;
  std::uint64_t restore_ns = 0;  // both, if it was refused on another GPU
  std::uint64_t unlock_ns = 0;
};

struct Outcome {
  CUresult result = CUDA_SUCCESS;  // of the first step that failed
  CUprocessState state = CU_PROCESS_STATE_RUNNING;
  bool moved = false;               // restored as the pairs say
  CUresult refused = CUDA_SUCCESS;  // that: then it was restored where it was, or nowhere yet
  Spent spent = {};
};

// Where each GPU of the machine goes. count 0: nothing moves.
struct Pairs {
  CUcheckpointGpuPair pair[abi::kMaxGpus];
  unsigned count = 0;
  unsigned from = 0;  // what is on the old GPU of this pair goes to its new one, and the other way
};
// As the monitor says of this lane. Anything that makes no sense moves nothing.
Pairs pairs_of(const abi::Page& page, unsigned lane);

// Whether the driver has the calls, and can restore on another GPU.
bool has_calls();
bool has_pairs();
Outcome take_steps();
// `from`: where the process is, as far as we know; the driver's word counts.
Outcome bring_steps(const Pairs& pairs, CUprocessState from = CU_PROCESS_STATE_CHECKPOINTED);

}  // namespace switchyard::shim::checkpoint
