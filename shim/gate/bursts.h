// Bursts: for how long the CPU of this process waits for the GPU, and for how long it works before.
//
// Concept. A *burst* is what a thread does from the first launch after a wait to the end of its
// next wait. In its last part the CPU stands still for the GPU. That tells two sorts of jobs apart.
// A job that waits for most of its bursts is bound by the GPU. A job that hardly waits is bound by
// its CPU, and the GPU idles between its kernels.
//
//     wait ends | first launch ... launches ... | wait begins .... ends |
//               |<------------------- burst ------------------------->|
//                                               |<---- waited --------->|
//
// The sums stand in the page (abi::Gate). Only waits are timed, and the first launch after each:
// the launches between cost nothing. A bit of `attention` makes the next launch look at the clock.
//
// The launches of each burst are counted, because a server's next wait can be foreseen by them. On
// request the monitor hears when a wait begins or ends, and when so many launches were made.
//
// Threading: any thread. Threads of one process share a burst, so with several at work at once the
// sums are estimates.
#pragma once

#include <cstdint>

#include "switchyard/abi.h"

namespace switchyard::shim::bursts {

// pre for all but rings: the monitor asks for it (abi::kTimeBursts).

// Before a launch that is the first since the last wait.
void begin(abi::Lane& lane);

// A launch was counted. pre: the monitor asks for rings (abi::kTellWaits).
void ring_if_due(abi::Lane& lane);

// A thread slept before the closed gate: that is no work of its CPU, so this burst counts for
// nothing.
void drop(unsigned lane);

// A wait of the CPU begins.
void wait_begins(abi::Lane& lane);

// A wait of the CPU, which began then, has just ended.
void wait_ended(abi::Lane& lane, std::uint64_t began_ns);

// The same for a copy: the driver may have waited for the GPU in it, or not.
void copy_ended(abi::Lane& lane, std::uint64_t began_ns);

}  // namespace switchyard::shim::bursts
