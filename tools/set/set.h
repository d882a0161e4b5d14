// `switchyard set`: changes a running job: its priority, share, limit, deadline or memory quota.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/base/command.h"

namespace switchyard::tools {

// "limit none → 30%, share 1 → 4": what came of `changes`, by the monitor's answer.
std::string changes_text(const std::map<std::string, std::string>& changes,
                         const nlohmann::json& reply);

void add_set(CommandLine& line);

}  // namespace switchyard::tools
