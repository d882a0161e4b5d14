// What can't leave the device, by reason (switchyard/stays.h): counted here, told in the page.
//
// Concept. The module that knows why memory stays says so when that begins and when it ends. The
// ledger speaks for its notes, the pools for their charges, and bodies for their own state. Other
// memory can leave, or is "other" to the monitor, which knows the sum.
//
// Threading: any thread, without a lock.
#pragma once

#include <cstdint>

#include "switchyard/stays.h"

namespace switchyard::shim::memory {

// So many bytes more on the GPU of `lane` stay for that reason; fewer, if negative. Memory that can
// leave (Stays::kLeaves), and memory on no GPU of ours (a negative lane), isn't counted.
void stays(int lane, Stays why, std::int64_t bytes);

// Tells it all once more: the page is a fresh one.
void tell_stays();

}  // namespace switchyard::shim::memory
