#include "monitor/residency/memory_broker.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>

#include "monitor/core/minus.h"
#include "monitor/platform/text.h"
#include "monitor/residency/oversubscription.h"
#include "monitor/residency/parking.h"
#include "monitor/residency/way_back.h"

namespace switchyard::monitor {
namespace {

constexpr std::uint64_t kGranule = 2ull << 20;  // what the driver allocates in

// A client that rejoined has said by then where its memory is, and the others have rejoined, too.
constexpr Time kClaimChecked = std::chrono::seconds(5);

// Of a GPU that we don't govern: nothing to account, so nothing to refuse.
wire::Charged pass(const Client& client, unsigned lane, std::uint64_t bytes) {
  wire::Charged out{};
  if (lane < client.page->lane_count() && !client.observer) client.page->grant(lane, bytes);
  out.granted_bytes = client.observer ? 0 : bytes;
  out.available_bytes = ~0ull;
  return out;
}

// In units of the driver's, unless that would wrap around.
std::uint64_t rounded_up(std::uint64_t bytes) {
  return bytes > ~0ull - kGranule ? bytes : (bytes + kGranule - 1) / kGranule * kGranule;
}

}  // namespace

MemoryBroker::MemoryBroker(Registry& registry, GpuAccounts& gpus, NvmlSampler& sampler)
    : registry_(registry), gpus_(gpus), sampler_(sampler) {}

void MemoryBroker::write_page(Gpu& gpu, const ClientOnGpu& place, const Account::Totals& totals) {
  const auto quota = gpu.account.quota(place.client->job);
  ClientPage& page = *place.client->page;
  page.set_quota(place.lane, quota ? quota->bytes : 0);
  if (!place.client->observer) {
    page.set_account(place.lane, gpu.account.others_used(place.client->id, totals),
                     gpu.account.available(place.client->id, totals));
    return;
  }
  // An observer uses nothing itself: all that its job uses is "others".
  const auto found = totals.jobs.find(place.client->job);
  const auto sums = found != totals.jobs.end() ? found->second : Account::Totals::Sums{};
  const std::uint64_t used = minus(sums.granted, sums.credit) + sums.overhead;
  page.set_account(place.lane, used, quota ? minus(quota->bytes, used) : totals.free);
}

void MemoryBroker::write_pages(std::size_t gpu, std::optional<JobKey> only) {
  const Account::Totals totals = gpus_[gpu].account.totals();
  for (const ClientOnGpu& each : gpus_.clients_on(gpu)) {
    if (!only || each.client->job == *only) write_page(gpus_[gpu], each, totals);
  }
}

std::uint64_t MemoryBroker::take_back(std::size_t gpu, ClientId id, std::uint64_t bytes) {
  const auto where = gpus_.client_on(gpu, id);
  Account& account = gpus_[gpu].account;
  const Account::Holding* holding = account.holding(id);
  if (!where || holding == nullptr) return 0;
  const std::uint64_t taken = where->client->page->take_back(where->lane, bytes, holding->granted);
  account.taken_back(id, taken);
  return taken;
}

void MemoryBroker::take_from_givers(std::size_t gpu, JobKey job, ClientId except,
                                    std::uint64_t want) {
  for (const ClientId giver : gpus_[gpu].account.givers(job, except)) {
    if (want == 0) return;
    want -= std::min(want, take_back(gpu, giver, want));
  }
}

void MemoryBroker::rebalance(std::size_t gpu) {
  Account& account = gpus_[gpu].account;
  std::map<JobKey, std::uint64_t> over;
  for (const auto& [id, holding] : account.holdings()) {
    const auto quota = account.quota(holding.job);
    if (quota) over[holding.job] = minus(account.charged(holding.job), quota->bytes);
  }
  // An overdrawn GPU takes back what lies idle outside of promises.
  std::uint64_t overdrawn = account.overdrawn();
  std::vector<ClientId> ids;
  for (const auto& [id, holding] : account.holdings()) ids.push_back(id);
  for (const ClientId id : ids) {
    const JobKey job = account.holding(id)->job;
    const auto quota = account.quota(job);
    if (quota && over[job] > 0) over[job] -= std::min(over[job], take_back(gpu, id, over[job]));
    if (overdrawn > 0 && (!quota || !quota->reserved)) {
      overdrawn -= std::min(overdrawn, take_back(gpu, id, overdrawn));
    }
  }
}

bool MemoryBroker::make_room(std::size_t gpu, JobKey job, std::uint64_t bytes, Time now) {
  Account& account = gpus_[gpu].account;
  sampler_.measure_if_old(gpu, now);
  gpus_.read_credits(gpu);
  if (account.fits(job, bytes)) return true;
  // Credit that lies idle in jobs without a promise is nobody's yet.
  for (const auto& [id, holding] : std::map(account.holdings())) {
    const auto quota = account.quota(holding.job);
    if (quota && quota->reserved) continue;
    take_back(gpu, id, holding.credit);
    if (account.fits(job, bytes)) return true;
  }
  return false;
}

std::string MemoryBroker::who_holds_what(std::size_t gpu, JobKey except, std::uint64_t asked) {
  const Gpu& at = gpus_[gpu];
  std::string out = fmt::format("the job asks for {} on GPU {}", bytes_text(asked), at.info.index);
  if (at.account.capacity())
    out += fmt::format(", which has {}", bytes_text(*at.account.capacity()));
  std::uint64_t others = at.account.outside();
  for (const auto& [key, job] : registry_.jobs()) {
    const std::uint64_t held = at.account.held(key);
    if (key == except || held == 0) continue;
    others += held;
    out += fmt::format("; job '{}' of {} holds {}", job.name, user_name(job.uid), bytes_text(held));
  }
  if (at.account.outside() > 0) {
    out += fmt::format("; unmanaged processes hold {}", bytes_text(at.account.outside()));
  }
  const std::uint64_t left = minus(at.account.capacity().value_or(0), others);
  return out + fmt::format("; {} are left: ask for less{}", bytes_text(left),
                           others > 0 ? ", or end one of these" : "");
}

void MemoryBroker::join(Client& client, unsigned lane, std::uint64_t used_bytes) {
  const auto found = client.lanes.find(lane);
  if (found == client.lanes.end()) return;
  Gpu& gpu = gpus_[found->second.gpu];
  // Memory that it allocated under another monitor is granted by force; more than the GPU has can't
  // be.
  if (gpu.memory.total_bytes > 0) used_bytes = std::min(used_bytes, gpu.memory.total_bytes);
  if (!client.observer) gpu.account.join(client.id, client.job, used_bytes);
  write_page(gpu, {&client, lane, &found->second}, gpu.account.totals());
}

void MemoryBroker::check_claim(Client& client, unsigned lane, Time now) {
  client.lanes.at(lane).claimed_at.write() = now;
  const Job* job = registry_.find(client.job);
  const std::size_t gpu = client.lanes.at(lane).gpu;
  Account& account = gpus_[gpu].account;
  if (job == nullptr || account.holding(client.id) == nullptr) return;
  constexpr std::uint64_t kAny = ~std::uint64_t{0};
  std::uint64_t most = sampler_.most_of(gpu, client);
  if (job->knobs.swappable) {
    const auto quota = account.quota(job->key);
    most = std::max(most, quota ? quota->bytes : kAny);
  }
  account.believe(client.id, most);
  write_page(gpus_[gpu], {&client, lane, &client.lanes.at(lane)}, account.totals());
}

void MemoryBroker::end_waits(Time now) {
  for (auto& [id, client] : registry_.clients()) {
    for (auto& [lane, state] : client->lanes) {
      if (state.wait->since != Time{0} && !asks(state, now)) state.wait.write().since = Time{0};
    }
  }
}

void MemoryBroker::check_claims(Time now) {
  for (auto& [id, client] : registry_.clients()) {
    for (auto& [lane, state] : client->lanes) {
      if (*state.claimed_at == Time{0} || now - *state.claimed_at < kClaimChecked) continue;
      Account& account = gpus_[state.gpu].account;
      const bool out = account.released(client->job);
      // Memory on its way in is neither here nor there, for so long at most.
      const bool moves = !out && !state.residency.resident();
      if (moves && now - *state.claimed_at < kLeavesWithin) continue;
      state.claimed_at.write() = Time{0};
      sampler_.measure_if_old(state.gpu, now);
      const std::uint64_t seen = sampler_.most_of(state.gpu, *client);
      const Account::Holding* holding = account.holding(id);
      const std::uint64_t away =
          out && holding != nullptr ? away_bytes(*holding, state.residency) : 0;
      account.believe(id, seen + std::min(away, ~seen));
    }
  }
}

void MemoryBroker::leave(const Client& client) {
  for (const auto& [lane, state] : client.lanes) {
    gpus_[state.gpu].account.leave(client.id);
    gpus_[state.gpu].stale = true;
  }
}

std::uint64_t MemoryBroker::missing(const Account& account, const Client& client,
                                    std::uint64_t bytes) {
  return minus(bytes, account.holding(client.id)->credit);
}

void MemoryBroker::gather(std::size_t gpu, const Client& client, std::uint64_t bytes, Time now) {
  const Account& account = gpus_[gpu].account;
  if (account.quota(client.job) || gpus_[gpu].stale) sampler_.measure_if_old(gpu, now);
  gpus_.read_credits(gpu);
  rebalance(gpu);
  const auto lacks = [&] { return missing(account, client, bytes) > account.headroom(client.job); };
  if (lacks()) {
    const std::uint64_t needed = rounded_up(missing(account, client, bytes));
    take_from_givers(gpu, client.job, client.id, minus(needed, account.headroom(client.job)));
  }
  if (lacks()) {
    sampler_.measure_if_old(gpu, now);
    rebalance(gpu);
  }
}

wire::Charged MemoryBroker::charge(Client& client, unsigned lane, std::uint64_t bytes, Time now) {
  const auto found = client.lanes.find(lane);
  if (client.observer || found == client.lanes.end()) return pass(client, lane, bytes);
  wire::Charged out{};
  const std::size_t gpu = found->second.gpu;
  Account& account = gpus_[gpu].account;
  gather(gpu, client, bytes, now);
  const std::uint64_t lacks = missing(account, client, bytes);
  const std::uint64_t room = account.headroom(client.job);
  const Job* job = registry_.find(client.job);
  // One that takes turns gets nothing while it is out: it would hold room that it can't use.
  const bool out_of_turn =
      job != nullptr && job->knobs.oversubscribe && released(job->memory->state);
  if (!out_of_turn && waits_for_parked(gpu, client, found->second, lacks, now)) {
    out.verdict = wire::kWait;
    out.lacks = wire::kParkedMakesWay;
    return out;
  }
  const auto has_a_way_back = [&](std::uint64_t more) {
    if (job == nullptr || !job->knobs.oversubscribe) return true;
    const Request request{gpu, *job, more};
    return leaves_a_way_back(registry_, gpus_, request, host_room_with(registry_, gpus_, request),
                             Leaves::kAllThatTheyUse);
  };
  if (lacks <= room && (lacks == 0 || (!out_of_turn && has_a_way_back(lacks)))) {
    const std::uint64_t need = std::min(rounded_up(lacks), room);
    const std::uint64_t most = need == 0 ? 0 : account.grant_size(client.job, need);
    const std::uint64_t size = has_a_way_back(most) ? most : lacks;
    account.granted(client.id, size);
    client.page->grant(lane, size);
    found->second.wait.write().since = Time{0};
    out.verdict = wire::kGranted;
    out.granted_bytes = size;
  } else {
    found->second.wait.write().lacks_bytes = lacks;
    out = refuse(gpu, client, found->second, now);
  }
  write_pages(gpu, client.job);
  out.available_bytes = account.available(client.id);
  return out;
}

// Or goes on with it, if it still asks.
void MemoryBroker::begin_wait(Client::Lane& lane, Time now) {
  MemoryWait& wait = lane.wait.write();
  if (wait.since == Time{0} || !asks(lane, now)) wait.since = now;
  wait.last_asked = now;
}

bool MemoryBroker::waits_for_parked(std::size_t gpu, const Client& client, Client::Lane& lane,
                                    std::uint64_t lacks, Time now) {
  const Account& account = gpus_[gpu].account;
  const auto quota = account.quota(client.job);
  const std::uint64_t most =
      quota ? minus(quota->bytes, account.charged(client.job)) : account.capacity().value_or(0);
  if (lacks == 0 || (quota && lacks > most)) return false;
  // A promise counts already, used or not.
  const bool promised = quota && quota->reserved;
  const std::uint64_t more = promised ? 0 : lacks;
  const std::uint64_t beyond = promised ? 0 : minus(most, lacks);
  const bool would_fit = more == 0 || account.overdrawn(more) == 0;
  if (!would_fit || !parking::make_way(registry_, gpus_, gpu, more, now, beyond)) return false;
  begin_wait(lane, now);
  MemoryWait& wait = lane.wait.write();
  wait.wants_turn = false;
  wait.lacks_bytes = lacks;
  return now - wait.since < kLeavesWithin;
}

wire::Charged MemoryBroker::refuse(std::size_t gpu, Client& client, Client::Lane& lane, Time now) {
  const Job* job = registry_.find(client.job);
  const Account& account = gpus_[gpu].account;
  const auto quota = account.quota(client.job);
  begin_wait(lane, now);
  MemoryWait& wait = lane.wait.write();
  // Memory of the job that is swapped out will return: wait instead of failing.
  wait.wants_turn = true;
  wire::Charged out{};
  out.verdict = wire::kWait;
  if (job != nullptr && released(job->memory->state)) return out;
  TurnsOutlook turns;
  if (job != nullptr && job->knobs.oversubscribe) {
    const Request request{gpu, *job, wait.lacks_bytes};
    turns = turns_outlook(registry_, gpus_, request, wait.since, now);
  }
  if (turns.serve) return out;
  // Memory kept by jobs that are out leaves for any job, unless others come first for too long.
  const bool allowed =
      !quota || wait.lacks_bytes <= minus(quota->bytes, account.charged(client.job));
  if (allowed && turns.way_back && now - wait.since < kLeavesWithin &&
      wait.lacks_bytes <= kept_bytes(registry_, gpus_, gpu, wait.since, now)) {
    return out;
  }
  wait.wants_turn = false;
  const bool may_wait = job != nullptr && job->knobs.on_oom == OnOom::kWait;
  if (may_wait && now - wait.since < job->knobs.oom_timeout && !everybody_waits(gpu, client, now)) {
    return out;
  }
  wait.since = Time{0};
  out.verdict = may_wait ? wire::kWaitsInVain : quota ? wire::kOverQuota : wire::kGpuFull;
  if (!turns.host_lacks) return out;
  out.lacks = wire::kHostPoolLacks;
  spdlog::info(
      "job '{}' does not get {}: the host pool of {} is too small for the jobs that take turns on "
      "this GPU; start the monitor with a larger 'switchyardd --host-pool SIZE'",
      job->name, bytes_text(wait.lacks_bytes), bytes_text(gpus_.host_pool_bytes));
  return out;
}

// Whether all who could give memory to `asking` wait for memory themselves. Within a promise these
// are the job's own processes. Outside of promises they are all that hold anything, since the end
// of a job with a promise helps too.
bool MemoryBroker::everybody_waits(std::size_t gpu, const Client& asking, Time now) {
  const Account& account = gpus_[gpu].account;
  const auto quota = account.quota(asking.job);
  const bool own_promise = quota && quota->reserved;
  for (const ClientOnGpu& each : gpus_.clients_on(gpu)) {
    if (each.client->id == asking.id || (own_promise && each.client->job != asking.job)) continue;
    const Account::Holding* holding = account.holding(each.client->id);
    if (holding == nullptr || holding->used() + holding->overhead == 0) continue;
    if (!asks(*each.state, now)) return false;
  }
  if (own_promise) return true;
  for (const auto& [key, job] : registry_.jobs()) {
    // A promise without a process yet will be used or ended by somebody who is not waiting.
    if (key != asking.job && job.clients.empty() && account.held(key) > 0) return false;
  }
  return account.outside() == 0;
}

}  // namespace switchyard::monitor
