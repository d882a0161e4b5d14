// Whether a job that ended failed with its island (`run --restart on-island-failure`).
//
// Threading: the process has one thread.
#pragma once

#include <optional>
#include <string>

namespace switchyard::tools {

// A program whose own kernels are at fault would run for ever.
inline constexpr unsigned kMostRestarts = 10;

// Waits up to six seconds for the job's end. Nullopt: its island did not fail, or nobody knows.
std::optional<std::string> why_island_failed(const std::string& socket, const std::string& job);

}  // namespace switchyard::tools
