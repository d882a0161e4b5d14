// `switchyard swap-out` and `switchyard swap-in`: take a job's memory off the device, and back.
#pragma once

#include <nlohmann/json.hpp>

#include "tools/base/command.h"
#include "tools/base/result.h"

namespace switchyard::tools {

void add_swap_out(CommandLine& line);
void add_swap_in(CommandLine& line);

// Asks for memory to leave, and waits for that. Ctrl-C cancels it by the operation `undo`; then the
// error says so, of the job of this name.
Result<nlohmann::json> ask_to_leave(const nlohmann::json& request, const char* undo,
                                    const std::string& name);

// Where the memory of a job is, for people: "its memory (12 GiB) has left the device". `job`: as
// the monitor lists it.
std::string residency_text(const nlohmann::json& job);

}  // namespace switchyard::tools
