// What `stats` says of a job's waits: "slices 70% (a 67%), limit 5%".
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace switchyard::tools {

// Of a job of the listing (rates.h). The largest first; their sum is rounded once, so it is at most
// 100 %.
std::string waits_text(const nlohmann::json& job);

}  // namespace switchyard::tools
