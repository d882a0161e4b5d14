#include "monitor/oversubscription.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "monitor/handovers.h"
#include "monitor/lanes.h"
#include "monitor/policy/host_pool.h"
#include "monitor/residency.h"
#include "monitor/text.h"

namespace switchyard::monitor {
namespace {

// A waiting client asks again every 100 ms; one that did not for this long has given up.
constexpr Time kStillWaits = std::chrono::milliseconds(1000);

// The device's room may follow the account's: the driver clears what it was given back.
constexpr Time kFindsRoomWithin = std::chrono::milliseconds(1000);

// Memory is handed over where so much leaves: to export, send and import a chunk takes some 0.1 ms,
// to make it anew 0.6 while others copy, and the frames take their time.
constexpr std::uint64_t kWorthHandingOver = 64u << 20;

// Those on one GPU.
template <typename Each>
void for_lanes_on(std::size_t gpu, const Roster& roster, const Job& job, Each each) {
  for_lanes(roster, job, [&](const Client&, unsigned, Client::Lane& state) {
    if (state.gpu == gpu) each(state);
  });
}

std::uint64_t held_on(std::size_t gpu, const Roster& roster, const Job& job) {
  std::uint64_t bytes = 0;
  for_lanes_on(gpu, roster, job, [&](const Client::Lane& lane) {
    bytes += held_bytes(lane.residency, lane.residency_order);
  });
  return bytes;
}

std::uint64_t host_room_of(std::size_t gpu, const Job& job) {
  const auto found = job.presence.host_room.find(gpu);
  return found != job.presence.host_room.end() ? found->second : 0;
}

// What of its memory the host has room for beside what is there already.
std::uint64_t may_still_leave(std::size_t gpu, const Roster& roster, const Job& job) {
  std::uint64_t away = 0;
  for_lanes_on(gpu, roster, job,
               [&](const Client::Lane& lane) { away += lane.residency.away_bytes(); });
  const std::uint64_t room = host_room_of(gpu, job);
  return room - std::min(room, away);
}

// What a job has, wherever it is.
std::uint64_t uses_on(const Account& account, JobKey job) {
  std::uint64_t bytes = 0;
  for (const auto& [id, holding] : account.holdings()) {
    if (holding.job == job) bytes += holding.used() + holding.overhead;
  }
  return bytes;
}

// Of that, what stays there when the job leaves. What says that it can leave and does not is in its
// overhead.
std::uint64_t stays_on(std::size_t gpu, const Roster& roster, const Account& account,
                       const Job& job, Leaves leaves) {
  std::uint64_t can_leave = 0;
  for_lanes_on(gpu, roster, job,
               [&](const Client::Lane& lane) { can_leave += lane.residency.total_bytes; });
  std::uint64_t uses = 0;
  for (const auto& [id, holding] : account.holdings()) {
    if (holding.job == job.key) uses += holding.used();
  }
  if (leaves == Leaves::kAllThatTheyUse) can_leave = uses;
  return uses_on(account, job.key) - std::min({uses, can_leave, host_room_of(gpu, job)});
}

// Whether each of them could be on the GPU with all of its memory.
bool all_can_return(const Roster& roster, const GpuAccounts& gpus, std::size_t gpu, const Job& job,
                    std::uint64_t bytes, Leaves leaves) {
  const Account& account = gpus[gpu].account;
  const auto capacity = account.capacity();
  if (!capacity) return true;
  // All that stays there whoever comes, and the most that one of them takes of the rest.
  std::uint64_t stays = account.outside();
  std::uint64_t returns = 0;
  for (const auto& [key, each] : roster.jobs()) {
    if (!each.knobs.oversubscribe) {
      stays += account.held(key);
      continue;
    }
    const std::uint64_t all = uses_on(account, key) + (key == job.key ? bytes : 0);
    std::uint64_t rest = stays_on(gpu, roster, account, each, leaves);
    if (key == job.key) {
      // What it gets can leave, too, in what the rest of it has not taken of the host.
      const std::uint64_t taken = uses_on(account, key) - rest;
      const std::uint64_t room = host_room_of(gpu, each);
      rest += bytes - std::min(bytes, room - std::min(room, taken));
    }
    stays += rest;
    returns = std::max(returns, all - rest);
  }
  return stays <= *capacity && returns <= *capacity - stays;
}

// Whether it asks for what a turn of its own can give it.
bool wants_turn(const Client::Lane& lane, Time now) { return lane.wants_turn && asks(lane, now); }

// Whether no other job that takes turns works on the GPU, waits for its memory or asks for more.
bool others_idle(const Roster& roster, std::size_t gpu, JobKey job, Time now) {
  for (const auto& [key, other] : roster.jobs()) {
    if (key == job || !other.knobs.oversubscribe) continue;
    const bool released = other.presence.released;
    bool idle = !released || wanted_out(other);
    for_lanes_on(gpu, roster, other, [&](const Client::Lane& lane) {
      idle = idle && !asks(lane, now) && (released || !lane.active);
    });
    if (!idle) return false;
  }
  return true;
}

}  // namespace

Oversubscription::Oversubscription(Roster& roster, GpuAccounts& gpus)
    : roster_(roster), gpus_(gpus) {}

bool asks(const Client::Lane& lane, Time now) {
  return lane.waits_since != Time{0} && now - lane.last_asked <= kStillWaits;
}

std::uint64_t kept_bytes(const Roster& roster, std::size_t gpu, Time waits_since, Time now) {
  std::uint64_t bytes = 0;
  for (const auto& [key, job] : roster.jobs()) {
    if (!job.presence.out || !could_leave(job, waits_since, now)) continue;
    bytes += std::min(held_on(gpu, roster, job), may_still_leave(gpu, roster, job));
  }
  return bytes;
}

bool could_leave(const Job& other, Time waits_since, Time now) {
  const Presence& presence = other.presence;
  return other.knobs.oversubscribe && now >= presence.rests_until &&
         (presence.stayed_at == Time{0} || presence.stayed_at < waits_since);
}

bool fits_alone(const Roster& roster, const GpuAccounts& gpus, std::size_t gpu, const Job& job,
                std::uint64_t bytes, Leaves leaves, Time waits_since, Time now) {
  const Account& account = gpus[gpu].account;
  const auto quota = account.quota(job.key);
  const std::uint64_t own = account.charged(job.key) + bytes;
  if (own < bytes || (quota && own > quota->bytes)) return false;
  std::uint64_t others = account.outside();
  for (const auto& [key, other] : roster.jobs()) {
    if (key == job.key) continue;
    // What could not leave just now stays.
    others += could_leave(other, waits_since, now) ? stays_on(gpu, roster, account, other, leaves)
                                                   : account.held(key);
  }
  const auto capacity = account.capacity();
  return !capacity || (others <= *capacity && own <= *capacity - others);
}

bool leaves_a_way_back(const Roster& roster, const GpuAccounts& gpus, std::size_t gpu,
                       const Job& job, std::uint64_t bytes, Leaves leaves, Time now) {
  return others_idle(roster, gpu, job.key, now) ||
         all_can_return(roster, gpus, gpu, job, bytes, leaves) ||
         !all_can_return(roster, gpus, gpu, job, 0, leaves);
}

bool only_the_host_lacks(Roster& roster, const GpuAccounts& gpus, std::size_t gpu, const Job& job,
                         std::uint64_t bytes, Time now) {
  for (auto& [key, each] : roster.jobs()) each.presence.host_room[gpu] = ~0ull >> 1;
  return fits_alone(roster, gpus, gpu, job, bytes, Leaves::kAsTheySay, Time::max(), now);
}

policy::Oversubscriber Oversubscription::view_of(std::size_t gpu, Job& job, Time now) {
  Presence& presence = job.presence;
  policy::Oversubscriber out;
  out.job = job.key;
  out.priority = job.knobs.priority;
  out.takes_turns = job.knobs.oversubscribe;
  out.rests_until = presence.rests_until;
  out.stayed_at = presence.stayed_at;
  out.move_cost = std::max(presence.cost_out, presence.cost_in);
  out.resident_bytes = out.takes_turns ? held_on(gpu, roster_, job) : 0;
  out.may_give_bytes = may_still_leave(gpu, roster_, job);
  const Account& account = gpus_[gpu].account;
  std::uint64_t excess = 0;
  for_lanes_on(gpu, roster_, job, [&](const Client::Lane& lane) {
    out.active = out.active || lane.active;
    excess += excess_bytes(lane.residency, lane.residency_order);
    if (!wants_turn(lane, now)) return;
    out.wants_room = out.asks = true;
    out.waits_since = earlier(out.waits_since, lane.waits_since);
    const std::uint64_t room = account.headroom(job.key);
    out.lacks_bytes += lane.lacks_bytes - std::min(lane.lacks_bytes, room);
  });
  if (presence.released) {
    out.out = presence.out;
    out.active = false;
    out.leaving = !presence.out || excess > 0;
    const bool waits = presence.out && !wanted_out(job);
    if (waits && presence.waits_since == Time{0}) presence.waits_since = now;
    out.waits_since = presence.waits_since;
    const std::uint64_t full = account.in_full(job.key);
    out.lacks_bytes = account.short_of(job.key, full);
    // Who could not be served by anybody's leaving must not keep the others waiting.
    const std::uint64_t more = full - account.charged(job.key);
    out.wants_room =
        waits && fits_alone(roster_, gpus_, gpu, job, more, Leaves::kAsTheySay, Time::max(), now);
    out.asks = false;
  } else {
    // An error of its last try, before it was told to come, says nothing yet.
    const bool tries = whereabouts(roster_, job) == Whereabouts::kMoving ||
                       now - presence.returns_since < kFindsRoomWithin;
    out.returning = presence.returning && now - presence.moves_since < kLeavesWithin && tries;
    presence.waits_since = Time{0};
    if (out.resident_bytes > 0 && presence.resident_since == Time{0}) presence.resident_since = now;
  }
  out.resident_since = presence.resident_since;
  return out;
}

std::vector<policy::Oversubscriber> Oversubscription::views_of(std::size_t gpu, Time now) {
  gpus_.read_credits(gpu);
  const std::uint64_t kept = kept_bytes(roster_, gpu, Time::max(), now);
  std::vector<policy::Oversubscriber> views;
  for (auto& [key, job] : roster_.jobs()) {
    if (job.seen.count(gpu) == 0) continue;
    bool waits = job.presence.out && !wanted_out(job);
    for_lanes_on(gpu, roster_, job,
                 [&](const Client::Lane& lane) { waits = waits || wants_turn(lane, now); });
    if (!job.knobs.oversubscribe && (kept == 0 || !waits)) continue;
    const policy::Oversubscriber view = view_of(gpu, job, now);
    if (view.takes_turns || view.lacks_bytes <= kept) views.push_back(view);
  }
  return views;
}

// It goes on without a part of its memory, so without all of its threads.
void Oversubscription::give(std::size_t gpu, Job& giver, std::uint64_t bytes) {
  for_lanes(roster_, giver, [&](const Client&, unsigned, Client::Lane& lane) {
    if (lane.gpu != gpu) {
      if (!giver.presence.out) lane.kept_bytes = 0;
      return;
    }
    const std::uint64_t there = held_bytes(lane.residency, lane.residency_order);
    const std::uint64_t part = std::min(bytes, there);
    lane.kept_bytes = there - part;
    if (lane.soon_bytes == 0) lane.gives = 0;  // to whom it gave before
    bytes -= part;
  });
  if (!giver.presence.out) giver.presence.yielded = true;
}

void find_host_room(Roster& roster, const GpuAccounts& gpus, Leaves leaves, Time now) {
  std::vector<std::pair<Job*, std::size_t>> places;
  std::vector<policy::HostUser> users;
  for (auto& [key, job] : roster.jobs()) {
    job.presence.host_room.clear();
    if (!job.knobs.swappable) continue;
    for_lanes(
        roster, job, [&, at = &job](const Client& client, unsigned, const Client::Lane& lane) {
          // Whatever a client says, it has no more memory on a GPU than that has.
          const std::uint64_t known = gpus[lane.gpu].memory.total_bytes;
          const std::uint64_t most = known != 0 ? known : ~0ull >> 1;
          const Account::Holding* holding = gpus[lane.gpu].account.holding(client.id);
          const bool unsaid = leaves == Leaves::kAllThatTheyUse && holding != nullptr;
          const std::uint64_t uses = unsaid ? holding->used() : 0;
          const std::uint64_t has = std::min(std::max(lane.residency.total_bytes, uses), most);
          // A job that idles leaves into what is free now. Jobs that work must fit into it in turn.
          const bool shares = wants_turn(lane, now) && !others_idle(roster, lane.gpu, at->key, now);
          const std::uint64_t asked = shares ? std::min(lane.lacks_bytes, most) : 0;
          places.emplace_back(at, lane.gpu);
          users.push_back({has + asked, std::min(lane.residency.away_bytes(), has)});
        });
  }
  const std::vector<std::uint64_t> shares = policy::divide_host_pool(users, gpus.host_pool_bytes);
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i].first->presence.host_room[places[i].second] += policy::usable_part(shares[i]);
  }
}

Time Oversubscription::follow(Time now) {
  Time next{0};
  bool any = false;
  for (auto& [key, job] : roster_.jobs()) {
    any = any || job.knobs.oversubscribe;
    job.presence.may_return = true;
    job.presence.arrives.clear();
    job.presence.waits_for.clear();
  }
  if (!any) return next;
  find_host_room(roster_, gpus_, Leaves::kAsTheySay, now);
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    const std::vector<policy::Oversubscriber> jobs = views_of(gpu, now);
    const policy::RoomPlan plan = policy::plan_room(jobs, now);
    next = earlier(next, plan.look_again);
    const std::uint64_t leaves = std::max(plan.gives_bytes, plan.soon_bytes);
    if (leaves < kWorthHandingOver) withdraw_prepared(roster_, gpu);
    if (plan.first == 0) continue;
    Job* giver = roster_.find(plan.giver);
    for (const policy::Oversubscriber& each : jobs) {
      Presence& presence = roster_.find(each.job)->presence;
      if (each.job == plan.first && plan.arrives && each.takes_turns) presence.arrives.insert(gpu);
      if (each.takes_turns && each.job != plan.first) presence.may_return = false;
      if (each.wants_room && giver != nullptr && giver->key != each.job) {
        presence.waits_for = giver->name;
      }
    }
    const Job& first = *roster_.find(plan.first);
    if (plan.gives_bytes != 0) {
      spdlog::info("job '{}' gives {} of its room to '{}'", giver->name,
                   bytes_text(plan.gives_bytes), first.name);
      give(gpu, *giver, plan.gives_bytes);
    }
    if (leaves < kWorthHandingOver) continue;
    begin_handover(roster_, gpu, *giver, first, plan.soon_bytes, roster_.random() | 1);
  }
  return next;
}

}  // namespace switchyard::monitor
