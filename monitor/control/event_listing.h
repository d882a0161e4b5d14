// Events for people: `{"op":"events"}` and `{"op":"past events"}` (switchyard/wire.h), and the
// events of commands.
//
// Threading: one thread, the monitor's.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "monitor/history/backend.h"
#include "monitor/monitor.h"

namespace switchyard::monitor {

nlohmann::json list_events(Monitor& monitor, const nlohmann::json& request, Time now);

// `{"op":"past events"}`: those that the history has. Nullopt: `out` is the refusal.
std::optional<history::Query> past_events_query(Monitor& monitor, const Peer& peer,
                                                const nlohmann::json& request, nlohmann::json& out);

// As the history keeps it.
history::EventRow event_row(Monitor& monitor, const HistoryEvent& event, std::uint64_t number,
                            Time now);

// A command that changed something, or was refused. `text`: as the log has it. Those that a tap
// tells of are left out.
void note_command(Monitor& monitor, const Peer& peer, const nlohmann::json& request,
                  const nlohmann::json& reply, const std::string& text, Time now);

// In words, without its job: "paused by alice (pid 7)".
std::string event_text(Monitor& monitor, const HistoryEvent& event);

}  // namespace switchyard::monitor
