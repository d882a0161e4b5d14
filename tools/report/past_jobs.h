// The jobs that the history has, ended ones included, for a selection (base/selector.h).
//
// Concept. They are the rows of a report by job. Of a job that lives, `ps` knows the state, the
// GPUs and the processes, too. An ended job has none of these: its name, its id and its user select
// it.
//
// Threading: call from the only thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "tools/base/result.h"
#include "tools/base/selector.h"

namespace switchyard::tools {

// Those of `request`, a report: its `since`, `until` and `gpus` count.
Result<nlohmann::json> past_jobs(const nlohmann::json& request);

// Narrows the report to what is selected. Of --gpu it sums what was had of these GPUs alone.
std::optional<Error> narrow(nlohmann::json& request, const Selection& selection);

}  // namespace switchyard::tools
