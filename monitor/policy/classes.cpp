#include <cmath>
#include <map>

#include "monitor/policy/look.h"

namespace switchyard::monitor::policy {
namespace {

// A process counts for its job. The job's weight is divided among the channel groups that compete
// for it, so ten workers get no more than one. An idle client is weighed as if it were active too,
// so that it is right when it wakes.
void divide_weights(std::vector<Rider>& riders) {
  for (Rider& rider : riders) {
    std::uint32_t groups = rider.active ? 0 : rider.groups();
    for (const Rider& other : riders) {
      if (other.active && other.job() == rider.job()) groups += other.groups();
    }
    rider.unit = rider.capped / groups;
  }
}

// A limit is also a cap on the weight. So slices alone keep it among jobs that always work, and the
// others share the rest.
void cap_by_limit(std::vector<Rider>& riders, bool high) {
  struct Job {
    double weight = 0, limit = 0;
    bool capped = false;
  };
  std::map<std::uint64_t, Job> jobs;
  for (const Rider& rider : riders) {
    if (!rider.active || rider.high != high) continue;
    jobs[rider.job()] = {rider.weight, rider.limited() ? rider.view->limit : 1, false};
  }
  double free_weight = 0;
  double capped_share = 0;
  for (const auto& [key, job] : jobs) free_weight += job.weight;
  for (bool again = true; again;) {
    again = false;
    for (auto& [key, job] : jobs) {
      const double share = job.weight / free_weight * (1 - capped_share);
      if (job.capped || share <= job.limit) continue;
      // Of jobs that are all limited the last keeps its weight: its gate must do.
      if (job.weight >= free_weight || capped_share + job.limit >= 1) continue;
      job.capped = again = true;
      free_weight -= job.weight;
      capped_share += job.limit;
    }
  }
  for (Rider& rider : riders) {
    const auto job = jobs.find(rider.job());
    if (!rider.active || job == jobs.end() || !job->second.capped) continue;
    rider.capped = job->second.limit * free_weight / (1 - capped_share);
  }
}

// Slices in proportion to the units, `smallest` for the least of those that count.
struct Scale {
  double us_per_unit = 0;
  Slices slice(double unit, double smallest = kSmallestSliceUs) const {
    const double us = std::clamp<double>(std::round(unit * us_per_unit), smallest, kLargestSliceUs);
    return {static_cast<std::uint32_t>(us), static_cast<std::uint32_t>(us)};
  }
};

// Keeps the ratios exact as long as they fit between the smallest and the largest slice.
Scale fit(double us_per_unit, double least, double most, double smallest) {
  us_per_unit = std::max(us_per_unit, smallest / least);
  us_per_unit = std::min(us_per_unit, kLargestSliceUs / most);
  return {us_per_unit};
}

struct Extent {
  double least = 0, most = 0, sum = 0;
  unsigned count = 0;
};

template <typename Counts>
Extent extent(const std::vector<Rider>& riders, Counts counts) {
  Extent out;
  for (const Rider& rider : riders) {
    if (!counts(rider)) continue;
    out.least = out.count == 0 ? rider.unit : std::min(out.least, rider.unit);
    out.most = std::max(out.most, rider.unit);
    out.sum += rider.unit * rider.groups();
    out.count += rider.groups();
  }
  return out;
}

// Of the riders among which slices are shared, a gang works that is not known to bear long ones.
template <typename Shares>
bool needs_short_slices(const Tick& tick, Shares shares) {
  return any_rider(tick, [&](const Rider& rider) {
    return shares(rider) && rider.active && rider.view->short_slices;
  });
}

// The time of all active highs in one round, in microseconds.
double give_highs_long_slices(Tick& tick, bool greedy) {
  const auto is_high = [](const Rider& rider) { return rider.high; };
  const auto works = [](const Rider& rider) { return rider.high && rider.active; };
  const Extent highs = extent(tick.riders, is_high);
  if (highs.count == 0) return 0;
  const Extent active = extent(tick.riders, works);
  // While they leave a minimum, their round is as short as may be. A client that has one slice in
  // each, or only begins to, waits for it at everything that it does.
  const double round_us =
      std::max<double>(kGreedyRoundUs, kUsualSliceUs * static_cast<double>(active.count));
  const double smallest =
      active.count > 1 && needs_short_slices(tick, is_high) ? kSmallestSliceUs : kHighSliceUs;
  const Scale scale = greedy && active.count != 0
                          ? fit(round_us / active.sum, highs.least, highs.most, kSmallestSliceUs)
                          : fit(0, highs.least, highs.most, smallest);
  double sum = 0;
  for (Rider& rider : tick.riders) {
    if (!rider.high) continue;
    rider.plan->slices = scale.slice(rider.unit);
    if (rider.active) sum += rider.plan->slices.compute_us * rider.groups();
  }
  return sum;
}

// The one that may be short is the only active yielder. When none is active, it is the last one, so
// that a pause in its work changes nothing. Else it is a lone yielder, before its first launch.
const Rider* choose_short(const Tick& tick) {
  const Rider* active = nullptr;
  const Rider* holder = nullptr;
  const Rider* any = nullptr;
  unsigned actives = 0;
  unsigned yielders = 0;
  for (const Rider& rider : tick.riders) {
    if (rider.high) continue;
    ++yielders;
    any = &rider;
    if (rider.view->client == tick.state.short_holder) holder = &rider;
    if (rider.active) {
      ++actives;
      active = &rider;
    }
  }
  const Rider* chosen = actives == 1    ? active
                        : actives > 1   ? nullptr
                        : holder        ? holder
                        : yielders == 1 ? any
                                        : nullptr;
  // A process with two compute groups would be two short slices by itself.
  if (chosen != nullptr && chosen->view->compute_groups != 1) return nullptr;
  return chosen;
}

// The slices of the one yielder that has the GPU beside highs that have `highs_us` of each round.
Slices slice_for_yielder(const Tick& tick, double highs_us) {
  if (!tick.state.high.greedy || highs_us <= 0) return yielding_slices(tick);
  const double us = std::round(highs_us * tick.rules.minimum / (1 - tick.rules.minimum));
  // Not short: a high class that always works has no latency to protect.
  const auto slice =
      static_cast<std::uint32_t>(std::clamp<double>(us, abi::kShortBelowUs, kLargestSliceUs));
  return {slice, slice};
}

void yield_to_high(Tick& tick, double highs_us) {
  const bool in_turns = tick.state.turns.phase != Turns::Phase::kNone;
  const Rider* chosen = !in_turns               ? choose_short(tick)
                        : one_is_not_held(tick) ? nullptr
                                                : shortable_holder(tick);
  tick.state.short_holder = chosen != nullptr ? chosen->view->client : 0;
  const Slices yielders = slice_for_yielder(tick, highs_us);
  tick.state.high.given_us = (chosen != nullptr ? yielders : kYieldShared).compute_us;
  const bool beside = any_rider(
      tick, [&tick](const Rider& rider) { return active_low(rider) && computes(rider, tick.now); });
  for (Rider& rider : tick.riders) {
    // A protected client need not wait, between two close requests, for a yielder to come and go.
    rider.plan->linger = rider.high && beside && waits_for_gpu(tick);
    if (rider.high) continue;
    rider.plan->slices = &rider == chosen ? yielders : kYieldShared;
  }
}

// While waits are foreseen, none of those that yield is short; copies of a single one are put off.
void share_foreseen(Tick& tick) {
  const bool in_turns = tick.state.turns.phase != Turns::Phase::kNone;
  const Rider* chosen = in_turns ? nullptr : choose_short(tick);
  tick.state.short_holder = chosen != nullptr ? chosen->view->client : 0;
  const std::uint32_t us = tick.state.high.given_us = tick.state.high.foreseen_us;
  for (Rider& rider : tick.riders) {
    if (!rider.high) rider.plan->slices = {us, &rider == chosen ? kYieldShort.copy_us : us};
  }
}

// The only one that a guard holds back, if it may have a short slice.
const Rider* only_restrained(const Tick& tick) {
  const Rider* out = nullptr;
  for (const Rider& rider : tick.riders) {
    if (rider.high || !rider.active || !rider.view->restrained) continue;
    if (out != nullptr) return nullptr;
    out = &rider;
  }
  return out != nullptr && out->view->compute_groups == 1 ? out : nullptr;
}

void share_by_weight(Tick& tick) {
  const Rider* brief = only_restrained(tick);
  tick.state.short_holder = brief != nullptr ? brief->view->client : 0;
  tick.state.high.given_us = 0;
  const bool someone =
      any_rider(tick, [](const Rider& rider) { return rider.active && !rider.high; });
  const Extent competing = extent(tick.riders, [someone](const Rider& rider) {
    return !rider.high && (rider.active || !someone);
  });
  if (competing.count == 0) return;
  const auto is_low = [](const Rider& rider) { return !rider.high; };
  const double cycle = needs_short_slices(tick, is_low) ? kShortCycleUs : tick.rules.slice_us;
  const double smallest = brief != nullptr ? kSmallestRestrainedUs : kSmallestSliceUs;
  const Scale scale =
      fit(cycle * competing.count / competing.sum, competing.least, competing.most, smallest);
  for (Rider& rider : tick.riders) {
    if (rider.high) continue;
    rider.plan->slices = scale.slice(rider.unit, &rider == brief ? smallest : kSmallestSliceUs);
  }
}

}  // namespace

void rank(Tick& tick) {
  if (tick.rules.kind == Kind::kPriority) {
    for (Rider& rider : tick.riders) rider.high = rider.view->priority == Priority::kHigh;
  }
  if (tick.rules.kind != Kind::kDeadline) return;
  const Rider* first = nullptr;
  for (const Rider& rider : tick.riders) {
    if (!rider.active || rider.view->deadline == Time{0}) continue;
    const auto urgency = [](const Rider& r) { return std::pair(r.view->deadline, r.job()); };
    if (first == nullptr || urgency(rider) < urgency(*first)) first = &rider;
  }
  if (first == nullptr) return;
  for (Rider& rider : tick.riders) rider.high = rider.job() == first->job();
}

void weigh(Tick& tick) {
  // Low harvests: beside an active normal it counts a tenth. When nobody is active, as beside all.
  const bool someone = any_rider(tick, [](const Rider& rider) { return rider.active; });
  const bool beside_normal =
      tick.rules.kind == Kind::kPriority && any_rider(tick, [&](auto& r) {
        return r.view->priority == Priority::kNormal && (r.active || !someone);
      });
  for (Rider& rider : tick.riders) {
    rider.weight = rider.view->weight;
    if (rider.view->priority == Priority::kLow && beside_normal) rider.weight *= kLowBesideNormal;
  }
  for (Rider& rider : tick.riders) rider.capped = rider.weight;
  if (any_rider(tick, [](const Rider& rider) { return rider.limited(); })) {
    cap_by_limit(tick.riders, true);
    cap_by_limit(tick.riders, false);
  }
  divide_weights(tick.riders);
}

// What each job may expect of the GPU's time while it and all that are active now have work.
void say_what_is_asked(Tick& tick) {
  const bool high_active =
      any_rider(tick, [](const Rider& rider) { return rider.high && rider.active; });
  // The active jobs of each class, each once: its first active rider stands for it.
  double sums[2] = {0, 0};
  const auto first_active = [&tick](const Rider& rider) {
    const auto same = [&rider](const Rider& r) { return r.active && r.job() == rider.job(); };
    return std::find_if(tick.riders.begin(), tick.riders.end(), same);
  };
  for (const Rider& rider : tick.riders) {
    if (rider.active && &*first_active(rider) == &rider) sums[rider.high] += rider.capped;
  }
  for (Rider& rider : tick.riders) {
    if (high_active && !rider.high) continue;
    const bool counted = first_active(rider) != tick.riders.end();
    rider.plan->share_asked = rider.capped / (sums[rider.high] + (counted ? 0 : rider.capped));
    if (rider.limited()) {
      rider.plan->share_asked = std::min(rider.plan->share_asked, rider.view->limit);
    }
  }
}

void give_slices(Tick& tick) {
  bool high_there = false;
  bool high_active = false;
  unsigned active_yielders = 0;
  for (const Rider& rider : tick.riders) {
    high_there = high_there || rider.high;
    high_active = high_active || (rider.high && rider.active);
    if (!rider.high && rider.active) ++active_yielders;
  }
  const double highs_us = give_highs_long_slices(tick, tick.state.high.greedy);
  tick.state.high.round_us = highs_us;
  if (tick.state.high.foreseen_us != 0) {
    share_foreseen(tick);
  } else if (high_active || (high_there && active_yielders < 2)) {
    yield_to_high(tick, highs_us);
  } else {
    share_by_weight(tick);
  }
}

}  // namespace switchyard::monitor::policy
