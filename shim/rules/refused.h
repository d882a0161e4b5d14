// The answer to a program whose allocation the account refuses, or whose allocation is made here
// where the driver would have refused it.
//
// Concept. The account is asked before the driver, so that nothing is taken beyond the quota. But
// wrong arguments, and a call that a capture forbids, are errors that the driver tells first, and
// the latter ends the capture as well. So a refused call that may be wrong is made once more for
// the least memory of its kind. If the driver refuses that, its word is the program's answer; else
// the memory is given back, and the answer is CUDA_ERROR_OUT_OF_MEMORY. A call that is surely right
// costs no such trial: the free of it would wait for the GPU.
//
// Swappable memory is made and freed without the driver's cuMemAlloc and cuMemFree. These are
// forbidden while a capture goes on that is not in relaxed mode, and such a call ends the capture.
// So the driver is asked by a trial, too.
//
// Calls that the library does not know pass through, but for one case. Under a quota an allocation
// of a kind that it does not know is refused, for it could not be charged.
//
// Threading: any thread.
#pragma once

#include "shim/client/process.h"
#include "shim/driver.h"
#include "shim/gate/gate.h"
#include "shim/memory/relaxed.h"

namespace switchyard::shim::rules {

// Whether the driver may refuse, at the moment, what allocates outside a stream's order.
inline bool capture_may_forbid() { return process().captures.load(std::memory_order_relaxed) != 0; }

// The driver's error where a capture forbids this thread to allocate and to free, else success.
inline CUresult forbidden_by_a_capture() {
  // A thread in relaxed mode may do both, and pays for no trial.
  if (!capture_may_forbid() || memory::Relaxed().was_relaxed()) return CUDA_SUCCESS;
  const gate::Waiting waiting(gate::Waiting::kContext);
  CUdeviceptr least = 0;
  const CUresult result = driver().cuMemAlloc_v2(&least, 1);
  if (result == CUDA_SUCCESS) driver().cuMemFree_v2(least);
  return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? result : CUDA_SUCCESS;
}

// Whether the calling thread's GPU has a quota, so that what is of an unknown kind is refused. Says
// so once, and counts it.
bool unknown_is_refused();

// pre: the account refused. `least` makes the smallest allocation, `undo` gives it back.
template <typename Least, typename Undo>
CUresult refused_unless_wrong(bool may_be_wrong, Least least, Undo undo) {
  if (!may_be_wrong) return CUDA_ERROR_OUT_OF_MEMORY;
  const gate::Waiting waiting(gate::Waiting::kContext);
  const CUresult result = least();
  if (result != CUDA_SUCCESS) return result;
  undo();
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace switchyard::shim::rules
