// What guards do, as `ps` and `stats` print it.
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace switchyard::tools {

// "hog gets shorter slices, a ceiling": one of a guard's `answers`.
std::string answer_text(const nlohmann::json& answer);

// One line for each job whose guard holds others back.
void print_guards(const nlohmann::json& jobs);

}  // namespace switchyard::tools
