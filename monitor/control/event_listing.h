// The journal for people: `{"op":"events"}` (switchyard/wire.h), and the events of commands.
//
// Threading: one thread, the monitor's.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "monitor/monitor.h"

namespace switchyard::monitor {

nlohmann::json list_events(Monitor& monitor, const nlohmann::json& request, Time now);

// A command that changed something, or was refused. `text`: as the log has it. Those that a tap
// tells of are left out.
void note_command(Monitor& monitor, const Peer& peer, const nlohmann::json& request,
                  const nlohmann::json& reply, const std::string& text, Time now);

// In words, without its job: "paused by alice (pid 7)".
std::string event_text(Monitor& monitor, const HistoryEvent& event);

}  // namespace switchyard::monitor
