#include "monitor/residency/residency.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

#include "monitor/core/lanes.h"
#include "monitor/platform/text.h"
#include "monitor/policy/host_pool.h"
#include "monitor/residency/gangs.h"
#include "monitor/residency/idle_release.h"
#include "monitor/residency/parking.h"
#include "monitor/residency/pausing.h"
#include "monitor/residency/residency_state.h"
#include "monitor/residency/way_back.h"

namespace switchyard::monitor {
namespace {

using residency::Action;
using residency::Event;
using residency::Reason;
using residency::State;

// A library that knows of no numbers tries again every 2 s at least. So what it says for longer
// after an order answers that order.
constexpr Time kRepeatsWithin = std::chrono::seconds(3);

// The error that the client answers its present order with, if any. A lack of room on the device
// is no reason against leaving.
std::uint32_t error_now(const Client::Lane& lane, const ResidencyReport& said, Time now) {
  const bool by_number = said.answered != 0;
  if (by_number ? !answers(said, lane.residency_order)
                : now - lane.noted->numbered_at < kRepeatsWithin) {
    return abi::kSwapFine;
  }
  return said.error == abi::kSwapNoDeviceRoom ? abi::kSwapFine : said.error;
}

// Whatever a client says of its progress: slower than this it holds others up. Where each slab is
// pinned on the way, memory still leaves at 1 GiB/s.
constexpr std::uint64_t kSlowestBytes = 128u << 20;  // in a second
// No GPU has more than this takes. A client may say that it has any number of bytes.
constexpr std::uint64_t kMostSeconds = 3600;

// The accepted work may take as long as a move may stand still.
Time longest_move(std::uint64_t bytes) {
  return 2 * kLeavesWithin + std::chrono::seconds(std::min(bytes / kSlowestBytes, kMostSeconds));
}

// Of ranks that were not stopped together one may wait on its GPU for what another, whose work is
// held by now, did not launch. A job may have become a gang since it was told to leave.
bool is_apart(const Registry& registry, const Job& job) {
  if (gangs::left_at_cut(job)) return false;
  return gangs::is_gang(registry, job) || gangs::is_unseen(registry, job);
}

// The error that keeps a client's memory from leaving since it was told to; kSwapFine: none. Only
// the answer to the present order counts.
std::uint32_t failed(const Client::Lane& lane, Time now) {
  const ResidencyReport& said = lane.residency;
  const bool away = lane.residency_order.contexts ? said.detached() : said.away();
  const bool gone = away && excess_bytes(said, lane.residency_order) == 0;
  return gone || said.phase == abi::kLeaving ? abi::kSwapFine : error_now(lane, said, now);
}

}  // namespace

Residency::Residency(Registry& registry, GpuAccounts& gpus, MemoryBroker& memory,
                     std::uint64_t host_pool_bytes, const TurnSettings& turns)
    : registry_(registry),
      gpus_(gpus),
      memory_(memory),
      oversubscription_(registry, gpus, handovers_, turns) {
  gpus_.host_pool_bytes = host_pool_bytes;
}

void Residency::join(Client& client, bool rejoins) {
  Job* job = registry_.find(client.job);
  if (job == nullptr || !job->knobs.swappable || client.observer) return;
  // A fresh process is no idle one.
  if (job->memory->wanted_out.has(Reason::kIdle)) want_back(*job, now_);
  for (auto& [lane, state] : client.lanes) {
    ResidencyNotes& noted = state.noted.write();
    noted.carried = rejoins;
    if (rejoins) noted.most_pinned = policy::usable_host_bytes(gpus_[state.gpu].memory.total_bytes);
    if (released(job->memory->state) && !rejoins) tell(client, lane, state, {true, 0, 0});
  }
  divide_host_pool();
}

void Residency::divide_host_pool() {
  std::vector<GpuAccounts::ClientOnGpu> places;
  std::vector<policy::HostUser> users;
  pinned_bytes_ = 0;
  for (const auto& each : registry_.jobs()) {
    const Job& job = each.second;  // clang 14 lets no lambda capture a structured binding
    if (!job.knobs.swappable) continue;
    for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
      places.push_back({&client, lane, &state});
      users.push_back(host_user(gpus_, job, client, state));
      pinned_bytes_ += users.back().pinned_bytes;
    });
  }
  const std::vector<std::uint64_t> limits = policy::divide_host_pool(users, gpus_.host_pool_bytes);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto& [client, lane, state] = places[i];
    ResidencyOrder order = state->residency_order;
    // A slab may be on its way that the limit permitted until now. The page of a client that
    // rejoins tells later what it has pinned.
    ResidencyNotes& noted = state->noted.write();
    const std::uint64_t had =
        noted.carried ? noted.most_pinned : std::min(users[i].pinned_bytes, noted.most_pinned);
    noted.most_pinned = std::max({limits[i], order.host_limit_bytes, had});
    order.host_limit_bytes = limits[i];
    tell(*client, lane, *state, order);
  }
}

void Residency::room_came() {
  for (auto& [key, job] : registry_.jobs()) job.memory.take({.event = Event::kRoomCame}, now_);
}

bool Residency::follow(Time now) {
  now_ = now;
  read_.clear();
  handovers_.keep_those_of([&](ClientId id) { return registry_.client(id) != nullptr; });
  bool changed = false;
  for (auto& [key, job] : registry_.jobs()) {
    if (job.knobs.swappable) changed = observe(job, now) || changed;
  }
  divide_host_pool();  // before anybody is told to leave
  parking::follow(registry_, gpus_, now);
  // The room of one that has left is the next one's in the same look.
  bool more = true;
  for (int round = 0; round < 2 && more; ++round) {
    due_ = oversubscription_.follow(now);
    more = false;
    for (auto& [key, job] : registry_.jobs()) {
      if (job.knobs.swappable) more = bring_about(job, now) || more;
    }
    changed = changed || more;
  }
  return changed;
}

residency::Seen Residency::see(const Job& job) const {
  residency::Seen seen;
  seen.all_there = seen.resident = true;
  // It would keep the room from the others.
  seen.first = job.turn->may_return && !*job.stands;
  seen.room_comes = !job.turn->arrives.empty();
  seen.pinned_bytes = pinned_bytes_;
  for_lanes(registry_, job, [&](const Client&, unsigned, const Client::Lane& lane) {
    const ResidencyReport& said = lane.residency;
    seen.has_memory = seen.has_memory || held_bytes(said, lane.residency_order) > 0;
    seen.all_there = seen.all_there && said.away_bytes() == 0;
    seen.resident = seen.resident && said.resident();
  });
  return seen;
}

// What one client says of its memory on one GPU.
void Residency::hear(Job& job, Client& client, unsigned lane, Client::Lane& state) {
  ResidencyReport said = client.page->residency(lane);
  ResidencyNotes& noted = state.noted.write();
  // It stores this after all that it carries over, which may have come while we read.
  const bool numbers = said.answered == abi::kAnswersNone;
  if (noted.carried && numbers) said = client.page->residency(lane);
  // It has as long as everybody from when there is something to move, and while that moves.
  const bool moves = said.resident_bytes < state.residency.resident_bytes;
  const auto gone = [&](const ResidencyReport& report) {
    const bool away = state.residency_order.contexts ? report.detached() : report.away();
    return away && excess_bytes(report, state.residency_order) == 0;
  };
  if (noted.told_to_leave != Time{0} && (gone(said) || gone(state.residency) || moves)) {
    noted.told_to_leave = now_;
  }
  const bool awaits = said.phase == abi::kLeaving && state.residency.phase == abi::kLeaving;
  if (!awaits || moves) noted.drains_since = now_;
  // Memory that it has kept can't leave: no job shall wait for that.
  const bool refuses = error_now(state, said, now_) != abi::kSwapFine;
  const bool late = refuses || now_ - noted.numbered_at >= kLeavesWithin;
  const bool out = job.memory->state == State::kSwappedOut;
  if (out && late && excess_bytes(said, state.residency_order) > 0) {
    spdlog::warn("job '{}' keeps {} on its GPUs: {}", job.name, bytes_text(said.resident_bytes),
                 refuses ? failure_text(said.error, said.swap_result) : "it does not leave");
    state.kept_bytes = said.resident_bytes;
    job.memory.take({.event = Event::kKeeps}, now_);
  }
  if (parking::hear(gpus_, {client, lane}, said, noted.carried, now_)) room_came();
  state.residency = said;
  if (!released(job.memory->state) && crowded_out(state)) find_away(job);
  // An older library knows of no numbers. Then no bytes may mean that its words are yet to come.
  if (noted.carried && (numbers || said.total_bytes != 0)) hear_carried(job, client, lane, state);
}

void Residency::find_away(Job& job) {
  act(job, job.memory.take({.event = Event::kFoundAway}, now_).action, now_);
}

void Residency::hear_carried(Job& job, Client& client, unsigned lane, Client::Lane& state) {
  const ResidencyReport& said = state.residency;
  state.noted.write().carried = false;
  // Under another monitor it was told to leave, all of its processes or one: it stays away until
  // the account has room for it.
  const bool restored = job.pause->on && !job.pause->decided;
  // A pause that outlived that monitor, which was to release it. The memory may not have begun to
  // leave, because to pin room in the host takes long.
  const bool leaves = restored && said.limited != abi::kUnlimited;
  if (leaves || said.phase == abi::kAbsent || said.detached() || released(job.memory->state)) {
    if (restored) {
      // One lane with contexts says it for all.
      const bool contexts = said.detached() || said.limited == abi::kContextsToo ||
                            job.memory->contexts_out.has(Reason::kPause);
      job.memory.take({.event = Event::kWantedOut, .reasons = Reason::kPause, .contexts = contexts},
                      now_);
    }
    find_away(job);
  }
  // It has put the words of the other monitor's page into this one.
  client.page->write_residency(lane, state.residency_order);
  client.page->ring();
}

bool Residency::observe(Job& job, Time now) {
  bool changed = false;
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    const ResidencyReport before = state.residency;
    hear(job, client, lane, state);
    const ResidencyReport& said = state.residency;
    changed = changed || said.phase != before.phase || said.away() != before.away();
  });
  job.memory.take({.event = Event::kReported, .seen = see(job)}, now);
  follow_idleness(registry_, job, now);
  return changed;
}

bool Residency::bring_about(Job& job, Time now) {
  bool changed = false;
  std::optional<residency::Input> input{{.event = Event::kLook}};
  while (input) {
    input->seen = see(job);
    const residency::Step step = job.memory.take(*input, now);
    changed = changed || step.changed;
    input = act(job, step.action, now);
  }
  return changed;
}

std::optional<residency::Input> Residency::act(Job& job, Action action, Time now) {
  switch (action) {
    case Action::kNothing:
      return std::nullopt;
    case Action::kPrepare:
      tell_what_to_prepare(job);
      return std::nullopt;
    case Action::kBeginOut:
      spdlog::info("job '{}' leaves its GPUs", job.name);
      gpus_.set_released(job.key, true);
      return order_out(job, false, now);
    case Action::kOrderOut:
      return order_out(job, false, now);
    case Action::kOrderContexts:
      // On the other GPU the contexts come first.
      return order_out(job, job.migration->state.stage != migration::Stage::kLanding, now);
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
      // Whatever was given out meanwhile.
      gpus_.set_released(job.key, false);
      let_in(job);
      return std::nullopt;
    case Action::kAdopt:
      gpus_.set_released(job.key, true);
      memory_.suspend(job, job.memory->returns_since == Time{0});  // else we let it in ourselves
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
  const bool anew = order.limited != told.limited || order.contexts != told.contexts ||
                    order.limit_bytes < told.limit_bytes;
  told = order;
  if (anew) {
    // Neither "no order yet" nor "no answer".
    told.number = told.number + 1 < abi::kAnswersNone ? told.number + 1 : 1;
    state.noted.write().numbered_at = now_;
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

residency::Input Residency::order_out(Job& job, bool contexts, Time now) {
  // A job whose memory only another needs keeps the rest.
  const bool keeps = job.memory->wanted_out.only_yields();
  bool all_away = true;
  residency::Failure failure;
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    if (!keeps) state.kept_bytes = 0;
    ResidencyOrder order = state.residency_order;
    order.contexts = contexts && client.page->report(lane).has_context();
    order.limit_bytes = state.kept_bytes;
    parking::leaves(registry_, gpus_, job, {client, lane}, order, now);
    order.limited = true;
    handovers_.leaves(state.gpu, client.id);
    order.gives = handovers_.gives(state.gpu, client.id);
    order.takes = order.soon_bytes = 0;
    const ResidencyReport& said = state.residency;
    if (order != state.residency_order || state.noted->told_to_leave == Time{0}) {
      state.noted.write().told_to_leave = now;
      tell(client, lane, state, order);
    }
    // One that is out may have kept a part, which is to leave now.
    const bool all = excess_bytes(said, state.residency_order) == 0;
    if (all && has_left(said, state.residency_order)) return;
    all_away = false;
    if (const std::uint32_t error = failed(state, now); error != abi::kSwapFine) {
      failure.failed = true;
      failure.error = error;
      failure.result = said.swap_result;
    } else if (client.standing.why != Standstill::kNone) {
      failure = {.failed = true, .stands = client.standing.why, .pid = client.peer.pid};
    } else if (now - state.noted->drains_since >= cut::kComesWithin && is_apart(registry_, job)) {
      failure = {.failed = true, .error = abi::kSwapBusy};
    } else if (now - state.noted->told_to_leave >= kLeavesWithin ||
               now - state.noted->numbered_at >= longest_move(said.total_bytes)) {
      failure = {.failed = true, .overdue = true};
    }
  });
  if (!failure.failed) return {.event = all_away ? Event::kLeft : Event::kLeaves};
  spdlog::warn("job '{}' stays on its GPUs: {}", job.name, failure_text(failure));
  return {.event = Event::kStays, .failure = failure};
}

}  // namespace switchyard::monitor
