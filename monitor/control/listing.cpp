#include "monitor/control/listing.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "monitor/control/communicator_listing.h"
#include "monitor/control/guard_listing.h"
#include "monitor/control/memory_listing.h"
#include "monitor/control/reply.h"
#include "monitor/control/settings_commands.h"
#include "monitor/control/statistics_listing.h"
#include "monitor/control/unmanaged_listing.h"
#include "monitor/core/lanes.h"
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

const char* slice_status(std::uint32_t status) {
  return status == abi::kSliceAccepted  ? "accepted"
         : status == abi::kSliceRefused ? "refused"
                                        : "none";
}

const char* gate_status(std::uint32_t state) {
  return state == abi::kGateReady ? "ready" : state == abi::kGateRefused ? "refused" : "none";
}

const char* gate_text(std::uint32_t closed) {
  const char* key = stalls::key_of(hold_of_gate(closed));
  return key != nullptr ? key : "open";
}

// A part of a listing ends when it has about so many bytes. That is a small part of a frame, and of
// the time that the loop may take for one request.
constexpr std::size_t kPartBytes = 128 * 1024;

// At least what a job takes in a listing, its longest names aside.
std::size_t listed_bytes(const Job& job) {
  return 2700 + 2000 * job.seen.size() + (100 + kProgressBytes) * job.clients.size();
}

// Whether what a paused job had queued has ended: true, false, or null where nobody knows.
json list_drained(Monitor& monitor, JobKey key, Time now) {
  Job* job = monitor.registry().find(key);
  if (job == nullptr || !job->pause.on) return nullptr;
  const Drained state = drained(monitor.registry(), *job, now);
  return state == Drained::kUnknown ? json() : json(state == Drained::kYes);
}

// One job's clients on one GPU, added up.
struct OnGpu {
  std::uint64_t used = 0, overhead = 0, away = 0, host_pool = 0, moves = 0;
  MemoryListing memory;
  std::uint32_t swap_error = abi::kSwapFine, swap_result = 0;
  std::uint64_t parked = 0;         // of what is away, on another GPU,
  std::set<std::size_t> parked_on;  // or several
  const char* not_parked = nullptr;
  std::uint64_t launches = 0, graph_launches = 0, copies = 0, refusals = 0;
  std::uint64_t link_bytes = 0, device_bytes = 0;
  double load = -1, asked = 0, got = -1;
  bool estimated = false;  // `got` is what slices allot
  bool active = false;
  bool shown = false;  // some client shows slices
  Slices slices;
  std::uint32_t in_force_us = 0, status = abi::kSliceNever;
  std::uint32_t closed = 0, held_threads = 0, gate_waits = 0;
  std::uint32_t gate_state = abi::kGateUnready;
  bool armed = false;
  const char* waits_for = nullptr;  // "gpu" or "cpu", of a high job beside a lower one
};

// The shares of a lane are smoothed over a second, so what was divided three of them ago is gone.
bool was_divided(const Client::Lane& lane, Time now) {
  return lane.had.divided_at != Time{0} && now - lane.had.divided_at < std::chrono::seconds(3);
}

OnGpu add_up(Monitor& monitor, const Job& job, std::size_t gpu, Time now) {
  OnGpu out;
  const GpuAccounts::Gpu& at = monitor.gpus().all()[gpu];
  const Account& account = at.account;
  for (const ClientId id : job.clients) {
    const Client* client = monitor.registry().client(id);
    if (client == nullptr || client->observer) continue;
    for (const auto& [lane, state] : client->lanes) {
      if (state.gpu != gpu) continue;
      const LaneReport report = client->page->report(lane);
      if (const Account::Holding* holding = account.holding(id)) {
        out.used += holding->used() + holding->overhead;
        out.overhead += holding->overhead;
        out.away += std::min(state.residency.away_bytes(), holding->used());
        out.memory.add(client->page->memory(lane), holding->used(), state.residency.total_bytes,
                       at.memory.total_bytes);
      }
      out.host_pool += state.residency.host_bytes;
      out.parked += state.parker.there;
      if (state.parker.there != 0) out.parked_on.insert(state.parker.on);
      if (state.not_parked != nullptr) out.not_parked = state.not_parked;
      out.moves += state.residency.moves;
      // The job tells the error of an earlier attempt there, until the next one.
      if (!state.residency.resident() && state.residency.error != abi::kSwapFine) {
        out.swap_error = state.residency.error;
        out.swap_result = state.residency.swap_result;
      }
      out.launches += report.launches;
      out.graph_launches += report.graph_launches;
      out.copies += report.copies;
      out.link_bytes += report.link_bytes;
      out.device_bytes += report.device_bytes;
      out.refusals += report.refusals;
      if (state.load >= 0) out.load = std::max(out.load, 0.0) + state.load;
      out.asked = std::max(out.asked, state.share_asked);
      if (const char* waits_for = monitor.scheduler().waits_for(gpu, id)) out.waits_for = waits_for;
      if (state.share_got >= 0) out.got = std::max(out.got, 0.0) + state.share_got;
      out.estimated = out.estimated || was_divided(state, now);
      out.closed |= state.order.closed;
      out.armed = out.armed || state.order.armed || state.order.closed != 0;
      out.held_threads += state.gate.held_threads;
      out.gate_waits += state.gate.waits;
      out.gate_state = std::max(out.gate_state, state.gate.state);
      // Of several processes the listing shows an active one's slices.
      if ((state.active && !out.active) || !out.shown) {
        out.shown = true;
        out.slices = monitor.slice_controller().wanted(gpu, id);
        out.in_force_us = report.compute_slice_applied_us;
        out.status = report.slice_status;
      }
      out.active = out.active || state.active;
    }
  }
  return out;
}

// Why the last move has not come to its end; null: it has.
json swap_error(const Job& job, const OnGpu& sums) {
  if (job.memory->failure.failed) return failure_text(job.memory->failure);
  if (!job.knobs.swappable || sums.swap_error == abi::kSwapFine) return nullptr;
  return failure_text(sums.swap_error, sums.swap_result);
}

// That is no failure, but what turns are made of.
bool waits_for_room(const Job& job, const OnGpu& sums) {
  return !job.memory->failure.failed && sums.swap_error == abi::kSwapNoDeviceRoom;
}

json list_on_gpu(Monitor& monitor, const Job& job, std::size_t gpu, const OnGpu& sums) {
  const GpuAccounts::Gpu& at = monitor.gpus().all()[gpu];
  const auto quota = at.account.quota(job.key);
  // NVML counts the time in which a kernel was resident, also of those that waited for a slice.
  const double got = sums.got >= 0 ? sums.got : sums.load;
  json parked_on = json::array();
  for (const std::size_t other : sums.parked_on) {
    parked_on.push_back(monitor.gpus().all()[other].info.uuid_text);
  }
  json out = {
      {"uuid", at.info.uuid_text},
      {"index", at.info.index},
      {"memory_used_bytes", sums.used},
      {"memory_overhead_bytes", sums.overhead},
      {"memory_resident_bytes", sums.used - sums.away},
      {"memory_swapped_bytes", sums.away},
      {"memory_parked_bytes", sums.parked},
      {"parked_on", std::move(parked_on)},
      {"not_parked_reason", sums.not_parked != nullptr ? json(sums.not_parked) : json(nullptr)},
      {"host_pool_bytes", sums.host_pool},
      {"residency", to_string(residency_on(monitor.registry(), job, gpu))},
      {"swap_moves", sums.moves},
      {"swap_error", swap_error(job, sums)},
      {"swap_waits_for_room", waits_for_room(job, sums)},
      {"memory_quota_bytes", quota ? json(quota->bytes) : json(nullptr)},
      {"memory_reserved", quota && quota->reserved},
      {"share_asked_ratio", sums.asked},
      {"share_got_ratio", got >= 0 ? json(std::min(got, 1.0)) : json(nullptr)},
      {"share_got_estimated", sums.estimated},
      {"compute_slice_us", sums.slices.compute_us},
      {"copy_slice_us", sums.slices.copy_us},
      {"slice_in_force_us", sums.in_force_us},
      {"waits_for", sums.waits_for != nullptr ? json(sums.waits_for) : json(nullptr)},
      {"slice_status", slice_status(sums.status)},
      {"gate", gate_text(sums.closed)},
      {"gate_armed", sums.armed},
      {"gate_status", gate_status(sums.gate_state)},
      {"gate_waits", sums.gate_waits},
      {"held_threads", sums.held_threads},
      {"launches", sums.launches},
      {"graph_launches", sums.graph_launches},
      {"copies", sums.copies},
      {"copied_link_bytes", sums.link_bytes},
      {"copied_device_bytes", sums.device_bytes},
      {"refusals", sums.refusals},
      {"active", sums.active},
  };
  sums.memory.list(out);
  return out;
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

// `bytes`: about what its ranks take of text.
json list_job(Monitor& monitor, const Job& job, Time now, std::size_t& bytes) {
  json processes = json::array();
  const auto late = monitor.statistics().progress.late(job);
  const auto communication = monitor.statistics().communication.of(monitor.registry(), job);
  for (const ClientId id : job.clients) {
    if (const Client* client = monitor.registry().client(id)) {
      json process = {
          {"pid", client->peer.pid}, {"name", client->process}, {"observer", client->observer}};
      const char* stands = key_of(client->standing.why);
      process["standstill"] = stands != nullptr ? json(stands) : json(nullptr);
      list_collectives(*client->page, process);
      process.update(list_progress(monitor, late, id, now));
      process.update(list_communication(communication, id));
      processes.push_back(std::move(process));
    }
  }
  json gpus = json::array();
  const status::JobStatus& status = monitor.statuses().of(job);
  for (const auto& [gpu, on_gpu] : status.gpus) {
    gpus.push_back(list_on_gpu(monitor, job, gpu, add_up(monitor, job, gpu, now)));
    list_state(monitor, on_gpu, now, gpus.back());
    gpus.back()["times"] = list_times(monitor.statistics().usage.of(job), gpu);
  }
  const auto workers = std::count_if(job.clients.begin(), job.clients.end(), [&](ClientId id) {
    const Client* client = monitor.registry().client(id);
    return client != nullptr && !client->observer;
  });
  const ResidencyState where = residency_of(monitor.registry(), job);
  const Quota& memory = job.knobs.memory;
  const bool timed = job.pause.on && job.pause.until != Time{0};
  const Job* gives_room = monitor.registry().find(job.turn.waits_for);
  json out = {
      {"job", job.id},
      {"name", job.name},
      {"user", user_name(job.uid)},
      {"uid", job.uid},
      {"container", text_or_null(job.place.container)},
      {"pod", text_or_null(job.place.pod)},
      {"unit", text_or_null(job.place.unit)},
      {"slurm_job", text_or_null(job.place.slurm_job)},
      {"island", text_or_null(job.knobs.co_run)},
      {"island_server", islands::serves(job)},
      {"swappable", job.knobs.swappable},
      {"oversubscribe", job.knobs.oversubscribe},
      {"park", to_string(job.knobs.park)},
      {"urgent_collectives", job.knobs.urgent_collectives},
      {"short_slices", job.short_slices},
      {"waits_for", gives_room != nullptr ? json(gives_room->name) : json(nullptr)},
      {"idle_release_seconds", job.knobs.idle_release.after != Time{0}
                                   ? json(seconds(job.knobs.idle_release.after))
                                   : json(nullptr)},
      {"idle_release_contexts", job.knobs.idle_release.contexts},
      {"residency", to_string(where)},
      {"pause_seconds", timed ? json(seconds(job.pause.until - now)) : json(nullptr)},
      {"pause_best_effort", job.pause.on && workers > 1 && !job.pause.at_cut},
      {"drained", list_drained(monitor, job.key, now)},
      {"priority", to_string(job.knobs.priority)},
      {"share_weight", weight_of(job)},
      {"share_auto", job.knobs.share.automatic},
      {"limit_ratio", job.knobs.limit > 0 ? json(job.knobs.limit) : json(nullptr)},
      {"deadline_seconds", job.knobs.deadline != Time{0}
                               ? json(seconds(job.since + job.knobs.deadline - now))
                               : json(nullptr)},
      {"memory_quota_bytes", memory && memory->part == 0 ? json(memory->bytes) : json(nullptr)},
      {"memory_quota_ratio", memory && memory->part > 0 ? json(memory->part) : json(nullptr)},
      {"since_seconds", seconds(now - job.since)},
      {"processes", std::move(processes)},
      {"gpus", std::move(gpus)},
  };
  list_state(monitor, status.job, now, out);
  bytes = kRankBytes * list_communicators(monitor, job, now, out);
  bytes += kStallBytes * list_statistics(monitor, job, now, out);
  list_guard(monitor, job, now, out);
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
  json jobs = json::array();
  std::size_t bytes = 0;
  auto job = after ? all.upper_bound(*after) : all.begin();
  for (; job != all.end() && (!after || bytes < kPartBytes); ++job) {
    std::size_t of_ranks = 0;
    // It came since the last look.
    if (!monitor.statuses().knows(job->second)) monitor.look_at_status(now);
    jobs.push_back(list_job(monitor, job->second, now, of_ranks));
    if (request.contains("latency")) {
      jobs.back()["burst_waits"] = list_burst_waits(monitor, job->second);
    }
    bytes += listed_bytes(job->second) + of_ranks;
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
