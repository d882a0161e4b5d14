// How long the bursts of jobs of priority high waited for the GPU, between two listings.
//
// Concept. The monitor counts waits by their length (monitor/statistics/counters.h), as it does for
// metrics. Of the time between two listings there is the difference of the counts.
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace switchyard::tools {

// "waits", "sum_seconds" and "buckets"; null: the job is not of priority high, or nobody asked.
nlohmann::json rate_latency(const nlohmann::json& before, const nlohmann::json& after);

// The same as lines, and why there are none. `job`: as rates() lists it.
std::string latency_text(const nlohmann::json& job);

// Which waits it can see.
extern const char* const kLatencySees;

}  // namespace switchyard::tools
