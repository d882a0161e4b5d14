#include "monitor/scheduling/scheduler.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "monitor/core/lanes.h"
#include "monitor/islands/members.h"

namespace switchyard::monitor {

Scheduler::Scheduler(Registry& registry, GpuAccounts& accounts, SliceController& slice_controller,
                     bool old_driver)
    : registry_(registry),
      accounts_(accounts),
      slice_controller_(slice_controller),
      gpus_(accounts.size()) {
  for (Gpu& gpu : gpus_) gpu.facts.old_driver = old_driver;
}

// Changes here are carried out at once, and may lead to more, in the next look.
void Scheduler::grant_turns(Time now) {
  std::set<std::size_t> concerned;
  for (const auto& [key, gpu] : policy::decide_grants(grants_, rules_.minimum, now)) {
    const Job* const job = registry_.find(key);
    if (job == nullptr && gpu != policy::Grants::kAllGpus) concerned.insert(gpu);  // an island
    if (job != nullptr) concerned.insert(job->gpus.seen().begin(), job->gpus.seen().end());
  }
  for (const std::size_t gpu : concerned) look_at(gpu, now);
  for (auto& [key, job] : registry_.jobs()) {
    job.turn_ends.write() = *job.gang_kind == GangKind::kRanks &&
                            grants_.of(key, policy::Grants::kAllGpus) == policy::Grant::kStopping;
  }
}

Time Scheduler::next() const {
  Time out{0};
  for (const Gpu& gpu : gpus_) out = earlier(out, gpu.due);
  return out;
}

Time Scheduler::look(Time now) {
  for (std::size_t i = 0; i < gpus_.size(); ++i) look_at(i, now);
  grant_turns(now);
  return next();
}

Time Scheduler::look_at_due(Time now) {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i].due != Time{0} && gpus_[i].due <= now) look_at(i, now);
  }
  grant_turns(now);
  return next();
}

Time Scheduler::look_at_those_of(const Client& client, Time now) {
  for (const auto& [lane, state] : client.lanes) {
    const bool changed =
        client.page->report(lane) != state.last || client.page->gate(lane) != state.gate;
    if (changed) look_at(state.gpu, now);
  }
  grant_turns(now);
  return next();
}

MeansInForce Scheduler::in_force(std::size_t gpu) const {
  return means_in_force(means_, gpus_[gpu].facts);
}

policy::Yielding Scheduler::yielding(std::size_t gpu) const {
  if (!in_force(gpu).slices) return {0, "slices are not in use here", nullptr};
  return policy::yielding(gpus_[gpu].state.high);
}

const char* Scheduler::waits_for(std::size_t gpu, ClientId client) const {
  const auto& clients = gpus_[gpu].state.clients;
  auto found = clients.find(client);
  if (const auto known = registry_.clients().find(client);
      found == clients.end() && known != registry_.clients().end()) {
    const Job* const job = registry_.find(known->second->job);
    if (job != nullptr && *job->island != 0) found = clients.find(*job->island);
  }
  return found == clients.end() ? nullptr : policy::waits_for(found->second.bursts);
}

namespace {

void restrain(policy::ClientView& view, const Restraint& restraint) {
  if (restraint.most_weight > 0) view.weight = std::min(view.weight, restraint.most_weight);
  view.short_copies = restraint.copies;
  view.held_by_guard = restraint.held;
  const bool lower = restraint.ceiling > 0 && (view.limit == 0 || restraint.ceiling < view.limit);
  if (lower) view.limit = restraint.ceiling;
  view.limited_by_guard = lower || restraint.held;
  view.restrained = view.limited_by_guard || restraint.copies || restraint.most_weight > 0;
}

}  // namespace

policy::ClientView Scheduler::view_of(std::size_t gpu, const Client& client,
                                      const LaneReport& report, const Client::Lane& lane) {
  const Job& job = *registry_.find(client.job);
  policy::ClientView view;
  view.client = client.id;
  view.job = client.job;
  view.priority = job.knobs.priority;
  view.weight = weight_of(job);
  view.contexts = report.contexts;
  view.compute_groups = report.compute_groups;
  view.work = report.work();
  view.copies = report.copies;
  view.sliceable =
      !slice_controller_.refuses(gpu, client.id) && !report.groups_unseen() && !report.under_mps;
  view.gateable = lane.gate.state != abi::kGateRefused;
  view.numbered = numbered(lane, lane.gate);
  view.busy = busy(lane, report, lane.gate);
  view.progress = lane.gate.progress;
  view.held = lane.gate.held_threads > 0;
  view.bursts = lane.gate.bursts;
  view.slices_in_force = slice_controller_.in_force(gpu, client.id);
  view.paused = job.pause->on;
  const bool rank = *job.gang_kind == GangKind::kRanks;
  view.stands = rank ? *job.stands : client.standing.why != Standstill::kNone;
  view.moves = lane.residency_order.limited || !lane.residency.resident();
  view.leaves = excess_bytes(lane.residency, lane.residency_order) > 0;
  view.limit = job.knobs.limit;
  restrain(view, *job.restraint);
  view.gang = *job.gang_kind != GangKind::kNone;
  view.stops = rank && !*job.stands && !job.gang->gathers();
  view.stopped = job.gang->stage == GangHold::Stage::kTurnEnded;
  view.short_slices = *job.short_slices;
  view.island = *job.island;
  view.serves = islands::serves(job);
  // A member with channel groups of its own is a job like any (policy/islands.h).
  const bool folded = *job.island != 0 && (view.serves || view.compute_groups == 0);
  view.grant = grants_.of(folded ? *job.island : job.key, gpu);
  if (job.knobs.deadline != Time{0}) view.deadline = job.since + job.knobs.deadline;
  return view;
}

policy::Snapshot Scheduler::snapshot_of(std::size_t gpu) {
  policy::Snapshot snapshot;
  MeansFacts facts;
  bool all_under_mps = true;
  bool outside = false;  // of islands: of their MPS the server's slices are known
  registry_.work().add(registry_.clients().size());
  for (auto& [id, client] : registry_.clients()) {
    if (client->observer) continue;
    for (auto& [lane, state] : client->lanes) {
      if (state.gpu != gpu) continue;
      const LaneReport report = client->page->report(lane);
      slice_controller_.heard(gpu, id, report, state.last);
      state.gate = client->page->gate(lane);
      const auto& view = snapshot.clients.emplace_back(view_of(gpu, *client, report, state));
      state.last = report;
      const bool member = view.island != 0 && !view.serves;
      outside = outside || view.island == 0;
      all_under_mps = all_under_mps && (view.island != 0 || report.under_mps);
      if (report.has_context() && !member) {
        facts.slices.add(view.sliceable, report.slice_status == abi::kSliceAccepted);
      }
      if (report.has_context() && !view.serves) {
        facts.gates.add(view.gateable, state.gate.state == abi::kGateReady);
      }
    }
  }
  // NVML may name no processes, or by PIDs of another namespace: the clients know by themselves.
  // All of them, or one that lies would change what the others get.
  facts.mps = accounts_[gpu].mps_listed || (all_under_mps && outside);
  facts.old_driver = gpus_[gpu].facts.old_driver;
  facts.foreign = accounts_[gpu].foreign;
  gpus_[gpu].facts = facts;
  const MeansInForce means = in_force(gpu);
  snapshot.rules = rules_;
  snapshot.rules.slices = means.slices;
  snapshot.rules.gates = means.gates;
  return snapshot;
}

void Scheduler::look_at(std::size_t gpu, Time now) {
  const policy::Snapshot snapshot = snapshot_of(gpu);
  const policy::Plan plan =
      policy::decide_with_islands(snapshot, now, gpus_[gpu].state, gpus_[gpu].islands);
  log_yielding(gpu);
  grants_.claims[gpu] = plan.claims;
  apply(gpu, plan, now);
  gpus_[gpu].due = earlier(plan.look_again, slice_controller_.write(gpu, now));
}

void Scheduler::log_yielding(std::size_t gpu) {
  const policy::Yielding now = yielding(gpu);
  if (now.slice_us == 0 || now.slice_us == gpus_[gpu].logged_us) return;
  gpus_[gpu].logged_us = now.slice_us;
  const bool foreseen = now.not_foreseen == nullptr;
  spdlog::info("{}: a job that yields to a high one gets slices of {} us: {}{}{}",
               accounts_[gpu].info.uuid_text, now.slice_us, now.reason,
               foreseen ? "" : "; waits are not foreseen: ", foreseen ? "" : now.not_foreseen);
}

namespace {

// Adds the time since the last look. REQUIRES: the gate's new order is not written yet.
void add_to(Client::Lane& state, const policy::ClientPlan& each, Time now) {
  Client::Lane::Had& had = state.had;
  had.known = each.had_ns >= 0;
  if (had.known) {
    had.gpu_ns += each.had_ns;
    had.slices_ns += each.lost_ns;
  }
  if (each.divided) {
    had.divided_ns += each.had_ns;
    had.divided_at = now;
  }
  had.count(hold_of_gate(holds_by(state.order, state.gate)), now);
}

}  // namespace

void Scheduler::apply(std::size_t gpu, const policy::Plan& plan, Time now) {
  const MeansInForce means = in_force(gpu);
  for (const policy::ClientPlan& each : plan.clients) {
    slice_controller_.want(gpu, each.client, means.slices ? each.slices : Slices{}, now);
    Client& client = *registry_.client(each.client);
    const Job& job = *registry_.find(client.job);
    for (auto& [lane, state] : client.lanes) {
      if (state.gpu != gpu) continue;
      state.active = each.active;
      state.share_asked = each.share_asked;
      state.share_got = each.share_got;
      add_to(state, each, now);
      order_gate(client, lane, state,
                 order_of(each, job, means, leaving(client) || job.gang->gathers()),
                 registry_.tap(), now);
      state.asked_to_wake = each.wake && (means.slices || means.gates);
      if (state.asked_to_wake) client.page->ask_to_wake(lane);
    }
  }
}

}  // namespace switchyard::monitor
