#include "monitor/statistics/usage.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "monitor/core/lanes.h"

namespace switchyard::monitor {
namespace {

using stalls::Hold;

// A monitor that stood still knows nothing of that time.
constexpr Time kLongestTick = std::chrono::seconds(1);
// Time that is counted late is of one kernel (policy/activity.cpp).
constexpr Time kLongestKernel = std::chrono::seconds(10);

Time time_of(double span) { return Time(static_cast<Time::rep>(std::llround(span * 1e9))); }

// The reasons of which the first takes all that a job lacks.
bool is_of_all(Hold hold) {
  return hold == Hold::kPause || hold == Hold::kSwap || hold == Hold::kMemory || hold == Hold::kCut;
}

using status::Reason;
using status::State;
constexpr status::Code kUnknown{State::kUnknown, Reason::kNone};
constexpr status::Code kRunning{State::kRunning, Reason::kNone};
constexpr status::Code kIdle{State::kIdle, Reason::kNone};
constexpr status::Code kNoCuda{State::kIdle, Reason::kNoCuda};
constexpr status::Code kHeldByGuard{State::kHeld, Reason::kGuard};
constexpr status::Code kHeldByLimit{State::kHeld, Reason::kLimit};
constexpr status::Code kWaitsForTurn{State::kWaiting, Reason::kTurn};

}  // namespace

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

// NVML's loads of several jobs may be of different moments. Nobody had the part beyond the whole of
// their GPU, so it counts as waits for slices.
void Usage::divide_loads(std::map<JobKey, Gpus>& all, double span) {
  std::map<std::size_t, std::pair<double, double>> sums;  // by GPU: counted, and loads
  for (const auto& [key, gpus] : all) {
    for (const auto& [gpu, on] : gpus) {
      sums[gpu].first += on.gpu - on.load;
      sums[gpu].second += on.load;
    }
  }
  for (auto& [key, gpus] : all) {
    for (auto& [gpu, on] : gpus) {
      const auto& [counted, loads] = sums.at(gpu);
      if (on.load <= 0 || counted + loads <= span) continue;
      const double had = on.load * std::max(span - counted, 0.0) / loads;
      on.slices = std::max(on.slices, on.load - had);
      on.gpu -= on.load - had;
      on.load = had;
    }
  }
}

// No more than the whole of each GPU. Time that is counted late, after a kernel of several spans,
// has its place in later ones.
void Usage::bound(Gpus& gpus, Entry& entry, double span) {
  for (auto& [gpu, on] : gpus) {
    double& owed = entry.owed[gpu];
    const double all = on.gpu + owed;
    const double now = std::min(all, span);
    owed = std::min(all - now, seconds(kLongestKernel));
    on.gpu = now;
    on.works = on.works || now > 0;
    on.estimated = std::min(on.estimated, now);
    add_gpu_seconds(entry.sums, gpu, now, on.estimated);
  }
}

void Usage::add_gpu_seconds(Sums& sums, std::size_t gpu, double had, double estimated) {
  sums.gpu_seconds += had;
  sums.estimated_seconds += estimated;
  Sums::OfGpu& there = sums.gpus[gpu];
  there.gpu_seconds += had;
  there.estimated_seconds += estimated;
}

// It counts with the next look at the job, or at its end.
void Usage::leaves(const Client& client) {
  const bool stands = client.standing.why != Standstill::kNone && !client.standing.moved;
  if (client.observer || stands || ticked_at_ == Time{0}) return;
  for (const auto& [number, lane] : client.lanes) {
    if (!lane.had.known) continue;
    OnGpu on;
    add_lane(on, {client.id, number}, lane, 0);
    if (on.gpu > 0) jobs_[client.job].owed[lane.gpu] += on.gpu;
  }
}

void Usage::ends(const Job& job, const status::Statuses& statuses, Time now) {
  if (ticked_at_ == Time{0}) return;
  Entry& entry = jobs_[job.key];
  // No more than the time since the last look has room for, or than the job lived.
  const Time looked_at = std::max(ticked_at_, job.since);
  const double span = seconds(std::clamp(now - looked_at, Time{0}, kLongestTick));
  for (const auto& [gpu, owed] : entry.owed) {
    add_gpu_seconds(entry.sums, gpu, std::min(owed, span), 0);
    users_[job.uid][gpu] += std::min(owed, span);
  }
  entry.owed.clear();
  add_times(job, statuses.of(job), {}, entry, now);
}

std::map<std::size_t, Usage::Others> Usage::others_of(const std::map<JobKey, Gpus>& all) {
  std::map<std::size_t, Others> out;
  for (const auto& [key, gpus] : all) {
    for (const auto& [gpu, on] : gpus) {
      if (on.gpu <= 0) continue;
      out[gpu].all += on.gpu;
      out[gpu].most.emplace_back(on.gpu, key);
    }
  }
  for (auto& [gpu, others] : out) {
    auto& most = others.most;
    const std::size_t kept = std::min(most.size(), kMostOthers + 1);  // a job is none of its own
    std::partial_sort(most.begin(), most.begin() + static_cast<std::ptrdiff_t>(kept), most.end(),
                      std::greater<>());
    most.resize(kept);
  }
  return out;
}

// By whom: as they had the GPUs on which it lost.
void Usage::add_slices(JobKey job, const Gpus& gpus, const std::map<std::size_t, Others>& others,
                       Sums& sums, double slices) {
  sums.slices_seconds += slices;
  double all = 0;
  for (const auto& [gpu, on] : gpus) {
    const auto found = others.find(gpu);
    if (on.slices > 0 && found != others.end()) all += found->second.all - on.gpu;
  }
  if (all <= 0) return;
  for (const auto& [gpu, on] : gpus) {
    const auto found = others.find(gpu);
    if (on.slices <= 0 || found == others.end()) continue;
    for (const auto& [had, key] : found->second.most) {
      const bool room = sums.slices_of.size() < kMostOthers || sums.slices_of.contains(key);
      if (key != job && room) sums.slices_of[key] += slices * had / all;
    }
  }
}

Usage::Lacked Usage::lacked(status::Code code, const OnGpu& on, double span) {
  Lacked out;
  if (code.state == State::kStopped) return out;
  double lacks = span - on.gpu;
  const auto take = [&](double held) {
    const double part = std::clamp(held, 0.0, lacks);
    lacks -= part;
    return part;
  };
  const Hold all = hold_of(code);
  for (std::size_t i = 0; i < kReasons.size(); ++i) {
    const Hold reason = kReasons[i];
    const double held = is_of_all(all)           ? (reason == all ? span : 0.0)
                        : reason == Hold::kGuard ? on.guard
                        : reason == Hold::kLimit ? on.limit
                        : reason == Hold::kTurn  ? on.turn
                                                 : 0.0;
    out.waits[i] = take(held);
  }
  if (!is_of_all(all)) out.slices = take(on.slices);
  return out;
}

void Usage::add_waits(const status::Status& status, JobKey job, const Gpus& gpus,
                      const std::map<std::size_t, Others>& others, Sums& sums, double span) {
  OnGpu mean;
  double count = 0;
  for (const auto& [gpu, on] : gpus) {
    if (!on.works) continue;
    ++count;
    mean.gpu += on.gpu;
    mean.slices += on.slices;
    mean.guard += on.guard;
    mean.limit += on.limit;
    mean.turn += on.turn;
  }
  const double parts = std::max(count, 1.0);
  for (double* part : {&mean.gpu, &mean.slices, &mean.guard, &mean.limit, &mean.turn}) {
    *part /= parts;
  }
  const Lacked lacks = lacked(status.code, mean, span);
  for (std::size_t i = 0; i < kReasons.size(); ++i) {
    if (lacks.waits[i] > 0) sums.waits[kReasons[i]] += time_of(lacks.waits[i]);
  }
  if (lacks.slices > 0) add_slices(job, gpus, others, sums, lacks.slices);
}

void Usage::add_waits_by_gpu(const status::JobStatus& status, const Gpus& gpus, Sums& sums,
                             double span) {
  for (const auto& [gpu, there] : status.gpus) {
    const auto on = gpus.find(gpu);
    const Lacked lacks = lacked(there.code, on != gpus.end() ? on->second : OnGpu{}, span);
    Sums::OfGpu& out = sums.gpus[gpu];
    for (std::size_t i = 0; i < kReasons.size(); ++i) out.waits_seconds[i] += lacks.waits[i];
    out.slices_seconds += lacks.slices;
  }
}

void Usage::add_times(const Job& job, const status::JobStatus& status, const Gpus& gpus,
                      Entry& entry, Time now) {
  const bool first = entry.at == Time{0};
  const Time from = std::min(first ? job.since : entry.at, now);
  entry.at = now;
  const Time known = std::min(now - from, kLongestTick);
  for (const auto& [gpu, one] : status.gpus) {
    const auto [at, fresh] = entry.sums.times.try_emplace(gpu);
    if (fresh && !first) at->second[kNoCuda] += from - std::min(job.since, from);
  }
  for (auto& [gpu, times] : entry.sums.times) {
    if (now - from > known) times[kUnknown] += now - from - known;
    const auto row = std::find_if(status.gpus.begin(), status.gpus.end(),
                                  [gpu = gpu](const auto& each) { return each.gpu == gpu; });
    const auto on = gpus.find(gpu);
    if (row == status.gpus.end()) {
      times[kNoCuda] += known;  // it does not see it any more
    } else {
      add_span(times, row->status.code, on != gpus.end() ? on->second : OnGpu{}, known);
    }
  }
}

// Only gates change faster than anybody looks.
void Usage::add_span(std::map<status::Code, Time>& times, status::Code code, const OnGpu& on,
                     Time span) {
  const Hold hold = hold_of(code);
  const bool runs = code == kRunning || code == kIdle;
  const bool at_gate = hold == Hold::kGuard || hold == Hold::kLimit || hold == Hold::kTurn;
  const auto take = [&](status::Code held, double of) {
    const Time part = std::min(span, time_of(of));
    if (part > Time{0}) times[held] += part;
    span -= part;
  };
  if (runs || at_gate) {
    take(kHeldByGuard, on.guard);
    take(kHeldByLimit, on.limit);
    take(kWaitsForTurn, on.turn);
  }
  if (span > Time{0}) times[at_gate ? kRunning : code] += span;
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

void Usage::tick(const Registry& registry, const status::Statuses& statuses, Time now) {
  const bool first = ticked_at_ == Time{0};
  if (!first && now <= ticked_at_) return;
  const double span = first ? 0 : seconds(std::min(now - ticked_at_, kLongestTick));
  ticked_at_ = now;
  forget_the_gone(registry);
  std::map<JobKey, Gpus> all;
  std::map<std::size_t, unsigned> at_work;  // jobs, by GPU
  for (const auto& [key, job] : registry.jobs()) {
    Gpus& gpus = all[key];
    for_lanes(registry, job, [&](const Client& client, unsigned number, Client::Lane& lane) {
      lane.had.count(hold_of_gate(holds_by(lane.order, client.page->gate(number))), now);
      // No bill without progress.
      const bool stands = client.standing.why != Standstill::kNone && !client.standing.moved;
      OnGpu nothing;
      add_lane(stands ? nothing : gpus[lane.gpu], {client.id, number}, lane, span);
    });
    for (const auto& [gpu, on] : gpus) at_work[gpu] += on.works ? 1 : 0;
  }
  for (const auto& [key, job] : registry.jobs()) {
    add_times(job, statuses.of(job), all[key], jobs_[key], now);
  }
  if (first) return;
  divide_loads(all, span);
  for (auto& [key, gpus] : all) {
    for (auto& [gpu, on] : gpus) on.estimated += at_work[gpu] > 1 ? on.load : 0;
    Entry& entry = jobs_[key];
    bound(gpus, entry, span);
    auto& user = users_[registry.jobs().at(key).uid];
    for (const auto& [gpu, on] : gpus) user[gpu] += on.gpu;
  }
  const std::map<std::size_t, Others> others = others_of(all);
  for (const auto& [key, job] : registry.jobs()) {
    const status::JobStatus& status = statuses.of(job);
    Sums& sums = jobs_[key].sums;
    add_waits(status.job, key, all[key], others, sums, span);
    add_waits_by_gpu(status, all[key], sums, span);
  }
}

const Usage::Sums& Usage::of(const Job& job) const {
  static const Sums none;
  const auto found = jobs_.find(job.key);
  return found != jobs_.end() ? found->second.sums : none;
}

}  // namespace switchyard::monitor
