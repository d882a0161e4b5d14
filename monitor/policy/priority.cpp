#include <algorithm>
#include <cmath>
#include <set>

#include "monitor/policy/policy.h"

namespace switchyard::monitor::policy {
namespace {

// A client that has a context, as the rules below see it.
struct Rider {
  const ClientView* view = nullptr;
  ClientPlan* plan = nullptr;
  bool active = false;
  bool high = false;
  double weight = 0;  // of the job, after the class's factor
  double unit = 0;    // of one of its channel groups: what a slice is proportional to

  std::uint32_t groups() const { return std::max(1u, view->compute_groups); }
};

bool refresh_activity(const ClientView& view, Time now, State::Activity& activity) {
  if (view.work != activity.work) {
    activity.work = view.work;
    activity.last_moved = now;
    activity.moved = true;
  }
  return activity.moved && now - activity.last_moved < kActiveFor;
}

void forget_the_gone(const Snapshot& snapshot, State& state) {
  std::set<std::uint64_t> here;
  for (const ClientView& view : snapshot.clients) here.insert(view.client);
  std::erase_if(state.activity, [&here](const auto& entry) { return !here.contains(entry.first); });
  if (!here.contains(state.short_holder)) state.short_holder = 0;
}

// A process counts for its job: the job's weight is divided among the channel groups that compete
// for it, so ten workers get no more than one. An idle client is weighed as if it were active too,
// so that it is right when it wakes.
void divide_weights(std::vector<Rider>& riders) {
  for (Rider& rider : riders) {
    std::uint32_t groups = rider.active ? 0 : rider.groups();
    for (const Rider& other : riders) {
      if (other.active && other.view->job == rider.view->job) groups += other.groups();
    }
    rider.unit = rider.weight / groups;
  }
}

// Slices in proportion to the units, `smallest` for the least of those that count.
struct Scale {
  double us_per_unit = 0;
  Slices slice(double unit) const {
    const double us =
        std::clamp<double>(std::round(unit * us_per_unit), kSmallestSliceUs, kLargestSliceUs);
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

void give_highs_long_slices(std::vector<Rider>& riders) {
  const Extent highs = extent(riders, [](const Rider& rider) { return rider.high; });
  if (highs.count == 0) return;
  const Scale scale = fit(0, highs.least, highs.most, kHighSliceUs);
  for (Rider& rider : riders) {
    if (rider.high) rider.plan->slices = scale.slice(rider.unit);
  }
}

// The one that may be short: the only active yielder; when none is active, whoever was last, so
// that a pause in its work changes nothing; else a lone yielder, before its first launch.
const Rider* choose_short(const std::vector<Rider>& riders, std::uint64_t last) {
  const Rider* active = nullptr;
  const Rider* holder = nullptr;
  const Rider* any = nullptr;
  unsigned actives = 0;
  unsigned yielders = 0;
  for (const Rider& rider : riders) {
    if (rider.high) continue;
    ++yielders;
    any = &rider;
    if (rider.view->client == last) holder = &rider;
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

void yield_to_high(std::vector<Rider>& riders, State& state) {
  const Rider* chosen = choose_short(riders, state.short_holder);
  state.short_holder = chosen != nullptr ? chosen->view->client : 0;
  for (Rider& rider : riders) {
    if (!rider.high) rider.plan->slices = &rider == chosen ? kYieldShort : kYieldShared;
  }
}

void share_by_weight(std::vector<Rider>& riders, State& state) {
  state.short_holder = 0;
  const bool someone = std::any_of(riders.begin(), riders.end(),
                                   [](const Rider& rider) { return rider.active && !rider.high; });
  const Extent competing = extent(
      riders, [someone](const Rider& rider) { return !rider.high && (rider.active || !someone); });
  if (competing.count == 0) return;
  const Scale scale = fit(static_cast<double>(kCyclePerClientUs) * competing.count / competing.sum,
                          competing.least, competing.most, kSmallestSliceUs);
  for (Rider& rider : riders) {
    if (!rider.high) rider.plan->slices = scale.slice(rider.unit);
  }
}

// What each job may expect of the GPU's time while it and all that are active now have work.
void say_what_is_asked(std::vector<Rider>& riders, bool high_active) {
  for (Rider& rider : riders) {
    if (high_active && !rider.high) continue;
    std::map<std::uint64_t, double> jobs{{rider.view->job, rider.weight}};
    for (const Rider& other : riders) {
      if (other.active && other.high == rider.high) jobs[other.view->job] = other.weight;
    }
    double sum = 0;
    for (const auto& [job, weight] : jobs) sum += weight;
    rider.plan->share_asked = rider.weight / sum;
  }
}

std::vector<Rider> list_riders(const Snapshot& snapshot, Plan& plan) {
  std::vector<Rider> riders;
  for (std::size_t i = 0; i < snapshot.clients.size(); ++i) {
    const ClientView& view = snapshot.clients[i];
    if (view.contexts == 0 && view.compute_groups == 0) continue;
    riders.push_back({&view, &plan.clients[i], plan.clients[i].active,
                      view.priority == Priority::kHigh, view.weight, 0});
  }
  return riders;
}

void weigh_classes(std::vector<Rider>& riders) {
  // Low harvests: beside an active normal it counts a tenth. When nobody is active, as beside all.
  const auto normal = [](const Rider& rider) { return rider.view->priority == Priority::kNormal; };
  const bool someone =
      std::any_of(riders.begin(), riders.end(), [](const Rider& rider) { return rider.active; });
  const bool beside_normal = std::any_of(riders.begin(), riders.end(), [&](const Rider& rider) {
    return normal(rider) && (rider.active || !someone);
  });
  for (Rider& rider : riders) {
    if (rider.view->priority == Priority::kLow && beside_normal) rider.weight *= kLowBesideNormal;
  }
  divide_weights(riders);
}

}  // namespace

Plan decide(const Snapshot& snapshot, Time now, State& state) {
  forget_the_gone(snapshot, state);
  Plan plan;
  for (const ClientView& view : snapshot.clients) {
    State::Activity& activity = state.activity[view.client];
    const bool active = refresh_activity(view, now, activity);
    ClientPlan& each = plan.clients.emplace_back();
    each.client = view.client;
    each.active = active;
    const Time ends = activity.last_moved + kActiveFor;
    if (active && (plan.look_again == Time{0} || ends < plan.look_again)) plan.look_again = ends;
  }
  std::vector<Rider> riders = list_riders(snapshot, plan);
  weigh_classes(riders);
  bool high_there = false;
  bool high_active = false;
  unsigned active_yielders = 0;
  for (const Rider& rider : riders) {
    high_there = high_there || rider.high;
    high_active = high_active || (rider.high && rider.active);
    if (!rider.high && rider.active) ++active_yielders;
  }
  say_what_is_asked(riders, high_active);
  if (riders.size() < 2) {
    state.short_holder = 0;
    return plan;
  }
  give_highs_long_slices(riders);
  if (high_active || (high_there && active_yielders < 2)) {
    yield_to_high(riders, state);
  } else {
    share_by_weight(riders, state);
  }
  for (Rider& rider : riders) {
    rider.plan->wake = !rider.active;
    if (!rider.view->sliceable) rider.plan->slices = {};
  }
  return plan;
}

}  // namespace switchyard::monitor::policy
