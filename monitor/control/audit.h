// The actor of each change: a line in the log for each command that changed something, and for each
// that was refused. Listings have none.
//
// Concept. A user of root's monitor can send commands without end, so the caller bounds the lines
// of each (line_bound.h). The monitor's owner and root are not bounded.
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "monitor/platform/processes.h"

namespace switchyard::monitor {

// What a command did, in words: "set 'train': limit none -> 30%". Nullopt: it changes nothing.
// `before` and `after` are rules_text() around it.
std::optional<std::string> command_text(const nlohmann::json& request, const nlohmann::json& reply,
                                        const std::string& before, const std::string& after);

// "alice (pid 7)"
std::string actor(const Peer& peer);

}  // namespace switchyard::monitor
