#include "monitor/statistics/progress.h"

#include <algorithm>
#include <utility>

namespace switchyard::monitor {
namespace {

using Records = std::vector<RecordReport>;

Time time_of(const RecordReport& record, Time now) {
  const auto now_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const std::uint32_t ago = static_cast<std::uint32_t>(now_us) - record.time_us;
  // Above the half: it was launched since the clock was read.
  return ago < 1u << 31 ? now - std::chrono::microseconds(ago) : now;
}

std::uint32_t mix(std::uint64_t id, std::uint32_t kind, std::uint32_t bytes) {
  std::uint64_t hash = (id ^ kind) * 0x9E3779B97F4A7C15u;
  hash = (hash ^ hash >> 29 ^ bytes) * 0xBF58476D1CE4E5B9u;
  return static_cast<std::uint32_t>(hash >> 32);
}

using Ids = std::map<unsigned, std::uint64_t>;  // of communicators of several ranks, by slot

Ids ids_of(const Client& client) {
  Ids out;
  for (const CommunicatorReport& each : client.page->communicators()) {
    if (each.ranks > 1) out[each.slot] = each.id;
  }
  return out;
}

void feed_collectives(iterations::Finder& finder, const Ids& ids, const Records& records,
                      Time now) {
  for (const RecordReport& record : records) {
    if ((record.what & abi::kLaunchRecord) != 0) continue;
    const std::uint32_t slot_and_kind = record.what / abi::kRecordedCounts;
    const auto id = ids.find(slot_and_kind / abi::kRecordedKinds);
    if (id == ids.end()) continue;
    const std::uint32_t kind = slot_and_kind % abi::kRecordedKinds;
    finder.add({mix(id->second, kind, record.bytes), time_of(record, now),
                std::uint64_t{record.bytes} + 1, record.what % abi::kRecordedCounts});
  }
}

void feed_launches(iterations::Finder& finder, const Records& records, Time now) {
  for (const RecordReport& record : records) {
    if ((record.what & abi::kLaunchRecord) == 0) continue;
    finder.add({record.what, time_of(record, now), 1, 0});
  }
}

void add_classes(std::vector<std::uint8_t>& out, const Records& records) {
  for (const RecordReport& record : records) {
    if (out.size() == iterations::kMostEvents) return;
    if ((record.what & abi::kLaunchRecord) == 0) continue;
    out.push_back(static_cast<std::uint8_t>(record.what % abi::kLaunchClasses));
  }
}

void feed(Progress::Process& process, const Ids& ids, const Records& records, Time now) {
  if (process.source == Progress::Source::kCollectives) {
    feed_collectives(process.finder, ids, records, now);
  } else {
    feed_launches(process.finder, records, now);
  }
}

// Appends what has come. False: not all of it was read, or it is more than its part.
bool read_all(const Registry& registry, const Client& client, RecordCursor& cursor, Records& came,
              std::uint32_t& count) {
  count = client.page->read_records(cursor, came);
  registry.work().add(came.size());
  const std::size_t clients = registry.clients_of(client.peer.account());
  return count == came.size() &&
         count <= part_of(Progress::kMostReadOfUser, clients, abi::kRecords);
}

}  // namespace

void Progress::read(const Registry& registry, const Client& client, Time now) {
  const auto found = processes_.find(client.id);
  if (found == processes_.end() || !found->second.records) return;
  Process& process = found->second;
  const Ids ids = ids_of(client);
  // The next tick finds that, too.
  if (ids.empty() != (process.source == Source::kLaunches)) return;
  Records came;
  std::uint32_t count = 0;
  const bool whole = read_all(registry, client, process.cursor, came, count);
  process.recorded += count;
  add_classes(process.recorded_classes, came);
  if (whole) {
    feed(process, ids, came, now);
  } else {
    process.finder.lost();
  }
}

void Progress::look(const Registry& registry, Process& process, const Client& client, bool follows,
                    Time now) const {
  const Ids ids = ids_of(client);
  const Source source = ids.empty() ? Source::kLaunches : Source::kCollectives;
  if (source != process.source) {
    process = {.source = source,
               .finder = iterations::Finder(source == Source::kCollectives
                                                ? iterations::Weight::kBytes
                                                : iterations::Weight::kLaunches),
               .cursor = process.cursor,
               .classes = {},
               .recorded_classes = {}};
  }
  const bool records =
      source == Source::kCollectives || follows || (asked_at_ && now - *asked_at_ < kRecordsFor);
  process.finder.bound(part_of(kMostEventsOfUser, registry.clients_of(client.peer.account()),
                               iterations::kMostEvents));
  Records came;
  std::uint32_t count = 0;
  const bool all = read_all(registry, client, process.cursor, came, count);
  // Collectives were recorded before somebody looked; launches were not.
  bool whole = all && (process.records || source == Source::kCollectives);
  process.records = records;
  std::vector<std::uint8_t> classes = std::exchange(process.recorded_classes, {});
  const std::size_t recorded = std::exchange(process.recorded, 0) + count;
  if (source == Source::kLaunches && records) {
    add_classes(classes, came);
    whole = process.classes.look(recorded, classes, now) && whole;
  }
  client.page->record_launches(source == Source::kLaunches && records, process.classes.wanted());
  if (!whole) return process.finder.lost();
  feed(process, ids, came, now);
  process.finder.look();
}

void Progress::tick(const Registry& registry, Time now) {
  std::erase_if(processes_,
                [&](const auto& each) { return !registry.clients().contains(each.first); });
  for (const auto& [id, client] : registry.clients()) {
    if (client->observer) continue;
    const bool follows = follows_iterations(registry.jobs().at(client->job));
    look(registry, processes_[id], *client, follows, now);
  }
}

const Progress::Process* Progress::find(ClientId id) const {
  const auto found = processes_.find(id);
  return found != processes_.end() ? &found->second : nullptr;
}

std::map<ClientId, Time> Progress::late(const Job& job) const {
  // By the marker and the number of its collective: ranks of several groups have several markers.
  using Place = std::pair<std::uint32_t, std::uint64_t>;
  struct First {
    Time at{0};
    std::size_t ranks = 0;
  };
  std::map<Place, First> firsts;
  std::map<ClientId, const iterations::Finder*> ranks;
  for (const ClientId id : job.clients) {
    const Process* process = find(id);
    if (process == nullptr || process->source != Source::kCollectives) continue;
    const iterations::Finder& finder = process->finder;
    if (!finder.known() || finder.marks().empty()) continue;
    ranks[id] = &finder;
    for (const iterations::Mark& mark : finder.marks()) {
      First& first = firsts[{*finder.marker(), mark.number}];
      first.at = first.ranks++ == 0 ? mark.at : std::min(first.at, mark.at);
    }
  }
  std::map<ClientId, Time> out;
  for (const auto& [id, finder] : ranks) {
    Time sum{0};
    Time::rep count = 0;
    for (const iterations::Mark& mark : finder->marks()) {
      const First& first = firsts.at({*finder->marker(), mark.number});
      if (first.ranks < 2) continue;
      sum += mark.at - first.at;
      ++count;
    }
    if (count != 0) out[id] = sum / count;
  }
  return out;
}

}  // namespace switchyard::monitor
