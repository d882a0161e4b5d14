// Failures of islands: what ends the work of all members at once, and who may have caused it.
//
// Concept. A failure is told once to each member that is there. Members that come later work.
//
//     seen                                     event of each member    its value
//     the server's connection has ended        island ended            -
//     a member tells the end of the server     the same                -
//     a member tells a fault (abi::Lane)       island fault            the CUresult, and kSuspect
//
// The driver tells a fault to all and blames none. So the members that were at work when the first
// of them told it are suspects. A death is exact: only the members of that server fail.
//
// Threading: one thread, the monitor's.
#pragma once

#include <cstdint>

#include "monitor/core/registry.h"

namespace switchyard::monitor::islands {

// Of the value of an `island fault`; the CUresult is below.
inline constexpr std::uint64_t kSuspect = std::uint64_t{1} << 32;

// Lets the library in a member tell faults. Before its page is published.
void ask_for_faults(const Job& job, Client& client);
// The client may have something to tell. Looks at its page.
void follow(Registry& registry, const Client& client, Time now);
// The same for all members.
void follow_all(Registry& registry, Time now);
// It is about to be forgotten: its socket closed.
void left(Registry& registry, const Client& client, Time now);

// "illegal address (error 700)"
std::string fault_text(std::uint32_t error);
// The same, or "its MPS server ended".
std::string failure_text(const IslandFailure& failure);

}  // namespace switchyard::monitor::islands
