// Calls that fail because a test wants them to.
//
// Concept. FAKECUDA_FAIL=CALL:N[+][=CODE],... makes the Nth call of that name in this process fail,
// and with + all that follow, before it does anything. CODE is a CUresult; out of memory when it is
// left out. FAKECUDA_FAILED names a file that gets a line for each, so that a test knows that it
// came to pass.
//
// Threading: any thread.
#pragma once

#include "driver.h"

namespace fakecuda {

// The error that the call has to return now; 0: it goes on.
CUresult wanted_failure(const char* call);

}  // namespace fakecuda
