#include "monitor/scheduling/slice_controller.h"

#include <spdlog/spdlog.h>

#include "monitor/policy/policy.h"

namespace switchyard::monitor {
namespace {

// A client confirms within a millisecond; one that took this long is stopped or gone, and the
// regular look will do.
constexpr Time kConfirmPause = std::chrono::milliseconds(5);
constexpr Time kConfirmLimit = std::chrono::milliseconds(300);

HistoryEvent change_of(const Client& client, std::size_t gpu, const Slices& slices, Time now) {
  HistoryEvent out = event_of(EventKind::kSlice, client.job, client.peer, now);
  set_gpu(out, gpu);
  out.value = static_cast<std::uint64_t>(slices.copy_us) << 32 | slices.compute_us;
  return out;
}

}  // namespace

SliceController::SliceController(Registry& registry, GpuAccounts& accounts, Time quiet_until)
    : registry_(registry), accounts_(accounts), quiet_until_(quiet_until), gpus_(accounts.size()) {}

void SliceController::join(const Client& client, bool maybe_short) {
  if (client.observer) return;
  for (const auto& [lane, state] : client.lanes) {
    gpus_[state.gpu].applier.join(client.id, maybe_short);
  }
}

void SliceController::left(const Client& client) {
  for (const auto& [lane, state] : client.lanes) gpus_[state.gpu].applier.left(client.id);
}

void SliceController::died(ClientId client) {
  for (Gpu& gpu : gpus_) gpu.applier.died(client);
}

void SliceController::moved(Client& client, Time now) {
  died(client.id);
  // The request in its page is meant for another GPU, and would be in force with the first group.
  join(client, true);
  for (const auto& [lane, state] : client.lanes) {
    gpus_[state.gpu].unchecked = accounts_[state.gpu].stale = true;
    write(state.gpu, now);
  }
}

void SliceController::heard(std::size_t gpu, ClientId client, const LaneReport& now,
                            const LaneReport& before) {
  SliceApplier& applier = gpus_[gpu].applier;
  if (now.contexts > before.contexts) {
    gpus_[gpu].unchecked = true;
    accounts_[gpu].stale = true;
  }
  if (now.compute_groups != before.compute_groups || now.contexts != before.contexts) {
    applier.groups_changed(client);
  }
  applier.heard(client, now.slice_applied_seq, now.slice_status == abi::kSliceRefused);
}

void SliceController::want(std::size_t gpu, ClientId client, Slices slices, Time now) {
  GpuAccounts::Gpu& account = accounts_[gpu];
  if (!account.stale) gpus_[gpu].unchecked = false;
  const bool another = account.foreign || gpus_[gpu].unchecked;
  if (is_short(slices) && (now < quiet_until_ || another)) slices = policy::kYieldShared;
  gpus_[gpu].applier.want(client, slices);
}

Time SliceController::write(std::size_t gpu, Time now) {
  Gpu& at = gpus_[gpu];
  for (const SliceWrite& write : at.applier.step()) {
    at.written_at = now;
    Client& client = *registry_.client(write.client);
    for (auto& [lane, state] : client.lanes) {
      if (state.gpu == gpu) client.page->write_slices(lane, write.slices, write.seq);
    }
    registry_.tap().tell(change_of(client, gpu, write.slices, now));
    spdlog::debug("{}: client {} (pid {}) gets slices of {} us, copies {} us",
                  accounts_[gpu].info.uuid_text, write.client, client.peer.pid,
                  write.slices.compute_us, write.slices.copy_us);
  }
  const bool soon = at.applier.waiting() && now - at.written_at < kConfirmLimit;
  return soon ? now + kConfirmPause : Time{0};
}

bool SliceController::refuses(std::size_t gpu, ClientId client) const {
  return gpus_[gpu].applier.refuses(client);
}

bool SliceController::in_force(std::size_t gpu, ClientId client) const {
  return gpus_[gpu].applier.in_force(client);
}

Slices SliceController::wanted(std::size_t gpu, ClientId client) const {
  return gpus_[gpu].applier.written(client);
}

}  // namespace switchyard::monitor
