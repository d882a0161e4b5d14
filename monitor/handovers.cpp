#include "monitor/handovers.h"

#include "monitor/lanes.h"

namespace switchyard::monitor {

void begin_handover(const Roster& roster, std::size_t gpu, const Job& giver, const Job& taker,
                    std::uint64_t number) {
  const Client* from = nullptr;
  Client::Lane* gives = nullptr;
  for_lanes(roster, giver, [&](const Client& client, unsigned, Client::Lane& lane) {
    if (gives != nullptr || lane.gpu != gpu || lane.residency.resident_bytes <= lane.kept_bytes) {
      return;
    }
    from = &client;
    gives = &lane;
  });
  Client::Lane* takes = nullptr;
  for_lanes(roster, taker, [&](const Client& client, unsigned, Client::Lane& lane) {
    const bool away = lane.residency.phase == abi::kAbsent && lane.residency.away_bytes() != 0;
    if (takes != nullptr || lane.gpu != gpu || !away || from == nullptr ||
        client.peer.uid != from->peer.uid) {
      return;
    }
    takes = &lane;
  });
  if (takes == nullptr) return;
  gives->gives = number;
  takes->takes = number;
  takes->takes_from = from->id;
}

std::uint64_t gives_now(const Roster& roster, const Client::Lane& lane) {
  if (lane.gives == 0) return 0;
  for (const auto& [id, client] : roster.clients()) {
    for (const auto& [at, other] : client->lanes) {
      if (other.takes == lane.gives) return lane.gives;
    }
  }
  return 0;
}

std::uint64_t takes_now(const Roster& roster, const Client::Lane& lane) {
  return lane.takes != 0 && roster.clients().count(lane.takes_from) != 0 ? lane.takes : 0;
}

void end_handover(Client::Lane& lane) { lane.gives = lane.takes = lane.takes_from = 0; }

}  // namespace switchyard::monitor
