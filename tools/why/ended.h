// Why a job has ended, as far as its events tell.
//
// Threading: pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace switchyard::tools {

// `events`: of that job, oldest first. Empty: they tell of no end.
std::string ended_text(const std::string& name, const nlohmann::json& events);
// The same out of its bill, where its events are forgotten.
std::string ended_text_of_bill(const nlohmann::json& row);

}  // namespace switchyard::tools
