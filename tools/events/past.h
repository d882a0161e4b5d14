// Events of the monitor's history: those that it has forgotten, and those of monitors before it.
//
// Threading: call from the only thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tools/base/monitor_client.h"
#include "tools/base/result.h"

namespace switchyard::tools {

struct PastEvents {
  nlohmann::json events = nlohmann::json::array();  // oldest first
  std::uint64_t lost = 0;
  std::uint64_t last = 0;  // the monitor's own number of the newest; 0: it is another monitor's
};

// Those of the last `seconds`, of the job with this name or id; empty: of all.
Result<PastEvents> read_past_events(MonitorClient& monitor, double seconds,
                                    const std::string& target = "");

// All of a job: those of the history, and those that have not come there yet. Fewer where these
// can't be read.
nlohmann::json events_of_ended(MonitorClient& monitor, const std::string& id);

}  // namespace switchyard::tools
