// Where a thread stops before it launches a collective, because the monitor wants to hold the job
// with all its ranks (abi.h: Cut).
//
// Concept. A launch is entered and left, and in between NCCL may wait for other ranks. So nothing
// of ours may hold a thread there. It is held before it enters: at the cut, at a closed gate, and
// while memory is moved. It enters first and looks then, so the monitor that sees nobody inside
// after it has asked knows that nobody passes any more. Sends and receives alone pass the cut:
// between more than two ranks no one can tell which of them belong together. The next collective
// stops it.
//
// Threading: any thread. Nothing is asked for: two loads and two counts.
#pragma once

#include "shim/nccl/thread.h"

namespace switchyard::shim::nccl {

// Lives from before the launch until it has returned.
class Launch : NoCopy {
 public:
  // `stops`: it launches more than sends and receives, so it stops at a cut.
  explicit Launch(bool stops);
  ~Launch() { communicators::leave(); }

 private:
  Inside inside_;
};

}  // namespace switchyard::shim::nccl
