#include "monitor/statistics/stall_watch.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "monitor/core/lanes.h"
#include "monitor/platform/text.h"
#include "monitor/statistics/usage.h"
#include "switchyard/collectives.h"

namespace switchyard::monitor {
namespace {

using stalls::Hold;
using stalls::Stall;

bool is_exchange(std::uint32_t kind) { return is_point_to_point(static_cast<Collective>(kind)); }

// Of two ranks one sends what the other receives, and they may do several at once in any order.
stalls::Operation operation_of(std::uint32_t kind, std::uint64_t bytes) {
  if (is_exchange(kind)) return {static_cast<std::uint32_t>(Collective::kSend), 0};
  return {kind, std::min<std::uint64_t>(bytes, abi::kMostRecordedBytes)};
}

// What a client launched as this number, if that is known. The last operation of more than two
// ranks may be one that has no number.
std::optional<stalls::Operation> launched_as(const Client& client, const CommunicatorReport& said,
                                             std::uint64_t number) {
  if (said.launched == number && (said.ranks == 2 || !is_exchange(said.last_kind))) {
    return stalls::Operation{said.last_kind, said.last_bytes};
  }
  const auto found = client.page->operation(said, number);
  if (!found || (said.ranks > 2 && is_exchange(found->kind))) return std::nullopt;
  return stalls::Operation{found->kind, found->bytes};
}

Doing doing_in(char state) {
  switch (state) {
    case 'R':
      return Doing::kRuns;
    case 'S':
      return Doing::kSleeps;
    case 'D':
      return Doing::kWaitsForDisk;
    case 'T':
    case 't':
      return Doing::kStopped;
    case 'X':
    case 'Z':
      return Doing::kGone;
    default:
      return Doing::kUnknown;
  }
}

stalls::Process process_of(const Registry& registry, const Job& job, const Client& client) {
  stalls::Process out;
  out.pid = client.peer.pid;
  for (const CommunicatorReport& each : client.page->communicators()) {
    if (each.ranks < 2) continue;
    const auto last = launched_as(client, each, each.launched);
    out.places.push_back({each.id, each.rank, each.launched,
                          last ? operation_of(last->kind, last->bytes) : stalls::Operation{},
                          Time(static_cast<Time::rep>(each.last_ns & ~(1ull << 63)))});
  }
  out.hold = hold_of(registry, job, client);
  out.stopped = !out.places.empty() && doing_in(process_state(out.pid)) == Doing::kStopped;
  return out;
}

std::vector<stalls::Process> processes_of(const Registry& registry, const Job& job) {
  std::vector<stalls::Process> out;
  for_clients(registry, job,
              [&](const Client& client) { out.push_back(process_of(registry, job, client)); });
  return out;
}

Doing doing_of(const Registry& registry, const Job& job, const Stall& stall) {
  if (stall.gone) return Doing::kGone;
  if (stall.hold != Hold::kNone) return Doing::kHeld;
  const Doing process = doing_in(process_state(stall.pid));
  if (process == Doing::kStopped || process == Doing::kGone) return process;
  // Frameworks launch from several threads. Unknown: in another PID namespace it has another number.
  Doing thread = Doing::kUnknown;
  bool launching = false;
  bool waits = false;
  for_clients(registry, job, [&](const Client& client) {
    if (client.peer.pid != stall.pid) return;
    thread = doing_in(thread_state(stall.pid, client.page->launching_thread()));
    launching = client.page->cut().launching;
    for (const auto& [number, lane] : client.lanes) {
      waits = waits || client.page->gate(number).bursts.waiting;
    }
  });
  if (launching) return Doing::kLaunching;
  if (waits) return Doing::kWaitsForGpu;
  return thread != Doing::kUnknown && thread != Doing::kGone ? thread : process;
}

// What another rank launched as this number, if one still has it among its last.
std::optional<stalls::Operation> expected(const Registry& registry, const Job& job,
                                          const Stall& stall) {
  std::optional<stalls::Operation> out;
  for_clients(registry, job, [&](const Client& client) {
    if (client.peer.pid == stall.pid) return;
    for (const CommunicatorReport& each : client.page->communicators()) {
      if (each.id != stall.communicator || each.launched < stall.number || out) continue;
      out = launched_as(client, each, stall.number);
    }
  });
  return out;
}

bool is_same(const ToldStall& a, const ToldStall& b) {
  return a.stall.communicator == b.stall.communicator && a.stall.rank == b.stall.rank &&
         a.stall.number == b.stall.number && a.stall.what == b.stall.what;
}

const ToldStall* find(const std::vector<ToldStall>& all, const ToldStall& one) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const ToldStall& each) { return is_same(each, one); });
  return found != all.end() ? &*found : nullptr;
}

std::string name_of(const ToldStall& told) {
  return fmt::format("rank {} (pid {}) of communicator {:016x}", told.stall.rank, told.stall.pid,
                     told.stall.communicator);
}

const char* verb_of(stalls::What what) {
  switch (what) {
    case stalls::What::kLate:
      return "has not launched";
    case stalls::What::kOther:
      return "did not launch";
    case stalls::What::kStopped:
      break;
  }
  return "stands still after it launched";
}

std::string operation_text(const ToldStall& told) {
  const char* kind = told.expected ? collective_key(told.expected->kind) : nullptr;
  return fmt::format("{} number {}{}", kind != nullptr ? kind : "operation", told.stall.number,
                     told.expected ? fmt::format(" ({})", bytes_text(told.expected->bytes)) : "");
}

auto whole_seconds(Time span) {
  return std::chrono::duration_cast<std::chrono::seconds>(span).count();
}

void log_one(const Job& job, const ToldStall& told, Time now) {
  const char* ranks = told.stall.waiting == 1 ? "rank" : "ranks";
  if (told.doing == Doing::kHeld) {
    spdlog::info("job '{}': {} is held by us ({}), for {} s; {} other {} launched {} {} s ago",
                 job.name, name_of(told), key_of(told.stall.hold),
                 whole_seconds(now - told.stall.held_since), told.stall.waiting, ranks,
                 operation_text(told), whole_seconds(now - told.stall.since));
    return;
  }
  spdlog::warn("job '{}': {} {} {}, as {} other {} did, for {} s; it is {}", job.name,
               name_of(told), verb_of(told.stall.what), operation_text(told), told.stall.waiting,
               ranks, whole_seconds(now - told.stall.since), key_of(told.doing));
}

void log_changes(const Job& job, const std::vector<ToldStall>& before,
                 std::vector<ToldStall>& after, Time now) {
  for (ToldStall& each : after) {
    const ToldStall* known = find(before, each);
    const bool same = known != nullptr && known->lasts &&
                      (known->doing == Doing::kHeld) == (each.doing == Doing::kHeld);
    if (each.lasts && !same) log_one(job, each, now);
    each.logged = each.lasts || (known != nullptr && known->logged);
  }
  for (const ToldStall& each : before) {
    if (!each.logged || find(after, each) != nullptr) continue;
    spdlog::info("job '{}': {} is not waited for any more", job.name, name_of(each));
  }
}

}  // namespace

const char* key_of(Doing doing) {
  switch (doing) {
    case Doing::kGone:
      return "gone";
    case Doing::kStopped:
      return "stopped";
    case Doing::kLaunching:
      return "launching";
    case Doing::kHeld:
      return "held";
    case Doing::kWaitsForGpu:
      return "waiting_for_gpu";
    case Doing::kRuns:
      return "running";
    case Doing::kSleeps:
      return "sleeping";
    case Doing::kWaitsForDisk:
      return "waiting_for_disk";
    case Doing::kUnknown:
      break;
  }
  return "unknown";
}

void StallWatch::tick(const Registry& registry, Time now) {
  std::erase_if(jobs_, [&](const auto& each) { return !registry.jobs().contains(each.first); });
  for (const auto& [key, job] : registry.jobs()) {
    Watched& watched = jobs_[key];
    std::vector<ToldStall> told;
    for (const Stall& stall : stalls::next(watched.state, processes_of(registry, job), now)) {
      const Doing doing = doing_of(registry, job, stall);
      const bool lasts = doing != Doing::kHeld || now - stall.held_since >= stalls::kLateAfter;
      told.push_back({stall, doing, expected(registry, job, stall), lasts});
    }
    log_changes(job, watched.told, told, now);
    watched.told = std::move(told);
  }
}

const std::vector<ToldStall>& StallWatch::of(const Job& job) const {
  static const std::vector<ToldStall> none;
  const auto found = jobs_.find(job.key);
  return found != jobs_.end() ? found->second.told : none;
}

}  // namespace switchyard::monitor
