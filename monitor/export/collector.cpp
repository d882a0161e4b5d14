#include "monitor/export/collector.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "monitor/core/lanes.h"
#include "switchyard/status.h"

namespace switchyard::monitor::metrics {
namespace {

std::string own_hostname() {
  char name[HOST_NAME_MAX + 1] = "";
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

bool same_labels(const Job& a, const Job& b) {
  return a.name == b.name && a.user == b.user && a.priority == b.priority && a.place == b.place &&
         a.pod == b.pod;
}

constexpr status::Code kNothing{status::State::kIdle, status::Reason::kNoCuda};

// It had a context there, or was held back there.
bool has_used(const Usage::Sums& sums, std::size_t gpu) {
  const auto times = sums.times.find(gpu);
  return times != sums.times.end() &&
         std::any_of(times->second.begin(), times->second.end(),
                     [](const auto& each) { return each.first != kNothing; });
}

Gpu see(Monitor& monitor, std::size_t gpu) {
  const GpuAccounts::Gpu& at = monitor.gpus()[gpu];
  Gpu out{.index = at.info.index,
          .uuid = at.info.uuid_text,
          .pci_bus_id = at.info.pci_bus_id,
          .model = at.info.name,
          .unmanaged_processes = at.foreign_processes.size(),
          .backend = monitor.scheduler().in_force(gpu).name()};
  if (at.memory.total_bytes > 0) {
    out.memory_total_bytes = at.memory.total_bytes;
    out.memory_used_bytes = at.memory.used_bytes;
  }
  for (const GpuAccounts::ForeignProcess& each : at.foreign_processes) {
    out.unmanaged_memory_bytes += each.bytes;
  }
  return out;
}

// Two users may have one name.
std::vector<User> see_users(const Usage::Users& users) {
  std::map<std::pair<std::string, std::size_t>, double> sums;
  for (const auto& [uid, gpus] : users) {
    for (const auto& [gpu, seconds] : gpus) sums[{user_name(uid), gpu}] += seconds;
  }
  std::vector<User> out;
  out.reserve(sums.size());
  for (const auto& [key, seconds] : sums) out.push_back({key.first, key.second, seconds});
  return out;
}

std::vector<UnmanagedUser> see_unmanaged(const Unmanaged::Users& users) {
  std::map<std::pair<std::string, std::size_t>, UnmanagedUser> all;
  for (const auto& [uid, gpus] : users) {
    const std::string name = uid == HistoryEvent::kNobody ? "unknown" : user_name(uid);
    for (const auto& [gpu, sums] : gpus) {
      UnmanagedUser& user = all.try_emplace({name, gpu}, UnmanagedUser{name, gpu}).first->second;
      user.gpu_seconds += sums.gpu_seconds;
      user.bytes += sums.bytes;
    }
  }
  std::vector<UnmanagedUser> out;
  out.reserve(all.size());
  for (auto& [key, user] : all) out.push_back(std::move(user));
  return out;
}

}  // namespace

Collector::Collector(Monitor& monitor, std::string pod_links)
    : monitor_(monitor),
      pods_(std::move(pod_links)),
      hostname_(own_hostname()),
      start_time_seconds_(seconds(
          std::chrono::duration_cast<Time>(std::chrono::system_clock::now().time_since_epoch()))) {
  monitor_.statistics().counters.begin();
  monitor_.when_a_job_ends([this](const monitor::Job& job, Time now) { ends(job, now); });
}

Collector::~Collector() { monitor_.when_a_job_ends(nullptr); }

void Collector::add_gauges(const monitor::Job& job, OnGpu& out) const {
  const Account& account = monitor_.gpus()[out.gpu].account;
  if (const auto quota = account.quota(job.key)) out.quota_bytes = quota->bytes;
  double got = -1, load = -1;
  for_lanes(monitor_.registry(), job,
            [&](const Client& client, unsigned, const Client::Lane& lane) {
              if (lane.gpu != out.gpu) return;
              if (const Account::Holding* holding = account.holding(client.id)) {
                out.used_bytes += holding->used() + holding->overhead;
                out.swapped_bytes += std::min(lane.residency.away_bytes(), holding->used());
              }
              if (lane.share_got >= 0) got = std::max(got, 0.0) + lane.share_got;
              if (lane.load >= 0) load = std::max(load, 0.0) + lane.load;
            });
  // As `ps` has it.
  if (const double share = got >= 0 ? got : load; share >= 0) out.share = std::min(share, 1.0);
}

OnGpu Collector::see(const monitor::Job& job, std::size_t gpu) const {
  OnGpu out{.gpu = gpu};
  const Usage::Sums& usage = monitor_.statistics().usage.of(job);
  if (const auto sums = usage.gpus.find(gpu); sums != usage.gpus.end()) {
    out.sums.gpu_seconds = sums->second.gpu_seconds;
    out.sums.estimated_seconds = sums->second.estimated_seconds;
    out.sums.slices_seconds = sums->second.slices_seconds;
    out.sums.waits_seconds = sums->second.waits_seconds;
  }
  const Counters::Gpus& counters = monitor_.statistics().counters.of(job.key);
  if (const auto counts = counters.find(gpu); counts != counters.end()) {
    out.sums.counters = counts->second;
  }
  const status::JobStatus& status = monitor_.statuses().of(job);
  out.state = static_cast<std::size_t>(status.job.code.state);
  for (const status::JobStatus::OnGpu& on : status.gpus) {
    if (on.gpu == gpu) out.state = static_cast<std::size_t>(on.status.code.state);
  }
  add_gauges(job, out);
  return out;
}

Job Collector::see(const monitor::Job& job, Time now) {
  Job out{.name = job.name,
          .user = user_name(job.uid),
          .priority = to_string(job.knobs.priority),
          .place = job.place,
          .pod = pods_.of(job.place.container, now),
          .high = job.knobs.priority == Priority::kHigh,
          .stalled_ranks = monitor_.statistics().stalls.of(job).size()};
  if (job.knobs.limit > 0) out.limit = job.knobs.limit;
  const Usage::Sums& usage = monitor_.statistics().usage.of(job);
  // Also a GPU that it has left: its counters stay.
  for (const auto& [gpu, times] : usage.times) {
    if (!has_used(usage, gpu)) continue;
    out.gpus.push_back(see(job, gpu));
    if (!job.gpus.seen().contains(gpu)) out.gpus.back().state = kEnded;
  }
  // One that has not begun is to be seen as well, once.
  if (out.gpus.empty() && !job.gpus.seen().empty())
    out.gpus.push_back(see(job, *job.gpus.seen().begin()));
  return out;
}

void Collector::continue_ended(JobKey key, const Job& seen) {
  std::erase_if(ended_, [&](const Ended& ended) {
    if (!same_labels(ended.job, seen)) return false;
    for (const OnGpu& on : ended.job.gpus) before_[key][on.gpu] += on.sums;
    return true;
  });
}

Job Collector::whole(const monitor::Job& job, Time now) {
  Job out = see(job, now);
  continue_ended(job.key, out);
  if (const auto before = before_.find(job.key); before != before_.end()) {
    for (OnGpu& on : out.gpus) {
      if (const auto sums = before->second.find(on.gpu); sums != before->second.end()) {
        on.sums += sums->second;
      }
    }
  }
  return out;
}

void Collector::ends(const monitor::Job& job, Time now) {
  Ended ended{whole(job, now), now};
  ended.job.ended = true;
  // What it began at on GPUs that it did not use goes on as well.
  if (const auto before = before_.find(job.key); before != before_.end()) {
    for (const auto& [gpu, sums] : before->second) {
      const bool there = std::any_of(ended.job.gpus.begin(), ended.job.gpus.end(),
                                     [gpu = gpu](const OnGpu& on) { return on.gpu == gpu; });
      if (!there) ended.job.gpus.push_back({.gpu = gpu, .sums = sums});
    }
    before_.erase(before);
  }
  for (OnGpu& on : ended.job.gpus) on.state = kEnded;
  ended_.push_back(std::move(ended));
  forget(now);
}

void Collector::forget(Time now) {
  while (!ended_.empty() && (ended_.size() > kMostEnded || now - ended_.front().at > kEndedStay)) {
    ended_.pop_front();
  }
}

Snapshot Collector::look(Time now) {
  forget(now);
  Snapshot out{.version = kVersion,
               .driver_version = monitor_.door().driver_version(),
               .hostname = hostname_,
               .start_time_seconds = start_time_seconds_,
               .host_pool_bytes = monitor_.settings().host_pool_bytes,
               .living_jobs = monitor_.registry().jobs().size(),
               .users = see_users(monitor_.statistics().usage.users()),
               .unmanaged = see_unmanaged(monitor_.unmanaged().users())};
  for (const auto& [id, client] : monitor_.registry().clients()) {
    for (const auto& [number, lane] : client->lanes) {
      out.host_pool_used_bytes += lane.residency.host_bytes;
    }
  }
  for (std::size_t gpu = 0; gpu < monitor_.gpus().size(); ++gpu) {
    out.gpus.push_back(metrics::see(monitor_, gpu));
  }
  for (const auto& [uid, gpus] : monitor_.statistics().usage.users()) {
    for (const auto& [gpu, seconds] : gpus) out.gpus[gpu].busy_seconds += seconds;
  }
  for (const auto& [key, job] : monitor_.registry().jobs()) out.jobs.push_back(whole(job, now));
  for (auto ended = ended_.rbegin(); ended != ended_.rend(); ++ended) {
    out.jobs.push_back(ended->job);
  }
  return out;
}

}  // namespace switchyard::monitor::metrics
