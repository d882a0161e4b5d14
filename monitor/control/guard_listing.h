// What `ps` and `stats` tell of a job's guard, and of what is done to a job for the sake of others
// (monitor/adaptation/guards.h).
//
// Threading: one thread, the monitor's.
#pragma once

#include <nlohmann/json.hpp>

#include "monitor/monitor.h"

namespace switchyard::monitor {

// The word for what it does now.
const char* state_of(const guard::State& state);

// The keys of a job.
void list_guard(Monitor& monitor, const Job& job, Time now, nlohmann::json& listing);

}  // namespace switchyard::monitor
