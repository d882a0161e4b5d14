#include "monitor/statistics/usage.h"

#include <algorithm>

#include "monitor/core/lanes.h"

namespace switchyard::monitor {
namespace {

using stalls::Hold;

// A monitor that stood still knows nothing of that time.
constexpr Time kLongestTick = std::chrono::seconds(1);

Hold hold_of_memory(ResidencyState where, const Client& client) {
  for (const auto& [number, lane] : client.lanes) {
    if (lane.waits_since != Time{0}) return Hold::kMemory;
  }
  switch (where) {
    case ResidencyState::kWaiting:
      return Hold::kMemory;
    case ResidencyState::kMoving:
    case ResidencyState::kSwapped:
      return Hold::kSwap;
    case ResidencyState::kResident:
      break;
  }
  return Hold::kNone;
}

// Threads that sleep at a closed gate. One that is closed while nobody comes holds nobody.
Hold hold_of_gates(const Client& client) {
  Hold out = Hold::kNone;
  for (const auto& [number, lane] : client.lanes) {
    const GateReport gate = client.page->gate(number);
    if (lane.order.closed == 0 || (gate.held_threads == 0 && gate.done)) continue;
    if ((lane.order.closed & abi::kClosedByGuard) != 0) return Hold::kGuard;
    if ((lane.order.closed & abi::kClosedByLimit) != 0) return Hold::kLimit;
    out = Hold::kTurn;
  }
  return out;
}

double share_of(const Client::Lane& lane) {
  return std::clamp(lane.share_got >= 0 ? lane.share_got : lane.load, 0.0, 1.0);
}

}  // namespace

Hold hold_of(const Job& job, ResidencyState where, const Client& client) {
  if (job.pause.on) return Hold::kPause;
  const Hold memory = hold_of_memory(where, client);
  if (memory != Hold::kNone) return memory;
  if (job.gang.stage != GangHold::Stage::kNone) return Hold::kCut;
  return hold_of_gates(client);
}

void Usage::tick(const Registry& registry, Time now) {
  const Time span = ticked_at_ == Time{0} ? Time{0} : std::min(now - ticked_at_, kLongestTick);
  ticked_at_ = now;
  std::erase_if(jobs_, [&](const auto& each) { return !registry.jobs().contains(each.first); });
  for (const auto& [key, job] : registry.jobs()) {
    Sums& sums = jobs_[key];
    Hold worst = Hold::kNone;
    const auto place = [](Hold hold) {
      return std::find(kReasons.begin(), kReasons.end(), hold) - kReasons.begin();
    };
    const ResidencyState where = residency_of(registry, job);
    for_clients(registry, job, [&, &job = job](const Client& client) {
      const Hold hold = hold_of(job, where, client);
      if (place(hold) < place(worst)) worst = hold;
      for (const auto& [number, lane] : client.lanes) {
        sums.gpu_seconds += share_of(lane) * seconds(span);
      }
    });
    if (worst != Hold::kNone) sums.waits[worst] += span;
  }
}

const Usage::Sums& Usage::of(const Job& job) const {
  static const Sums none;
  const auto found = jobs_.find(job.key);
  return found != jobs_.end() ? found->second : none;
}

}  // namespace switchyard::monitor
