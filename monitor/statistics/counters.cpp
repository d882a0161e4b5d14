#include "monitor/statistics/counters.h"

#include <algorithm>

#include "switchyard/wire.h"

namespace switchyard::monitor {
namespace {

Counters::Refused refused_by(std::uint32_t verdict) {
  switch (verdict) {
    case wire::kOverQuota:
      return Counters::Refused::kQuota;
    case wire::kGpuFull:
      return Counters::Refused::kGpu;
    case wire::kWaitsInVain:
      return Counters::Refused::kWait;
    default:
      return Counters::Refused::kOther;
  }
}

// What came since `before`.
std::uint64_t came(std::uint64_t& before, std::uint64_t now) {
  const std::uint64_t more = now > before ? now - before : 0;
  before = now;
  return more;
}

}  // namespace

void BurstWaits::add(std::uint32_t waited_us) {
  const auto bucket = std::lower_bound(kMostUs.begin(), kMostUs.end(), waited_us);
  ++counts[static_cast<std::size_t>(bucket - kMostUs.begin())];
  sum_us += waited_us;
}

BurstWaits& BurstWaits::operator+=(const BurstWaits& other) {
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  sum_us += other.sum_us;
  return *this;
}

Counters::OfGpu& Counters::OfGpu::operator+=(const OfGpu& other) {
  gate_openings += other.gate_openings;
  swapped_out_bytes += other.swapped_out_bytes;
  swapped_in_bytes += other.swapped_in_bytes;
  for (std::size_t i = 0; i < refusals.size(); ++i) refusals[i] += other.refusals[i];
  waits += other.waits;
  return *this;
}

void Counters::count(const policy::Bursts& bursts, Seen& seen, BurstWaits& waits) {
  const auto last = static_cast<std::uint32_t>(bursts.last.size());
  const std::uint32_t fresh = bursts.count - seen.bursts.value_or(bursts.count);
  for (std::uint32_t i = std::min({fresh, bursts.count, last}); i-- > 0;) {
    const policy::Burst& burst = bursts.number(bursts.count - i);
    if (burst.launches != 0 && burst.cpu_us != 0) waits.add(burst.waited_us);
  }
  seen.bursts = bursts.count;
}

void Counters::joined(const Client& client, bool rejoins) {
  if (!on_ || client.observer || !rejoins) return;
  for (const auto& [number, lane] : client.lanes) seen_[{client.id, number}].carries = 2;
}

void Counters::count(const Client& client) {
  if (client.observer) return;
  for (const auto& [number, lane] : client.lanes) {
    Seen& seen = seen_[{client.id, number}];
    OfGpu& sums = jobs_[client.job][lane.gpu];
    const MemoryReport memory = client.page->memory(number);
    const auto refused = static_cast<std::size_t>(refused_by(lane.refused_verdict));
    const std::uint64_t out = came(seen.swapped_out_bytes, memory.moved_out_bytes);
    const std::uint64_t in = came(seen.swapped_in_bytes, memory.moved_in_bytes);
    const LaneReport report = client.page->report(number);
    const std::uint64_t refusals = came(seen.refusals, report.refusals);
    if (seen.carries == 0) {
      sums.swapped_out_bytes += out;
      sums.swapped_in_bytes += in;
      sums.refusals[refused] += refusals;
    } else if (report.launches + report.graph_launches != 0) {
      --seen.carries;  // its words come one after the other, and one look may see half of them
    }
    sums.gate_openings += came(seen.gate_openings, lane.gate_opened);
    count(client.page->gate(number).bursts, seen, sums.waits);
  }
}

void Counters::tick(const Registry& registry) {
  if (!on_) return;
  std::erase_if(jobs_, [&](const auto& each) { return !registry.jobs().contains(each.first); });
  std::erase_if(seen_,
                [&](const auto& each) { return !registry.clients().contains(each.first.first); });
  for (const auto& [id, client] : registry.clients()) count(*client);
}

void Counters::leaves(const Client& client) {
  if (on_) count(client);
}

const Counters::Gpus& Counters::of(JobKey job) const {
  static const Gpus none;
  const auto found = jobs_.find(job);
  return found != jobs_.end() ? found->second : none;
}

}  // namespace switchyard::monitor
