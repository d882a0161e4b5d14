// Jobs that have the GPU one after the other, each behind its gate while it waits.
//
//     open ──(turn over, or no work, and another wants)──► draining ──► slicing ──► open (the next)
//             closed                                raised, lowered   in force
//
// A turn is so long that handing over costs at most a fiftieth of it, and in proportion to the
// job's weight. Work that runs on after a turn's end is taken off the next. The rest of a turn when
// the work pauses is added to the next, unless the job stays away.
#include "monitor/policy/contenders.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Phase = Turns::Phase;

constexpr double kSmoothing = 0.2;
// No work for so long ends a turn, unless handing over takes longer.
constexpr Time kIdleEnds = milliseconds(2);
// The part of a turn that brief pauses may take.
constexpr double kPatience = 0.15;
// Work that still runs then is one long kernel, which the slices bound.
constexpr Time kDrainAtMost = milliseconds(5);
// A process that doesn't confirm a slice (it is stopped, say) must not stop the others.
constexpr Time kSliceAtMost = milliseconds(50);
constexpr Time kLookWhileHandingOver = microseconds(200);
constexpr Time kLookWhileIdle = microseconds(500);
constexpr Time kLookWhileOpen = milliseconds(2);

void enter(Tick& tick, Phase phase) {
  tick.state.turns.phase = phase;
  tick.state.turns.phase_at = tick.now;
}

void open_turn(Tick& tick, const TurnQueue& jobs) {
  Turns& turns = tick.state.turns;
  enter(tick, Phase::kOpen);
  turns.idle_since = tick.now;
  JobState& holder = tick.state.jobs[turns.holder];
  const double turn = jobs.this_turn_ns(turns.holder);
  turns.cycle_ns = jobs.cycle_ns();
  const double change = std::max(-turn / 2, holder.credit_ns);
  holder.credit_ns -= change;
  turns.left_ns = turn + change;
  turns.patience_ns = change > 0 ? kPatience * turns.left_ns : 0;
}

void finish_handover(Tick& tick, const TurnQueue& jobs) {
  Turns& turns = tick.state.turns;
  turns.handover_ns += kSmoothing * (ns(tick.now - turns.closed_at) - turns.handover_ns);
  open_turn(tick, jobs);
}

void hand_over(Tick& tick, std::uint64_t next) {
  tick.state.turns.next = next;
  tick.state.turns.closed_at = tick.now;
  enter(tick, Phase::kDraining);
}

// A pause that is shorter than handing over isn't worth it. A job that has been owed for brief ones
// is granted some.
bool paused_for_long(Tick& tick, const Contender& holder) {
  Turns& turns = tick.state.turns;
  if (holder.at_work) {
    turns.idle_since = tick.now;
    return false;
  }
  turns.patience_ns -= tick.dt_ns;
  const double pause = ns(tick.now - turns.idle_since);
  const double dear = std::max(ns(kIdleEnds), turns.handover_ns);
  return pause >= (turns.patience_ns > 0 ? std::max(dear, brief_pause_ns(turns)) : dear);
}

// The turn goes to whoever is next, maybe to its holder again.
void end_turn(Tick& tick, TurnQueue& jobs) {
  Turns& turns = tick.state.turns;
  const std::uint64_t next = jobs.choose(turns.holder);
  if (next == turns.holder) {
    open_turn(tick, jobs);
  } else {
    hand_over(tick, next);
  }
}

// The turn goes on, or is over.
void step_open(Tick& tick, TurnQueue& jobs) {
  Turns& turns = tick.state.turns;
  const Contender& holder = *jobs.find(turns.holder);
  JobState& state = tick.state.jobs[turns.holder];
  turns.left_ns -= tick.dt_ns;
  const bool paused = paused_for_long(tick, holder);
  const auto anybody = [](const Contender&) { return true; };
  const auto equal = [&](const Contender& job) { return job.rank >= holder.rank; };
  const auto higher = [&](const Contender& job) { return job.rank > holder.rank; };
  if ((paused || holder.barred) && jobs.another_wants(turns.holder, anybody)) {
    if (!holder.barred) {
      state.unused_ns = std::max(0.0, turns.left_ns);
      state.idle_since = turns.idle_since;
    }
    end_turn(tick, jobs);
  } else if (!turns.repaying && jobs.another_wants(turns.holder, higher)) {
    state.credit_ns += turns.left_ns;
    end_turn(tick, jobs);
  } else if (turns.left_ns <= 0) {
    if (jobs.another_wants(turns.holder, equal) || jobs.lower_due()) {
      state.credit_ns += turns.left_ns;
      end_turn(tick, jobs);
    } else {
      turns.left_ns = 0;  // it goes on until somebody comes
    }
  }
}

void step_draining(Tick& tick, const TurnRules& rules, TurnQueue& jobs) {
  Turns& turns = tick.state.turns;
  const Contender* const holder = jobs.find(turns.holder);
  const bool drained = holder == nullptr || holder->drained;
  if (!drained && tick.now - turns.closed_at < kDrainAtMost) return;
  const Contender* const next = jobs.find(turns.next);
  turns.holder = next != nullptr && next->wants ? turns.next : jobs.choose(turns.holder);
  const Rider* const lowered = rules.short_slice ? shortable_holder(tick) : nullptr;
  if (lowered != nullptr && lowered->view->sliceable && !lowered->state->deaf) {
    enter(tick, Phase::kSlicing);
  } else {
    finish_handover(tick, jobs);
  }
}

void step_slicing(Tick& tick, const TurnRules& rules, const TurnQueue& jobs) {
  Turns& turns = tick.state.turns;
  const Rider* const lowered = shortable_holder(tick);
  const bool ready = !rules.short_slice || lowered == nullptr || !lowered->view->sliceable ||
                     lowered->view->slices_in_force;
  if (!ready && tick.now - turns.phase_at < kSliceAtMost) return;
  if (ready) {
    finish_handover(tick, jobs);
  } else {
    lowered->state->deaf = true;  // what that took is no measure of hand-overs
    open_turn(tick, jobs);
  }
}

void step(Tick& tick, const TurnRules& rules, TurnQueue& jobs) {
  Turns& turns = tick.state.turns;
  if (turns.phase == Phase::kNone) {
    // The job that had the short slice goes on with it; it is open already.
    const auto last = std::find_if(tick.riders.begin(), tick.riders.end(), [&](const Rider& r) {
      return r.view->client == tick.state.short_holder && jobs.find(r.job()) != nullptr;
    });
    // Else turns go on where they ended, or the first job would gain whenever the high one sleeps.
    turns.holder = last != tick.riders.end() ? last->job() : jobs.choose(turns.holder);
    open_turn(tick, jobs);
    return;
  }
  if (jobs.find(turns.holder) == nullptr && turns.phase != Phase::kDraining) {
    hand_over(tick, jobs.choose(turns.holder));
  }
  if (turns.phase == Phase::kOpen) step_open(tick, jobs);
  // Draining may be over at once, and slicing takes at least until the next look.
  if (turns.phase == Phase::kSlicing) {
    step_slicing(tick, rules, jobs);
  } else if (turns.phase == Phase::kDraining) {
    step_draining(tick, rules, jobs);
  }
}

void plan_next_look(Tick& tick, const TurnQueue& jobs) {
  const Turns& turns = tick.state.turns;
  if (turns.phase != Phase::kOpen) {
    tick.again_in(kLookWhileHandingOver);
    return;
  }
  tick.again_in(jobs.find(turns.holder)->busy ? kLookWhileOpen : kLookWhileIdle);
  tick.again_in_ns(std::max(turns.left_ns, ns(kLookWhileHandingOver)));
}

bool has_turn(const Rider& rider) {
  return rider.view->grant == Grant::kOpen || rider.view->grant == Grant::kStopping;
}

// The holder of the turn was decided for all GPUs together (grants.h).
void follow_grants(Tick& tick, const TurnRules& rules, const TurnQueue& jobs) {
  Turns& turns = tick.state.turns;
  turns.cycle_ns = jobs.cycle_ns();
  const auto holder = std::find_if(tick.riders.begin(), tick.riders.end(), [&](const Rider& rider) {
    return jobs.find(rider.job()) != nullptr && has_turn(rider);
  });
  if (holder != tick.riders.end()) {
    turns.holder = holder->job();
    enter(tick, Phase::kOpen);
  } else {
    enter(tick, Phase::kDraining);
  }
  for (const Rider& rider : tick.riders) {
    if (jobs.find(rider.job()) == nullptr || !rider.view->gateable) continue;
    if (rider.high && !rules.highs) continue;
    rider.arm(rules.spacing_us);
    if (!has_turn(rider)) rider.close(abi::kClosedByTurn);
  }
  tick.again_in(holder != tick.riders.end() ? kLookWhileOpen : kLookWhileHandingOver);
}

}  // namespace

const Rider* shortable_holder(const Tick& tick) {
  const Rider* only = nullptr;
  for (const Rider& rider : tick.riders) {
    if (!rider.active || rider.job() != tick.state.turns.holder) continue;
    if (only != nullptr) return nullptr;
    only = &rider;
  }
  return only != nullptr && only->view->compute_groups == 1 ? only : nullptr;
}

bool take_turns(Tick& tick, const TurnRules& rules) {
  Turns& turns = tick.state.turns;
  TurnQueue jobs(tick, rules);
  if (jobs.size() < 2 || (rules.only_unequal && jobs.are_equal())) return false;
  list_claims(tick, &jobs);
  if (is_granted(tick, jobs)) {
    follow_grants(tick, rules, jobs);
    return true;
  }
  jobs.settle();
  if (rules.suspended) {
    const Time span(static_cast<Time::rep>(tick.dt_ns));
    turns.idle_since += span;
    turns.closed_at += span;
    turns.phase_at += span;
  } else {
    step(tick, rules, jobs);
    plan_next_look(tick, jobs);
  }
  for (const Rider& rider : tick.riders) {
    if (jobs.find(rider.job()) == nullptr || !rider.view->gateable) continue;
    if (rider.high && !rules.highs) continue;
    rider.arm(rules.spacing_us);
    const bool open = turns.phase == Phase::kOpen && rider.job() == turns.holder;
    if (!open) rider.close(abi::kClosedByTurn);
  }
  return true;
}

}  // namespace switchyard::monitor::policy
