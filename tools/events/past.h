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

// All that the history has of a job; an empty list where it can't be read.
nlohmann::json past_events_of(MonitorClient& monitor, const std::string& id);

}  // namespace switchyard::tools
