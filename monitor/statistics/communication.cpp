#include "monitor/statistics/communication.h"

#include <algorithm>
#include <vector>

#include "switchyard/collectives.h"

namespace switchyard::monitor {
namespace {

using communication::Timing;
using What = Timing::What;
using Process = Communication::Process;
using Communicators = std::vector<CommunicatorReport>;

std::optional<What> what_of(std::uint32_t mark) {
  switch (static_cast<abi::TimingMark>(mark % abi::kTimingMarks)) {
    case abi::TimingMark::kStalled:
      return What::kStalled;
    case abi::TimingMark::kUntimed:
      return What::kUntimed;
    case abi::TimingMark::kGraph:
      return What::kGraph;
    case abi::TimingMark::kRefused:
      return What::kRefused;
  }
  return std::nullopt;
}

std::optional<Timing> timing_of(const RecordReport& record, const Communicators& all) {
  Timing out;
  out.took = Time(record.bytes);
  if ((record.what & abi::kLaunchRecord) != 0) {
    const std::uint32_t mark = record.what & ~abi::kLaunchRecord;
    const auto what = what_of(mark);
    out.lane = mark / abi::kTimingMarks;
    if (!what || out.lane >= abi::kMaxGpus) return std::nullopt;
    out.what = *what;
    return out;
  }
  const std::uint32_t slot_and_kind = record.what / abi::kRecordedCounts;
  const std::uint32_t kind = slot_and_kind % abi::kRecordedKinds;
  const auto found = std::find_if(all.begin(), all.end(), [&](const CommunicatorReport& each) {
    return each.slot == slot_and_kind / abi::kRecordedKinds;
  });
  if (found == all.end()) return std::nullopt;
  out.lane = found->lane;
  out.communicator = found->id;
  out.number = record.what % abi::kRecordedCounts;
  out.meets = !is_point_to_point(static_cast<Collective>(kind));
  return out;
}

// The client's clock has 32 bits of microseconds, and differs from GPU to GPU.
Time clock_of(Process& process, unsigned lane, std::uint32_t us) {
  const auto since = static_cast<std::int32_t>(us - process.clock_us[lane]);
  process.clock_us[lane] = us;
  return process.clock[lane] += std::chrono::microseconds(since);
}

bool has_peers(const Communicators& all) {
  return std::any_of(all.begin(), all.end(),
                     [](const CommunicatorReport& each) { return each.ranks > 1; });
}

Communication::State state_of(const Process& process, const communication::Shares& shares) {
  using enum Communication::State;
  if (!process.asked) return kUnasked;
  if (process.history.has(What::kGraph)) return kGraphs;
  if (process.history.has(What::kRefused)) return kRefused;
  return shares.span > Time{0} ? kTimed : kMeasuring;
}

}  // namespace

const char* key_of(Communication::State state) {
  switch (state) {
    case Communication::State::kMeasuring:
      return "measuring";
    case Communication::State::kTimed:
      return "timed";
    case Communication::State::kGraphs:
      return "in_graphs";
    case Communication::State::kRefused:
      return "refused";
    case Communication::State::kUnasked:
      break;
  }
  return nullptr;
}

void Communication::look(const Registry& registry, Process& process, const Client& client,
                         Time now) const {
  const Communicators all = client.page->communicators();
  process.asked = asked_at_ && now - *asked_at_ < kTimesFor && has_peers(all);
  const std::uint32_t timed = client.page->timed();
  client.page->time_collectives(process.asked,
                                process.asked ? process.allowance.next(timed, looks_) : timed);
  const std::size_t clients = registry.clients_of(client.peer.account());
  process.history.bound(part_of(kMostOfUser, clients, communication::kMostTimings));
  std::vector<RecordReport> came;
  const std::uint32_t count = client.page->read_timings(process.cursor, came);
  came.resize(std::min(came.size(), part_of(kMostOfUser, clients, abi::kTimings)));
  registry.work().add(came.size());
  if (count != came.size()) {
    process.history.add({.what = What::kUntimed, .lane = communication::kAllLanes, .seen = now});
  }
  for (const RecordReport& record : came) {
    auto timing = timing_of(record, all);
    if (!timing) continue;
    if (timing->what == What::kCollective || timing->what == What::kStalled) {
      timing->began = clock_of(process, timing->lane, record.time_us);
    }
    timing->seen = now;
    process.history.add(*timing);
  }
  process.history.forget(now);
}

void Communication::tick(const Registry& registry, Time now) {
  ++looks_;
  std::erase_if(processes_,
                [&](const auto& each) { return !registry.clients().contains(each.first); });
  for (const auto& [id, client] : registry.clients()) {
    if (!client->observer) look(registry, processes_[id], *client, now);
  }
}

std::map<ClientId, Communication::Known> Communication::of(const Registry& registry,
                                                           const Job& job) const {
  std::vector<ClientId> ids;
  std::vector<communication::Rank> ranks;
  for (const ClientId id : job.clients) {
    const auto process = processes_.find(id);
    const auto client = registry.clients().find(id);
    if (process == processes_.end() || client == registry.clients().end()) continue;
    communication::Rank& rank = ranks.emplace_back();
    rank.history = &process->second.history;
    registry.work().add(rank.history->timings().size());
    for (const CommunicatorReport& each : client->second->page->communicators()) {
      rank.sizes.emplace_back(each.id, each.ranks);
    }
    ids.push_back(id);
  }
  const auto meetings = communication::meetings_of(ranks);
  std::map<ClientId, Known> out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto shares = communication::shares_of(*ranks[i].history);
    out[ids[i]] = {state_of(processes_.at(ids[i]), shares), shares, meetings[i]};
  }
  return out;
}

}  // namespace switchyard::monitor
