// What two listings of `ps` say of a job's iterations, its GPU time and its waits between them.
//
// Concept. The monitor counts iterations and says when the last one began. So what was counted
// between two listings, divided by the time between their last iterations, is the mean rate, with
// no error at the ends. Where none began the rate is 0. If the interval is too short to know, it is
// the monitor's own, that of the last ten seconds, and is said to be that.
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>

namespace switchyard::tools {

// The keys of one job: that of its fastest process, and the slowest rank.
nlohmann::json rate_progress(const nlohmann::json& before, const nlohmann::json& after,
                             double seconds);

// Whether some process of the job is being measured, and no iteration was found yet or nothing is
// known of its communication.
bool still_measuring(const nlohmann::json& job);

}  // namespace switchyard::tools
