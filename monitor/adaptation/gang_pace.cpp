#include "monitor/adaptation/gang_pace.h"

#include <spdlog/spdlog.h>

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
  return job.restraint.held || is_held_beyond_gates(registry, job);
}

bool is_alone(const Registry& registry, const Job& job) {
  const std::set<std::size_t> gpus = used_gpus(registry, job);
  bool alone = true;
  for (const auto& [key, other] : registry.jobs()) {
    if (&other == &job) continue;
    for_contexts(registry, other, [&](const Client&, unsigned, const Client::Lane& lane) {
      alone = alone && !gpus.contains(lane.gpu);
    });
  }
  return alone;
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
  for (auto& [key, job] : registry_.jobs()) {
    if (job.gang_kind == GangKind::kNone) {
      states_.erase(key);
      job.short_slices = false;
      continue;
    }
    gang_slices::State& state = states_[key];
    const double expected = state.expected;
    if (is_alone(registry_, job)) {
      state = {};
    } else if (stands_still(registry_, job)) {
      gang_slices::interrupt(state);
    } else if (gang_slices::next(state, launched_by(registry_, job), now)) {
      log(job, state, expected);
    }
    job.short_slices = state.phase == gang_slices::Phase::kShort;
  }
  std::erase_if(states_, [&](const auto& each) { return registry_.find(each.first) == nullptr; });
}

}  // namespace switchyard::monitor
