#include "monitor/residency/handovers.h"

#include "monitor/core/lanes.h"

namespace switchyard::monitor {

namespace {

// Memory is handed over with what is in it. Root of one container is not root of another, so the
// user alone does not tell. A process that this PID namespace can't see is in some other container.
bool may_have_it(const Client& giver, const Client& taker) {
  return giver.peer.uid == taker.peer.uid && giver.container == taker.container &&
         giver.peer.pid != 0 && taker.peer.pid != 0;
}

}  // namespace

policy::Handover pair_of(const Registry& registry, std::size_t gpu, const Job& giver,
                         const Job& taker) {
  const Client* from = nullptr;
  const Client* to = nullptr;
  for_lanes(registry, giver, [&](const Client& client, unsigned, const Client::Lane& lane) {
    const bool leaves = lane.gpu == gpu && lane.residency.resident_bytes > lane.kept_bytes;
    if (from == nullptr && leaves) from = &client;
  });
  for_lanes(registry, taker, [&](const Client& client, unsigned, const Client::Lane& lane) {
    const bool away = lane.residency.phase == abi::kAbsent && lane.residency.away_bytes() != 0;
    if (to != nullptr || lane.gpu != gpu || !away || from == nullptr) return;
    if (may_have_it(*from, client)) to = &client;
  });
  return {
      .gpu = gpu, .donor = from != nullptr ? from->id : 0, .recipient = to != nullptr ? to->id : 0};
}

}  // namespace switchyard::monitor
