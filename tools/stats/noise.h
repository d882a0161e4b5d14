// What a listing says of a job's gradient noise scale, as a sentence.
//
// Threading: a pure function.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace switchyard::tools {

// Empty: the job doesn't ask for it.
std::string noise_text(const nlohmann::json& job);

}  // namespace switchyard::tools
