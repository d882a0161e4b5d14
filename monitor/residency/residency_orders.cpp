// What clients are told of their memory: to leave, to prepare that, to come in part, to come back.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>

#include "monitor/core/lanes.h"
#include "monitor/residency/handovers.h"
#include "monitor/residency/residency.h"

namespace switchyard::monitor {
namespace {

// NVML is asked before anything is promised: not for who waits in every look.
constexpr Time kTryEvery = std::chrono::milliseconds(100);
// Who leaves for the first time pins host memory for it, which takes ten times as long as to move:
// the next move costs less, so one in which anybody pins counts for no more than this.
constexpr Time kMostOfFirst = std::chrono::milliseconds(250);
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

void Residency::begin_move(Presence& presence, Time now) const {
  presence.moves_since = now;
  presence.pinned_then = pinned_bytes_;
}

Time Residency::cost_of_move(const Presence& presence, Time now) const {
  const Time took = now - presence.moves_since;
  return pinned_bytes_ > presence.pinned_then ? std::min(took, kMostOfFirst) : took;
}

void Residency::tell_what_to_prepare(Job& job) {
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    ResidencyOrder order = state.residency_order;
    order.gives = gives_now(registry_, state);
    order.soon_bytes = order.gives != 0 ? state.soon_bytes : 0;
    tell(client, lane, state, order);
  });
}

bool Residency::tell_to_leave(Job& job, Time now) {
  Presence& presence = job.presence;
  const bool begins = !presence.released;
  if (begins) {
    spdlog::info("job '{}' leaves its GPUs", job.name);
    presence.released = true;
    presence.returning = false;
    begin_move(presence, now);
    presence.failure.clear();
    presence.overdue = false;
    memory_.release(job);
  }
  presence.arriving = false;
  // Whose memory only another needs keeps the rest.
  const bool keeps =
      !presence.swapped_out && !presence.idle && !(job.pause.on && job.pause.release);
  bool all_away = true;
  bool overdue = false;
  std::string why;
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    if (!keeps) state.kept_bytes = 0;
    ResidencyOrder order = state.residency_order;
    order.limited = true;
    order.limit_bytes = state.kept_bytes;
    state.takes = 0;
    order.gives = gives_now(registry_, state);
    order.takes = order.soon_bytes = state.soon_bytes = 0;
    const ResidencyReport& said = state.residency;
    if (order != state.residency_order || state.told_to_leave == Time{0}) {
      state.told_to_leave = now;
      state.carried = false;
      tell(client, lane, state, order);
    }
    if (has_left(said, state.residency_order)) return;
    all_away = false;
    if (const std::uint32_t error = failed(state, now); error != abi::kSwapFine) {
      why = failure_text(error, said.swap_result);
    } else if (now - state.told_to_leave >= kLeavesWithin ||
               now - state.numbered_at >= longest_move(said.total_bytes)) {
      overdue = true;
      why = fmt::format("none of it has left for {:.0f} s, or too little of it",
                        seconds(kLeavesWithin));
    }
  });
  if (!why.empty()) {
    give_up(job, why, now);
    presence.overdue = overdue;
    return true;
  }
  if (!all_away || presence.out) return begins;
  spdlog::info("job '{}' has left its GPUs", job.name);
  presence.out = true;
  presence.cost_out = cost_of_move(presence, now);
  memory_.suspend(job);
  room_came();
  return true;
}

void Residency::give_up(Job& job, const std::string& why, Time now) {
  spdlog::warn("job '{}' stays on its GPUs: {}", job.name, why);
  want_in(job);
  job.presence.failure = why;
  job.presence.stayed_at = now;
  job.presence.rests_until = now + kRests;
  // What was promised to it may be another's by now: then it waits.
  if (job.presence.out) return;
  memory_.recount(job);
  let_back(job, now);
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
void Residency::follow_room(Job& job, Time now) {
  Presence& presence = job.presence;
  const bool arrives = !presence.arrives.empty();
  if (arrives && !presence.arriving) begin_move(presence, now);
  presence.arriving = arrives;
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
    if (presence.arrives.count(state.gpu) != 0) {
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
    order.gives = gives_now(registry_, state);
    order.takes = takes_now(registry_, state);
    tell(client, lane, state, order);
  });
}

bool Residency::try_to_return(Job& job, Time now) {
  if (job.presence.out) follow_room(job, now);
  const auto has_come = [](const Client::Lane& lane) { return lane.residency.away_bytes() == 0; };
  const bool due = now >= job.presence.try_at || all_lanes(registry_, job, has_come);
  if (!due || !job.presence.may_return) return false;
  job.presence.try_at = now + kTryEvery;
  if (!memory_.reclaim(job, now)) return false;
  spdlog::info("job '{}' comes back to its GPUs", job.name);
  let_back(job, now);
  return true;
}

void Residency::let_back(Job& job, Time now) {
  job.presence.released = job.presence.out = false;
  job.presence.returning = true;
  job.presence.returns_since = now;
  if (!job.presence.arriving) begin_move(job.presence, now);
  job.presence.arriving = false;
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    ResidencyOrder order = state.residency_order;
    order.limited = false;
    state.told_to_leave = Time{0};
    state.carried = false;
    state.kept_bytes = 0;
    end_handover(state);
    order.gives = order.takes = order.soon_bytes = 0;
    tell(client, lane, state, order);
  });
}

}  // namespace switchyard::monitor
