// The orders of `top`, after a yes: the requests of `pause`, `resume` and `set`, or a signal.
//
// Concept. The monitor decides who may pause a job. A signal is sent by this process, so the kernel
// decides who may end one. The processes are opened first (pidfd), and named by the monitor again:
// a PID that has changed hands meanwhile gets nothing. In another PID namespace than the monitor's,
// its PIDs are somebody else's, and there is no signal.
//
// Threading: blocks for as long as the monitor takes; call it from the only thread.
#pragma once

#include <string>

#include "tools/top/model.h"

namespace switchyard::tools::top {

// What came of it, in a line.
std::string carry_out(const Order& order);

}  // namespace switchyard::tools::top
