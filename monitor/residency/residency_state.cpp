#include "monitor/residency/residency_state.h"

#include <fmt/format.h>

#include "monitor/core/lanes.h"
#include "monitor/residency/oversubscription.h"

namespace switchyard::monitor {
namespace {

using residency::State;

// ResidencyReport::result where a client could enter no context (CUDA_ERROR_INVALID_CONTEXT).
constexpr std::uint32_t kInvalidContext = 201;

// All that was to leave has.
bool is_away(const Client::Lane& lane) {
  return lane.residency.away() && excess_bytes(lane.residency, lane.residency_order) == 0;
}

}  // namespace

bool uses(const Registry& registry, const Job& job, std::size_t gpu) {
  bool any = false;
  for_lanes(registry, job, [&](const Client& client, unsigned lane, const Client::Lane& state) {
    any = any || (state.gpu == gpu && client.page->used_bytes(lane) != 0);
  });
  return any;
}

bool nothing_leaves(const Registry& registry, const Job& job) {
  bool uses = false;
  bool leaves = false;
  for_lanes(registry, job, [&](const Client& client, unsigned lane, const Client::Lane&) {
    uses = uses || client.page->used_bytes(lane) != 0;
    leaves = leaves || client.page->residency(lane).total_bytes != 0;
  });
  return uses && !leaves;
}

ResidencyState residency_of(const Registry& registry, const Job& job) {
  bool all_away = true;
  for_lanes(registry, job, [&](const Client& client, unsigned at, const Client::Lane& lane) {
    const bool contexts = job.memory->contexts_out.any() && client.page->report(at).has_context();
    all_away = all_away && (contexts ? lane.residency.detached() && is_away(lane) : is_away(lane));
  });
  const State state = job.memory->state;
  if (released(state)) {
    if (!wanted_out(job)) return ResidencyState::kWaiting;
    if (state != State::kSwappedOut || !all_away) return ResidencyState::kMoving;
    const bool nothing = nothing_leaves(registry, job) && !job.memory->contexts_out.any();
    return nothing ? ResidencyState::kResident : ResidencyState::kSwapped;
  }
  const auto there = [](const Client::Lane& lane) { return lane.residency.resident(); };
  if (!job.knobs.swappable || all_lanes(registry, job, there)) return ResidencyState::kResident;
  // Its account has the room; the device has not (yet).
  const auto finds_room = [](const Client::Lane& lane) {
    return lane.residency.resident() || lane.residency.error != abi::kSwapNoDeviceRoom ||
           !answers(lane.residency, lane.residency_order);
  };
  return all_lanes(registry, job, finds_room) ? ResidencyState::kMoving : ResidencyState::kWaiting;
}

ResidencyState residency_on(const Registry& registry, const Job& job, std::size_t gpu) {
  const ResidencyState where = residency_of(registry, job);
  bool any_away = false;
  bool all_away = true;
  bool moves = false;
  for_lanes(registry, job, [&](const Client&, unsigned, const Client::Lane& lane) {
    if (lane.gpu != gpu) return;
    any_away = any_away || lane.residency.away_bytes() != 0;
    all_away = all_away && is_away(lane);
    moves = moves || excess_bytes(lane.residency, lane.residency_order) != 0;
  });
  if (!any_away && !moves) return ResidencyState::kResident;
  const bool has_left = wanted_out(job) && all_away;
  return where == ResidencyState::kMoving && has_left ? ResidencyState::kSwapped : where;
}

std::string failure_text(std::uint32_t error, std::uint32_t result) {
  switch (error) {
    case abi::kSwapBusy:
      return "its accepted work did not end in time: it may wait for another GPU or for its own "
             "CPU; try again";
    case abi::kSwapNoHostRoom:
      return "the host has no room for it: free memory of the host, or start switchyardd with a "
             "larger --host-pool";
    case abi::kSwapNoDeviceRoom:
      return "it waits for room on the GPU";
    case abi::kSwapContextsStay:
      return fmt::format("the driver did not take its contexts (CUDA error {})", result);
    case abi::kSwapNotMoved:
      return fmt::format("the driver did not restore it on the other GPU (CUDA error {})", result);
    case abi::kSwapNoPeerRoom:
      return "no other GPU that it sees has room to park it ('--park auto' uses the host as well)";
    default:
      if (result == kInvalidContext)
        return "a process of it has no CUDA context any more: it ends, or destroyed its context";
      return fmt::format("the driver refused (CUDA error {})", result);
  }
}

std::string failure_text(const residency::Failure& failure) {
  if (failure.stands != Standstill::kNone) {
    return fmt::format("its process {} {}", failure.pid, text_of(failure.stands));
  }
  if (failure.error != abi::kSwapFine) return failure_text(failure.error, failure.result);
  return fmt::format("none of it has left for {:.0f} s, or too little of it",
                     seconds(kLeavesWithin));
}

}  // namespace switchyard::monitor
