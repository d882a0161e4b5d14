// "report": what a person asks of the ledger (monitor/history), checked and made into a query.
//
// Threading: one thread, the monitor's.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "monitor/history/backend.h"
#include "monitor/monitor.h"
#include "monitor/platform/processes.h"

namespace switchyard::monitor {

// Nullopt: `out` is the refusal.
std::optional<history::Query> report_query(Monitor& monitor, const Peer& peer,
                                           const nlohmann::json& request, nlohmann::json& out);

}  // namespace switchyard::monitor
