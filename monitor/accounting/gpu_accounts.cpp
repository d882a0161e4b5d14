#include "monitor/accounting/gpu_accounts.h"

#include <algorithm>

#include "monitor/core/minus.h"

namespace switchyard::monitor {

GpuAccounts::GpuAccounts(const std::vector<GpuInfo>& infos, Registry& registry,
                         std::optional<std::uint64_t> capacity)
    : registry_(registry), capacity_(capacity) {
  for (const GpuInfo& info : infos) {
    gpus_.emplace_back();
    gpus_.back().info = info;
    gpus_.back().account.set_capacity(capacity);
  }
}

std::uint64_t GpuAccounts::gives(std::size_t gpu) const {
  const GpuMemory& memory = gpus_[gpu].memory;
  const std::uint64_t all = minus(memory.total_bytes, memory.reserved_bytes);
  const std::uint64_t lowered = capacity_.value_or(all);
  return all == 0 ? lowered : std::min(all, lowered);
}

std::uint64_t GpuAccounts::largest() const {
  std::uint64_t most = 0;
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) most = std::max(most, gives(gpu));
  return most;
}

std::optional<std::size_t> GpuAccounts::find(const Uuid& uuid) const {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i].info.uuid == uuid) return i;
  }
  return std::nullopt;
}

std::optional<std::size_t> GpuAccounts::find_text(const std::string& uuid_text) const {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i].info.uuid_text == uuid_text) return i;
  }
  return std::nullopt;
}

std::vector<GpuAccounts::ClientOnGpu> GpuAccounts::clients_on(std::size_t gpu) {
  registry_.work().add(registry_.clients().size());
  std::vector<ClientOnGpu> out;
  for (auto& [id, client] : registry_.clients()) {
    for (auto& [lane, state] : client->lanes) {
      if (state.gpu == gpu) out.push_back({client.get(), lane, &state});
    }
  }
  return out;
}

bool GpuAccounts::takes_turns(std::size_t gpu) const {
  for (const auto& [id, client] : registry_.clients()) {
    const Job* job = registry_.find(client->job);
    if (job == nullptr || !job->knobs.oversubscribe) continue;
    for (const auto& [lane, state] : client->lanes) {
      if (state.gpu == gpu) return true;
    }
  }
  return false;
}

std::optional<GpuAccounts::ClientOnGpu> GpuAccounts::client_on(std::size_t gpu, ClientId id) {
  Client* client = registry_.client(id);
  if (client == nullptr) return std::nullopt;
  for (auto& [lane, state] : client->lanes) {
    if (state.gpu == gpu) return ClientOnGpu{client, lane, &state};
  }
  return std::nullopt;
}

// Reads the other GPUs' memory that a client has parked on this one, or may have.
void GpuAccounts::read_parked(const ClientOnGpu& on) {
  std::uint64_t there = 0;
  std::uint64_t held = 0;
  for (const auto& [lane, state] : on.client->lanes) {
    const policy::Parker& parker = state.parker;
    if (parker.held() == 0 || parker.on != on.state->gpu) continue;
    const std::uint64_t now = parker.bounded(on.client->page->residency(lane).parked_bytes);
    there += now;
    held += std::max(parker.allowed, now);
  }
  gpus_[on.state->gpu].account.set_parked(on.client->id, there, held - there);
}

void GpuAccounts::set_released(JobKey job, bool released) {
  for (Gpu& gpu : gpus_) gpu.account.set_released(job, released);
}

void GpuAccounts::read_credits(std::size_t gpu) {
  Account& account = gpus_[gpu].account;
  for (const ClientOnGpu& each : clients_on(gpu)) {
    const Account::Holding* holding = account.holding(each.client->id);
    if (holding == nullptr) continue;
    account.set_credit(each.client->id, each.client->page->credit(each.lane, holding->granted));
    read_parked(each);
    const Job* job = registry_.find(each.client->job);
    if (job == nullptr || !job->knobs.swappable) continue;
    const ResidencyReport said = each.client->page->residency(each.lane);
    const std::uint64_t held = held_bytes(said, each.state->residency_order);
    account.set_away(each.client->id, away_bytes(*holding, said), held - said.resident_bytes);
    account.set_detached(each.client->id, said.detached());
  }
}

}  // namespace switchyard::monitor
