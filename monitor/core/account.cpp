#include "monitor/core/account.h"

#include <algorithm>
#include <utility>

#include "monitor/core/minus.h"

namespace switchyard::monitor {
namespace {

constexpr std::uint64_t kMiB = 1ull << 20;
// Below this what is left of a quota is handed out as asked for, not in chunks.
constexpr std::uint64_t kChunkFrom = 256 * kMiB;
constexpr std::uint64_t kFreeChunk = 256 * kMiB;

// Sums of what hostile clients claim must not wrap around.
std::uint64_t plus(std::uint64_t a, std::uint64_t b) { return a + b < a ? ~0ull : a + b; }

}  // namespace

std::optional<Account::Quota> Account::quota(JobKey job) const {
  const auto found = quotas_.find(job);
  if (found == quotas_.end()) return std::nullopt;
  return found->second;
}

std::uint64_t Account::short_of(JobKey job, std::uint64_t bytes) const {
  if (!capacity_) return 0;
  const std::uint64_t others = minus(held_by_all(), held(job));
  return minus(plus(plus(others, outside_), bytes), *capacity_);
}

void Account::set_quota(JobKey job, Quota quota) {
  quotas_[job] = quota;
  held_by_all_.reset();
}

void Account::clear_quota(JobKey job) {
  quotas_.erase(job);
  held_by_all_.reset();
}

void Account::changed(JobKey job) {
  held_by_all_.reset();
  parked_.reset();
  const auto found = sums_.find(job);
  if (found != sums_.end()) found->second.fresh = false;
}

template <typename Change>
void Account::change(ClientId client, Change change) {
  const auto found = holdings_.find(client);
  if (found == holdings_.end()) return;
  const Holding before = found->second;
  change(found->second);
  if (!(found->second == before)) changed(before.job);
}

const Account::Sums& Account::sums(JobKey job) const {
  static const Sums none;
  const auto found = sums_.find(job);
  if (found == sums_.end()) return none;
  Sums& sums = found->second;
  if (sums.fresh) return sums;
  sums.granted = sums.credit = sums.overhead = sums.charged = sums.present = sums.parked = 0;
  for (const ClientId client : sums.clients) {
    const Holding& holding = holdings_.at(client);
    sums.granted = plus(sums.granted, holding.granted);
    sums.credit = plus(sums.credit, holding.credit);
    sums.overhead = plus(sums.overhead, holding.overhead);
    sums.charged = plus(sums.charged, plus(holding.granted, holding.overhead_in_full()));
    sums.present = plus(sums.present, present(holding));
    sums.parked = plus(sums.parked, plus(holding.parked, holding.parking));
  }
  walked_ += sums.clients.size();
  sums.fresh = true;
  return sums;
}

void Account::join(ClientId client, JobKey job, std::uint64_t granted) {
  put_in(client, Holding{.job = job, .granted = granted});
}

void Account::put_in(ClientId client, const Holding& holding) {
  take_out(client);
  holdings_[client] = holding;
  sums_[holding.job].clients.insert(client);
  changed(holding.job);
}

void Account::believe(ClientId client, std::uint64_t used_bytes) {
  change(client, [&](Holding& holding) {
    holding.granted = std::min(holding.granted, plus(used_bytes, holding.credit));
    holding.away = std::min(holding.away, holding.used());
    holding.coming = std::min(holding.coming, holding.away);
  });
}

const Account::Holding* Account::holding(ClientId client) const {
  const auto found = holdings_.find(client);
  return found == holdings_.end() ? nullptr : &found->second;
}

void Account::set_credit(ClientId client, std::uint64_t credit) {
  change(client, [&](Holding& holding) {
    holding.credit = std::min(credit, holding.granted);
    holding.away = std::min(holding.away, holding.used());
    holding.coming = std::min(holding.coming, holding.away);
  });
}

void Account::set_away(ClientId client, std::uint64_t bytes, std::uint64_t coming) {
  change(client, [&](Holding& holding) {
    holding.away = std::min(bytes, holding.used());
    holding.coming = std::min(coming, holding.away);
  });
}

void Account::keep(JobKey job, std::uint64_t bytes) {
  if (bytes == 0) {
    kept_.erase(job);
  } else {
    kept_[job] = bytes;
  }
  held_by_all_.reset();
  parked_.reset();
}

std::uint64_t Account::kept(JobKey job) const {
  const auto found = kept_.find(job);
  return found == kept_.end() ? 0 : found->second;
}

std::optional<Account::Holding> Account::take_out(ClientId client) {
  const auto found = holdings_.find(client);
  if (found == holdings_.end()) return std::nullopt;
  const Holding holding = found->second;
  holdings_.erase(found);
  const auto sums = sums_.find(holding.job);
  sums->second.clients.erase(client);
  if (sums->second.clients.empty()) sums_.erase(sums);
  changed(holding.job);
  return holding;
}

void Account::set_released(JobKey job, bool released) {
  if (released) {
    released_.insert(job);
  } else {
    released_.erase(job);
  }
  changed(job);
}

void Account::set_overhead(ClientId client, std::uint64_t bytes) {
  change(client, [&](Holding& holding) {
    holding.overhead = bytes;
    if (!holding.detached && bytes != 0) holding.overhead_away = 0;
  });
}

void Account::set_parked(ClientId client, std::uint64_t bytes, std::uint64_t coming) {
  change(client, [&](Holding& holding) {
    holding.parked = bytes;
    holding.parking = coming;
  });
}

void Account::set_detached(ClientId client, bool detached) {
  change(client, [&](Holding& holding) {
    holding.detached = detached;
    if (!detached) return;
    holding.overhead_away = holding.overhead_in_full();
    holding.overhead = 0;
  });
}

void Account::granted(ClientId client, std::uint64_t bytes) {
  change(client, [&](Holding& holding) {
    holding.granted = plus(holding.granted, bytes);
    holding.credit = plus(holding.credit, bytes);
  });
}

void Account::taken_back(ClientId client, std::uint64_t bytes) {
  change(client, [&](Holding& holding) {
    holding.granted = minus(holding.granted, bytes);
    holding.credit = minus(holding.credit, bytes);
  });
}

std::uint64_t Account::charged(JobKey job) const { return sums(job).charged; }

std::uint64_t Account::in_full(JobKey job) const {
  const auto promise = quota(job);
  const bool promised = promise && (promise->reserved || promise->returns);
  return std::max(charged(job), promised ? promise->bytes : 0);
}

std::uint64_t Account::counted(const Holding& holding) const {
  return minus(holding.used(), released(holding.job) ? holding.away - holding.coming : 0);
}

// The part of a holding that is on the device, as far as it counts: credit may be put to use at any
// time.
std::uint64_t Account::present(const Holding& holding) const {
  const std::uint64_t overhead =
      released(holding.job) ? holding.overhead : holding.overhead_in_full();
  return plus(plus(counted(holding), holding.credit), overhead);
}

std::uint64_t Account::held(JobKey job) const {
  const auto promise = quota(job);
  const std::uint64_t there = sums(job).present;
  return std::max({there, promise && promise->reserved ? promise->bytes : 0, kept(job)});
}

std::uint64_t Account::held_by_all() const {
  if (held_by_all_) return *held_by_all_;
  std::set<JobKey> jobs;
  for (const auto& [job, sums] : sums_) jobs.insert(job);
  for (const auto& [job, promise] : quotas_) jobs.insert(job);
  for (const auto& [job, bytes] : kept_) jobs.insert(job);
  std::uint64_t all = 0;
  for (const JobKey job : jobs) all = plus(all, held(job));
  walked_ += jobs.size();
  held_by_all_ = all;
  return all;
}

std::uint64_t Account::reserved() const {
  std::uint64_t sum = 0;
  for (const auto& [job, promise] : quotas_) {
    if (promise.reserved) sum = plus(sum, promise.bytes);
  }
  return sum;
}

std::uint64_t Account::free() const {
  if (!capacity_) return ~0ull;
  return minus(minus(*capacity_, outside_), plus(held_by_all(), parked()));
}

std::uint64_t Account::overdrawn(std::uint64_t more) const {
  if (!capacity_) return 0;
  return minus(plus(plus(held_by_all(), outside_), more), *capacity_);
}

std::uint64_t Account::parked() const {
  if (parked_) return *parked_;
  std::uint64_t all = 0;
  for (const auto& [job, each] : sums_) {
    const std::uint64_t there = sums(job).parked;
    if (there != 0) all = plus(all, minus(there, kept(job)));
  }
  walked_ += sums_.size();
  parked_ = all;
  return all;
}

std::uint64_t Account::in_the_way(std::uint64_t more) const {
  const std::uint64_t here = parked();
  return std::min(here, overdrawn(plus(more, here)));
}

std::uint64_t Account::headroom(JobKey job) const {
  const auto promise = quota(job);
  if (!promise) return free();
  const std::uint64_t left = minus(promise->bytes, charged(job));
  return promise->reserved ? left : std::min(left, free());
}

std::uint64_t Account::grant_size(JobKey job, std::uint64_t need) const {
  const std::uint64_t room = headroom(job);
  std::uint64_t chunk = need;
  if (quota(job)) {
    if (room >= kChunkFrom) chunk = std::max(need, room / 4);
  } else {
    chunk = std::max(need, kFreeChunk);
  }
  return std::min(chunk, room);
}

std::vector<ClientId> Account::givers(JobKey job, ClientId except) const {
  const auto promise = quota(job);
  std::vector<ClientId> out;
  for (const auto& [client, holding] : holdings_) {
    if (client == except || holding.credit == 0) continue;
    const bool sibling = holding.job == job;
    const auto theirs = quota(holding.job);
    // Credit inside another job's promise is of no use to anybody else.
    const bool from_the_free = !theirs || !theirs->reserved;
    if (sibling || (from_the_free && (!promise || !promise->reserved))) out.push_back(client);
  }
  std::stable_sort(out.begin(), out.end(), [this](ClientId a, ClientId b) {
    return holdings_.at(a).credit > holdings_.at(b).credit;
  });
  return out;
}

Account::Totals::Sums Account::totals(JobKey job) const {
  const Sums& has = sums(job);
  return {has.granted, has.credit, has.overhead};
}

Account::Totals Account::totals() const {
  Totals out;
  for (const auto& [job, each] : sums_) {
    const Totals::Sums has = out.jobs[job] = totals(job);
    const auto promise = quota(job);
    if (!promise || !promise->reserved) out.loose_credit = plus(out.loose_credit, has.credit);
  }
  out.free = free();
  return out;
}

std::uint64_t Account::others_used(ClientId client, const Totals& totals) const {
  const Holding* mine = holding(client);
  if (mine == nullptr) return 0;
  const Totals::Sums& sums = totals.jobs.at(mine->job);
  return plus(minus(minus(sums.granted, sums.credit), mine->used()), sums.overhead);
}

std::uint64_t Account::available(ClientId client, const Totals& totals) const {
  const Holding* mine = holding(client);
  if (mine == nullptr) return 0;
  const Totals::Sums& sums = totals.jobs.at(mine->job);
  const auto promise = quota(mine->job);
  const std::uint64_t siblings = minus(sums.credit, mine->credit);
  const std::uint64_t charged = plus(sums.granted, sums.overhead);
  const std::uint64_t loose = plus(totals.free, minus(totals.loose_credit, mine->credit));
  if (!promise) return loose;
  const std::uint64_t left = minus(promise->bytes, minus(charged, siblings));
  return promise->reserved ? left : std::min(left, loose);
}

std::uint64_t OverheadMeter::reading(std::uint64_t beyond_bytes) {
  before_last_ = std::exchange(last_, beyond_bytes);
  return value();
}

std::uint64_t OverheadMeter::value() const { return std::max(last_, before_last_); }

void UnattributedMeter::reading(std::uint64_t bytes) {
  const auto [low, high] = std::minmax({bytes, std::exchange(last_, bytes)});
  value_ = std::clamp(value_, low, high);
}

}  // namespace switchyard::monitor
