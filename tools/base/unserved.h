// What can be told where no monitor runs: the GPUs' processes as NVML has them, whose they are, and
// whose monitor claims a GPU. So an empty list of jobs is not taken for an idle machine.
//
// Threading: loads a library; call it from the only thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/base/result.h"

namespace switchyard::tools {

// Whether `error` says that no monitor runs here. False at a socket that was named, and where a
// monitor was killed: there one should be.
bool is_unserved(const Error& error);

// Says so on stderr, and who manages the GPUs instead.
void say_unserved();

// Whether the listing is that of a monitor that only observes; says so on stderr.
bool say_observed(const nlohmann::json& listing);

// As `status` lists: "monitor" is null, and "gpus" are those of NVML. `problem`: why there are
// none.
nlohmann::json list_gpus_unserved(std::string& problem);

// As `ps` lists: "monitor" is null, "jobs" is empty, and "outside" has all GPU processes.
nlohmann::json list_unserved();

}  // namespace switchyard::tools
