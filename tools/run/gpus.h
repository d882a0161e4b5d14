// `run --gpus`: the GPUs that a job sees, as CUDA_VISIBLE_DEVICES names them.
//
// Concept. A person names GPUs by the index or the UUID that `switchyard status` shows. CUDA may
// number the GPUs otherwise, so the job is given UUIDs. Without NVML nothing tells which GPUs there
// are: the job is refused, or gets the list as it was written.
//
// Threading: choose_gpus() is a pure function; show_gpus() changes the environment: call it from
// the only thread.
#pragma once

#include <optional>
#include <string>

#include "tools/base/nvml_report.h"
#include "tools/base/result.h"

namespace switchyard::tools {

// The value of CUDA_VISIBLE_DEVICES for `text`, the value of --gpus. kUsage: no list of GPUs, or
// one GPU twice. kRunRefused: there is no such GPU; or NVML lists none, unless `best_effort`.
Result<std::string> choose_gpus(const std::string& text, const NvmlReport& report,
                                bool best_effort);

// The same for this machine, in the environment of this process and of what it executes.
std::optional<Error> show_gpus(const std::string& text, bool best_effort);

}  // namespace switchyard::tools
