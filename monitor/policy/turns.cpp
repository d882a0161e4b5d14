// Jobs that have the GPU one after the other, each behind its gate while it waits.
//
//     open ──(turn over, or no work, and another wants)──► draining ──► slicing ──► open (the next)
//             closed                                raised, lowered   in force
//
// A turn is so long that handing over costs at most a fiftieth of it, and in proportion to the
// job's weight. What runs on after a turn's end is taken off the next; what is left of a turn when
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
// What still runs then is one long kernel, which the slices bound.
constexpr Time kDrainAtMost = milliseconds(5);
// A process that doesn't confirm a slice (it is stopped, say) must not stop the others.
constexpr Time kSliceAtMost = milliseconds(50);
constexpr Time kLookWhileHandingOver = microseconds(200);
constexpr Time kLookWhileIdle = microseconds(500);
constexpr Time kLookWhileOpen = milliseconds(2);

void enter(Look& look, Phase phase) {
  look.state.turns.phase = phase;
  look.state.turns.phase_at = look.now;
}

void open_turn(Look& look, const Contenders& jobs) {
  Turns& turns = look.state.turns;
  enter(look, Phase::kOpen);
  turns.idle_since = look.now;
  JobState& holder = look.state.jobs[turns.holder];
  const double turn = jobs.this_turn_ns(turns.holder);
  turns.cycle_ns = jobs.cycle_ns();
  const double change = std::max(-turn / 2, holder.credit_ns);
  holder.credit_ns -= change;
  turns.left_ns = turn + change;
  turns.patience_ns = change > 0 ? kPatience * turns.left_ns : 0;
}

void finish_handover(Look& look, const Contenders& jobs) {
  Turns& turns = look.state.turns;
  turns.handover_ns += kSmoothing * (ns(look.now - turns.closed_at) - turns.handover_ns);
  open_turn(look, jobs);
}

void hand_over(Look& look, std::uint64_t next) {
  look.state.turns.next = next;
  look.state.turns.closed_at = look.now;
  enter(look, Phase::kDraining);
}

// A pause that is shorter than handing over isn't worth it. Who has been owed for brief ones is
// granted some.
bool paused_for_long(Look& look, const Contender& holder) {
  Turns& turns = look.state.turns;
  if (holder.at_work) {
    turns.idle_since = look.now;
    return false;
  }
  turns.patience_ns -= look.dt_ns;
  const double pause = ns(look.now - turns.idle_since);
  const double dear = std::max(ns(kIdleEnds), turns.handover_ns);
  return pause >= (turns.patience_ns > 0 ? std::max(dear, brief_pause_ns(turns)) : dear);
}

// The turn goes to whoever is next, maybe to its holder again.
void end_turn(Look& look, Contenders& jobs) {
  Turns& turns = look.state.turns;
  const std::uint64_t next = jobs.choose(turns.holder);
  if (next == turns.holder) {
    open_turn(look, jobs);
  } else {
    hand_over(look, next);
  }
}

// The turn goes on, or is over.
void step_open(Look& look, Contenders& jobs) {
  Turns& turns = look.state.turns;
  const Contender& holder = *jobs.find(turns.holder);
  JobState& state = look.state.jobs[turns.holder];
  turns.left_ns -= look.dt_ns;
  const bool paused = paused_for_long(look, holder);
  const auto anybody = [](const Contender&) { return true; };
  const auto equal = [&](const Contender& job) { return job.rank >= holder.rank; };
  const auto higher = [&](const Contender& job) { return job.rank > holder.rank; };
  if ((paused || holder.barred) && jobs.another_wants(turns.holder, anybody)) {
    if (!holder.barred) {
      state.unused_ns = std::max(0.0, turns.left_ns);
      state.idle_since = turns.idle_since;
    }
    end_turn(look, jobs);
  } else if (!turns.repaying && jobs.another_wants(turns.holder, higher)) {
    state.credit_ns += turns.left_ns;
    end_turn(look, jobs);
  } else if (turns.left_ns <= 0) {
    if (jobs.another_wants(turns.holder, equal) || jobs.lower_due()) {
      state.credit_ns += turns.left_ns;
      end_turn(look, jobs);
    } else {
      turns.left_ns = 0;  // it goes on until somebody comes
    }
  }
}

void step_draining(Look& look, const TurnRules& rules, Contenders& jobs) {
  Turns& turns = look.state.turns;
  const Contender* const holder = jobs.find(turns.holder);
  const bool drained = holder == nullptr || holder->drained;
  if (!drained && look.now - turns.closed_at < kDrainAtMost) return;
  const Contender* const next = jobs.find(turns.next);
  turns.holder = next != nullptr && next->wants ? turns.next : jobs.choose(turns.holder);
  const Rider* const lowered = rules.short_slice ? shortable_holder(look) : nullptr;
  if (lowered != nullptr && lowered->view->sliceable && !lowered->state->deaf) {
    enter(look, Phase::kSlicing);
  } else {
    finish_handover(look, jobs);
  }
}

void step_slicing(Look& look, const TurnRules& rules, const Contenders& jobs) {
  Turns& turns = look.state.turns;
  const Rider* const lowered = shortable_holder(look);
  const bool ready = !rules.short_slice || lowered == nullptr || !lowered->view->sliceable ||
                     lowered->view->slices_in_force;
  if (!ready && look.now - turns.phase_at < kSliceAtMost) return;
  if (ready) {
    finish_handover(look, jobs);
  } else {
    lowered->state->deaf = true;  // what that took is no measure of hand-overs
    open_turn(look, jobs);
  }
}

void step(Look& look, const TurnRules& rules, Contenders& jobs) {
  Turns& turns = look.state.turns;
  if (turns.phase == Phase::kNone) {
    // Who had the short slice goes on with it; it is open already.
    const auto last = std::find_if(look.riders.begin(), look.riders.end(), [&](const Rider& r) {
      return r.view->client == look.state.short_holder && jobs.find(r.job()) != nullptr;
    });
    // Else turns go on where they ended, or the first job would gain whenever the high one sleeps.
    turns.holder = last != look.riders.end() ? last->job() : jobs.choose(turns.holder);
    open_turn(look, jobs);
    return;
  }
  if (jobs.find(turns.holder) == nullptr && turns.phase != Phase::kDraining) {
    hand_over(look, jobs.choose(turns.holder));
  }
  if (turns.phase == Phase::kOpen) step_open(look, jobs);
  // Draining may be over at once, and slicing takes at least until the next look.
  if (turns.phase == Phase::kSlicing) {
    step_slicing(look, rules, jobs);
  } else if (turns.phase == Phase::kDraining) {
    step_draining(look, rules, jobs);
  }
}

void plan_next_look(Look& look, const Contenders& jobs) {
  const Turns& turns = look.state.turns;
  if (turns.phase != Phase::kOpen) {
    look.again_in(kLookWhileHandingOver);
    return;
  }
  look.again_in(jobs.find(turns.holder)->busy ? kLookWhileOpen : kLookWhileIdle);
  look.again_in_ns(std::max(turns.left_ns, ns(kLookWhileHandingOver)));
}

}  // namespace

const Rider* shortable_holder(const Look& look) {
  const Rider* only = nullptr;
  for (const Rider& rider : look.riders) {
    if (!rider.active || rider.job() != look.state.turns.holder) continue;
    if (only != nullptr) return nullptr;
    only = &rider;
  }
  return only != nullptr && only->view->compute_groups == 1 ? only : nullptr;
}

bool take_turns(Look& look, const TurnRules& rules) {
  Turns& turns = look.state.turns;
  Contenders jobs(look, rules);
  if (jobs.size() < 2 || (rules.only_unequal && jobs.are_equal())) return false;
  jobs.settle();
  if (rules.suspended) {
    const Time span(static_cast<Time::rep>(look.dt_ns));
    turns.idle_since += span;
    turns.closed_at += span;
    turns.phase_at += span;
  } else {
    step(look, rules, jobs);
    plan_next_look(look, jobs);
  }
  for (const Rider& rider : look.riders) {
    if (jobs.find(rider.job()) == nullptr || !rider.view->gateable) continue;
    if (rider.high && !rules.highs) continue;
    rider.arm(rules.spacing_us);
    const bool open = turns.phase == Phase::kOpen && rider.job() == turns.holder;
    if (!open) rider.close(abi::kClosedByTurn);
  }
  return true;
}

}  // namespace switchyard::monitor::policy
