// NVML's samples of islands. It lists the work of all members under their server, which does none
// of its own.
//
// Threading: one thread, the monitor's.
#pragma once

#include "monitor/core/registry.h"

namespace switchyard::monitor::islands {

// Gives the load of each server to its members at work, in equal parts: their kernels overlap. Call
// it after each measure of loads.
void share_loads(Registry& registry);

}  // namespace switchyard::monitor::islands
