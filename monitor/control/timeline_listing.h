// The recorded timeline for programs: `{"op":"timeline"}` (switchyard/wire.h).
//
// Concept. An answer has numbers, not texts, for a minute has some hundred thousand records. It has
// a bounded number of them, so the loop spends about a millisecond on it. The reader asks again
// with the number that it has seen last. `switchyard trace` makes spans of all this.
//
// Names of jobs and users, and PIDs, are those that `events` tells everybody. No command line is
// among them.
//
// Threading: one thread, the monitor's.
#pragma once

#include <nlohmann/json.hpp>

#include "monitor/monitor.h"

namespace switchyard::monitor {

nlohmann::json list_timeline(Monitor& monitor, const nlohmann::json& request, Time now);

}  // namespace switchyard::monitor
