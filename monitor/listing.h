// What `status` and `ps` show, as JSON. Keys carry their base units; memory_used_bytes of a job
// contains its overhead (contexts), so it compares with its quota.
//
// Threading: one thread, the monitor's.
#pragma once

#include <nlohmann/json.hpp>

#include "monitor/monitor.h"

namespace switchyard::monitor {

nlohmann::json list_status(Monitor& monitor, Time now);
nlohmann::json list_jobs(Monitor& monitor, Time now);
nlohmann::json list_job(Monitor& monitor, const Job& job, Time now);

}  // namespace switchyard::monitor
