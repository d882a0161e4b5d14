#include <algorithm>
#include <iterator>
#include <optional>

#include "monitor/policy/look.h"

namespace switchyard::monitor::policy {
namespace {

// Looks may come thousands of times a second, so no sets are built for this.
void forget_the_gone(const Snapshot& snapshot, State& state) {
  const std::uint64_t mark = ++state.looks;
  for (const ClientView& view : snapshot.clients) {
    state.clients[view.client].seen_at = mark;
    state.jobs[view.job].seen_at = mark;
  }
  const auto gone = [mark](const auto& entry) { return entry.second.seen_at != mark; };
  std::erase_if(state.clients, gone);
  std::erase_if(state.jobs, gone);
  if (!state.clients.contains(state.short_holder)) state.short_holder = 0;
}

// Sees everybody, lists those that ride, and shuts the gates of those that are paused.
std::vector<Rider> observe_all(const Snapshot& snapshot, Tick& tick) {
  std::vector<Rider> everybody;
  tick.plan.clients.resize(snapshot.clients.size());
  for (std::size_t i = 0; i < snapshot.clients.size(); ++i) {
    const ClientView& view = snapshot.clients[i];
    ClientState& state = tick.state.clients[view.client];
    ClientPlan& plan = tick.plan.clients[i];
    observe(view, tick.now, tick.dt_ns, state);
    plan.client = view.client;
    // One that stands still goes on being numbered: so it is known to have work, and seen to move.
    plan.watch = view.numbered && view.busy && !state.busy;
    const Time ends = state.last_moved + kActiveFor;
    plan.active = state.moved && tick.now < ends && !view.paused;
    if (plan.active) tick.again_at(ends);
    Rider rider;
    rider.view = &view;
    rider.plan = &plan;
    rider.state = &state;
    rider.active = plan.active;
    if (view.paused) rider.close(abi::kClosedByPause);
    if (view.contexts == 0 && view.compute_groups == 0) continue;
    everybody.push_back(rider);
  }
  return everybody;
}

// Of those that yield, two or more jobs work: without turns two of them would be short at once, or
// none.
std::optional<TurnRules> turns_beside_high(const Tick& tick) {
  const bool high_active =
      any_rider(tick, [](const Rider& rider) { return rider.high && rider.active; });
  if (!high_active) return std::nullopt;
  TurnRules turns;
  turns.short_slice = !tick.state.high.greedy && !one_is_not_held(tick);
  turns.long_turns = tick.state.high.greedy;
  turns.spacing_us = kHighSpacingUs;
  return turns;
}

// Where there are no slices, turns are the only way to weights. Whether they are needed depends on
// who works; a newcomer that may make them needed is armed all the same.
std::optional<TurnRules> turns_by_weight(const Tick& tick, bool held) {
  double least = 0;
  double most = 0;
  for (const Rider& rider : tick.riders) {
    if (rider.high || !rider.view->gateable) continue;
    least = least == 0 ? rider.weight : std::min(least, rider.weight);
    most = std::max(most, rider.weight);
  }
  if (most <= least * 1.01) return std::nullopt;
  TurnRules turns;
  turns.suspended = held;
  turns.only_unequal = true;
  return turns;
}

// One of the lower jobs at a time has the rest. After each close the GPU begins with the same one,
// so by slices it would have nearly all.
TurnRules turns_while_foreseen(Foreseen foreseen) {
  TurnRules turns;
  turns.suspended = foreseen == Foreseen::kClosed;
  turns.spacing_us = kHighSpacingUs;
  return turns;
}

// Numbers tell it, which come with gates; without slices nothing follows from it.
bool can_see_the_greedy(const Rules& rules) {
  return rules.gates && rules.slices && rules.kind != Kind::kExclusive;
}

std::optional<TurnRules> turns_for(Tick& tick, Foreseen foreseen) {
  if (foreseen != Foreseen::kNot) return turns_while_foreseen(foreseen);
  if (tick.rules.kind == Kind::kExclusive) {
    TurnRules turns;
    turns.highs = turns.by_class = true;
    return turns;
  }
  if (tick.rules.slices) {
    watch_the_greedy(tick);
    return turns_beside_high(tick);
  }
  return turns_by_weight(tick, hold_for_high(tick));
}

// A newcomer is armed before it comes, while another works that it would take turns with.
void arm_newcomers(const Tick& tick, const TurnRules& turns) {
  const auto takes_part = [&turns](const Rider& rider) {
    return rider.view->gateable && (turns.highs || !rider.high);
  };
  for (const Rider& rider : tick.riders) {
    const bool another_works = any_rider(tick, [&](const Rider& other) {
      return other.active && takes_part(other) && other.job() != rider.job();
    });
    if (takes_part(rider) && !rider.active && another_works) rider.arm(turns.spacing_us);
  }
}

// A job that comes in maps memory, and each time waits for a slice of the leaving job's copies.
// Others may wait for the copies of a job that a guard has found.
void shorten_copies(const Tick& tick) {
  const auto any_short = [&tick] {
    return any_rider(tick, [](const Rider& rider) { return is_short(rider.plan->slices); });
  };
  for (const Rider& rider : tick.riders) {
    auto& copy_us = rider.plan->slices.copy_us;
    if (rider.view->moves || rider.view->short_copies)
      copy_us = std::min(copy_us, kMovingCopySliceUs);
    const bool short_copies = rider.view->leaves || rider.view->short_copies;
    if (short_copies && !any_short()) copy_us = std::min(copy_us, kLeavingCopySliceUs);
  }
}

// More than one rides: slices, turns and held gates, as the rules have it. A rider whose gate is
// refused takes no part in turns; that is its client's word, so it changes nothing for the others.
void share(Tick& tick) {
  if (tick.rules.slices || (tick.rules.foresee && tick.rules.gates)) {
    follow_bursts(tick);
  } else {
    forget_windows(tick.state);
  }
  const Foreseen foreseen = foresee_waits(tick);
  if (!can_see_the_greedy(tick.rules)) tick.state.high.greedy = false;
  const auto turns = tick.rules.gates ? turns_for(tick, foreseen) : std::nullopt;
  if (turns) arm_newcomers(tick, *turns);
  if (!turns || !take_turns(tick, *turns)) {
    tick.state.turns.phase = Turns::Phase::kNone;
    list_claims(tick, nullptr);
  }
  if (tick.rules.slices) {
    give_slices(tick);
    shorten_copies(tick);
  }
  for (const Rider& rider : tick.riders) {
    rider.plan->wake = rider.plan->wake || !rider.active;
    if (!rider.view->sliceable) rider.plan->slices = {};
  }
}

void leave_alone(State& state) {
  state.short_holder = 0;
  state.turns.phase = Turns::Phase::kNone;
  state.high = {};
  forget_windows(state);
}

void remember(const std::vector<Rider>& everybody, Tick& tick) {
  for (const Rider& rider : everybody) {
    ClientState& state = *rider.state;
    const bool closed = rider.plan->closed != 0;
    if (closed && !state.closed) state.closed_at = tick.now;
    state.closed = closed;
    state.slices = rider.plan->slices;
    state.watched = rider.plan->watch;
    state.rings = rider.plan->wake && (tick.rules.slices || tick.rules.gates);
    state.spacing_us = rider.plan->spacing_us;
    rider.plan->share_got = state.share;
    rider.plan->had_ns = state.share < 0 ? -1 : state.told_ns;
    rider.plan->divided = state.divided;
    rider.plan->lost_ns = state.lost_ns;
    rider.plan->cpu_burst_us = state.bursts.cpu_ns < 0 ? -1 : state.bursts.cpu_ns / 1e3;
  }
  tick.state.looked_at = tick.now;
  tick.state.looked = true;
}

}  // namespace

Plan decide(const Snapshot& snapshot, Time now, State& state) {
  forget_the_gone(snapshot, state);
  Plan plan;
  const double dt_ns = state.looked ? counted_ns(now - state.looked_at) : 0;
  plan.dt_ns = dt_ns;
  Tick tick{snapshot.rules, now, dt_ns, state, plan, {}};
  const std::vector<Rider> everybody = observe_all(snapshot, tick);
  account(everybody, dt_ns, tick.rules.part, state.sampling);
  std::copy_if(everybody.begin(), everybody.end(), std::back_inserter(tick.riders),
               [](const Rider& rider) { return !rider.view->paused; });
  if (tick.rules.gates) hold_limits(tick);
  rank(tick);
  weigh(tick);
  say_what_is_asked(tick);
  if (tick.riders.size() < 2) {
    leave_alone(state);
    list_claims(tick, nullptr);
  } else {
    share(tick);
  }
  if (tick.rules.gates) hold_ungranted(tick);
  sample(tick);
  remember(everybody, tick);
  return plan;
}

}  // namespace switchyard::monitor::policy
