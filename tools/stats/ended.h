// Jobs that end while they are watched: what was seen of them last.
//
// Concept. A job that has ended is in no listing. So the last one that had it stands for it, until
// its figures have been shown.
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>

namespace switchyard::tools {

// Adds to `after` the jobs of `earlier` that it lacks, as ended.
void keep_ended(const nlohmann::json& earlier, nlohmann::json& after);
bool has_ended(const nlohmann::json& job);
// Takes them out again.
void forget_ended(nlohmann::json& listing);

}  // namespace switchyard::tools
