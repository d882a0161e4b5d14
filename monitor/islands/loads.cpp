#include "monitor/islands/loads.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "monitor/core/lanes.h"
#include "monitor/islands/members.h"

namespace switchyard::monitor::islands {
namespace {

struct OnGpu {
  double load = 0;  // of the server
  std::vector<Client::Lane*> at_work;
};

}  // namespace

void share_loads(Registry& registry) {
  std::map<std::pair<std::uint64_t, std::size_t>, OnGpu> islands;  // by key and GPU
  for (const auto& entry : registry.jobs()) {
    const Job& job = entry.second;
    if (*job.island == 0) continue;
    for_lanes(registry, job, [&](const Client&, unsigned, Client::Lane& lane) {
      OnGpu& on = islands[{*job.island, lane.gpu}];
      if (!serves(job)) {
        if (lane.active) on.at_work.push_back(&lane);
      } else if (lane.load > 0) {
        on.load += std::exchange(lane.load, 0);
      }
    });
  }
  for (const auto& [key, on] : islands) {
    if (on.load <= 0) continue;
    for (Client::Lane* lane : on.at_work) {
      lane->load = on.load / static_cast<double>(on.at_work.size());
    }
  }
}

}  // namespace switchyard::monitor::islands
