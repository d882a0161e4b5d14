// What `status` and `ps` show, as JSON. Keys carry their base units. memory_used_bytes of a job
// contains its overhead (contexts), so it compares with its quota. It is the sum of the memory
// resident on the device and of that swapped out.
//
// Threading: one thread, the monitor's.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "monitor/monitor.h"

namespace switchyard::monitor {

nlohmann::json list_status(Monitor& monitor, Time now);
// The job after which a part of a listing begins, 0 for the first; nullopt: all are asked for.
std::optional<JobKey> goes_on_after(const nlohmann::json& request);
// All jobs; or, where `request` has "after", a part of them (switchyard/wire.h). `peer` asks.
nlohmann::json list_jobs(Monitor& monitor, const Peer& peer, const nlohmann::json& request,
                         Time now);
// One job as a whole reply.
nlohmann::json list_alone(Monitor& monitor, const Job& job, Time now);

}  // namespace switchyard::monitor
