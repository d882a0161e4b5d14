#include "monitor/control/communicator_listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "monitor/control/reply.h"
#include "switchyard/collectives.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;

struct Member {
  CommunicatorReport said;
  pid_t pid = 0;
  std::size_t gpu = 0;
};

json list_member(Monitor& monitor, const Member& member, Time now) {
  const CommunicatorReport& said = member.said;
  const char* kind = collective_key(said.last_kind);
  const Time last(static_cast<Time::rep>(said.last_ns & ~(1ull << 63)));
  return {{"rank", said.ranks != 0 ? json(said.rank) : json(nullptr)},
          {"pid", member.pid},
          {"gpu_uuid", monitor.gpus().all()[member.gpu].info.uuid_text},
          {"launched", said.launched},
          {"bytes", said.bytes},
          {"point_to_point", said.sent},
          {"last_kind", kind != nullptr ? json(kind) : json(nullptr)},
          {"last_bytes", said.last_bytes},
          {"last_seconds",
           kind != nullptr ? json(seconds(std::max(now - last, Time{0}))) : json(nullptr)}};
}

}  // namespace

void list_collectives(const ClientPage& page, json& listing) {
  json& kinds = listing["collectives"] = json::object();
  json& kind_bytes = listing["collective_bytes"] = json::object();
  const auto counts = page.collectives();
  const auto bytes = page.collective_bytes();
  for (std::uint32_t kind = 1; kind < counts.size(); ++kind) {
    const char* key = collective_key(kind);
    if (key == nullptr || counts[kind] == 0) continue;
    kinds[key] = counts[kind];
    kind_bytes[key] = bytes[kind];
  }
}

std::size_t list_communicators(Monitor& monitor, const Job& job, Time now, json& listing) {
  std::map<std::uint64_t, std::vector<Member>> all;
  std::size_t listed = 0;
  std::size_t unwatched = 0;
  for (const ClientId id : job.clients) {
    const Client* client = monitor.registry().client(id);
    if (client == nullptr || client->observer) continue;
    unwatched += client->page->unwatched_communicators();
    for (const CommunicatorReport& said : client->page->communicators()) {
      const auto lane = client->lanes.find(said.lane);
      if (lane == client->lanes.end() || listed == kMostListedRanks) {
        ++unwatched;
        continue;
      }
      all[said.id].push_back({said, client->peer.pid, lane->second.gpu});
      ++listed;
    }
  }
  json communicators = json::array();
  for (auto& [id, members] : all) {
    std::sort(members.begin(), members.end(),
              [](const Member& a, const Member& b) { return a.said.rank < b.said.rank; });
    json ranks = json::array();
    std::uint32_t size = 0;
    for (const Member& member : members) {
      size = std::max(size, member.said.ranks);
      ranks.push_back(list_member(monitor, member, now));
    }
    const auto original = all.find(original_id(id));
    communicators.push_back(
        {{"id", fmt::format("{:016x}", id)},
         {"twin_of",
          original != all.end() ? json(fmt::format("{:016x}", original->first)) : json(nullptr)},
         {"size", size != 0 ? json(size) : json(nullptr)},
         {"ranks", std::move(ranks)}});
  }
  // The whole job's first, as a rule.
  std::stable_sort(communicators.begin(), communicators.end(), [](const json& a, const json& b) {
    return a["ranks"].size() > b["ranks"].size();
  });
  listing["communicators"] = std::move(communicators);
  listing["communicators_unwatched"] = unwatched;
  return listed;
}

}  // namespace switchyard::monitor
