// What two listings of `ps` say of the collectives between them, and of progress (progress.h).
//
// Concept. The monitor counts; rates are made here, of what was counted between two listings. All
// ranks of a communicator launch the same operations, so its rate is that of its busiest rank. The
// rate of a job is that of its busiest process. A rank is *behind* by what another has launched
// more.
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>

namespace switchyard::tools {

// The listing of `stats`: each job of `after` that `before` has, too. `seconds`: between the two.
nlohmann::json rates(const nlohmann::json& before, const nlohmann::json& after, double seconds);

}  // namespace switchyard::tools
