// Quotas: where they are promised, and what becomes of the promises of memory that leaves.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>

#include "monitor/core/lanes.h"
#include "monitor/core/minus.h"
#include "monitor/residency/memory_broker.h"
#include "monitor/residency/parking.h"

namespace switchyard::monitor {
std::vector<std::size_t> MemoryBroker::gpus_of(const Job& job) const {
  std::vector<std::size_t> out;
  if (job.gpus.settled()) {
    const JobGpus::Set& named = job.gpus.named();
    const JobGpus::Set& used = job.gpus.used();
    std::set_union(named.begin(), named.end(), used.begin(), used.end(), std::back_inserter(out));
    return out;
  }
  out.assign(job.gpus.seen().begin(), job.gpus.seen().end());
  // Not known yet: it may become any of them.
  if (out.empty()) {
    for (std::size_t i = 0; i < gpus_.size(); ++i) out.push_back(i);
  }
  return out;
}

// True: it uses one more.
bool MemoryBroker::note_use(Job& job) const {
  bool more = false;
  for_lanes(registry_, job, [&](const Client& client, unsigned lane, const Client::Lane& state) {
    const Account::Holding* holding = gpus_[state.gpu].account.holding(client.id);
    const bool has_memory = holding != nullptr && holding->used() != 0;
    if (has_memory || client.page->report(lane).has_context()) {
      more = job.gpus.use(state.gpu) || more;
    }
  });
  return more;
}

bool MemoryBroker::follow_use(Time now) {
  bool fewer = false;
  for (auto& [key, job] : registry_.jobs()) {
    // One that has moved is settled without a quota, too.
    if (!job.knobs.memory && !job.gpus.settled()) continue;
    const bool more = note_use(job);
    if (!job.knobs.memory || job.gpus.used().empty()) continue;
    const bool settles = job.gpus.may_settle(now);
    if (!settles && !(job.gpus.settled() && more)) continue;
    job.gpus.settle();
    fewer = fewer || settles;
    std::string why;
    if (reserve(job, now, why) < gpus_of(job).size()) {
      spdlog::warn("the memory of job '{}' is not reserved on all GPUs that it uses: {}", job.name,
                   why);
    }
  }
  return fewer;
}

// None where it has none, or a part of a GPU's memory that nobody knows.
std::optional<std::uint64_t> MemoryBroker::quota_on(const Job& job, std::size_t gpu) const {
  if (!job.knobs.memory) return std::nullopt;
  const std::uint64_t bytes = job.knobs.memory->of(gpus_.gives(gpu));
  return bytes != 0 ? std::optional(bytes) : std::nullopt;
}

std::size_t MemoryBroker::reserve(const Job& job, Time now, std::string& why) {
  const auto applies = gpus_of(job);
  std::size_t promised = 0;
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    Account& account = gpus_[i].account;
    const bool here = std::find(applies.begin(), applies.end(), i) != applies.end();
    const auto asked = quota_on(job, i);
    const auto most = asked ? asked : job.ceiling_bytes;
    // A job that uses no memory of a GPU yet may do so later, up to its quota.
    if (!most || !(here || job.gpus.seen().count(i) != 0)) {
      account.clear_quota(job.key);
      continue;
    }
    if (!asked || !here) {
      account.set_quota(job.key, {*most, false, true});
      continue;
    }
    const auto had = account.quota(job.key);
    // Suspended: it is promised again when its memory comes back, where it was or fits.
    if (job.memory->state == residency::State::kSwappedOut) {
      const bool never = had && !had->ceiling && !had->returns;
      const bool returns = !never || make_room(i, job.key, *asked, now);
      account.set_quota(job.key, {.bytes = *asked, .returns = returns});
      ++promised;
      continue;
    }
    // Earlier promises stay, even if more than there is has been taken since.
    const bool fits =
        (had && had->reserved && *asked <= had->bytes) || make_room(i, job.key, *asked, now);
    account.set_quota(job.key, {*asked, fits});
    if (fits) {
      ++promised;
    } else if (why.empty()) {
      why = who_holds_what(i, job.key, *asked);
    }
  }
  return promised;
}

bool MemoryBroker::can_become(const Job& job, const MemoryQuota& asked, Time now,
                              std::string& why) {
  for (const std::size_t gpu : gpus_of(job)) {
    const std::uint64_t bytes = asked.of(gpus_.gives(gpu));
    const auto quota = gpus_[gpu].account.quota(job.key);
    // Less than now is always granted: below use it refuses new allocations only.
    if (quota && !quota->ceiling && bytes <= quota->bytes) continue;
    if (make_room(gpu, job.key, bytes, now)) continue;
    why = who_holds_what(gpu, job.key, bytes);
    return false;
  }
  return true;
}

bool MemoryBroker::has_room(const Job& job, std::size_t gpu, std::uint64_t bytes, Time now,
                            std::string& why) {
  if (make_room(gpu, job.key, bytes, now)) return true;
  why = who_holds_what(gpu, job.key, bytes);
  return false;
}

void MemoryBroker::forget(const Job& job) {
  for (Gpu& gpu : gpus_.all()) {
    gpu.account.clear_quota(job.key);
    gpu.account.keep(job.key, 0);
    gpu.account.set_released(job.key, false);
  }
}

void MemoryBroker::suspend(const Job& job, bool under_another) {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    Account& account = gpus_[i].account;
    if (const auto quota = account.quota(job.key)) {
      const bool promised = quota->reserved || quota->returns || under_another;
      account.set_quota(job.key,
                        {quota->bytes, false, quota->ceiling, promised && !quota->ceiling});
    }
    gpus_.read_credits(i);
    for (const ClientId id : job.clients) {
      if (const Account::Holding* holding = account.holding(id)) take_back(i, id, holding->credit);
    }
    // Memory that it says is away and is not shows as overhead before another job is given it.
    gpus_[i].stale = true;
  }
}

bool MemoryBroker::reclaim(const Job& job, Time now) {
  const auto applies = gpus_of(job);
  for (const std::size_t gpu : applies) {
    gpus_.read_credits(gpu);
    Account& account = gpus_[gpu].account;
    if (!make_room(gpu, job.key, account.in_full(job.key), now)) return false;
    // Memory parked there leaves first: work is held until then anyway.
    const std::uint64_t more = minus(account.in_full(job.key), account.held(job.key));
    if (parking::make_way(registry_, gpus_, gpu, more, now)) return false;
  }
  for (const std::size_t gpu : applies) {
    Account& account = gpus_[gpu].account;
    if (const auto quota = account.quota(job.key)) {
      account.set_quota(job.key, {quota->bytes, quota->returns || quota->reserved, quota->ceiling});
    }
  }
  gpus_.set_released(job.key, false);
  return true;
}

}  // namespace switchyard::monitor
