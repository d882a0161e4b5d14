#include "monitor/statistics/usage.h"

#include <algorithm>
#include <utility>

#include "monitor/core/lanes.h"

namespace switchyard::monitor {
namespace {

using stalls::Hold;

// A monitor that stood still knows nothing of that time.
constexpr Time kLongestTick = std::chrono::seconds(1);
// What comes late is of one kernel (policy/activity.cpp).
constexpr Time kLongestKernel = std::chrono::seconds(10);

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

// Threads that sleep at a closed gate.
Hold hold_of_gates(const Client& client) {
  Hold out = Hold::kNone;
  for (const auto& [number, lane] : client.lanes) {
    const std::uint32_t closed = holds_by(lane.order, client.page->gate(number));
    if (closed == 0) continue;
    if ((closed & abi::kClosedByGuard) != 0) return Hold::kGuard;
    if ((closed & abi::kClosedByLimit) != 0) return Hold::kLimit;
    out = Hold::kTurn;
  }
  return out;
}

// The reasons of which the first takes all that a job lacks.
bool is_of_all(Hold hold) {
  return hold == Hold::kPause || hold == Hold::kSwap || hold == Hold::kMemory || hold == Hold::kCut;
}

Hold worst_of_all(const Registry& registry, const Job& job) {
  const auto place = [](Hold hold) {
    return std::find(Usage::kReasons.begin(), Usage::kReasons.end(), hold) -
           Usage::kReasons.begin();
  };
  Hold worst = Hold::kNone;
  const ResidencyState where = residency_of(registry, job);
  for_clients(registry, job, [&](const Client& client) {
    const Hold hold = hold_of(job, where, client);
    if (is_of_all(hold) && place(hold) < place(worst)) worst = hold;
  });
  return worst;
}

Time time_of(double span) {
  return std::chrono::duration_cast<Time>(std::chrono::duration<double>(span));
}

}  // namespace

Hold hold_of(const Job& job, ResidencyState where, const Client& client) {
  if (job.pause.on) return Hold::kPause;
  const Hold memory = hold_of_memory(where, client);
  if (memory != Hold::kNone) return memory;
  if (job.gang.stage != GangHold::Stage::kNone) return Hold::kCut;
  return hold_of_gates(client);
}

void Usage::add_lane(OnGpu& out, const LaneKey& key, const Client::Lane& lane, double span) {
  const Client::Lane::Had& had = lane.had;
  const Client::Lane::Had before = std::exchange(counted_[key], had);
  const auto came = [&](double Client::Lane::Had::*sum) { return (had.*sum - before.*sum) / 1e9; };
  const double gpu = came(&Client::Lane::Had::gpu_ns);
  const double load = had.known ? 0 : std::clamp(lane.load, 0.0, 1.0) * span;
  out.gpu += gpu + load;
  out.load += load;
  out.estimated += came(&Client::Lane::Had::divided_ns);
  // Of several processes the one that is held longest counts.
  out.slices = std::max(out.slices, came(&Client::Lane::Had::slices_ns));
  out.guard = std::max(out.guard, came(&Client::Lane::Had::guard_ns));
  out.limit = std::max(out.limit, came(&Client::Lane::Had::limit_ns));
  out.turn = std::max(out.turn, came(&Client::Lane::Had::turn_ns));
  out.works =
      out.works || lane.active || out.gpu + out.slices + out.guard + out.limit + out.turn > 0;
}

// No more than the whole of each GPU. What is counted late, after a kernel of several spans, has
// its place in later ones.
void Usage::bound(Gpus& gpus, Entry& entry, double span) {
  for (auto& [gpu, on] : gpus) {
    double& owed = entry.owed[gpu];
    const double all = on.gpu + owed;
    const double now = std::min(all, span);
    owed = std::min(all - now, seconds(kLongestKernel));
    on.gpu = now;
    on.works = on.works || now > 0;
    on.estimated = std::min(on.estimated, now);
    entry.sums.gpu_seconds += now;
    entry.sums.estimated_seconds += on.estimated;
  }
}

void Usage::add_waits(const Registry& registry, const Job& job, const std::map<JobKey, Gpus>& all,
                      Sums& sums, double span) {
  OnGpu mean;
  double count = 0;
  for (const auto& [gpu, on] : all.at(job.key)) {
    if (!on.works) continue;
    ++count;
    mean.gpu += on.gpu;
    mean.slices += on.slices;
    mean.guard += on.guard;
    mean.limit += on.limit;
    mean.turn += on.turn;
  }
  const double parts = std::max(count, 1.0);
  double lacks = span - mean.gpu / parts;
  const auto take = [&](double held) {
    const double part = std::clamp(held, 0.0, lacks);
    lacks -= part;
    return part;
  };
  const auto wait = [&](Hold hold, double held) {
    if (const double part = take(held); part > 0) sums.waits[hold] += time_of(part);
  };
  if (const Hold worst = worst_of_all(registry, job); worst != Hold::kNone) {
    return wait(worst, span);
  }
  wait(Hold::kGuard, mean.guard / parts);
  wait(Hold::kLimit, mean.limit / parts);
  wait(Hold::kTurn, mean.turn / parts);
  const double slices = take(mean.slices / parts);
  if (slices <= 0) return;
  sums.slices_seconds += slices;
  // By whom: as they had the GPUs on which it lost.
  std::map<JobKey, double> others;
  double sum = 0;
  for (const auto& [key, gpus] : all) {
    if (key == job.key) continue;
    for (const auto& [gpu, on] : gpus) {
      const auto mine = all.at(job.key).find(gpu);
      if (mine == all.at(job.key).end() || mine->second.slices <= 0 || on.gpu <= 0) continue;
      others[key] += on.gpu;
      sum += on.gpu;
    }
  }
  for (const auto& [key, had] : others) {
    const bool room = sums.slices_of.size() < kMostOthers || sums.slices_of.contains(key);
    if (room) sums.slices_of[key] += slices * had / sum;
  }
}

void Usage::forget_the_gone(const Registry& registry) {
  std::erase_if(jobs_, [&](const auto& each) { return !registry.jobs().contains(each.first); });
  std::erase_if(counted_,
                [&](const auto& each) { return !registry.clients().contains(each.first.first); });
  for (auto& [key, entry] : jobs_) {
    std::erase_if(entry.sums.slices_of,
                  [&](const auto& each) { return !registry.jobs().contains(each.first); });
  }
}

void Usage::tick(const Registry& registry, Time now) {
  const bool first = ticked_at_ == Time{0};
  if (!first && now <= ticked_at_) return;
  const double span = first ? 0 : seconds(std::min(now - ticked_at_, kLongestTick));
  ticked_at_ = now;
  forget_the_gone(registry);
  std::map<JobKey, Gpus> all;
  std::map<std::size_t, unsigned> at_work;  // jobs, by GPU
  for (const auto& [key, job] : registry.jobs()) {
    Gpus& gpus = all[key];
    for_lanes(registry, job, [&](const Client& client, unsigned number, const Client::Lane& lane) {
      // No bill without progress.
      const bool stands = client.standing.why != Standstill::kNone && !client.standing.moved;
      OnGpu nothing;
      add_lane(stands ? nothing : gpus[lane.gpu], {client.id, number}, lane, span);
    });
    for (const auto& [gpu, on] : gpus) at_work[gpu] += on.works ? 1 : 0;
  }
  if (first) return;
  for (auto& [key, gpus] : all) {
    for (auto& [gpu, on] : gpus) on.estimated += at_work[gpu] > 1 ? on.load : 0;
    bound(gpus, jobs_[key], span);
  }
  for (const auto& [key, job] : registry.jobs()) {
    add_waits(registry, job, all, jobs_[key].sums, span);
  }
}

const Usage::Sums& Usage::of(const Job& job) const {
  static const Sums none;
  const auto found = jobs_.find(job.key);
  return found != jobs_.end() ? found->second.sums : none;
}

}  // namespace switchyard::monitor
