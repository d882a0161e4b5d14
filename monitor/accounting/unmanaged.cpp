#include "monitor/accounting/unmanaged.h"

#include <algorithm>
#include <set>
#include <utility>

namespace switchyard::monitor {
namespace {

// A monitor that stood still knows nothing of that time (statistics/usage.cpp).
constexpr Time kLongestSpan = std::chrono::seconds(2);

}  // namespace

std::optional<double> estimated_share(const std::vector<ProcessLoad>& loads, pid_t pid) {
  double own = 0, all = 0;
  for (const ProcessLoad& load : loads) {
    all += load.ratio;
    if (load.pid == pid) own = load.ratio;
  }
  return own / std::max(all, 1.0);
}

void Unmanaged::follow(const GpuAccounts& gpus, const std::function<bool(pid_t)>& leaves,
                       Time now) {
  add_up(now);
  read_commands();
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    const Time measured_at = gpus[gpu].measured_at;
    if (std::exchange(seen_at_[gpu], measured_at) != measured_at) {
      see(gpus[gpu], gpu, leaves, now);
    }
    for (auto& [pid, process] : processes_) {
      const auto on = process.gpus.find(gpu);
      if (on == process.gpus.end()) continue;
      on->second.share = gpus[gpu].loads ? estimated_share(*gpus[gpu].loads, pid) : std::nullopt;
    }
  }
  std::erase_if(processes_, [](const auto& each) { return each.second.gpus.empty(); });
  begin_billing(now);
}

// For the time since the last look: what was known then.
void Unmanaged::add_up(Time now) {
  const double span = seconds(std::min(now - std::exchange(added_at_, now), kLongestSpan));
  for (auto& [uid, gpus] : users_) {
    for (auto& [gpu, sums] : gpus) sums.bytes = 0;
  }
  for (const auto& [pid, process] : processes_) {
    for (const auto& [gpu, on] : process.gpus) {
      if (!on.billed) continue;
      Sums& sums = users_[user_of(process)][gpu];
      const auto bytes = static_cast<double>(on.bytes);
      sums.byte_seconds += bytes * span;
      sums.bytes += on.bytes;
      if (!on.share) continue;
      sums.gpu_seconds += *on.share * span;
      if (*on.share == 0) sums.idle_byte_seconds += bytes * span;
    }
  }
}

void Unmanaged::read_commands() {
  while (auto read = commands_.take()) {
    const auto found = processes_.find(read->pid);
    if (found == processes_.end() || found->second.about.started != read->started) continue;
    found->second.command = std::move(read->text);
  }
}

// A number that is another process's by now begins anew.
Unmanaged::Process& Unmanaged::find(pid_t pid, Time now) {
  const auto found = processes_.find(pid);
  if (found != processes_.end()) {
    if (process_started(pid) == found->second.about.started) return found->second;
    end(pid, found->second, now);
  }
  Process& process = processes_[pid];
  process = {.about = about_process(pid), .command = {}, .gpus = {}};
  commands_.ask(pid, process.about.started);
  return process;
}

void Unmanaged::see(const GpuAccounts::Gpu& at, std::size_t gpu,
                    const std::function<bool(pid_t)>& leaves, Time now) {
  std::set<pid_t> listed;
  for (const GpuAccounts::ForeignProcess& each : at.foreign_processes) {
    listed.insert(each.pid);
    Process& process = find(each.pid, now);
    const auto [at_gpu, fresh] = process.gpus.try_emplace(gpu);
    OnGpu& on = at_gpu->second;
    if (fresh) {
      on.since = now;
      on.bill_from = std::max(quiet_until_, leaves(each.pid) ? now + kQuiet : now);
    }
    on.bytes = each.bytes;
    on.peak_bytes = std::max(on.peak_bytes, each.bytes);
  }
  for (auto& [pid, process] : processes_) {
    const auto on = process.gpus.find(gpu);
    if (on == process.gpus.end() || listed.contains(pid)) continue;
    ends(pid, process, gpu, on->second, now);
    process.gpus.erase(on);
  }
}

void Unmanaged::begin_billing(Time now) {
  for (auto& [pid, process] : processes_) {
    for (auto& [gpu, on] : process.gpus) {
      if (on.billed || now < on.bill_from) continue;
      on.billed = true;
      bool last = false;
      on.told = events_.may(user_of(process), now, last);
      if (!on.told) continue;
      HistoryEvent event =
          event_of(EventKind::kUnmanagedBegins, 0, Peer{pid, user_of(process)}, now);
      set_gpu(event, gpu);
      event.value = on.bytes;
      tap_.tell(event);
    }
  }
}

void Unmanaged::end(pid_t pid, const Process& process, Time now) {
  for (const auto& [gpu, on] : process.gpus) ends(pid, process, gpu, on, now);
}

void Unmanaged::ends(pid_t pid, const Process& process, std::size_t gpu, const OnGpu& on,
                     Time now) {
  if (!on.told) return;
  HistoryEvent event = event_of(EventKind::kUnmanagedEnds, 0, Peer{pid, user_of(process)}, now);
  set_gpu(event, gpu);
  event.value = on.peak_bytes;
  tap_.tell(event);
}

}  // namespace switchyard::monitor
