#include "monitor/adaptation/gang_pace.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <set>

#include "monitor/adaptation/reader.h"
#include "monitor/core/lanes.h"

namespace switchyard::monitor {
namespace {

std::uint64_t launched_by(const Registry& registry, const Job& job) {
  std::uint64_t out = 0;
  for_clients(registry, job, [&](const Client& client) {
    for (const CommunicatorReport& each : client.page->communicators()) {
      if (each.ranks > 1) out += each.launched;
    }
  });
  return out;
}

// Its collectives wait for something that no slice can change. A limit opens and closes the gates
// many times in a window, so windows stand across that.
bool stands_still(const Registry& registry, const Job& job) {
  return job.restraint->held || is_held_beyond_gates(registry, job);
}

// The GPUs where each job has a context. They are read once: pages change at any time.
using UsedGpus = std::map<JobKey, std::set<std::size_t>>;

UsedGpus used_by_all(const Registry& registry) {
  UsedGpus out;
  for (const auto& [key, job] : registry.jobs()) out[key] = used_gpus(registry, job);
  return out;
}

// By GPU, the job that has a context there; 0: several have.
std::map<std::size_t, JobKey> sole_users(const UsedGpus& used) {
  std::map<std::size_t, JobKey> out;
  for (const auto& [key, gpus] : used) {
    for (const std::size_t gpu : gpus) {
      const auto [at, first] = out.try_emplace(gpu, key);
      if (!first) at->second = 0;
    }
  }
  return out;
}

void log(const Job& job, const gang_slices::State& state, double expected) {
  if (state.phase == gang_slices::Phase::kLong) {
    spdlog::debug("job '{}': long slices are tried around it, {:.0f} collectives/s", job.name,
                  state.last_rate);
  } else {
    spdlog::info(
        "job '{}': short slices around it: with long ones it made {:.0f} of {:.0f} "
        "collectives/s",
        job.name, state.last_rate, expected);
  }
}

}  // namespace

void GangPace::follow(Time now) {
  const UsedGpus used = used_by_all(registry_);
  const std::map<std::size_t, JobKey> sole = sole_users(used);
  for (auto& [key, job] : registry_.jobs()) {
    if (*job.gang_kind == GangKind::kNone) {
      states_.erase(key);
      job.short_slices.write() = false;
      continue;
    }
    gang_slices::State& state = states_[key];
    const double expected = state.expected;
    const std::set<std::size_t>& gpus = used.at(key);
    const bool alone = std::all_of(
        gpus.begin(), gpus.end(), [&, &key = key](std::size_t gpu) { return sole.at(gpu) == key; });
    if (alone) {
      state = {};
    } else if (stands_still(registry_, job)) {
      gang_slices::interrupt(state);
    } else if (gang_slices::next(state, launched_by(registry_, job), now)) {
      log(job, state, expected);
    }
    job.short_slices.write() = state.phase == gang_slices::Phase::kShort;
  }
  std::erase_if(states_, [&](const auto& each) { return registry_.find(each.first) == nullptr; });
}

}  // namespace switchyard::monitor
