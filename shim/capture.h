// Whether work on a stream runs, or becomes a node of a graph because the stream is being captured.
//
// Threading: any thread. The driver is asked only while some stream of the process is in capture.
#pragma once

#include "shim/client/process.h"
#include "shim/driver.h"

namespace switchyard::shim {

// Asks the driver. A failing question is no.
bool is_captured(CUstream stream, bool per_thread);

// Whether nothing of ours may go into the stream now: it is captured, or it is the legacy stream
// while a stream that waits for it is (the driver refuses the question, and would refuse the work).
bool may_not_touch(CUstream stream, bool per_thread);

inline bool untouchable(CUstream stream, bool per_thread) {
  return process().captures.load(std::memory_order_relaxed) != 0 &&
         may_not_touch(stream, per_thread);
}

inline bool captured(CUstream stream, bool per_thread) {
  return process().captures.load(std::memory_order_relaxed) != 0 && is_captured(stream, per_thread);
}

}  // namespace switchyard::shim
