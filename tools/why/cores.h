// For how long threads waited for a CPU core, by the kernel's /proc/PID/task/TID/schedstat.
//
// Threading: reads files; any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

namespace switchyard::tools {

// Of each thread, by process: nanoseconds since it began in which it could run and did not.
using CoreWaits = std::map<pid_t, std::map<pid_t, std::uint64_t>>;

// Of the processes of jobs that are in islands. One that has another name here is of another PID
// namespace, and is left out. `root`: of /proc.
CoreWaits core_waits_of_members(const nlohmann::json& jobs, const std::string& root = "/proc");

// The part of the time in which the thread of `pid` that waited most did.
double waited_for_cores(const CoreWaits& before, const CoreWaits& after, pid_t pid, double seconds);

}  // namespace switchyard::tools
