#include "monitor/oversubscription.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

#include "monitor/lanes.h"
#include "monitor/residency.h"

namespace switchyard::monitor {
namespace {

// A waiting client asks again every 100 ms; one that did not for this long has given up.
constexpr Time kStillWaits = std::chrono::milliseconds(1000);

// Those on one GPU.
template <typename Each>
void for_lanes_on(std::size_t gpu, const Roster& roster, const Job& job, Each each) {
  for_lanes(roster, job, [&](const Client&, unsigned, const Client::Lane& state) {
    if (state.gpu == gpu) each(state);
  });
}

}  // namespace

bool asks(const Client::Lane& lane, Time now) {
  return lane.waits_since != Time{0} && now - lane.last_asked <= kStillWaits;
}

bool fits_alone(const Roster& roster, const GpuAccounts& gpus, std::size_t gpu, const Job& job,
                std::uint64_t bytes, Time now) {
  const Account& account = gpus[gpu].account;
  const auto quota = account.quota(job.key);
  const std::uint64_t own = account.charged(job.key) + bytes;
  if (own < bytes || (quota && own > quota->bytes)) return false;
  std::uint64_t others = account.outside();
  for (const auto& [key, other] : roster.jobs()) {
    if (key == job.key) continue;
    // What could not leave just now stays.
    if (!other.knobs.oversubscribe || now < other.presence.rests_until) {
      others += account.held(key);
      continue;
    }
    std::uint64_t can_leave = 0;
    std::uint64_t uses = 0;
    for_lanes_on(gpu, roster, other,
                 [&](const Client::Lane& lane) { can_leave += lane.residency.total_bytes; });
    for (const auto& [id, holding] : account.holdings()) {
      if (holding.job != key) continue;
      uses += holding.used();
      others += holding.overhead;  // what says that it can leave and does not is there, too
    }
    others += uses - std::min(uses, can_leave);
  }
  const auto capacity = account.capacity();
  return !capacity || (others <= *capacity && own <= *capacity - others);
}

policy::Oversubscriber Oversubscription::view_of(std::size_t gpu, Job& job, Time now) {
  Presence& presence = job.presence;
  policy::Oversubscriber out;
  out.job = job.key;
  out.priority = job.knobs.priority;
  out.rests_until = presence.rests_until;
  out.move_cost = presence.cost_out + presence.cost_in;
  const Account& account = gpus_[gpu].account;
  bool lacks = false;
  for_lanes_on(gpu, roster_, job, [&](const Client::Lane& lane) {
    out.resident_bytes += lane.residency.resident_bytes;
    out.active = out.active || lane.active;
    if (!asks(lane, now)) return;
    out.wants_room = true;
    out.waits_since = earlier(out.waits_since, lane.waits_since);
    lacks = lacks || lane.lacks_bytes > account.headroom(job.key);
  });
  if (presence.released) {
    out.wants_room = presence.out && !wanted_out(job);
    out.moves = !presence.out;
    out.resident_bytes = 0;
    if (out.wants_room && presence.waits_since == Time{0}) presence.waits_since = now;
    out.waits_since = presence.waits_since;
    const auto quota = account.quota(job.key);
    const std::uint64_t full = std::max(account.charged(job.key), quota ? quota->bytes : 0);
    lacks = !account.fits(job.key, full);
  } else {
    out.moves = presence.returning && whereabouts(roster_, job) == Whereabouts::kMoving;
    presence.waits_since = Time{0};
    if (out.resident_bytes > 0 && presence.resident_since == Time{0}) presence.resident_since = now;
  }
  out.resident_since = presence.resident_since;
  out.fits = !lacks;
  return out;
}

Time Oversubscription::follow(Time now) {
  Time next{0};
  bool any = false;
  for (auto& [key, job] : roster_.jobs()) {
    any = any || job.knobs.oversubscribe;
    job.presence.may_return = true;
    job.presence.waits_for.clear();
  }
  if (!any) return next;
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    gpus_.read_credits(gpu);
    std::vector<policy::Oversubscriber> jobs;
    for (auto& [key, job] : roster_.jobs()) {
      if (job.knobs.oversubscribe && job.seen.count(gpu) != 0)
        jobs.push_back(view_of(gpu, job, now));
    }
    const policy::RoomPlan plan = policy::plan_room(jobs, now);
    next = earlier(next, plan.look_again);
    if (plan.first == 0) continue;
    Job* giver = roster_.find(plan.giver);
    for (const policy::Oversubscriber& each : jobs) {
      Presence& presence = roster_.find(each.job)->presence;
      if (each.job != plan.first) presence.may_return = false;
      if (each.wants_room && giver != nullptr && giver->key != each.job) {
        presence.waits_for = giver->name;
      }
    }
    if (!plan.leaves) continue;
    spdlog::info("job '{}' gives its room to '{}'", giver->name, roster_.find(plan.first)->name);
    giver->presence.yielded = true;
  }
  return next;
}

}  // namespace switchyard::monitor
