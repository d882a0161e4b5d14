// The part of a timeline that is about selected jobs (base/selector.h).
//
// Concept. A job may have ended since: it is selected by its name, its id, its user and the GPUs on
// which it was seen. Of a job that lives, a listing of `ps` has the state and the processes, too.
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "tools/base/result.h"
#include "tools/base/selector.h"
#include "tools/trace/spans.h"

namespace switchyard::tools::trace {

// Removes the tracks of other jobs, and from the GPUs' tracks that they ran. Their names stay: a
// job may wait for them. `living`: the jobs that `ps` lists.
std::optional<Error> keep_only(Timeline& timeline, const Selection& selection,
                               const nlohmann::json& living);

}  // namespace switchyard::tools::trace
