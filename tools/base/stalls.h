// A rank that others wait for, as `ps` and `stats` print it.
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace switchyard::tools {

// "rank 1 (pid 4711) has not launched all_reduce number 43 (4 B), which 1 rank waits for, for 5 s:
// it is stopped by a signal". Of one that we hold: "rank 1 (pid 4711): paused by its owner, 40 s; 1
// rank waits for its all_reduce number 43 (4 B)". `stall`: of a job's `stalls`.
std::string stall_text(const nlohmann::json& stall);

// One line for each rank that is waited for, of each job.
void print_stalls(const nlohmann::json& jobs);

}  // namespace switchyard::tools
