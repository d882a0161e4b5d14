// Whether the GPUs that a selection names (selector.h) are there.
//
// Threading: pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "tools/base/result.h"
#include "tools/base/selector.h"

namespace switchyard::tools {

// The first GPU of --gpu that is neither one of `gpus`, the machine's, nor one that a job lists:
// that may be gone. None where no GPU is known.
std::optional<Error> unknown_gpu(const Selection& selection, const nlohmann::json& gpus,
                                 const nlohmann::json& jobs);

}  // namespace switchyard::tools
