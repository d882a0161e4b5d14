#include "monitor/slicing.h"

#include <spdlog/spdlog.h>

namespace switchyard::monitor {

Slicing::Slicing(Roster& roster, Memory& memory, Time quiet_until)
    : roster_(roster), memory_(memory), quiet_until_(quiet_until), gpus_(memory.all().size()) {}

void Slicing::join(const Client& client, bool maybe_short) {
  if (client.observer) return;
  for (const auto& [lane, state] : client.lanes) {
    gpus_[state.gpu].applier.join(client.id, maybe_short);
  }
}

void Slicing::left(const Client& client) {
  for (const auto& [lane, state] : client.lanes) gpus_[state.gpu].applier.left(client.id);
}

void Slicing::died(ClientId client) {
  for (Gpu& gpu : gpus_) gpu.applier.died(client);
}

std::string Slicing::reason_without(std::size_t gpu) const {
  if (!allowed_) return "turned off by 'switchyard means none'";
  if (memory_.all()[gpu].mps) return "MPS runs on this GPU: its server owns the channel groups";
  return {};
}

bool Slicing::look(Time now) {
  bool waiting = false;
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    look_at(i, now);
    waiting = waiting || gpus_[i].applier.waiting();
  }
  return waiting;
}

void Slicing::look_at(std::size_t gpu, Time now) {
  Gpu& at = gpus_[gpu];
  policy::Snapshot snapshot;
  for (auto& [id, client] : roster_.clients()) {
    if (client->observer) continue;
    for (auto& [lane, state] : client->lanes) {
      if (state.gpu != gpu) continue;
      const LaneReport report = client->page->report(lane);
      if (report.compute_groups != state.last.compute_groups ||
          report.contexts != state.last.contexts) {
        at.applier.groups_changed(id);
      }
      at.applier.heard(id, report.slice_applied_seq, report.slice_status == abi::kSliceRefused);
      state.last = report;
      const Job* job = roster_.find(client->job);
      policy::ClientView& view = snapshot.clients.emplace_back();
      view.client = id;
      view.job = client->job;
      view.priority = job->knobs.priority;
      view.weight = job->knobs.share;
      view.contexts = report.contexts;
      view.compute_groups = report.compute_groups;
      view.work = report.work();
      view.sliceable = !at.applier.refuses(id);
    }
  }
  apply(gpu, policy::decide(snapshot, now, at.state), now);
}

void Slicing::apply(std::size_t gpu, const policy::Plan& plan, Time now) {
  Gpu& at = gpus_[gpu];
  const bool off = !reason_without(gpu).empty();
  for (const policy::ClientPlan& each : plan.clients) {
    Slices slices = off ? Slices{} : each.slices;
    if (is_short(slices) && now < quiet_until_) slices = policy::kYieldShared;
    at.applier.want(each.client, slices);
    Client& client = *roster_.client(each.client);
    for (auto& [lane, state] : client.lanes) {
      if (state.gpu != gpu) continue;
      state.active = each.active;
      state.share_asked = each.share_asked;
      if (each.wake && !off) client.page->ask_to_wake(lane);
    }
  }
  for (const SliceWrite& write : at.applier.step()) {
    Client& client = *roster_.client(write.client);
    for (auto& [lane, state] : client.lanes) {
      if (state.gpu == gpu) client.page->write_slices(lane, write.slices, write.seq);
    }
    spdlog::debug("{}: client {} (pid {}) gets slices of {} us, copies {} us",
                  memory_.all()[gpu].info.uuid_text, write.client, client.peer.pid,
                  write.slices.compute_us, write.slices.copy_us);
  }
}

}  // namespace switchyard::monitor
