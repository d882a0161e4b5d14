#include "monitor/status/snapshot.h"

#include <algorithm>

#include "monitor/core/lanes.h"
#include "monitor/status/changes.h"

namespace switchyard::monitor::status {
namespace {

SeenLane see(const Client& client, unsigned number, const Client::Lane& lane) {
  const GateReport gate = client.page->gate(number);
  const LaneReport report = client.page->report(number);
  return {.gpu = lane.gpu,
          .used = report.has_context() || report.work() != 0 || lane.residency.detached() ||
                  client.page->used_bytes(number) != 0,
          .works = lane.active || gate.held_threads > 0,
          .held_by = holds_by(lane.order, gate),
          .asks_since = lane.wait->since,
          .asks_bytes = lane.wait->since != Time{0} ? lane.wait->lacks_bytes : 0,
          .share = std::max(lane.share_got, 0.0)};
}

void see_memory(const Registry& registry, const Job& job, SeenJob& out) {
  out.where = residency_of(registry, job);
  if (out.where == ResidencyState::kResident) return;
  out.wanted_out = job.memory->wanted_out;
  out.out_by = job.memory.asked_by();
  out.memory_since = out.where == ResidencyState::kMoving ? job.memory->moves_since : Time{0};
  std::set<std::size_t> parked_on;
  for_lanes(registry, job, [&](const Client&, unsigned, const Client::Lane& lane) {
    out.away_bytes += lane.residency.away_bytes();
    if (lane.parker.there != 0) parked_on.insert(lane.parker.on);
  });
  // Where a job waits for room, it waits with all of its memory.
  bool elsewhere = false;
  for (const std::size_t gpu : job.gpus.seen()) {
    if (residency_on(registry, job, gpu) == out.where) {
      out.places.push_back(gpu);
    } else {
      elsewhere = elsewhere || uses(registry, job, gpu);
    }
  }
  if (!elsewhere) out.places.clear();
  if (out.where == ResidencyState::kSwapped) {
    out.parked_on.assign(parked_on.begin(), parked_on.end());
  }
}

}  // namespace

SeenProcess see(const Client& client) {
  SeenProcess out{.client = client.id,
                  .pid = client.peer.pid,
                  .stands = client.standing.why,
                  .stands_since = client.standing.since};
  for (const auto& [number, lane] : client.lanes) out.lanes.push_back(see(client, number, lane));
  return out;
}

SeenJob see(const Registry& registry, const Job& job) {
  SeenJob out{.key = job.key, .name = job.name, .uid = job.uid};
  out.gpus.assign(job.gpus.seen().begin(), job.gpus.seen().end());
  out.paused = job.pause->on;
  out.paused_since = job.pause->since;
  out.paused_by = job.pause->by;
  out.stands = *job.stands;
  const migration::State& move = job.migration->state;
  out.moves = migration::is_under_way(move);
  out.prepares = move.stage == migration::Stage::kPreparing;
  out.back = move.back;
  out.goal = job.migration->goal();
  see_memory(registry, job, out);
  out.stage = job.gang->stage;
  out.leaves_at_cut = job.gang->leaves;
  out.stage_since = job.gang->since;
  out.waits_for = job.turn->waits_for;
  if (!job.restraint->guarded.empty()) out.guarded = *job.restraint->guarded.begin();
  const double ceiling = job.restraint->ceiling;
  const bool lower = ceiling > 0 && (job.knobs.limit == 0 || ceiling < job.knobs.limit);
  out.limit = lower ? ceiling : job.knobs.limit;
  for_clients(registry, job, [&](const Client& client) { out.processes.push_back(see(client)); });
  return out;
}

Snapshot see_all(const Registry& registry, const GpuAccounts& gpus, Time now) {
  Snapshot out{.now = now, .indices = {}, .jobs = {}};
  for (const GpuAccounts::Gpu& gpu : gpus.all()) out.indices.push_back(gpu.info.index);
  for (const auto& [key, job] : registry.jobs()) out.jobs.emplace(key, see(registry, job));
  return out;
}

void Statuses::look(const Registry& registry, const GpuAccounts& gpus,
                    const std::map<JobKey, std::uint32_t>& old_layouts, Time now) {
  Snapshot snapshot = see_all(registry, gpus, now);
  for (const auto& [key, layout] : old_layouts) {
    const auto job = snapshot.jobs.find(key);
    if (job != snapshot.jobs.end()) job->second.old_layout = layout;
  }
  std::map<JobKey, JobStatus> all = statuses_of(snapshot);
  for (auto& [key, status] : all) {
    const auto before = all_.find(key);
    if (before != all_.end()) keep_since(before->second, status);
  }
  tell_changes(registry.tap(), all, now);
  all_ = std::move(all);
}

void Statuses::tell_changes(const Tap& tap, const std::map<JobKey, JobStatus>& all, Time now) {
  changes_.clear();
  for (const auto& [key, status] : all) {
    const auto before = all_.find(key);
    add_changes(key, before != all_.end() ? &before->second : nullptr, status, now, changes_);
  }
  for (const HistoryEvent& event : changes_) tap.tell(event);
}

const JobStatus& Statuses::of(const Job& job) const {
  static const JobStatus none{.job = {.code = {State::kIdle, Reason::kNoCuda}}};
  const auto found = all_.find(job.key);
  return found != all_.end() ? found->second : none;
}

}  // namespace switchyard::monitor::status
