// `switchyard events`: what happened, and who caused it.
//
// Threading: call from the only thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/base/command.h"

namespace switchyard::tools {

void add_events(CommandLine& line);

// One line of the table, without its end: when, which job, what.
std::string event_line(const nlohmann::json& event);

}  // namespace switchyard::tools
