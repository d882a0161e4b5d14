#include "monitor/accounting/nvml_sampler.h"

#include <algorithm>
#include <map>
#include <set>

#include "monitor/core/minus.h"
#include "switchyard/stays.h"

namespace switchyard::monitor {
namespace {

constexpr Time kMeasureEvery = std::chrono::seconds(1);
constexpr Time kLeavesWithin = std::chrono::seconds(10);
constexpr Time kOldReading = std::chrono::milliseconds(50);
// More than an idle driver has, less than a context takes.
constexpr std::uint64_t kForeignBytes = 128ull << 20;

// Memory that may come may be there already or not. So a reading gives two bounds, and the value
// known before is kept between them.
void read(OverheadMeter& meter, std::uint64_t least, std::uint64_t most) {
  meter.reading(std::clamp(meter.value(), least, most));
}

// Bytes that the client says are so, and can be.
std::uint64_t said_of(const GpuAccounts::Gpu& at, const GpuAccounts::ClientOnGpu& client,
                      Stays why) {
  const std::uint64_t said =
      client.client->page->memory(client.lane).stays[static_cast<unsigned>(why)];
  return std::min(said, at.memory.total_bytes);
}

}  // namespace

NvmlSampler::NvmlSampler(Gpus& door, GpuAccounts& gpus, std::optional<std::uint64_t> capacity)
    : door_(door), gpus_(gpus), capacity_(capacity) {}

std::vector<NvmlSampler::Counted> NvmlSampler::count(std::size_t gpu) {
  gpus_.read_credits(gpu);
  const Account& account = gpus_[gpu].account;
  std::vector<Counted> all;
  for (const GpuAccounts::ClientOnGpu& each : gpus_.clients_on(gpu)) {
    const Account::Holding* holding = account.holding(each.client->id);
    if (holding == nullptr) {
      all.emplace_back();
      continue;
    }
    const std::uint64_t parked = holding->parked;
    all.push_back(
        {holding->resident() + parked, account.counted(*holding) + parked + holding->parking});
  }
  return all;
}

NvmlSampler::Answer NvmlSampler::sort_out(std::size_t gpu, const std::vector<ProcessMemory>& listed,
                                          const std::vector<Counted>& before) {
  GpuAccounts::Gpu& at = gpus_[gpu];
  std::map<pid_t, std::uint64_t> bytes;
  for (const ProcessMemory& process : listed) bytes[process.pid] = process.bytes;
  Answer out;
  const auto all = gpus_.clients_on(gpu);
  const std::vector<Counted> after = count(gpu);
  // Newest first: of two connections of one process the newer one stands for it.
  std::set<pid_t> ours;
  for (std::size_t i = all.size(); i-- > 0;) {
    const GpuAccounts::ClientOnGpu& each = all[i];
    const pid_t pid = each.client->peer.pid;
    const bool first = pid == 0 || ours.insert(pid).second;
    if (at.account.holding(each.client->id) == nullptr) continue;
    // It may have allocated or freed while NVML was asked.
    const Counted counted = {std::max(before[i].resident, after[i].resident),
                             std::max(before[i].expected, after[i].expected)};
    const auto found = bytes.find(pid);
    if (first && found != bytes.end()) {
      out.named.push_back({each, counted, found->second});
    } else if (first && !at.account.holding(each.client->id)->detached &&
               (counted.resident > 0 || each.client->page->report(each.lane).contexts > 0)) {
      out.unnamed.push_back({each, counted, 0});
    } else {
      each.state->overhead.reading(0);
      continue;
    }
    out.coming += counted.expected - counted.resident;
  }
  at.foreign_processes.clear();
  at.mps_listed = false;
  out.nobodys = at.memory.used_bytes;
  for (const auto& [pid, used] : bytes) {
    out.nobodys = minus(out.nobodys, used);
    if (ours.contains(pid)) continue;
    at.foreign_processes.push_back({pid, used});
    at.mps_listed = at.mps_listed || process_name(pid).rfind("nvidia-cuda-mps", 0) == 0;
    out.outside += used;
  }
  return out;
}

std::uint64_t NvmlSampler::measure_named(const std::vector<Ours>& named, std::uint64_t nobodys) {
  for (const Ours& each : named) {
    nobodys = minus(nobodys, minus(each.counted.resident, each.nvml_bytes));
  }
  for (const auto& [place, counted, nvml_bytes] : named) {
    OverheadMeter& meter = place.state->overhead;
    if (nvml_bytes >= counted.resident) {
      read(meter, minus(nvml_bytes, counted.expected), nvml_bytes - counted.resident);
    } else {
      // Its overhead is hidden by what it has of nobody's, and is no more than what is left there.
      read(meter, 0, nobodys);
      nobodys = minus(nobodys, meter.value());
    }
  }
  return nobodys;
}

void NvmlSampler::measure_unnamed(const std::vector<Ours>& unnamed, std::uint64_t theirs) {
  std::uint64_t least = theirs, most = theirs;
  for (const Ours& each : unnamed) {
    least = minus(least, each.counted.expected);
    most = minus(most, each.counted.resident);
  }
  const std::size_t count = unnamed.size();
  for (const Ours& each : unnamed) read(each.place.state->overhead, least / count, most / count);
}

bool NvmlSampler::foreign_work(const GpuAccounts::Gpu& at, const Answer& answer) {
  if (at.listed.empty()) return at.nobodys.value() >= kForeignBytes;
  // In some sandboxes the clients are named by PIDs that we don't know. Else each is named.
  std::size_t may_be_ours = answer.named.empty() ? answer.unnamed.size() : 0;
  for (const ProcessMemory& process : at.listed) {
    const bool is_foreign =
        std::any_of(at.foreign_processes.begin(), at.foreign_processes.end(),
                    [&process](const auto& other) { return other.pid == process.pid; });
    if (!is_foreign || !process.compute || !libraries_.may_have(process.pid)) continue;
    if (may_be_ours == 0) return true;
    --may_be_ours;
  }
  return false;
}

std::uint64_t NvmlSampler::most_of(std::size_t gpu, const Client& client) {
  const GpuAccounts::Gpu& at = gpus_[gpu];
  if (!at.lists || at.memory.total_bytes == 0) return ~0ull;
  std::set<pid_t> clients;
  for (const GpuAccounts::ClientOnGpu& each : gpus_.clients_on(gpu))
    clients.insert(each.client->peer.pid);
  const bool names_clients =
      !at.mps_listed && std::any_of(at.listed.begin(), at.listed.end(), [&](const auto& process) {
        return clients.contains(process.pid);
      });
  std::uint64_t others = 0;
  for (const ProcessMemory& process : at.listed) {
    const bool another = process.pid != client.peer.pid;
    if (another && (names_clients || clients.contains(process.pid))) others += process.bytes;
  }
  return minus(at.memory.used_bytes, others);
}

void NvmlSampler::leaves(const Client& client) {
  for (const auto& [lane, state] : client.lanes) {
    GpuAccounts::Gpu& at = gpus_[state.gpu];
    const auto on = gpus_.client_on(state.gpu, client.id);
    const Account::Holding* holding = at.account.holding(client.id);
    if (!on || holding == nullptr) continue;
    const std::uint64_t shared =
        std::min(said_of(at, *on, Stays::kIpcExported), holding->resident());
    at.account.set_outside(at.account.outside() + shared);
  }
}

void NvmlSampler::follow_exports(std::size_t gpu, Time now) {
  GpuAccounts::Gpu& at = gpus_[gpu];
  std::map<uid_t, std::uint64_t> exported;
  for (const GpuAccounts::ClientOnGpu& each : gpus_.clients_on(gpu)) {
    const Account::Holding* holding = at.account.holding(each.client->id);
    if (holding == nullptr) continue;
    exported[each.client->peer.uid] +=
        std::min(said_of(at, each, Stays::kIpcExported), holding->used());
  }
  for (const auto& [uid, before] : at.exported) {
    const std::uint64_t fewer = minus(before, exported.contains(uid) ? exported[uid] : 0);
    if (fewer == 0) continue;
    at.leaving[uid].bytes += fewer;
    at.leaving[uid].until = now + kLeavesWithin;
  }
  std::erase_if(at.leaving, [now](const auto& each) { return each.second.until < now; });
  std::erase_if(exported, [](const auto& each) { return each.second == 0; });
  at.exported = std::move(exported);
}

std::uint64_t NvmlSampler::find_orphaned(GpuAccounts::Gpu& at, std::uint64_t nobodys) {
  // A fall is that of orphaned memory first, a rise is so at once.
  std::uint64_t most = minus(nobodys, at.nobodys.value());
  std::uint64_t sum = 0;
  for (auto& [uid, leaving] : at.leaving) at.orphaned.try_emplace(uid, 0);
  for (auto& [uid, bytes] : at.orphaned) {
    const auto leaving = at.leaving.find(uid);
    const std::uint64_t before = bytes;
    const std::uint64_t may_be = leaving == at.leaving.end() ? 0 : leaving->second.bytes;
    bytes = std::min(before + may_be, most);
    if (may_be != 0) leaving->second.bytes -= minus(bytes, before);
    most -= bytes;
    sum += bytes;
  }
  std::erase_if(at.orphaned, [](const auto& each) { return each.second == 0; });
  return sum;
}

std::uint64_t NvmlSampler::charge_orphaned(std::size_t gpu,
                                           std::map<ClientId, std::uint64_t>& charged) {
  GpuAccounts::Gpu& at = gpus_[gpu];
  std::map<uid_t, std::uint64_t> left = at.orphaned;
  std::uint64_t sum = 0;
  for (const GpuAccounts::ClientOnGpu& each : gpus_.clients_on(gpu)) {
    const auto found = left.find(each.client->peer.uid);
    if (found == left.end() || at.account.holding(each.client->id) == nullptr) continue;
    const std::uint64_t bytes = std::min(found->second, said_of(at, each, Stays::kIpcImported));
    found->second -= bytes;
    charged[each.client->id] = bytes;
    sum += bytes;
  }
  return sum;
}

void NvmlSampler::measure_overheads(std::size_t gpu, const std::vector<ProcessMemory>& listed,
                                    const std::vector<Counted>& before, Time now) {
  GpuAccounts::Gpu& at = gpus_[gpu];
  at.listed = listed;
  const Answer answer = sort_out(gpu, listed, before);
  const std::uint64_t nobodys = measure_named(answer.named, answer.nobodys);
  // In some sandboxes NVML names processes by PIDs that we don't know, or not at all. Then the
  // unattributed use is divided among those of our clients that it does not name. The part that was
  // there before them is somebody else's.
  follow_exports(gpu, now);
  std::uint64_t orphaned = 0;
  if (answer.unnamed.empty()) {
    orphaned = find_orphaned(at, nobodys);
    const std::uint64_t others = nobodys - orphaned;
    const std::uint64_t least = minus(others, answer.coming);
    at.nobodys.reading(std::clamp(at.nobodys.value(), least, others));
  } else {
    for (const auto& [uid, bytes] : at.orphaned) orphaned += bytes;
  }
  const std::uint64_t baseline = at.nobodys.value();
  at.foreign = foreign_work(at, answer);
  measure_unnamed(answer.unnamed, minus(nobodys, baseline + orphaned));
  std::map<ClientId, std::uint64_t> had;
  const std::uint64_t theirs = charge_orphaned(gpu, had);
  for (const GpuAccounts::ClientOnGpu& each : gpus_.clients_on(gpu)) {
    at.account.set_overhead(each.client->id, each.state->overhead.value() + had[each.client->id]);
  }
  at.account.set_outside(answer.outside + baseline + orphaned - theirs);
}

void NvmlSampler::measure(std::size_t gpu, Time now) {
  GpuAccounts::Gpu& at = gpus_[gpu];
  at.measured_at = now;
  at.stale = false;
  const std::vector<Counted> before = count(gpu);
  if (const auto memory = door_.memory(gpu)) at.memory = *memory;
  const auto listed = door_.processes(gpu);
  at.lists = listed.has_value();
  if (listed) measure_overheads(gpu, *listed, before, now);
  if (at.memory.total_bytes > 0) {
    std::uint64_t capacity = minus(at.memory.total_bytes, at.memory.reserved_bytes);
    if (gpus_.takes_turns(gpu)) capacity -= capacity / kKeptForOverhead;
    // A capacity lowered by --capacity is ours alone: outside processes use what is beyond it.
    if (capacity_) capacity = std::min(capacity, *capacity_ + at.account.outside());
    at.account.set_capacity(capacity);
  }
}

void NvmlSampler::measure_all(Time now) {
  for (std::size_t i = 0; i < gpus_.size(); ++i) measure(i, now);
}

void NvmlSampler::measure_due(Time now) {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i].stale || now - gpus_[i].measured_at >= kMeasureEvery) measure(i, now);
  }
}

void NvmlSampler::measure_if_old(std::size_t gpu, Time now) {
  if (now - gpus_[gpu].measured_at >= kOldReading) measure(gpu, now);
}

void NvmlSampler::measure_loads() {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    // A value that NVML does not tell now is not the one of a while ago.
    gpus_[i].condition = door_.condition(i).value_or(GpuCondition{});
    const auto& loads = gpus_[i].loads = door_.loads(i);
    if (!loads) continue;
    for (const GpuAccounts::ClientOnGpu& each : gpus_.clients_on(i)) {
      // A process without a sample since the last time did not run.
      if (each.state->load >= 0) each.state->load = 0;
      for (const ProcessLoad& load : *loads) {
        if (load.pid == each.client->peer.pid && load.pid != 0) each.state->load = load.ratio;
      }
    }
  }
}

}  // namespace switchyard::monitor
