// Reads how Switchyard is installed on this machine, for the checks of installation.h.
//
// Concept. It only reads, and asks programs for their --version. All paths of the system are below
// `root`: empty, or a test's folder.
//
// Threading: starts processes and reads the environment; call it from the only thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/doctor/installation.h"

namespace switchyard::tools {

Installation look_at_installation(const std::string& root = {});
Preloads look_at_preloads(const std::string& root = {});
// After a monitor is started, which takes the place of a socket that was left.
std::vector<Place> look_at_places(const std::string& root = {});
// `jobs`: as `ps` lists them. Processes of other users are only seen by root.
std::vector<OldLibrary> look_at_job_libraries(const nlohmann::json& jobs);

}  // namespace switchyard::tools
