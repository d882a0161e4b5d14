#include "shim/checkpoint/steps.h"

#include <unistd.h>

namespace switchyard::shim::checkpoint {
namespace {

// The accepted work is done before: only a call that waits for another process takes longer.
constexpr unsigned kLockMs = 5'000;

CUprocessState state() {
  CUprocessState now = CU_PROCESS_STATE_FAILED;
  const CUresult result = driver().cuCheckpointProcessGetState(::getpid(), &now);
  return result == CUDA_SUCCESS ? now : CU_PROCESS_STATE_FAILED;
}

CUresult restore() {
  CUcheckpointRestoreArgs args{};
  return driver().cuCheckpointProcessRestore(::getpid(), &args);
}

CUresult unlock() {
  CUcheckpointUnlockArgs args{};
  return driver().cuCheckpointProcessUnlock(::getpid(), &args);
}

}  // namespace

bool has_calls() {
  const Driver& calls = driver();
  return calls.cuCheckpointProcessLock != nullptr && calls.cuCheckpointProcessUnlock != nullptr &&
         calls.cuCheckpointProcessCheckpoint != nullptr &&
         calls.cuCheckpointProcessRestore != nullptr &&
         calls.cuCheckpointProcessGetState != nullptr;
}

Outcome take_steps() {
  CUcheckpointLockArgs lock{};
  lock.timeoutMs = kLockMs;
  const CUresult locked = driver().cuCheckpointProcessLock(::getpid(), &lock);
  if (locked != CUDA_SUCCESS) return {locked, state()};
  CUcheckpointCheckpointArgs args{};
  const CUresult taken = driver().cuCheckpointProcessCheckpoint(::getpid(), &args);
  if (taken == CUDA_SUCCESS) return {taken, CU_PROCESS_STATE_CHECKPOINTED};
  return {taken, bring_steps().state};
}

Outcome bring_steps() {
  Outcome out{.state = state()};
  if (out.state == CU_PROCESS_STATE_CHECKPOINTED) {
    out.result = restore();
    out.state = state();
  }
  if (out.state == CU_PROCESS_STATE_LOCKED) {
    out.result = unlock();
    out.state = state();
  }
  return out;
}

}  // namespace switchyard::shim::checkpoint
