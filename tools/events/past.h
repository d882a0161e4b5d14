// Events as commands read them: those that the monitor remembers, and those of its history. The
// history has what it has forgotten, and events of monitors before it.
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

// The next part of those that the monitor remembers. `request` then asks for what follows. True:
// there is more.
Result<bool> read_remembered(MonitorClient& monitor, nlohmann::json& request,
                             nlohmann::json& events, std::uint64_t& lost);

// All that the monitor remembers of a job, behind its own number `since`. Fewer where it falls
// silent.
nlohmann::json remembered_events_of(MonitorClient& monitor, const std::string& id,
                                    std::uint64_t since = 0);

// All of a job: those of the history, and those that have not come there yet. Fewer where these
// can't be read.
nlohmann::json events_of_ended(MonitorClient& monitor, const std::string& id);

}  // namespace switchyard::tools
