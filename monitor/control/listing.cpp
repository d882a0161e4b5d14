#include "monitor/control/listing.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "monitor/control/communicator_listing.h"
#include "monitor/control/guard_listing.h"
#include "monitor/control/job_on_gpu.h"
#include "monitor/control/reply.h"
#include "monitor/control/settings_commands.h"
#include "monitor/control/statistics_listing.h"
#include "monitor/control/unmanaged_listing.h"
#include "monitor/core/lanes.h"
#include "monitor/islands/failures.h"
#include "monitor/islands/members.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;

// Slices were measured on this family of drivers; elsewhere `doctor` verifies them.
constexpr char kTestedDriver[] = "580.";

template <typename Value>
json or_null(const std::optional<Value>& value) {
  return value ? json(*value) : json(nullptr);
}

// A part of a listing ends when it has about so many bytes. That is a small part of a frame, and of
// the time that the loop may take for one request.
constexpr std::size_t kPartBytes = 128 * 1024;

// At least what a job takes in a listing, its longest names aside.
std::size_t listed_bytes(const Job& job, bool brief) {
  if (brief) return 700 + 600 * job.gpus.seen().size() + 100 * job.clients.size();
  return 2700 + 2000 * job.gpus.seen().size() + (100 + kProgressBytes) * job.clients.size();
}

// Whether what a paused job had queued has ended: true, false, or null where nobody knows.
json list_drained(Monitor& monitor, JobKey key, Time now) {
  Job* job = monitor.registry().find(key);
  if (job == nullptr || !job->pause->on) return nullptr;
  const Drained state = drained(monitor.registry(), *job, now);
  return state == Drained::kUnknown ? json() : json(state == Drained::kYes);
}

// What `ps` says of the job, or of the job on one GPU.
void list_state(Monitor& monitor, const status::Status& status, Time now, json& out) {
  const std::string reason = status::reason_text(status);
  const status::By& by = status.by;
  const std::string user = by.uid ? user_name(*by.uid) : "";
  out["state"] = key_of(status.code.state);
  const char* key = key_of(status.code.reason);
  out["reason"] = key != nullptr ? json(key) : json(nullptr);
  out["state_reason"] = reason.empty() ? json(nullptr) : json(reason);
  out["state_text"] = text_of(status, by.job == 0 ? user : "");
  out["state_since_seconds"] = seconds(now - status.since);
  out["state_by"] = nullptr;
  if (!by.known()) return;
  const Job* job = monitor.registry().find(by.job);
  out["state_by"] = {{"job", job != nullptr ? json(job->id) : json(nullptr)},
                     {"name", job != nullptr ? json(job->name) : json(nullptr)},
                     {"user", user}};
}

// All of its life on one GPU.
json list_times(const Usage::Sums& sums, std::size_t gpu) {
  json out = json::array();
  const auto times = sums.times.find(gpu);
  if (times == sums.times.end()) return out;
  for (const auto& [code, span] : times->second) {
    const char* reason = key_of(code.reason);
    out.push_back({{"state", key_of(code.state)},
                   {"reason", reason != nullptr ? json(reason) : json(nullptr)},
                   {"seconds", seconds(span)}});
  }
  return out;
}

json list_gpu(Monitor& monitor, std::size_t gpu) {
  const GpuAccounts::Gpu& at = monitor.gpus().all()[gpu];
  const std::string driver = monitor.door().driver_version();
  const MeansInForce means = monitor.scheduler().in_force(gpu);
  std::size_t clients = 0;
  std::set<JobKey> jobs;
  for (const auto& [id, client] : monitor.registry().clients()) {
    for (const auto& [lane, state] : client->lanes) {
      if (state.gpu != gpu || client->observer) continue;
      ++clients;
      jobs.insert(client->job);
    }
  }
  const auto capacity = at.account.capacity();
  const policy::Yielding yielding = monitor.scheduler().yielding(gpu);
  return {
      {"uuid", at.info.uuid_text},
      {"index", at.info.index},
      {"name", at.info.name},
      {"simulated", driver.find("simulated") != std::string::npos},
      {"driver_version", driver},
      {"driver_tested", driver.rfind(kTestedDriver, 0) == 0},
      {"memory_total_bytes", at.memory.total_bytes},
      {"memory_capacity_bytes",
       capacity ? *capacity - std::min(*capacity, at.account.outside()) : 0},
      {"memory_reserved_bytes", at.account.reserved()},
      {"memory_used_bytes", at.memory.used_bytes},
      {"memory_parked_bytes", at.account.parked()},
      {"memory_outside_bytes", at.account.outside()},
      {"utilisation_ratio", or_null(at.condition.utilisation_ratio)},
      {"temperature_celsius", or_null(at.condition.temperature_celsius)},
      {"power_watts", or_null(at.condition.power_watts)},
      {"means", means.name()},
      {"means_reason", means.reason},
      {"yield_slice_us", yielding.slice_us != 0 ? json(yielding.slice_us) : json(nullptr)},
      {"yield_reason", yielding.reason},
      {"not_foreseen_reason",
       yielding.not_foreseen != nullptr ? json(yielding.not_foreseen) : json(nullptr)},
      {"mps", monitor.scheduler().facts(gpu).mps},
      {"mig", at.info.mig},
      {"clients", clients},
      {"jobs", jobs.size()},
  };
}

json list_processes(Monitor& monitor, const Job& job) {
  json out = json::array();
  for (const ClientId id : job.clients) {
    const Client* client = monitor.registry().client(id);
    if (client == nullptr) continue;
    const char* stands = key_of(client->standing.why);
    out.push_back({{"pid", client->peer.pid},
                   {"name", client->process},
                   {"observer", client->observer},
                   {"standstill", stands != nullptr ? json(stands) : json(nullptr)}});
  }
  return out;
}

// Adds what a table does not show of them.
void list_rest_of_processes(Monitor& monitor, const Job& job, Time now, json& processes) {
  const auto late = monitor.statistics().progress.late(job);
  const auto communication = monitor.statistics().communication.of(monitor.registry(), job);
  auto process = processes.begin();
  for (const ClientId id : job.clients) {
    const Client* client = monitor.registry().client(id);
    if (client == nullptr) continue;
    list_collectives(*client->page, *process);
    process->update(list_progress(monitor, late, id, now));
    process->update(list_communication(communication, id));
    ++process;
  }
}

// What the table of `ps` shows, and what its notes need. `whole`: with all of each GPU.
json list_job_briefly(Monitor& monitor, const Job& job, Time now, bool whole) {
  json gpus = json::array();
  const status::JobStatus& status = monitor.statuses().of(job);
  for (const auto& [gpu, on_gpu] : status.gpus) {
    const OnGpu sums = add_up(monitor, job, gpu, now);
    gpus.push_back(list_on_gpu_briefly(monitor, job, gpu, sums));
    list_state(monitor, on_gpu, now, gpus.back());
    if (!whole) continue;
    list_rest_on_gpu(monitor, job, gpu, sums, gpus.back());
    gpus.back()["times"] = list_times(monitor.statistics().usage.of(job), gpu);
  }
  const auto workers = std::count_if(job.clients.begin(), job.clients.end(), [&](ClientId id) {
    const Client* client = monitor.registry().client(id);
    return client != nullptr && !client->observer;
  });
  const Quota& memory = job.knobs.memory;
  const bool timed = job.pause->on && job.pause->until != Time{0};
  json out = {
      {"job", job.id},
      {"name", job.name},
      {"user", user_name(job.uid)},
      {"uid", job.uid},
      {"residency", to_string(residency_of(monitor.registry(), job))},
      {"pause_seconds", timed ? json(seconds(job.pause->until - now)) : json(nullptr)},
      {"pause_best_effort", job.pause->on && workers > 1 && !job.pause->at_cut},
      {"drained", list_drained(monitor, job.key, now)},
      {"priority", to_string(job.knobs.priority)},
      {"memory_quota_bytes", memory && memory->part == 0 ? json(memory->bytes) : json(nullptr)},
      {"memory_quota_ratio", memory && memory->part > 0 ? json(memory->part) : json(nullptr)},
      {"since_seconds", seconds(now - job.since)},
      {"stalls", list_stalls(monitor, job, now)},
      {"processes", list_processes(monitor, job)},
      {"gpus", std::move(gpus)},
  };
  list_state(monitor, status.job, now, out);
  list_guard(monitor, job, now, out);
  return out;
}

json list_island_failure(const Job& job, Time now) {
  const IslandFailure& failure = *job.island_failure;
  if (failure.at == Time{0}) return nullptr;
  return {{"ago_seconds", seconds(now - failure.at)},
          {"error", failure.error != 0 ? json(failure.error) : json(nullptr)},
          {"text", islands::failure_text(failure)},
          {"suspects", failure.suspects}};
}

// `bytes`: about what its ranks take of text.
json list_job(Monitor& monitor, const Job& job, Time now, std::size_t& bytes) {
  json out = list_job_briefly(monitor, job, now, true);
  list_rest_of_processes(monitor, job, now, out["processes"]);
  const Job* gives_room = monitor.registry().find(job.turn->waits_for);
  const auto gain = monitor.statistics().islands.of(job);
  out.update({
      {"container", text_or_null(job.place.container)},
      {"pod", text_or_null(job.place.pod)},
      {"unit", text_or_null(job.place.unit)},
      {"slurm_job", text_or_null(job.place.slurm_job)},
      {"island", text_or_null(job.knobs.co_run)},
      {"island_server", islands::serves(job)},
      {"island_failure", list_island_failure(job, now)},
      {"island_gain_ratio", gain ? json(gain->island) : json(nullptr)},
      {"island_slices_ratio", gain ? json(gain->slices) : json(nullptr)},
      {"swappable", job.knobs.swappable},
      {"oversubscribe", job.knobs.oversubscribe},
      {"park", to_string(job.knobs.park)},
      {"urgent_collectives", job.knobs.urgent_collectives},
      {"short_slices", *job.short_slices},
      {"waits_for", gives_room != nullptr ? json(gives_room->name) : json(nullptr)},
      {"idle_release_seconds", job.knobs.idle_release.after != Time{0}
                                   ? json(seconds(job.knobs.idle_release.after))
                                   : json(nullptr)},
      {"idle_release_contexts", job.knobs.idle_release.contexts},
      {"share_weight", weight_of(job)},
      {"share_auto", job.knobs.share.automatic},
      {"limit_ratio", job.knobs.limit > 0 ? json(job.knobs.limit) : json(nullptr)},
      {"deadline_seconds", job.knobs.deadline != Time{0}
                               ? json(seconds(job.since + job.knobs.deadline - now))
                               : json(nullptr)},
  });
  list_usage(monitor, job, out);
  bytes = kRankBytes * list_communicators(monitor, job, now, out);
  bytes += kStallBytes * out["stalls"].size();
  return out;
}

}  // namespace

json list_alone(Monitor& monitor, const Job& job, Time now) {
  json out = success();
  std::size_t bytes = 0;
  monitor.look_at_status(now);
  out.update(list_job(monitor, job, now, bytes));
  return out;
}

namespace {

// Which monitor it is.
json list_monitor(const Monitor& monitor) {
  return {{"pid", ::getpid()},
          {"uid", ::geteuid()},
          {"user", user_name(::geteuid())},
          {"version", kVersion},
          {"observes", monitor.settings().observes},
          {"socket", monitor.settings().socket}};
}

}  // namespace

std::optional<JobKey> goes_on_after(const json& request) {
  const auto after = request.find("after");
  const bool in_parts = after != request.end() && after->is_number_unsigned();
  return in_parts ? std::optional(after->get<JobKey>()) : std::nullopt;
}

json list_jobs(Monitor& monitor, const Peer& peer, const json& request, Time now) {
  const auto after = goes_on_after(request);
  const auto& all = monitor.registry().jobs();
  const bool brief = request.contains("brief");
  json jobs = json::array();
  std::size_t bytes = 0;
  auto job = after ? all.upper_bound(*after) : all.begin();
  for (; job != all.end() && (!after || bytes < kPartBytes); ++job) {
    std::size_t of_ranks = 0;
    // It came since the last look.
    if (!monitor.statuses().knows(job->second)) monitor.look_at_status(now);
    jobs.push_back(brief ? list_job_briefly(monitor, job->second, now, false)
                         : list_job(monitor, job->second, now, of_ranks));
    if (request.contains("latency")) {
      jobs.back()["burst_waits"] = list_burst_waits(monitor, job->second);
    }
    bytes += listed_bytes(job->second, brief) + of_ranks;
  }
  if (job != all.end()) {
    return {{"jobs", std::move(jobs)}, {"more_after", std::prev(job)->first}};
  }
  return {{"jobs", std::move(jobs)},
          {"outside", list_unmanaged(monitor, peer, now)},
          {"monitor", list_monitor(monitor)}};
}

json list_status(Monitor& monitor, Time now) {
  json gpus = json::array();
  for (std::size_t gpu = 0; gpu < monitor.gpus().all().size(); ++gpu) {
    gpus.push_back(list_gpu(monitor, gpu));
  }
  json about = list_monitor(monitor);
  about.update({{"persist", monitor.settings().persist},
                {"uptime_seconds", seconds(now - monitor.started())},
                {"means", means_name(monitor.scheduler().chosen())},
                {"policy", policy_name(monitor.scheduler().rules().kind)},
                {"minimum_ratio", monitor.scheduler().rules().minimum},
                {"waits", waits_name(monitor.scheduler().rules())}});
  json out = {{"monitor", std::move(about)}, {"gpus", std::move(gpus)}};
  if (const std::string problem = monitor.door().problem(); !problem.empty()) {
    out["monitor"]["no_gpu_reason"] = problem;
  }
  return out;
}

}  // namespace switchyard::monitor
