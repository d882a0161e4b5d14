#include "monitor/islands/failures.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>

#include "monitor/core/lanes.h"
#include "monitor/islands/members.h"

namespace switchyard::monitor {

struct IslandFailures {
  static IslandFailure& of(Job& job) { return job.island_failure.write(); }
};

namespace islands {
namespace {

// CUresult, which the monitor has no header of.
constexpr std::uint32_t kServerEnded = 806;  // CUDA_ERROR_MPS_RPC_FAILURE

struct Fault {
  std::uint32_t error;
  const char* text;
};
constexpr Fault kFaults[] = {{214, "uncorrectable memory error"},
                             {220, "uncorrectable NVLink error"},
                             {700, "illegal address"},
                             {702, "launch timeout"},
                             {710, "assertion in a kernel"},
                             {714, "hardware stack error"},
                             {715, "illegal instruction"},
                             {716, "misaligned address"},
                             {717, "invalid address space"},
                             {718, "invalid program counter"},
                             {719, "launch failed"}};

// One without a context comes to the next server.
bool has_something_to_lose(const Client& client) {
  return std::any_of(client.lanes.begin(), client.lanes.end(), [&](const auto& each) {
    const LaneReport report = client.page->report(each.first);
    return report.contexts > 0 || report.fault != 0;
  });
}

// Those of one island that have not failed yet, and can.
template <typename Each>
void for_members(Registry& registry, std::uint64_t island, Each each) {
  for (auto& entry : registry.jobs()) {
    Job& job = entry.second;
    if (*job.island != island || serves(job)) continue;
    for_clients(registry, job, [&](Client& client) {
      if (!client.failed && has_something_to_lose(client)) each(job, client);
    });
  }
}

bool is_at_work(const Client& client) {
  return std::any_of(client.lanes.begin(), client.lanes.end(), [&](const auto& each) {
    const auto& [lane, state] = each;
    return state.active || client.page->report(lane).work() != state.last.work();
  });
}

// 0: it tells none.
std::uint32_t fault_of(const Client& client) {
  for (const auto& [lane, state] : client.lanes) {
    if (const std::uint32_t fault = client.page->report(lane).fault; fault != 0) return fault;
  }
  return 0;
}

const Client* server_of(const Registry& registry, std::uint64_t island) {
  for (const auto& [key, job] : registry.jobs()) {
    if (*job.island != island || !serves(job)) continue;
    for (const ClientId id : job.clients) return registry.clients().at(id).get();
  }
  return nullptr;
}

std::size_t gpu_of(const Client& client) {
  return client.lanes.empty() ? 0 : client.lanes.begin()->second.gpu;
}

// `server`: null, if it is not known.
void tell_server_ended(Registry& registry, std::uint64_t island, const Client* server, Time now) {
  std::size_t members = 0;
  JobKey told = 0;
  for_members(registry, island, [&](Job& job, Client& client) {
    client.failed = true;
    IslandFailures::of(job) = {now, 0, {}};
    if (std::exchange(told, job.key) == job.key) return;
    ++members;
    HistoryEvent event = event_of(EventKind::kIslandEnded, job.key, now);
    if (server != nullptr) event.by_job = static_cast<std::uint32_t>(server->job);
    if (server != nullptr) event.pid = server->peer.pid;
    set_gpu(event, gpu_of(client));
    job.tap.tell(event);
  });
  if (members > 0) spdlog::warn("the MPS server of an island has ended: its {} jobs fail", members);
}

void tell_fault(Registry& registry, std::uint64_t island, std::uint32_t error, Time now) {
  std::vector<std::string> suspects;
  std::set<JobKey> suspected;
  for_members(registry, island, [&](const Job& job, const Client& client) {
    if (is_at_work(client) && suspected.insert(job.key).second) suspects.push_back(job.name);
  });
  JobKey told = 0;
  for_members(registry, island, [&](Job& job, Client& client) {
    client.failed = true;
    IslandFailures::of(job) = {now, error, suspects};
    if (std::exchange(told, job.key) == job.key) return;
    HistoryEvent event = event_of(EventKind::kIslandFault, job.key, client.peer, now);
    event.value = error | (suspected.contains(job.key) ? kSuspect : 0);
    set_gpu(event, gpu_of(client));
    job.tap.tell(event);
  });
  // Nobody is told where a page says no longer what it said a moment ago.
  if (told == 0) return;
  spdlog::warn("an island has failed: {}; at work then: {}", fault_text(error),
               fmt::join(suspects, ", "));
}

}  // namespace

void ask_for_faults(const Job& job, Client& client) {
  if (!is_member(job)) return;
  for (const auto& [lane, state] : client.lanes) client.page->ask_for_faults(lane);
}

void follow(Registry& registry, const Client& client, Time now) {
  if (client.failed) return;
  const Job* job = registry.find(client.job);
  if (job == nullptr || !is_member(*job)) return;
  const std::uint32_t fault = fault_of(client);
  if (fault == kServerEnded) {
    tell_server_ended(registry, *job->island, server_of(registry, *job->island), now);
  } else if (fault != 0) {
    tell_fault(registry, *job->island, fault, now);
  }
}

void follow_all(Registry& registry, Time now) {
  for (const auto& [key, job] : registry.jobs()) {
    if (!is_member(job)) continue;
    for_clients(registry, job, [&](const Client& client) { follow(registry, client, now); });
  }
}

void left(Registry& registry, const Client& client, Time now) {
  const Job* job = registry.find(client.job);
  if (job == nullptr || *job->island == 0 || client.observer) return;
  if (serves(*job)) return tell_server_ended(registry, *job->island, &client, now);
  follow(registry, client, now);
}

std::string fault_text(std::uint32_t error) {
  const auto* known = std::find_if(std::begin(kFaults), std::end(kFaults),
                                   [error](const Fault& each) { return each.error == error; });
  return fmt::format("{} (error {})", known != std::end(kFaults) ? known->text : "fault", error);
}

std::string failure_text(const IslandFailure& failure) {
  return failure.error == 0 ? "its MPS server ended" : fault_text(failure.error);
}

}  // namespace islands
}  // namespace switchyard::monitor
