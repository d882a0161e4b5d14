#include "monitor/residency/oversubscription.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

#include "monitor/core/lanes.h"
#include "monitor/platform/text.h"
#include "monitor/residency/gangs.h"
#include "monitor/residency/handovers.h"
#include "monitor/residency/residency_state.h"

namespace switchyard::monitor {
namespace {

// The device's room may follow the account's: the driver clears what it was given back.
constexpr Time kFindsRoomWithin = std::chrono::milliseconds(1000);

// Those on one GPU.
template <typename Each>
void for_lanes_on(std::size_t gpu, const Registry& registry, const Job& job, Each each) {
  for_lanes(registry, job, [&](const Client&, unsigned, Client::Lane& state) {
    if (state.gpu == gpu) each(state);
  });
}

std::uint64_t held_on(std::size_t gpu, const Registry& registry, const GpuAccounts& gpus,
                      const Job& job) {
  std::uint64_t bytes = 0;
  for_lanes(registry, job, [&](const Client& client, unsigned, const Client::Lane& lane) {
    if (lane.gpu != gpu) return;
    bytes += std::min(held_bytes(lane.residency, lane.residency_order), gpus.granted(client, lane));
  });
  return bytes;
}

bool is_out(const Job& job) { return job.memory->state == residency::State::kSwappedOut; }

// Whether it was told to give room, on one of its GPUs at least. A gang is first brought to a cut.
bool gives_already(const Job& job) {
  return wanted_out(job) || is_out(job) ||
         (gangs::is_stopping(job) && job.gang->reasons.has(residency::Reason::kYield));
}

// Whether it asks for what a turn of its own can give it.
bool wants_turn(const Client::Lane& lane, Time now) {
  return lane.wait->wants_turn && asks(lane, now);
}

}  // namespace

Oversubscription::Oversubscription(Registry& registry, GpuAccounts& gpus,
                                   policy::Handovers& handovers, const TurnSettings& settings)
    : registry_(registry), gpus_(gpus), handovers_(handovers), settings_(settings) {}

std::uint64_t kept_bytes(const Registry& registry, const GpuAccounts& gpus, std::size_t gpu,
                         Time waits_since, Time now) {
  std::uint64_t bytes = 0;
  for (const auto& [key, job] : registry.jobs()) {
    if (!is_out(job) || !could_leave(job, waits_since, now)) continue;
    bytes += std::min(held_on(gpu, registry, gpus, job), may_still_leave(gpu, registry, job));
  }
  return bytes;
}

// A job that no other's leaving could serve must not keep the others waiting. It comes back to all
// of its GPUs or to none, so each of them asks this of all. Else two jobs could stand before each
// other, each on one GPU.
bool Oversubscription::could_return(const Job& job, const Around& around) const {
  return std::all_of(job.gpus.seen().begin(), job.gpus.seen().end(), [&](std::size_t gpu) {
    const Account& account = gpus_[gpu].account;
    const std::uint64_t more = account.in_full(job.key) - account.charged(job.key);
    return fits_alone(gpus_, {gpu, job, more}, around.host, around.crowds[gpu]);
  });
}

policy::Oversubscriber Oversubscription::view_of(std::size_t gpu, const Job& job,
                                                 const Around& around, Time now) {
  const residency::JobResidency& memory = *job.memory;
  policy::Oversubscriber out;
  out.job = job.key;
  out.priority = job.knobs.priority;
  out.takes_turns = job.knobs.oversubscribe;
  out.rests_until = memory.rests_until;
  out.stayed_at = memory.stayed_at;
  out.resident_since = memory.resident_since;
  out.move_cost = std::max(memory.cost_out, memory.cost_in);
  out.stay_moves = settings_.stay_moves;
  out.resident_bytes = out.takes_turns ? held_on(gpu, registry_, gpus_, job) : 0;
  out.may_give_bytes = may_still_leave(gpu, registry_, job);
  out.gang = *job.gang_kind != GangKind::kNone;
  out.stopping = gangs::is_stopping(job);
  out.gathers = job.gang->stage == GangHold::Stage::kGathering && job.gang->leaves;
  const Account& account = gpus_[gpu].account;
  std::uint64_t excess = 0;
  for_lanes_on(gpu, registry_, job, [&](const Client::Lane& lane) {
    out.active = out.active || lane.active;
    excess += excess_bytes(lane.residency, lane.residency_order);
    if (!wants_turn(lane, now)) return;
    out.wants_room = out.asks = true;
    out.waits_since = earlier(out.waits_since, lane.wait->since);
    const std::uint64_t room = account.headroom(job.key);
    out.lacks_bytes += lane.wait->lacks_bytes - std::min(lane.wait->lacks_bytes, room);
  });
  if (released(memory.state)) {
    out.out = is_out(job);
    out.active = false;
    out.leaving = !out.out || excess > 0;
    // No other leaves for one that may not work.
    const bool waits = out.out && !wanted_out(job) && !job.pause->on;
    out.waits_since = memory.waits_since;
    const std::uint64_t full = account.in_full(job.key);
    out.lacks_bytes = account.short_of(job.key, full);
    out.wants_room = waits && could_return(job, around);
    out.asks = false;
  } else {
    // An error of its last try, before it was told to come, says nothing yet.
    const bool tries = residency_of(registry_, job) == ResidencyState::kMoving ||
                       now - memory.returns_since < kFindsRoomWithin;
    out.returning = memory.state == residency::State::kSwappingIn &&
                    now - memory.moves_since < kLeavesWithin && tries;
  }
  if (*job.stands) out.wants_room = out.asks = out.returning = false;
  return out;
}

std::vector<policy::Oversubscriber> Oversubscription::views_of(std::size_t gpu,
                                                               const Around& around, Time now) {
  gpus_.read_credits(gpu);
  const std::uint64_t kept = kept_bytes(registry_, gpus_, gpu, Time::max(), now);
  std::vector<policy::Oversubscriber> views;
  for (const auto& [key, job] : registry_.jobs()) {
    if (job.gpus.seen().count(gpu) == 0) continue;
    bool waits = is_out(job) && !wanted_out(job);
    for_lanes_on(gpu, registry_, job,
                 [&](const Client::Lane& lane) { waits = waits || wants_turn(lane, now); });
    if (!job.knobs.oversubscribe && (kept == 0 || !waits)) continue;
    const policy::Oversubscriber view = view_of(gpu, job, around, now);
    if (view.takes_turns || view.lacks_bytes <= kept) views.push_back(view);
  }
  return views;
}

// It goes on without a part of its memory, so without all of its threads. On its other GPUs it
// keeps its memory, unless it gives there as well. That is another call, of this look or a later
// one.
void Oversubscription::give(std::size_t gpu, Job& giver, std::uint64_t bytes, Time now) {
  if (!gives_already(giver)) {
    for_lanes(registry_, giver, [](const Client&, unsigned, Client::Lane& lane) {
      lane.kept_bytes = held_bytes(lane.residency, lane.residency_order);
    });
  }
  for_lanes(registry_, giver, [&](const Client& client, unsigned, Client::Lane& lane) {
    if (lane.gpu != gpu) return;
    const std::uint64_t there = held_bytes(lane.residency, lane.residency_order);
    const std::uint64_t part = std::min(bytes, there);
    lane.kept_bytes = there - part;
    handovers_.gives_anew(gpu, client.id);
    bytes -= part;
  });
  if (!is_out(giver)) gangs::want_out(registry_, giver, residency::Reason::kYield, false, now);
}

Time Oversubscription::follow(Time now) {
  Time next{0};
  bool any = false;
  for (auto& [key, job] : registry_.jobs()) {
    any = any || job.knobs.oversubscribe;
    job.turn.write() = {};
  }
  if (!any) return next;
  Around around{host_room(registry_, gpus_), {}};
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    around.crowds.push_back(crowd_of(gpu, registry_, gpus_, Leaves::kAsTheySay, Time::max(), now));
  }
  std::vector<std::vector<policy::Oversubscriber>> views;
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) views.push_back(views_of(gpu, around, now));
  const std::vector<policy::RoomPlan> plans = policy::plan_rooms(views, now);
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    const std::vector<policy::Oversubscriber>& jobs = views[gpu];
    const policy::RoomPlan& plan = plans[gpu];
    next = earlier(next, plan.look_again);
    const std::uint64_t leaves = std::max(plan.gives_bytes, plan.soon_bytes);
    if (leaves < settings_.worth_handing_over) handovers_.withdraw(gpu);
    if (plan.first == 0) continue;
    Job* giver = registry_.find(plan.giver);
    for (const policy::Oversubscriber& each : jobs) {
      Turn& turn = registry_.find(each.job)->turn.write();
      if (each.job == plan.first && plan.arrives && each.takes_turns) turn.arrives.insert(gpu);
      if (each.takes_turns && each.job != plan.first) turn.may_return = false;
      if (each.wants_room && giver != nullptr && giver->key != each.job) {
        turn.waits_for = giver->key;
      }
    }
    const Job& first = *registry_.find(plan.first);
    if (plan.gives_bytes != 0) {
      spdlog::info("job '{}' gives {} of its room to '{}'", giver->name,
                   bytes_text(plan.gives_bytes), first.name);
      give(gpu, *giver, plan.gives_bytes, now);
    }
    if (leaves < settings_.worth_handing_over) continue;
    policy::Handover planned = pair_of(registry_, gpu, *giver, first);
    planned.number = registry_.random() | 1;
    planned.soon_bytes = plan.soon_bytes;
    handovers_.plan(planned);
  }
  return next;
}

}  // namespace switchyard::monitor
