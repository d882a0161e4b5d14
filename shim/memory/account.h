// The account: this process's side of the job's memory on each GPU.
//
// Concept. The page's credit_bytes is what this process may still allocate without asking
// (abi.h). reserve() takes from it by compare-exchange, and asks the monitor when it is short;
// release() gives back. So two threads, or two processes of the job, can never both take the last
// byte. Memory that must be charged after the fact (a pool that grew) is charge()d. Credit goes as
// far as it reaches, the rest is a debt that the next release pays first.
//
//     used = granted - credit + debt
//
// Without a monitor the last limits stay: the rest of the page's quota, or no limit if there is no
// quota. Memory used meanwhile is debt, until a new monitor hears of it. A process that never
// joined is not limited.
//
// Threading: any thread. A lock keeps (used, credit, debt) together while a new monitor's page
// takes the old one's place. The monitor itself changes credit by compare-exchange at any time.
// reserve() may wait for one bounded round trip. Under `--on-oom wait` it waits until memory comes
// or the time-out is over.
#pragma once

#include <cstdint>

#include "shim/driver.h"
#include "shim/lock.h"
#include "switchyard/abi.h"
#include "switchyard/wire.h"

namespace switchyard::shim::account {

// Asked once before a refusal: gives back what is charged but not needed (idle pools).
using Reclaim = void (*)();

// What an allocation of `bytes` takes of the device. The driver cuts pages of 2 MiB into pieces of
// equal or different size, and gives whole pages from 2 MiB on. So up to 512 KiB a piece takes its
// own size, rounded to 512 bytes. A larger one takes a third, a half or all of a page. NVML on an
// H200 shows 1.33 x at 512.5 KiB, 1 MiB at 768 KiB, and 2 MiB just above 1 MiB. Saturates.
std::uint64_t rounded(std::uint64_t bytes);

// CUDA_SUCCESS, or CUDA_ERROR_OUT_OF_MEMORY with nothing taken and the refusal counted and logged.
// A null lane is not limited.
CUresult reserve(abi::Lane* lane, std::uint64_t bytes, Reclaim reclaim);

// Counts and logs a refusal, with what the monitor said that it lacks. CUDA_ERROR_OUT_OF_MEMORY.
CUresult refuse(abi::Lane* lane, std::uint64_t bytes, std::uint32_t lacks = wire::kDeviceLacks);

// Gives back what reserve() or charge() took.
void release(abi::Lane* lane, std::uint64_t bytes);

// Charges what is allocated already. False when it left a debt, that is, the job has more than it
// was granted.
bool charge(abi::Lane* lane, std::uint64_t bytes);

// What the quota (or, without one, the account) leaves to this process: credit and what the
// monitor could still grant. UINT64_MAX when nothing limits it.
std::uint64_t available_bytes(const abi::Lane& lane);

// --- while a new page takes the old one's place (client.cpp) ---

// No charge happens while one lives.
class Frozen {
 public:
  Frozen();

 private:
  Locked locked_;
};

// Puts lane `index` of a fresh page right: the monitor granted `told_bytes`, all of it used, and
// since then this process went on. pre: a Frozen lives.
void carry_over(unsigned index, std::uint64_t told_bytes, abi::Lane& fresh);

}  // namespace switchyard::shim::account
