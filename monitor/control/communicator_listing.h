// What `ps` tells of a job's communicators: their ranks, and how many operations each has launched.
//
// Concept. Each process says which communicators it is in (switchyard/abi.h). Ranks of one name the
// same id, so those of one job are put together here. A process can lie about its own alone. Its
// words are taken as they stand, for people: they decide nothing.
//
// Threading: one thread, the monitor's.
#pragma once

#include <nlohmann/json.hpp>

#include "monitor/monitor.h"

namespace switchyard::monitor {

// Ranks that a job's listing holds at most: a reply has room for no more.
inline constexpr std::size_t kMostListedRanks = 1024;
// About so many bytes of text each.
inline constexpr std::size_t kRankBytes = 260;

// Puts what a process has launched, by kind, into its listing: `collectives`, `collective_bytes`.
void list_collectives(const ClientPage& page, nlohmann::json& listing);

// Puts `communicators` and `communicators_unwatched` into the job's listing. Answers how many ranks
// it listed.
std::size_t list_communicators(Monitor& monitor, const Job& job, Time now, nlohmann::json& listing);

}  // namespace switchyard::monitor
