#include "monitor/measuring.h"

#include <algorithm>
#include <map>

namespace switchyard::monitor {
namespace {

constexpr Time kMeasureEvery = std::chrono::seconds(1);
constexpr Time kOldReading = std::chrono::milliseconds(50);

std::uint64_t minus(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

}  // namespace

Measuring::Measuring(Gpus& door, GpuAccounts& gpus, std::optional<std::uint64_t> capacity)
    : door_(door), gpus_(gpus), capacity_(capacity) {}

void Measuring::measure_overheads(std::size_t gpu, const std::vector<ProcessMemory>& listed,
                                  const std::vector<std::uint64_t>& used_before) {
  GpuAccounts::Gpu& at = gpus_[gpu];
  std::map<pid_t, std::uint64_t> bytes;
  std::uint64_t listed_sum = 0;
  for (const ProcessMemory& process : listed) {
    bytes[process.pid] = process.bytes;
    listed_sum += process.bytes;
  }
  // Newest first: of two connections of one process the newer one stands for it.
  std::vector<std::pair<GpuAccounts::Place, std::uint64_t>> unlisted;
  std::map<pid_t, bool> ours;
  std::uint64_t unlisted_used = 0;
  const auto all = gpus_.places(gpu);
  const bool handed_over = std::any_of(all.begin(), all.end(), [](const GpuAccounts::Place& each) {
    return each.state->takes_over;
  });
  for (std::size_t i = all.size(); i-- > 0;) {
    const GpuAccounts::Place& each = all[i];
    const Account::Holding* holding = at.account.holding(each.client->id);
    const pid_t pid = each.client->peer.pid;
    const bool first = pid == 0 || ours.emplace(pid, true).second;
    if (holding == nullptr) continue;
    const auto found = bytes.find(pid);
    const std::uint64_t used_after = holding->resident();
    if (found != bytes.end() && first) {
      each.state->nvml_bytes = found->second;
      if (!each.state->takes_over) {
        each.state->overhead.reading(found->second, used_before[i], used_after);
      }
    } else {
      each.state->nvml_bytes = std::nullopt;
      if (first && each.client->page->report(each.lane).contexts > 0) {
        unlisted.emplace_back(each, used_after);
        unlisted_used += used_after;
      } else {
        each.state->overhead.reading(0, 0, 0);
      }
    }
    at.account.set_overhead(each.client->id, each.state->overhead.value());
  }
  at.outsiders.clear();
  at.mps_listed = false;
  std::uint64_t outside = 0;
  for (const auto& [pid, used] : bytes) {
    if (ours.contains(pid)) continue;
    at.outsiders.push_back({pid, used});
    at.mps_listed = at.mps_listed || process_name(pid).rfind("nvidia-cuda-mps", 0) == 0;
    outside += used;
  }
  // In some sandboxes NVML names processes by PIDs that we don't know, or not at all. Then what is
  // used by nobody is divided among those of our clients that it does not name; the part that was
  // there before them is somebody else's.
  const std::uint64_t remainder = minus(at.memory.used_bytes, listed_sum);
  if (unlisted.empty()) {
    at.unlisted_before = at.unlisted;
    at.unlisted = remainder;
  }
  const std::uint64_t baseline = std::min(at.unlisted, at.unlisted_before);
  for (const auto& [each, used] : unlisted) {
    const std::uint64_t extra =
        minus(remainder, baseline + unlisted_used) / std::max<std::size_t>(1, unlisted.size());
    if (!handed_over) each.state->overhead.reading(used + extra, used, used);
    at.account.set_overhead(each.client->id, each.state->overhead.value());
  }
  at.account.set_outside(outside + baseline);
}

void Measuring::measure(std::size_t gpu, Time now) {
  GpuAccounts::Gpu& at = gpus_[gpu];
  at.measured_at = now;
  at.stale = false;
  gpus_.read_credits(gpu);
  std::vector<std::uint64_t> used_before;
  for (const GpuAccounts::Place& each : gpus_.places(gpu)) {
    const Account::Holding* holding = at.account.holding(each.client->id);
    used_before.push_back(holding != nullptr ? holding->resident() : 0);
  }
  if (const auto memory = door_.memory(gpu)) at.memory = *memory;
  const auto listed = door_.processes(gpu);
  gpus_.read_credits(gpu);
  if (listed) measure_overheads(gpu, *listed, used_before);
  if (at.memory.total_bytes > 0) {
    std::uint64_t capacity = minus(at.memory.total_bytes, at.memory.reserved_bytes);
    if (gpus_.takes_turns(gpu)) capacity -= capacity / kKeptForOverhead;
    // A capacity lowered by --capacity is ours alone: outside processes use what is beyond it.
    if (capacity_) capacity = std::min(capacity, *capacity_ + at.account.outside());
    at.account.set_capacity(capacity);
  }
}

void Measuring::measure_all(Time now) {
  for (std::size_t i = 0; i < gpus_.size(); ++i) measure(i, now);
}

void Measuring::measure_due(Time now) {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i].stale || now - gpus_[i].measured_at >= kMeasureEvery) measure(i, now);
  }
}

void Measuring::measure_if_old(std::size_t gpu, Time now) {
  if (now - gpus_[gpu].measured_at >= kOldReading) measure(gpu, now);
}

void Measuring::measure_loads() {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    const auto all = gpus_.places(i);
    if (all.empty()) continue;
    const auto loads = door_.loads(i);
    if (!loads) continue;
    for (const GpuAccounts::Place& each : all) {
      // A process without a sample since the last time did not run.
      if (each.state->load >= 0) each.state->load = 0;
      for (const ProcessLoad& load : *loads) {
        if (load.pid == each.client->peer.pid && load.pid != 0) each.state->load = load.ratio;
      }
    }
  }
}

}  // namespace switchyard::monitor
