// The bills of jobs that end just now, as lines for people.
//
// Threading: one thread. It waits.
#pragma once

#include <nlohmann/json.hpp>

#include "tools/base/monitor_client.h"
#include "tools/base/result.h"

namespace switchyard::tools {

// Asks for a report by job until all its jobs have ended, for up to six seconds: a job outlives its
// last process by three. The rows, as they were then.
Result<nlohmann::json> await_bills(MonitorClient& monitor, const nlohmann::json& request);

// "job train: 3 s on the GPU, ...", and whether it has not ended.
std::string ended_bill_text(const nlohmann::json& row);

}  // namespace switchyard::tools
