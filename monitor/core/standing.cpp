#include "monitor/core/standing.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

#include "monitor/core/lanes.h"
#include "monitor/core/registry.h"

namespace switchyard::monitor {

struct Standing {
  static bool& of(Job& job) { return job.stands.write(); }
};

namespace standing {
namespace {

bool is_rank(const Client& client) {
  const auto all = client.page->communicators();
  return std::any_of(all.begin(), all.end(), [](const auto& each) { return each.ranks > 1; });
}

void note_progress(Client& client) {
  std::uint64_t progress = 0;
  for (const auto& [lane, state] : client.lanes) {
    progress += client.page->gate(lane).progress + client.page->report(lane).work();
  }
  for (const CommunicatorReport& each : client.page->communicators()) progress += each.launched;
  client.standing.moved = progress != client.standing.progress;
  client.standing.progress = progress;
}

// It is told to leave and has not, or its memory is on its way back.
bool is_moving(const Client::Lane& lane) {
  const ResidencyOrder& told = lane.residency_order;
  return told.limited ? !has_left(lane.residency, told) : !lane.residency.resident();
}

bool holds_up(const Job& job, const Client& client) {
  const bool waits = residency::released(job.memory->state) && !job.memory->wanted_out.any();
  const bool at_cut = job.gang->stage != GangHold::Stage::kNone;
  if (client.standing.seen != Standstill::kNone || waits || at_cut) return true;
  bool works = false;
  for (const auto& [lane, state] : client.lanes) {
    if (is_moving(state)) return true;
    works = works || (state.order.numbered() && !client.page->gate(lane).done);
  }
  return !client.standing.moved && (works || is_rank(client));
}

// True: it is another than before.
bool look(Client& client, Time now) {
  const Standstill before = client.standing.why;
  note(client.standing, standstill_of(client.peer.pid), now);
  const Standstill why = client.standing.why;
  if (why == before) return false;
  if (why != Standstill::kNone) {
    spdlog::info("pid {} ({}) {}: nobody waits for it", client.peer.pid, client.process,
                 text_of(why));
  } else {
    spdlog::info("pid {} ({}) can act again", client.peer.pid, client.process);
  }
  return true;
}

// Those first that were not looked at for longest. Whether one of them is another than before.
bool look(Work& work, std::vector<Client*> wanted, Time every, Time now) {
  std::erase_if(wanted, [=](const Client* client) {
    const Time at = client->standing.looked_at;
    return at != Time{0} && now - at < every;
  });
  const std::size_t most = std::min(wanted.size(), kMostLooks);
  std::partial_sort(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(most),
                    wanted.end(), [](const Client* a, const Client* b) {
                      return a->standing.looked_at < b->standing.looked_at;
                    });
  work.add(most * Work::kOfQuestion);
  bool changed = false;
  for (std::size_t i = 0; i < most; ++i) changed = look(*wanted[i], now) || changed;
  return changed;
}

// A job that waits for each of its processes stands with the first one.
void sum_up(const Registry& registry, Job& job) {
  std::size_t standing = 0;
  std::size_t all = 0;
  bool ranks = false;
  for_clients(registry, job, [&](const Client& client) {
    ++all;
    const bool stands = client.standing.why != Standstill::kNone;
    standing += stands ? 1 : 0;
    ranks = ranks || (stands && is_rank(client));
  });
  Standing::of(job) = standing != 0 && (standing == all || ranks);
}

template <typename Wanted>
bool look_at_those(Registry& registry, Time every, Time now, Wanted wanted) {
  std::vector<Client*> clients;
  for (const auto& [id, client] : registry.clients()) {
    const Job* job = registry.find(client->job);
    if (job != nullptr && !client->observer && wanted(*job, *client)) {
      clients.push_back(client.get());
    }
  }
  const bool changed = look(registry.work(), std::move(clients), every, now);
  for (auto& [key, job] : registry.jobs()) sum_up(registry, job);
  return changed;
}

}  // namespace

void note(Known& known, Standstill seen, Time now) {
  if (seen != known.seen) known.since = now;
  known.seen = seen;
  known.looked_at = now;
  const Time lasts = now - known.since;
  const bool brief = (seen == Standstill::kTraced && lasts < kTracedFor) ||
                     (seen == Standstill::kDisk && lasts < kDiskFor);
  known.why = brief ? Standstill::kNone : seen;
}

void tick(Registry& registry, Time now) {
  for (const auto& [id, client] : registry.clients()) {
    if (!client->observer) note_progress(*client);
  }
  look_at_those(registry, kLookEvery, now, holds_up);
}

void look(Registry& registry, Job& job, Time now) {
  std::vector<Client*> clients;
  for_clients(registry, job, [&](Client& client) { clients.push_back(&client); });
  look(registry.work(), std::move(clients), kLookEvery, now);
  sum_up(registry, job);
}

bool look_at_all(Registry& registry, Time now) {
  return look_at_those(registry, kListEvery, now, [](const Job&, const Client&) { return true; });
}

const Client* who_stands(const Registry& registry, const Job& job) {
  const Client* found = nullptr;
  for_clients(registry, job, [&](const Client& client) {
    if (found == nullptr && client.standing.why != Standstill::kNone) found = &client;
  });
  return found;
}

std::string why_it_stands(const Registry& registry, const Job& job) {
  const Client* who = who_stands(registry, job);
  if (who == nullptr) return {};
  return fmt::format("its process {} {}", who->peer.pid, text_of(who->standing.why));
}

}  // namespace standing
}  // namespace switchyard::monitor
