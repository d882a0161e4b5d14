// What `ps --json` adds to what the monitor lists: times of the calendar, commands, and how wrong
// an estimated share may be.
//
// Concept. Commands are read from /proc by the tool that asks: the monitor of all users reads no
// memory of their processes. A command line may have secrets. It is for the job's owner and root.
//
// Threading: reads /proc; call it from the only thread.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

namespace switchyard::tools {

// "2026-11-26T21:03:12Z"
std::string utc_text(std::chrono::system_clock::time_point at);

// The command line of a process of `uid`, with blanks between its words, of 256 bytes at most.
// Null: there is none, or it is not for this caller.
nlohmann::json command_of(std::uint64_t pid, std::uint64_t uid);

// Adds `time`, to each job `started` and `command`, and to its GPUs `share_got_error_ratio`.
void add_about(nlohmann::json& listing, std::chrono::system_clock::time_point now);

}  // namespace switchyard::tools
