#include "monitor/residency/handovers.h"

#include "monitor/core/lanes.h"

namespace switchyard::monitor {

namespace {

// Of two jobs, who gives and who takes.
struct Pair {
  Client::Lane* gives = nullptr;
  Client::Lane* takes = nullptr;  // null: nobody is there to take
};

// Memory is handed over with what is in it. Root of one container is not root of another, so the
// user alone does not tell; a process that this PID namespace can't see is in some other container.
bool may_have_it(const Client& giver, const Client& taker) {
  return giver.peer.uid == taker.peer.uid && giver.container == taker.container &&
         giver.peer.pid != 0 && taker.peer.pid != 0;
}

Pair pair_of(const Registry& registry, std::size_t gpu, const Job& giver, const Job& taker) {
  Pair pair;
  const Client* from = nullptr;
  for_lanes(registry, giver, [&](const Client& client, unsigned, Client::Lane& lane) {
    if (from != nullptr || lane.gpu != gpu || lane.residency.resident_bytes <= lane.kept_bytes) {
      return;
    }
    from = &client;
    pair.gives = &lane;
  });
  for_lanes(registry, taker, [&](const Client& client, unsigned, Client::Lane& lane) {
    const bool away = lane.residency.phase == abi::kAbsent && lane.residency.away_bytes() != 0;
    if (pair.takes != nullptr || lane.gpu != gpu || !away || from == nullptr) return;
    if (!may_have_it(*from, client)) return;
    pair.takes = &lane;
  });
  return pair;
}

template <typename Each>
void each_lane(const Registry& registry, Each each) {
  for (const auto& [id, client] : registry.clients()) {
    for (auto& [at, lane] : client->lanes) each(lane);
  }
}

template <typename Holds>
bool any_lane(const Registry& registry, Holds holds) {
  bool any = false;
  each_lane(registry, [&](const Client::Lane& lane) { any = any || holds(lane); });
  return any;
}

}  // namespace

void begin_handover(const Registry& registry, std::size_t gpu, const Job& giver, const Job& taker,
                    std::uint64_t soon_bytes, std::uint64_t number) {
  const Pair pair = pair_of(registry, gpu, giver, taker);
  const bool prepared = pair.takes != nullptr && pair.gives->soon_bytes != 0 &&
                        pair.gives->gives == pair.takes->takes;
  if (!prepared) withdraw_prepared(registry, gpu);
  if (pair.takes == nullptr) return;
  pair.gives->soon_bytes = soon_bytes;
  if (prepared) return;
  pair.gives->gives = pair.takes->takes = number;
}

void withdraw_prepared(const Registry& registry, std::size_t gpu) {
  each_lane(registry, [&](Client::Lane& giver) {
    if (giver.gpu != gpu || giver.soon_bytes == 0) return;
    each_lane(registry, [&](Client::Lane& taker) {
      if (taker.takes == giver.gives) taker.takes = 0;
    });
    giver.gives = giver.soon_bytes = 0;
  });
}

std::uint64_t gives_now(const Registry& registry, const Client::Lane& lane) {
  const auto takes = [&](const Client::Lane& other) { return other.takes == lane.gives; };
  return lane.gives != 0 && any_lane(registry, takes) ? lane.gives : 0;
}

std::uint64_t takes_now(const Registry& registry, const Client::Lane& lane) {
  const auto gives = [&](const Client::Lane& other) { return other.gives == lane.takes; };
  return lane.takes != 0 && any_lane(registry, gives) ? lane.takes : 0;
}

void end_handover(Client::Lane& lane) { lane.gives = lane.soon_bytes = lane.takes = 0; }

}  // namespace switchyard::monitor
