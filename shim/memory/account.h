// The account: this process's side of the job's memory on each GPU.
//
// Concept. The page's credit_bytes is what this process may still allocate without asking
// (abi.h). reserve() takes from it by compare-exchange, and asks the monitor when it is short;
// release() gives back. So two threads, or two processes of the job, can never both take the last
// byte. What must be charged after the fact (a pool that grew) is charge()d: credit as far as it
// goes, then a debt that the next release pays first.
//
// Without a monitor the last limits stay: what the page's quota leaves, else everything. A process
// that never joined is not limited.
//
// Threading: any thread. reserve() may wait for one bounded round trip, or, under
// `--on-oom wait`, until memory comes or the time-out is over.
#pragma once

#include <cstdint>

#include "shim/driver.h"
#include "switchyard/abi.h"

namespace switchyard::shim::account {

// CUDA_SUCCESS, or CUDA_ERROR_OUT_OF_MEMORY with nothing taken and the refusal counted and logged.
// A null lane is not limited.
CUresult reserve(abi::Lane* lane, std::uint64_t bytes);

// Gives back what reserve() or charge() took.
void release(abi::Lane* lane, std::uint64_t bytes);

// Charges what is allocated already.
void charge(abi::Lane* lane, std::uint64_t bytes);

// What the quota (or, without one, the account) leaves to this process: credit and what the
// monitor could still grant. UINT64_MAX when nothing limits it.
std::uint64_t available_bytes(const abi::Lane& lane);

}  // namespace switchyard::shim::account
