#include "monitor/statistics/island_gains.h"

#include <algorithm>
#include <set>
#include <vector>

#include "monitor/core/lanes.h"
#include "monitor/islands/members.h"

namespace switchyard::monitor {
namespace {

using Gain = policy::IslandGain;

struct Island {
  std::vector<Gain::Member> members;
  std::set<std::size_t> gpus;
};

void add(const Registry& registry, const Job& job, Island& island) {
  Gain::Member member{.job = job.key};
  for_lanes(registry, job, [&](const Client&, unsigned, const Client::Lane& lane) {
    island.gpus.insert(lane.gpu);
    member.work += lane.last.work();
    member.busy += std::max(lane.share_got >= 0 ? lane.share_got : lane.load, 0.0);
  });
  island.members.push_back(member);
}

bool others_work(const Registry& registry, std::uint64_t key, const std::set<std::size_t>& gpus) {
  return std::any_of(registry.jobs().begin(), registry.jobs().end(), [&](const auto& each) {
    bool works = false;
    if (*each.second.island == key) return works;
    for_lanes(registry, each.second, [&](const Client&, unsigned, const Client::Lane& lane) {
      works = works || (lane.active && gpus.contains(lane.gpu));
    });
    return works;
  });
}

}  // namespace

void IslandGains::tick(const Registry& registry, Time now) {
  std::map<std::uint64_t, Island> found;
  for (const auto& [key, job] : registry.jobs()) {
    if (islands::is_member(job)) add(registry, job, found[*job.island]);
  }
  std::erase_if(islands_, [&](const auto& each) { return !found.contains(each.first); });
  for (const auto& [key, island] : found) {
    islands_[key].look(island.members, others_work(registry, key, island.gpus), now);
  }
}

std::optional<Gain::Figures> IslandGains::of(const Job& job) const {
  const auto found = islands_.find(*job.island);
  if (*job.island == 0 || found == islands_.end()) return std::nullopt;
  return found->second.figures();
}

}  // namespace switchyard::monitor
