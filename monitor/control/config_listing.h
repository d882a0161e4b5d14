// `switchyard config show`: the settings in force, and where each was said.
//
// Threading: one thread, the monitor's.
#pragma once

#include <nlohmann/json.hpp>

#include "monitor/monitor.h"

namespace switchyard::monitor {

// Users other than the monitor's owner see those rules of the file that concern them.
nlohmann::json list_config(Monitor& monitor, const Peer& peer);

}  // namespace switchyard::monitor
