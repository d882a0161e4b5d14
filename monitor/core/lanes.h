// The clients of a job, and their lanes: what they have on each GPU.
//
// Threading: one thread, the monitor's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <set>

#include "monitor/core/registry.h"
#include "monitor/policy/stalls.h"

namespace switchyard::monitor {

// Each client of the job but observers, which have no part in it.
template <typename Each>
void for_clients(const Registry& registry, const Job& job, Each each) {
  registry.work().add(job.clients.size());
  for (const ClientId id : job.clients) {
    const auto found = registry.clients().find(id);
    if (found != registry.clients().end() && !found->second->observer) each(*found->second);
  }
}

// Each lane of these: (client, lane of its page, state).
template <typename Each>
void for_lanes(const Registry& registry, const Job& job, Each each) {
  for_clients(registry, job, [&](Client& client) {
    for (auto& [lane, state] : client.lanes) each(client, lane, state);
  });
}

// Each of these that has a context.
template <typename Each>
void for_contexts(const Registry& registry, const Job& job, Each each) {
  for_lanes(registry, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    if (client.page->report(lane).has_context()) each(client, lane, state);
  });
}

// The GPUs where it has one.
inline std::set<std::size_t> used_gpus(const Registry& registry, const Job& job) {
  std::set<std::size_t> out;
  for_contexts(registry, job,
               [&](const Client&, unsigned, const Client::Lane& state) { out.insert(state.gpu); });
  return out;
}

// Whether `holds` does for every lane of the job's clients.
template <typename Holds>
bool all_lanes(const Registry& registry, const Job& job, Holds holds) {
  bool all = true;
  for_lanes(registry, job,
            [&](const Client&, unsigned, const Client::Lane& state) { all = all && holds(state); });
  return all;
}

// A client that waits for memory asks again every 100 ms. One that did not for this long has given
// up.
inline constexpr Time kStillWaits = std::chrono::milliseconds(1000);

// Whether a client still asks for memory that it was told to wait for.
inline bool asks(const Client::Lane& lane, Time now) {
  return lane.wait->since != Time{0} && now - lane.wait->last_asked <= kStillWaits;
}

// Why the gate holds threads, or work that is queued: abi::kClosed* bits. One that is closed while
// nobody comes holds nobody.
inline std::uint32_t holds_by(const GateOrder& order, const GateReport& gate) {
  return gate.held_threads == 0 && gate.done ? 0 : order.closed;
}

// Of several reasons why a gate is closed the one that is told and counted: what a person did comes
// first.
constexpr stalls::Hold hold_of_gate(std::uint32_t closed) {
  return (closed & abi::kClosedByPause) != 0   ? stalls::Hold::kPause
         : (closed & abi::kClosedByGuard) != 0 ? stalls::Hold::kGuard
         : (closed & abi::kClosedByLimit) != 0 ? stalls::Hold::kLimit
         : closed != 0                         ? stalls::Hold::kTurn
                                               : stalls::Hold::kNone;
}

// Whether the memory of a client is on its way out of any GPU, as of the last look. Its accepted
// work must end on all of them: work of one may touch the memory of another.
inline bool leaving(const Client& client) {
  return std::any_of(client.lanes.begin(), client.lanes.end(), [](const auto& each) {
    const Client::Lane& lane = each.second;
    const bool told = lane.residency_order.limited && lane.noted->told_to_leave != Time{0};
    return told && !lane.residency.away();
  });
}

}  // namespace switchyard::monitor
