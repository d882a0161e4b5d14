// What people ask about a job's card, with all of its settings: the operations "create" and "set"
// (switchyard/wire.h).
//
// Threading: one thread, the monitor's.
#pragma once

#include <nlohmann/json.hpp>

#include "monitor/control/commands.h"

namespace switchyard::monitor {

// Makes a job for processes to come; `answer` says whose end is its end.
nlohmann::json create_job(Monitor& monitor, const Peer& peer, const nlohmann::json& request,
                          Time now, Answer& answer);
// REQUIRES: the peer may change the job.
nlohmann::json change_job(Monitor& monitor, const Peer& peer, Job& job,
                          const nlohmann::json& request, Time now);

}  // namespace switchyard::monitor
