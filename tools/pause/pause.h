// `switchyard pause` and `switchyard resume`: hold a running job back, and let it go on.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/base/command.h"

namespace switchyard::tools {

// What came of it, by the monitor's answer: "train: paused; nothing of it runs on the GPU".
std::string paused_text(const std::string& name, const nlohmann::json& reply);
std::string resumed_text(const std::string& name, const nlohmann::json& reply);

void add_pause(CommandLine& line);
void add_resume(CommandLine& line);

}  // namespace switchyard::tools
