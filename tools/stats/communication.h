// What a listing of `ps` says of the time that a job's ranks communicate.
//
// Threading: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace switchyard::tools {

// The keys of one job: the mean of its ranks, and each of them.
nlohmann::json rate_communication(const nlohmann::json& job);

// "31% (78% hidden, 4% for peers)"; why there is nothing else; '-': there are no peers.
std::string communication_text(const nlohmann::json& rates);

// The rank of a process in the first communicator that it is in; null: in none.
nlohmann::json rank_of(const nlohmann::json& job, std::uint64_t pid);

}  // namespace switchyard::tools
