#include "monitor/residency.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <vector>

#include "monitor/handovers.h"
#include "monitor/idling.h"
#include "monitor/lanes.h"
#include "monitor/pausing.h"
#include "monitor/policy/host_pool.h"

namespace switchyard::monitor {
namespace {

// NVML is asked before anything is promised: not for who waits in every look.
constexpr Time kTryEvery = std::chrono::milliseconds(100);
// A client that only repeats an old error tries again every 2 s at least.
constexpr Time kOldErrorLasts = std::chrono::seconds(15);
// An error that stands for so long after it was told to leave is none of before.
constexpr Time kRefuses = std::chrono::seconds(1);
// What could not leave is left alone for so long by those who lack room.
constexpr Time kRests = std::chrono::seconds(10);

// Whether `holds` does for every lane of the job's clients.
template <typename Holds>
bool all_lanes(const Roster& roster, const Job& job, Holds holds) {
  bool all = true;
  for_lanes(roster, job,
            [&](const Client&, unsigned, const Client::Lane& state) { all = all && holds(state); });
  return all;
}

}  // namespace

void want_out(Job& job) { job.presence.swapped_out = true; }

void want_in(Job& job) {
  job.presence.swapped_out = job.pause.release = false;
  job.presence.failure.clear();
  job.presence.overdue = false;
  want_back(job);
}

bool wanted_out(const Job& job) {
  return job.presence.swapped_out || job.presence.idle || job.presence.yielded ||
         (job.pause.on && job.pause.release);
}

bool leaving(const Client::Lane& lane) {
  const bool told = lane.residency_order.limited && lane.told_to_leave != Time{0};
  return told && !lane.residency.away();
}

Whereabouts whereabouts(const Roster& roster, const Job& job) {
  const auto is_away = [](const Client::Lane& lane) {
    return lane.residency.away() && excess_bytes(lane.residency, lane.residency_order) == 0;
  };
  if (job.presence.released) {
    if (!wanted_out(job)) return Whereabouts::kWaiting;
    const bool all = job.presence.out && all_lanes(roster, job, is_away);
    return all ? Whereabouts::kSwapped : Whereabouts::kMoving;
  }
  const auto there = [](const Client::Lane& lane) { return lane.residency.resident(); };
  if (!job.knobs.swappable || all_lanes(roster, job, there)) return Whereabouts::kResident;
  // Its account has the room; the device has not (yet).
  const auto finds_room = [](const Client::Lane& lane) {
    return lane.residency.resident() || lane.residency.error != abi::kSwapNoDeviceRoom;
  };
  return all_lanes(roster, job, finds_room) ? Whereabouts::kMoving : Whereabouts::kWaiting;
}

std::uint32_t failed(const Client::Lane& lane, Time now) {
  const ResidencyReport& said = lane.residency;
  // It may lack room to come back and be told to leave: that is no reason against leaving.
  if (said.away() || said.phase == abi::kLeaving || said.error == abi::kSwapFine ||
      said.error == abi::kSwapNoDeviceRoom) {
    return abi::kSwapFine;
  }
  const bool fresh = lane.moves || said.error != lane.old_error;
  return fresh || now - lane.told_to_leave >= kOldErrorLasts ? said.error : abi::kSwapFine;
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
      return "the GPU has no room for it yet: it is tried again";
    default:
      return fmt::format("the driver refused (CUDA error {})", result);
  }
}

Residency::Residency(Roster& roster, GpuAccounts& gpus, Memory& memory,
                     std::uint64_t host_pool_bytes)
    : roster_(roster),
      gpus_(gpus),
      memory_(memory),
      oversubscription_(roster, gpus),
      host_pool_bytes_(host_pool_bytes) {}

void Residency::tell(Client& client, unsigned lane, Client::Lane& state,
                     const ResidencyOrder& order) {
  if (state.residency_order == order) return;
  if (order.limit_bytes < state.residency_order.limit_bytes) state.lowered_at = now_;
  state.residency_order = order;
  client.page->write_residency(lane, order);
  client.page->ring();
}

void Residency::join(Client& client, bool rejoins) {
  Job* job = roster_.find(client.job);
  if (job == nullptr || !job->knobs.swappable || client.observer) return;
  // A fresh process is no idle one.
  if (job->presence.idle) want_back(*job);
  for (auto& [lane, state] : client.lanes) {
    state.carried = rejoins;
    if (job->presence.released && !rejoins) tell(client, lane, state, {true, 0, 0});
  }
  divide_host_pool();
}

void Residency::divide_host_pool() {
  std::vector<GpuAccounts::Place> places;
  std::vector<policy::HostUser> users;
  for (const auto& [key, job] : roster_.jobs()) {
    if (!job.knobs.swappable) continue;
    for_lanes(roster_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
      // Whatever a client says, it has no more memory on a GPU than that has; 0: not known yet.
      const std::uint64_t most = gpus_[state.gpu].memory.total_bytes;
      const std::uint64_t total = state.residency.total_bytes;
      places.push_back({&client, lane, &state});
      users.push_back({most == 0 ? total : std::min(total, most), state.residency.host_bytes});
    });
  }
  const std::vector<std::uint64_t> limits = policy::divide_host_pool(users, host_pool_bytes_);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto& [client, lane, state] = places[i];
    ResidencyOrder order = state->residency_order;
    order.host_limit_bytes = limits[i];
    tell(*client, lane, *state, order);
  }
}

void Residency::room_came() {
  for (auto& [key, job] : roster_.jobs()) job.presence.try_at = Time{0};
}

bool Residency::follow(Time now) {
  now_ = now;
  bool changed = false;
  for (auto& [key, job] : roster_.jobs()) {
    if (job.knobs.swappable) changed = observe(job, now) || changed;
  }
  divide_host_pool();  // before anybody is told to leave
  // The room of one that has left is the next one's in the same look.
  bool more = true;
  for (int round = 0; round < 2 && more; ++round) {
    due_ = oversubscription_.follow(now);
    more = false;
    for (auto& [key, job] : roster_.jobs()) {
      if (job.knobs.swappable) more = bring_about(job, now) || more;
    }
    changed = changed || more;
  }
  return changed;
}

// It is wanted in, and finds no room because more was promised than there is: without a monitor all
// come at once. So it waits for its turn like the others.
bool Residency::crowded_out(const Client::Lane& lane) {
  if (lane.residency.phase != abi::kReturning || lane.residency.error != abi::kSwapNoDeviceRoom) {
    return false;
  }
  gpus_.read_credits(lane.gpu);
  memory_.rebalance(lane.gpu);
  return gpus_[lane.gpu].account.overdrawn() > 0;
}

// Under another monitor it was told to leave, all of its processes or one: it stays away until the
// account has room for it.
void Residency::adopt(Job& job) {
  if (!job.presence.released) {
    job.presence.released = job.presence.out = true;
    memory_.release(job);
    memory_.suspend(job);
  }
  for_lanes(roster_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    ResidencyOrder order = state.residency_order;
    if (order.limited) return;
    order.limited = true;
    order.limit_bytes = state.kept_bytes = state.residency.resident_bytes;
    tell(client, lane, state, order);
  });
}

bool Residency::observe(Job& job, Time now) {
  bool changed = false;
  for_lanes(roster_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    const ResidencyReport said = client.page->residency(lane);
    changed =
        changed || said.phase != state.residency.phase || said.away() != state.residency.away();
    // It has as long as everybody from when there is something to move.
    if (state.told_to_leave != Time{0} && (said.away() || state.residency.away())) {
      state.told_to_leave = now;
      state.old_error = said.error;
      state.moves = false;
    }
    // What it has kept can't leave: nobody shall wait for that.
    const bool refuses = said.error != abi::kSwapFine && said.error != abi::kSwapNoDeviceRoom;
    const bool late = now - state.lowered_at >= (refuses ? kRefuses : kLeavesWithin);
    if (job.presence.out && late && excess_bytes(said, state.residency_order) > 0) {
      state.kept_bytes = said.resident_bytes;
      job.presence.rests_until = now + kRests;
    }
    state.residency = said;
    state.moves = state.moves || said.phase == abi::kLeaving;
    if (!job.presence.released && crowded_out(state)) adopt(job);
    if (!state.carried || said.total_bytes == 0) return;
    state.carried = false;
    if (said.phase == abi::kAbsent || job.presence.released) {
      // With a pause that outlived that monitor, which was one with release.
      if (job.pause.on && !job.pause.decided) job.pause.release = true;
      adopt(job);
    }
    // It has put the words of the other monitor's page into this one.
    client.page->write_residency(lane, state.residency_order);
    client.page->ring();
  });
  Presence& presence = job.presence;
  // Until its first piece has left it still works: that is no cost of moving.
  const auto all_there = [](const Client::Lane& lane) { return lane.residency.away_bytes() == 0; };
  const bool leaves = presence.released && !presence.out;
  if (leaves && all_lanes(roster_, job, all_there)) presence.moves_since = now;
  if (presence.returning && whereabouts(roster_, job) == Whereabouts::kResident) {
    presence.returning = false;
    presence.cost_in = now - presence.moves_since;
    presence.resident_since = now;
  }
  follow_idleness(roster_, job, now);
  return changed;
}

bool Residency::bring_about(Job& job, Time now) {
  if (wanted_out(job)) return tell_to_leave(job, now);
  if (job.presence.released) {
    if (try_to_return(job, now)) return true;
    // It leaves all the way before it stands in line.
    return !job.presence.out && tell_to_leave(job, now);
  }
  if (!job.pause.ending || whereabouts(roster_, job) != Whereabouts::kResident) return false;
  end_returned(job);
  return true;
}

bool Residency::tell_to_leave(Job& job, Time now) {
  Presence& presence = job.presence;
  const bool begins = !presence.released;
  if (begins) {
    spdlog::info("job '{}' leaves its GPUs", job.name);
    presence.released = true;
    presence.returning = false;
    presence.moves_since = now;
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
  for_lanes(roster_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    if (!keeps) state.kept_bytes = 0;
    ResidencyOrder order = state.residency_order;
    order.limited = true;
    order.limit_bytes = state.kept_bytes;
    state.takes = 0;
    order.gives = gives_now(roster_, state);
    order.takes = 0;
    const ResidencyReport& said = state.residency;
    if (order != state.residency_order || state.told_to_leave == Time{0}) {
      state.told_to_leave = now;
      state.old_error = said.error;
      state.moves = state.carried = false;
      tell(client, lane, state, order);
    }
    if (said.away()) return;
    all_away = false;
    if (const std::uint32_t error = failed(state, now); error != abi::kSwapFine) {
      why = failure_text(error, said.swap_result);
    } else if (now - state.told_to_leave >= kLeavesWithin) {
      overdue = true;
      why = fmt::format("it did not leave within {:.0f} s", seconds(kLeavesWithin));
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
  presence.cost_out = now - presence.moves_since;
  memory_.suspend(job);
  room_came();
  return true;
}

void Residency::give_up(Job& job, const std::string& why, Time now) {
  spdlog::warn("job '{}' stays on its GPUs: {}", job.name, why);
  want_in(job);
  job.presence.failure = why;
  job.presence.rests_until = now + kRests;
  // What was promised to it may be another's by now: then it waits.
  if (job.presence.out) return;
  memory_.recount(job);
  let_back(job, now);
}

// What is on its way out of a GPU already, because limits fell.
std::uint64_t Residency::leaves_anyway(std::size_t gpu) const {
  std::uint64_t bytes = 0;
  for (const auto& [key, job] : roster_.jobs()) {
    for_lanes(roster_, job, [&](const Client&, unsigned, const Client::Lane& lane) {
      if (lane.gpu == gpu) bytes += excess_bytes(lane.residency, lane.residency_order);
    });
  }
  return bytes;
}

// What may be there of a job that is out and wants to come back.
void Residency::follow_room(Job& job, Time now) {
  Presence& presence = job.presence;
  const bool arrives = !presence.arrives.empty();
  if (arrives && !presence.arriving) presence.moves_since = now;
  presence.arriving = arrives;
  std::map<std::size_t, std::uint64_t> room;
  std::map<std::size_t, std::uint64_t> overdrawn;
  for_lanes(roster_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
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
    order.gives = gives_now(roster_, state);
    order.takes = takes_now(roster_, state);
    tell(client, lane, state, order);
  });
}

bool Residency::try_to_return(Job& job, Time now) {
  if (job.presence.out) follow_room(job, now);
  const auto has_come = [](const Client::Lane& lane) { return lane.residency.away_bytes() == 0; };
  const bool due = now >= job.presence.try_at || all_lanes(roster_, job, has_come);
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
  if (!job.presence.arriving) job.presence.moves_since = now;
  job.presence.arriving = false;
  for_lanes(roster_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    ResidencyOrder order = state.residency_order;
    order.limited = false;
    state.told_to_leave = Time{0};
    state.carried = false;
    state.kept_bytes = 0;
    end_handover(state);
    order.gives = order.takes = 0;
    tell(client, lane, state, order);
  });
}

}  // namespace switchyard::monitor
