// The actions of the table: what clients are told of their memory, and what the account counts.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>

#include "monitor/core/lanes.h"
#include "monitor/residency/residency.h"

namespace switchyard::monitor {
namespace {

using residency::Action;
using residency::Event;

// Whatever a client says of its progress: slower than this it holds others up. Where each slab is
// pinned on the way, memory still leaves at 1 GiB/s.
constexpr std::uint64_t kSlowestBytes = 128u << 20;  // in a second
// No GPU has more than this takes. A client may say that it has any number of bytes.
constexpr std::uint64_t kMostSeconds = 3600;

// The accepted work may take as long as a move may stand still.
Time longest_move(std::uint64_t bytes) {
  return 2 * kLeavesWithin + std::chrono::seconds(std::min(bytes / kSlowestBytes, kMostSeconds));
}

}  // namespace

std::optional<residency::Input> Residency::act(Job& job, Action action, Time now) {
  switch (action) {
    case Action::kNothing:
      return std::nullopt;
    case Action::kPrepare:
      tell_what_to_prepare(job);
      return std::nullopt;
    case Action::kBeginOut:
      spdlog::info("job '{}' leaves its GPUs", job.name);
      memory_.release(job);
      return order_out(job, now);
    case Action::kOrderOut:
      return order_out(job, now);
    case Action::kSuspend:
      spdlog::info("job '{}' has left its GPUs", job.name);
      memory_.suspend(job);
      room_came();
      return std::nullopt;
    case Action::kFollowRoom:
      follow_room(job);
      return {{.event = Event::kRoomFollowed}};
    case Action::kReclaim:
      return {{.event = memory_.reclaim(job, now) ? Event::kRoom : Event::kNoRoom}};
    case Action::kLetIn:
      spdlog::info("job '{}' comes back to its GPUs", job.name);
      let_in(job);
      return std::nullopt;
    case Action::kStayIn:
      memory_.recount(job);
      let_in(job);
      return std::nullopt;
    case Action::kAdopt:
      memory_.release(job);
      memory_.suspend(job);
      limit_there(job);
      return std::nullopt;
    case Action::kLimitThere:
      limit_there(job);
      return std::nullopt;
  }
  return std::nullopt;
}

void Residency::tell(Client& client, unsigned lane, Client::Lane& state,
                     const ResidencyOrder& order) {
  ResidencyOrder& told = state.residency_order;
  if (told == order) return;
  const bool anew = order.limited != told.limited || order.limit_bytes < told.limit_bytes;
  told = order;
  if (anew) {
    // Neither "no order yet" nor "no answer".
    told.number = told.number + 1 < abi::kAnswersNone ? told.number + 1 : 1;
    state.numbered_at = now_;
  }
  client.page->write_residency(lane, told);
  client.page->ring();
}

void Residency::tell_what_to_prepare(Job& job) {
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    ResidencyOrder order = state.residency_order;
    const policy::Handover* given = handovers_.given_by(state.gpu, client.id);
    order.gives = given != nullptr ? given->number : 0;
    order.soon_bytes = given != nullptr ? given->soon_bytes : 0;
    tell(client, lane, state, order);
  });
}

residency::Input Residency::order_out(Job& job, Time now) {
  // Whose memory only another needs keeps the rest.
  const bool keeps = job.memory->wanted_out.only_yields();
  bool all_away = true;
  residency::Failure failure;
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    if (!keeps) state.kept_bytes = 0;
    ResidencyOrder order = state.residency_order;
    order.limited = true;
    order.limit_bytes = state.kept_bytes;
    handovers_.leaves(state.gpu, client.id);
    order.gives = handovers_.gives(state.gpu, client.id);
    order.takes = order.soon_bytes = 0;
    const ResidencyReport& said = state.residency;
    if (order != state.residency_order || state.told_to_leave == Time{0}) {
      state.told_to_leave = now;
      state.carried = false;
      tell(client, lane, state, order);
    }
    if (has_left(said, state.residency_order)) return;
    all_away = false;
    if (const std::uint32_t error = failed(state, now); error != abi::kSwapFine) {
      failure = {true, failure.overdue, error, said.swap_result};
    } else if (now - state.told_to_leave >= kLeavesWithin ||
               now - state.numbered_at >= longest_move(said.total_bytes)) {
      failure = {.failed = true, .overdue = true};
    }
  });
  if (!failure.failed) return {.event = all_away ? Event::kLeft : Event::kLeaves};
  spdlog::warn("job '{}' stays on its GPUs: {}", job.name, failure_text(failure));
  return {.event = Event::kStays, .failure = failure};
}

// What is on its way out of a GPU already, because limits fell.
std::uint64_t Residency::leaves_anyway(std::size_t gpu) const {
  std::uint64_t bytes = 0;
  for (const auto& [key, job] : registry_.jobs()) {
    for_lanes(registry_, job, [&](const Client&, unsigned, const Client::Lane& lane) {
      if (lane.gpu == gpu) bytes += excess_bytes(lane.residency, lane.residency_order);
    });
  }
  return bytes;
}

// What may be there of a job that is out and wants to come back.
void Residency::follow_room(Job& job) {
  std::map<std::size_t, std::uint64_t> room;
  std::map<std::size_t, std::uint64_t> overdrawn;
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    if (room.count(state.gpu) == 0) {
      gpus_.read_credits(state.gpu);
      memory_.rebalance(state.gpu);
      room[state.gpu] = gpus_[state.gpu].account.free();
      const std::uint64_t over = gpus_[state.gpu].account.overdrawn();
      overdrawn[state.gpu] = over - std::min(over, leaves_anyway(state.gpu));
    }
    const ResidencyReport& said = state.residency;
    if (job.turn.arrives.count(state.gpu) != 0) {
      const std::uint64_t lacks = said.total_bytes - std::min(said.total_bytes, state.kept_bytes);
      const std::uint64_t more = std::min(room[state.gpu], lacks);
      state.kept_bytes += more;
      room[state.gpu] -= more;
    }
    // Who gave it room stays after all, say: that comes first.
    const std::uint64_t less = std::min(overdrawn[state.gpu], state.kept_bytes);
    state.kept_bytes -= less;
    overdrawn[state.gpu] -= less;
    ResidencyOrder order = state.residency_order;
    order.limit_bytes = state.kept_bytes;
    order.gives = handovers_.gives(state.gpu, client.id);
    order.takes = handovers_.takes(state.gpu, client.id);
    tell(client, lane, state, order);
  });
}

void Residency::let_in(Job& job) {
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    ResidencyOrder order = state.residency_order;
    order.limited = false;
    state.told_to_leave = Time{0};
    state.carried = false;
    state.kept_bytes = 0;
    handovers_.returns(state.gpu, client.id);
    order.gives = order.takes = order.soon_bytes = 0;
    tell(client, lane, state, order);
  });
}

void Residency::limit_there(Job& job) {
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    ResidencyOrder order = state.residency_order;
    if (order.limited) return;
    order.limited = true;
    order.limit_bytes = state.kept_bytes = state.residency.resident_bytes;
    tell(client, lane, state, order);
  });
}

}  // namespace switchyard::monitor
