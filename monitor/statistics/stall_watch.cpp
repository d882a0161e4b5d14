#include "monitor/statistics/stall_watch.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "monitor/core/lanes.h"
#include "monitor/platform/text.h"
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

// Whether the page's words of the last operation say which one it is. Of more than two ranks an
// exchange may be one that has no number.
bool tells_last(const CommunicatorReport& said) {
  return said.ranks == 2 || !is_exchange(said.last_kind);
}

// What the client's ring says that it launched as this number.
std::optional<stalls::Operation> recorded_as(const Client& client, const CommunicatorReport& said,
                                             std::uint64_t number) {
  const auto found = client.page->operation(said, number);
  if (!found || (said.ranks > 2 && is_exchange(found->kind))) return std::nullopt;
  return stalls::Operation{found->kind, found->bytes};
}

// Rings that are searched for what a late rank lacks.
constexpr int kMostSearches = 16;

// A ring is searched for so many units of the user's budget.
bool may_search(const Registry& registry, const Client& client) {
  if (!registry.may_work(client.peer.account())) return false;
  registry.work().add(abi::kRecords);
  registry.work().spend(client.peer.account(), abi::kRecords);
  return true;
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

Doing process_does(const Registry& registry, pid_t pid) {
  registry.work().add(Work::kOfQuestion);
  return doing_in(process_state(pid));
}

Doing thread_does(const Registry& registry, pid_t pid, std::uint32_t thread) {
  registry.work().add(Work::kOfQuestion);
  return doing_in(thread_state(pid, thread));
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

stalls::Operation StallWatch::last_of(const Registry& registry, const Client& client,
                                      const CommunicatorReport& said) {
  if (tells_last(said)) return operation_of(said.last_kind, said.last_bytes);
  Known::Last& last = known_[client.id].last[said.slot];
  if (last.launched != said.launched) {
    last = {said.launched, false, {}};
  } else if (!last.searched && may_search(registry, client)) {
    last.searched = true;
    const auto found = recorded_as(client, said, said.launched);
    if (found) last.operation = operation_of(found->kind, found->bytes);
  }
  return last.operation;
}

stalls::Process StallWatch::process_of(const Registry& registry, const status::JobStatus& status,
                                       const Look& look) {
  const Client& client = *look.client;
  stalls::Process out;
  out.pid = client.peer.pid;
  for (const CommunicatorReport& each : look.communicators) {
    if (each.ranks < 2) continue;
    out.places.push_back({each.id, each.rank, each.launched, last_of(registry, client, each),
                          Time(static_cast<Time::rep>(each.last_ns & ~(1ull << 63)))});
  }
  const auto known = std::find_if(status.processes.begin(), status.processes.end(),
                                  [&](const auto& each) { return each.client == client.id; });
  if (known != status.processes.end()) out.hold = known->hold;
  out.stopped = !out.places.empty() && client.standing.why != Standstill::kNone;
  return out;
}

Doing StallWatch::doing_of(const Registry& registry, const Job& job, const std::vector<Look>& looks,
                           const Stall& stall, const std::vector<ToldStall>& before) {
  if (stall.gone) return Doing::kGone;
  if (stall.hold != Hold::kNone) return Doing::kHeld;
  if (users_[job.uid].asked++ >= kMostAsked) {
    const ToldStall* known = find(before, {.stall = stall});
    return known != nullptr && known->doing != Doing::kHeld ? known->doing : Doing::kUnknown;
  }
  const Doing process = process_does(registry, stall.pid);
  if (process == Doing::kStopped || process == Doing::kGone) return process;
  // One process may have all connections of its user, and /proc is asked about one thread of it.
  std::uint32_t launches = 0;
  bool launching = false;
  bool waits = false;
  for (const Look& look : looks) {
    const Client& client = *look.client;
    if (client.peer.pid != stall.pid) continue;
    launches = client.page->launching_thread();
    launching = client.page->launching();
    for (const auto& [number, lane] : client.lanes) {
      waits = waits || client.page->gate(number).bursts.waiting;
    }
  }
  if (launching) return Doing::kLaunching;
  if (waits) return Doing::kWaitsForGpu;
  // Frameworks launch from several threads. Unknown: in another PID namespace it has another number.
  const Doing thread = thread_does(registry, stall.pid, launches);
  return thread != Doing::kUnknown && thread != Doing::kGone ? thread : process;
}

// What another rank launched as this number, if one still has it among its last.
std::optional<stalls::Operation> StallWatch::expected(const Registry& registry,
                                                      const std::vector<Look>& looks,
                                                      const Stall& stall) {
  int searches = 0;
  for (const Look& look : looks) {
    if (look.client->peer.pid == stall.pid) continue;
    for (const CommunicatorReport& each : look.communicators) {
      if (each.id != stall.communicator || each.launched < stall.number) continue;
      if (each.launched == stall.number && tells_last(each)) {
        return stalls::Operation{each.last_kind, each.last_bytes};
      }
      if (++searches > kMostSearches || !may_search(registry, *look.client)) return std::nullopt;
      if (const auto found = recorded_as(*look.client, each, stall.number)) return found;
    }
  }
  return std::nullopt;
}

bool StallWatch::may_log(const Job& job, Time now) {
  const auto answer = lines_.line(job.uid, now);
  if (answer == LogAllowance::Answer::kLast) {
    spdlog::warn("more about late ranks of {} is left out for a minute; `ps` has it",
                 user_name(job.uid));
  }
  return answer == LogAllowance::Answer::kYes;
}

void StallWatch::log_changes(const Job& job, const std::vector<ToldStall>& before,
                             std::vector<ToldStall>& after, Time now) {
  for (ToldStall& each : after) {
    const ToldStall* known = find(before, each);
    const bool same = known != nullptr && known->lasts &&
                      (known->doing == Doing::kHeld) == (each.doing == Doing::kHeld);
    each.logged = known != nullptr && known->logged;
    if (!each.lasts || same || !may_log(job, now)) continue;
    log_one(job, each, now);
    each.logged = true;
  }
  for (const ToldStall& each : before) {
    if (!each.logged || find(after, each) != nullptr || !may_log(job, now)) continue;
    spdlog::info("job '{}': {} is not waited for any more", job.name, name_of(each));
  }
}

void StallWatch::watch(const Registry& registry, const Job& job, const status::JobStatus& status,
                       Watched& watched, Time now) {
  std::vector<Look> looks;
  std::vector<stalls::Process> processes;
  for_clients(registry, job, [&](const Client& client) {
    looks.push_back({&client, client.page->communicators()});
    registry.work().add(looks.back().communicators.size());
    processes.push_back(process_of(registry, status, looks.back()));
  });
  std::vector<ToldStall> told;
  for (const Stall& stall : stalls::next(watched.state, processes, now)) {
    const ToldStall* known = find(watched.told, {.stall = stall});
    ToldStall each{.stall = stall, .doing = doing_of(registry, job, looks, stall, watched.told)};
    each.lasts = each.doing != Doing::kHeld || now - stall.held_since >= stalls::kLateAfter;
    each.expected =
        known != nullptr && known->expected ? known->expected : expected(registry, looks, stall);
    told.push_back(each);
  }
  log_changes(job, watched.told, told, now);
  watched.told = std::move(told);
}

void StallWatch::tick(const Registry& registry, const status::Statuses& statuses, Time now) {
  users_.clear();
  std::erase_if(jobs_, [&](const auto& each) { return !registry.jobs().contains(each.first); });
  std::erase_if(known_, [&](const auto& each) { return !registry.clients().contains(each.first); });
  for (const auto& [key, job] : registry.jobs()) {
    watch(registry, job, statuses.of(job), jobs_[key], now);
  }
}

const std::vector<ToldStall>& StallWatch::of(const Job& job) const {
  static const std::vector<ToldStall> none;
  const auto found = jobs_.find(job.key);
  return found != jobs_.end() ? found->second.told : none;
}

}  // namespace switchyard::monitor
