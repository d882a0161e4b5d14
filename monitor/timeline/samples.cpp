#include "monitor/timeline/samples.h"

#include <algorithm>
#include <cmath>

#include "monitor/core/lanes.h"
#include "monitor/scheduling/gate_controller.h"

namespace switchyard::monitor::timeline {
namespace {

constexpr std::uint64_t kMost16 = 0xffff;
constexpr std::uint64_t kMost32 = 0xffff'ffff;

template <typename Narrow>
void add_to(Narrow& sum, std::uint64_t more, std::uint64_t most) {
  sum = static_cast<Narrow>(std::min<std::uint64_t>(most, sum + std::min(more, most)));
}

std::uint16_t parts_of(double share) {
  return static_cast<std::uint16_t>(std::lround(std::clamp(share, 0.0, 1.0) * Sample::kWhole));
}

Sample sample_of(JobKey job, std::size_t gpu, Time now) {
  Sample out{};
  out.at_ns = now.count();
  out.job = static_cast<std::uint32_t>(job);
  out.gpu = static_cast<std::uint16_t>(gpu + 1);
  out.share = Sample::kUnknown;
  return out;
}

// As `ps` has it.
struct Share {
  double got = -1, load = -1;
  void add(const Client::Lane& lane) {
    if (lane.share_got >= 0) got = std::max(got, 0.0) + lane.share_got;
    if (lane.load >= 0) load = std::max(load, 0.0) + lane.load;
  }
  std::uint16_t parts() const {
    const double share = got >= 0 ? got : load;
    return share >= 0 ? parts_of(share) : Sample::kUnknown;
  }
};

}  // namespace

std::uint32_t Samples::launched(const LaneKey& key, const Client::Lane& lane) {
  const std::uint64_t all = lane.last.launches + lane.last.graph_launches;
  const auto [known, fresh] = launches_.try_emplace(key, all);
  const std::uint64_t before = std::exchange(known->second, all);
  // A page may say anything, and a process that comes again carries its counts over.
  return fresh || all < before ? 0 : static_cast<std::uint32_t>(std::min(all - before, kMost32));
}

void Samples::add(const Registry& registry, const GpuAccounts& gpus, const Job& job, Time now) {
  for (const std::size_t gpu : job.gpus.seen()) {
    Sample out = sample_of(job.key, gpu, now);
    Share share;
    bool there = false;
    const Account& account = gpus[gpu].account;
    for_lanes(registry, job, [&](const Client& client, unsigned number, const Client::Lane& lane) {
      if (lane.gpu != gpu) return;
      there = true;
      const std::uint32_t launches = launched({client.id, number}, lane);
      add_to(out.launches, launches, kMost32);
      const bool works = numbered(lane, lane.gate) ? !lane.gate.done : launches != 0;
      add_to(out.at_work, works ? 1 : 0, kMost16);
      add_to(out.held_threads, lane.gate.held_threads, kMost16);
      share.add(lane);
      const Account::Holding* holding = account.holding(client.id);
      if (holding != nullptr) out.memory_bytes += holding->resident() + holding->overhead;
    });
    if (!there) continue;
    out.share = share.parts();
    ring_.push(out);
  }
}

void Samples::tick(const Registry& registry, const GpuAccounts& gpus, Time now) {
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    Sample out = sample_of(0, gpu, now);
    out.memory_bytes = gpus[gpu].memory.used_bytes;
    ring_.push(out);
  }
  for (const auto& [key, job] : registry.jobs()) add(registry, gpus, job, now);
}

void Samples::leaves(const Client& client) {
  for (const auto& [lane, state] : client.lanes) launches_.erase({client.id, lane});
}

}  // namespace switchyard::monitor::timeline
