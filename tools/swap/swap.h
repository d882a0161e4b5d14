// `switchyard swap-out` and `switchyard swap-in`: take a job's memory off the device, and back.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_swap_out(CommandLine& line);
void add_swap_in(CommandLine& line);

// Where the memory of a job is, for people: "its memory (12 GiB) has left the device". `job`: as
// the monitor lists it.
std::string residency_text(const nlohmann::json& job);

}  // namespace switchyard::tools
