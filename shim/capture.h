// Whether work on a stream runs, or becomes a node of a graph because the stream is being captured.
//
// Concept. process().captures counts the captures that are on, for the questions below and for
// whoever must not disturb one. A capture ends by cuStreamEndCapture, or vanishes with its stream
// or its context. So each one is noted with both, and the count falls by whatever comes first.
//
// Threading: any thread. The driver is asked only while some stream of the process is in capture.
#pragma once

#include <cstdint>

#include "shim/client/process.h"
#include "shim/driver.h"
#include "shim/no_copy.h"

namespace switchyard::shim {

// Asks the driver. A failing question is no.
bool is_captured(CUstream stream, bool per_thread);

// Whether nothing of ours may go into the stream now. Either it is captured, or it is the legacy
// stream while a stream that waits for it is captured. The driver then refuses the question, and
// would refuse the work.
bool may_not_touch(CUstream stream, bool per_thread);

inline bool untouchable(CUstream stream, bool per_thread) {
  return process().captures.load(std::memory_order_relaxed) != 0 &&
         may_not_touch(stream, per_thread);
}

inline bool captured(CUstream stream, bool per_thread) {
  return process().captures.load(std::memory_order_relaxed) != 0 && is_captured(stream, per_thread);
}

namespace capture {

// A capture on `stream` begins: counts it. Its context is the calling thread's, `owner` of `lane`
// (memory/owner.h; lane -1: none).
void begins(CUstream stream, int lane, std::uint64_t owner);
// The driver refused to begin it, or it has ended.
void ended(CUstream stream);
// With these all their captures vanish. A stream: before its end, for its handle may be another's
// after it.
class StreamEnding : NoCopy {
 public:
  explicit StreamEnding(CUstream stream);
  void lives_on() const;

 private:
  CUstream stream_;
  std::uint32_t taken_ = 0;
  int lane_ = -1;
  std::uint64_t owner_ = 0;
};
void owner_gone(int lane, std::uint64_t owner);

// In a forked child.
void clear();

}  // namespace capture
}  // namespace switchyard::shim
