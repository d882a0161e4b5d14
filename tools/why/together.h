// What `why` says of a job and of those that share its GPU: whether an island would pay, or does.
//
//     the job                                           says
//     would do more in an island (base/co_run.h)        with which jobs, and --co-run
//     is in one, whose members lack CPU cores           which members, and for how much of the time
//     is in one that does less than slices would        how much less (docs/guide/islands.md)
//     else                                              nothing
//
// Threading: pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/why/cores.h"

namespace switchyard::tools {

struct CoreLooks {
  CoreWaits before, after;
  double seconds = 0;
};

// Sentences, each with a blank before it. `rates`: the jobs of rates().
std::string together_text(const nlohmann::json& jobs, const nlohmann::json& rates,
                          const nlohmann::json& job, const CoreLooks& cores);

}  // namespace switchyard::tools
