// What `ps` and `stats` tell of a job's iterations, its communication, its use of GPUs, its waits,
// and of ranks that others wait for (monitor/statistics).
//
// Threading: one thread, the monitor's.
#pragma once

#include <nlohmann/json.hpp>

#include "monitor/monitor.h"

namespace switchyard::monitor {

// About so many bytes of text for each process, and for each rank that is waited for.
inline constexpr std::size_t kProgressBytes = 500;
inline constexpr std::size_t kStallBytes = 350;

// Ranks of a job that are listed as waited for, at most.
inline constexpr std::size_t kMostListedStalls = 64;

// The keys of one process. `late`: of its job's ranks (Progress::late).
nlohmann::json list_progress(Monitor& monitor, const std::map<ClientId, Time>& late, ClientId id,
                             Time now);
// `known`: of its job's processes (Communication::of).
nlohmann::json list_communication(const std::map<ClientId, Communication::Known>& known,
                                  ClientId id);
// The ranks of a job that others wait for.
nlohmann::json list_stalls(Monitor& monitor, const Job& job, Time now);
// The keys of a job that say what it had, and what it waited for.
void list_usage(Monitor& monitor, const Job& job, nlohmann::json& listing);
// How long its bursts waited for the GPUs, since somebody asked first; null: of another priority
// than high nobody counts them.
nlohmann::json list_burst_waits(Monitor& monitor, const Job& job);

}  // namespace switchyard::monitor
