#include "monitor/residency/way_back.h"

#include <algorithm>
#include <map>

#include "monitor/core/lanes.h"
#include "monitor/core/minus.h"
#include "monitor/policy/host_pool.h"
#include "monitor/residency/residency_state.h"

namespace switchyard::monitor {
namespace {

// Of what a job was granted its library says that it may be moved once it is there. Two that start
// together ask for theirs at the same moment.
constexpr Time kSaysWhatMoves = std::chrono::seconds(1);

using Has = Crowd::Has;

Has has_on(std::size_t gpu, const Registry& registry, const Account& account, const Job& job,
           Leaves leaves) {
  const Account::Totals::Sums sums = account.totals(job.key);
  Has has;
  has.granted = sums.granted;
  // Memory that is said to leave and does not is in here.
  has.all = sums.granted + sums.overhead;
  // Unused credit is taken back when the job leaves.
  std::uint64_t says = sums.credit;
  for_lanes(registry, job, [&](const Client&, unsigned, const Client::Lane& lane) {
    // Sums of what hostile clients claim must not wrap around.
    if (lane.gpu == gpu) says += std::min(lane.residency.total_bytes, minus(~0ull, says));
  });
  has.can_leave = leaves == Leaves::kAllThatTheyUse ? has.granted : std::min(has.granted, says);
  has.full = std::max(has.all, account.in_full(job.key));
  return has;
}

// The request included.
Crowd crowd_on(std::size_t gpu, const Registry& registry, const GpuAccounts& gpus, Leaves leaves,
               const Request* request) {
  const Account& account = gpus[gpu].account;
  Crowd out;
  out.room = minus(account.capacity().value_or(~0ull), account.outside());
  registry.work().add(registry.jobs().size());
  for (const auto& [key, job] : registry.jobs()) {
    if (!job.knobs.oversubscribe) {
      out.plain += account.held(key);
      continue;
    }
    Has has = has_on(gpu, registry, account, job, leaves);
    if (request != nullptr && request->gpu == gpu && request->job.key == key) {
      // What it gets can leave, too.
      has.all += request->bytes;
      has.full += request->bytes;
      has.can_leave += request->bytes;
    }
    out.all += has.all;
    out.can_leave += has.can_leave;
    out.in_turns[key] = has;
  }
  return out;
}

// The others' memory that must be away while one of them is there in full.
std::uint64_t must_leave(const Crowd& crowd, const Has& one, std::uint64_t plain) {
  return minus(plain + crowd.all + (one.full - one.all), crowd.room);
}

// Whether each of them could be there in full.
bool all_can_return(const Crowd& crowd, std::uint64_t host_left, bool beside_plain) {
  return std::all_of(crowd.in_turns.begin(), crowd.in_turns.end(), [&](const auto& each) {
    const Has& one = each.second;
    const std::uint64_t away = must_leave(crowd, one, beside_plain ? crowd.plain : 0);
    return one.all == 0 || away <= std::min(crowd.can_leave - one.can_leave, host_left);
  });
}

// Nobody can be granted more on a GPU than that has; not known yet: any.
std::uint64_t most_on(const GpuAccounts& gpus, std::size_t gpu) {
  const std::uint64_t known = gpus[gpu].memory.total_bytes;
  return known != 0 ? known : ~0ull >> 1;
}

// Whether it is the next that comes in, or does so.
bool comes(const Job& job) {
  const residency::State state = job.memory->state;
  if (state == residency::State::kSwappingIn) return true;
  return state == residency::State::kSwappedOut && job.turn->may_return && !wanted_out(job);
}

HostRoom room_of_host(const Registry& registry, const GpuAccounts& gpus, const Request* request) {
  HostRoom out{0, std::vector<std::uint64_t>(gpus.size())};
  std::vector<policy::HostUser> users;
  for (const auto& each : registry.jobs()) {
    const Job& job = each.second;  // clang 14 lets no lambda capture a structured binding
    if (!job.knobs.swappable) continue;
    for_lanes(registry, job, [&](const Client& client, unsigned, const Client::Lane& lane) {
      const std::uint64_t most = most_on(gpus, lane.gpu);
      const std::uint64_t granted = std::min(gpus.granted(client, lane), most);
      policy::HostUser user = host_user(gpus, job, client, lane);
      // No client has told yet of credit that was granted a moment ago.
      user.total_bytes = granted;
      const bool asks =
          request != nullptr && request->gpu == lane.gpu && request->job.key == job.key;
      if (asks) user.total_bytes += std::min(request->bytes, most);
      users.push_back(user);
      if (job.knobs.oversubscribe) {
        out.taken[lane.gpu] += std::min(lane.residency.away_bytes(), granted);
      }
    });
  }
  out.bytes = policy::turns_hold(users, gpus.host_pool_bytes);
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    const Crowd all = crowd_on(gpu, registry, gpus, Leaves::kAsTheySay, nullptr);
    out.taken[gpu] = std::max(out.taken[gpu], minus(all.plain + all.all, all.room));
  }
  return out;
}

}  // namespace

std::uint64_t HostRoom::left_for(std::size_t gpu) const {
  std::uint64_t left = bytes;
  for (std::size_t i = 0; i < taken.size(); ++i) left = i == gpu ? left : minus(left, taken[i]);
  return left;
}

policy::HostUser host_user(const GpuAccounts& gpus, const Job& job, const Client& client,
                           const Client::Lane& lane) {
  const ResidencyReport& said = lane.residency;
  policy::HostUser user;
  user.total_bytes = std::min(said.total_bytes, gpus.granted(client, lane));
  user.pinned_bytes = std::min(said.host_bytes, lane.noted->most_pinned);
  // A client that was told to leave by its limit keeps that limit.
  const std::uint64_t has = std::max(user.pinned_bytes, lane.residency_order.host_limit_bytes);
  const std::uint64_t away = said.away_bytes() + excess_bytes(said, lane.residency_order);
  user.away_bytes = std::min({away, user.total_bytes, policy::usable_part(has)});
  user.owner = job.uid;
  user.takes_turns = job.knobs.oversubscribe;
  user.comes = comes(job);
  return user;
}

HostRoom host_room(const Registry& registry, const GpuAccounts& gpus) {
  return room_of_host(registry, gpus, nullptr);
}

HostRoom host_room_with(const Registry& registry, const GpuAccounts& gpus, const Request& request) {
  return room_of_host(registry, gpus, &request);
}

std::uint64_t may_still_leave(std::size_t gpu, const Registry& registry, const Job& job) {
  std::uint64_t bytes = 0;
  for_lanes(registry, job, [&](const Client&, unsigned, const Client::Lane& lane) {
    if (lane.gpu != gpu) return;
    bytes += minus(policy::usable_part(lane.residency_order.host_limit_bytes),
                   lane.residency.away_bytes());
  });
  return bytes;
}

bool could_leave(const Job& other, Time waits_since, Time now) {
  const residency::JobResidency& memory = *other.memory;
  return other.knobs.oversubscribe && now >= memory.rests_until &&
         (memory.stayed_at == Time{0} || memory.stayed_at < waits_since);
}

Crowd crowd_of(std::size_t gpu, const Registry& registry, const GpuAccounts& gpus, Leaves leaves,
               Time waits_since, Time now) {
  const Account& account = gpus[gpu].account;
  Crowd out = crowd_on(gpu, registry, gpus, leaves, nullptr);
  for (auto& [key, has] : out.in_turns) {
    // What could not leave just now stays.
    const bool leaves_then = could_leave(registry.jobs().at(key), waits_since, now);
    has.stay = leaves_then ? has.stays() : account.held(key);
    out.stay += has.stay;
  }
  return out;
}

bool fits_alone(const GpuAccounts& gpus, const Request& request, const HostRoom& host,
                const Crowd& crowd) {
  const std::size_t gpu = request.gpu;
  const Account& account = gpus[gpu].account;
  const auto quota = account.quota(request.job.key);
  const std::uint64_t own = account.charged(request.job.key) + request.bytes;
  // A quota below the use refuses new memory. It does not refuse memory that comes back.
  const bool over = request.bytes != 0 && quota && own > quota->bytes;
  if (own < request.bytes || over) return false;
  if (!account.capacity()) return true;
  if (own > crowd.room) return false;
  const auto mine = crowd.in_turns.find(request.job.key);
  const Has has = mine != crowd.in_turns.end() ? mine->second : Has{};
  const std::uint64_t stay = crowd.plain + crowd.stay - has.stay;
  const std::uint64_t have = crowd.plain + crowd.all - has.all;
  return stay <= crowd.room - own && minus(have, crowd.room - own) <= host.left_for(gpu);
}

bool leaves_a_way_back(const Registry& registry, const GpuAccounts& gpus, const Request& request,
                       const HostRoom& host, Leaves leaves) {
  const auto capacity = gpus[request.gpu].account.capacity();
  if (!capacity) return true;
  if (request.bytes > *capacity) return false;
  const std::uint64_t left = host.left_for(request.gpu);
  const Crowd with = crowd_on(request.gpu, registry, gpus, leaves, &request);
  if (all_can_return(with, left, true)) return true;
  const Crowd now = crowd_on(request.gpu, registry, gpus, leaves, nullptr);
  return !all_can_return(now, left, true) && all_can_return(with, left, false);
}

TurnsOutlook turns_outlook(const Registry& registry, const GpuAccounts& gpus,
                           const Request& request, Time waits_since, Time now) {
  const auto fits = [&](const HostRoom& host, Leaves leaves) {
    return leaves_a_way_back(registry, gpus, request, host, leaves) &&
           fits_alone(gpus, request, host,
                      crowd_of(request.gpu, registry, gpus, leaves, waits_since, now));
  };
  const bool just_asked = now - waits_since < kSaysWhatMoves;
  const auto fits_in = [&](const HostRoom& host) {
    return fits(host, Leaves::kAsTheySay) || (just_asked && fits(host, Leaves::kAllThatTheyUse));
  };
  const HostRoom host = host_room_with(registry, gpus, request);
  TurnsOutlook out;
  out.serve = fits_in(host);
  if (out.serve) return out;
  out.way_back = leaves_a_way_back(registry, gpus, request, host, Leaves::kAllThatTheyUse);
  out.host_lacks = fits_in(HostRoom::any(gpus));
  return out;
}

}  // namespace switchyard::monitor
