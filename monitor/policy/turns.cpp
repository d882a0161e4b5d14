// Jobs that have the GPU one after the other, each behind its gate while it waits.
//
//     open ──(turn over, or no work, and another wants)──► draining ──► slicing ──► open (the next)
//             closed                                raised, lowered   in force
//
// A turn is so long that handing over costs at most a fiftieth of it, and in proportion to the
// job's weight. What runs on after a turn's end is taken off the next.
#include <cmath>
#include <map>

#include "monitor/policy/look.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Phase = Turns::Phase;

constexpr Time kShortestTurn = milliseconds(50);
constexpr Time kLongestTurn = std::chrono::seconds(2);
constexpr double kTurnPerHandover = 50;  // 2 %
constexpr double kSmoothing = 0.2;
// No work for so long ends a turn.
constexpr Time kIdleEnds = milliseconds(2);
// What still runs then is one long kernel, which the slices bound.
constexpr Time kDrainAtMost = milliseconds(5);
// A process that doesn't confirm a slice (it is stopped, say) must not stop the others.
constexpr Time kSliceAtMost = milliseconds(50);
constexpr Time kLookWhileHandingOver = microseconds(200);
constexpr Time kLookWhileIdle = microseconds(500);
constexpr Time kLookWhileOpen = milliseconds(2);

struct Contender {
  double weight = 0;
  bool wants = false;
  bool at_work = false;
  bool busy = false;
  bool barred = false;  // it has had what its limit allows
  bool drained = true;
};
using Contenders = std::map<std::uint64_t, Contender>;

Contenders list_contenders(const Look& look, const TurnRules& rules) {
  Contenders out;
  for (const Rider& rider : look.riders) {
    if (!rider.active || (rider.high && !rules.highs)) continue;
    Contender& job = out[rider.job()];
    job.weight = rider.weight;
    job.barred = rider.shut(abi::kClosedByLimit);
    job.wants = !job.barred && (job.wants || rider.state->wants);
    job.at_work = job.at_work || rider.state->at_work;
    job.busy = job.busy || rider.state->busy;
    job.drained = job.drained && drained(rider, look.now);
  }
  return out;
}

// The next after the holder that wants the GPU; else the next at all.
std::uint64_t next_of(const Contenders& jobs, std::uint64_t holder) {
  auto at = jobs.upper_bound(holder);
  for (std::size_t i = 0; i < jobs.size(); ++i, ++at) {
    if (at == jobs.end()) at = jobs.begin();
    if (at->second.wants) return at->first;
  }
  at = jobs.upper_bound(holder);
  return at == jobs.end() ? jobs.begin()->first : at->first;
}

double turn_ns(const Look& look, const TurnRules& rules, const Contenders& jobs) {
  const Turns& turns = look.state.turns;
  double least = jobs.begin()->second.weight;
  double most = least;
  for (const auto& [key, job] : jobs) {
    least = std::min(least, job.weight);
    most = std::max(most, job.weight);
  }
  const double longest = std::max(ns(kShortestTurn), ns(kLongestTurn) * least / most);
  const double wanted = rules.long_turns ? longest : kTurnPerHandover * turns.handover_ns;
  const double base = std::clamp(wanted, ns(kShortestTurn), longest);
  return base * jobs.at(turns.holder).weight / least;
}

void enter(Look& look, Phase phase) {
  look.state.turns.phase = phase;
  look.state.turns.phase_at = look.now;
}

void open_turn(Look& look, const TurnRules& rules, const Contenders& jobs) {
  Turns& turns = look.state.turns;
  enter(look, Phase::kOpen);
  turns.idle_since = look.now;
  const double turn = turn_ns(look, rules, jobs);
  double& overrun = look.state.jobs[turns.holder].overrun_ns;
  const double deducted = std::min(overrun, turn / 2);
  overrun -= deducted;
  turns.left_ns = turn - deducted;
}

void finish_handover(Look& look, const TurnRules& rules, const Contenders& jobs) {
  Turns& turns = look.state.turns;
  turns.handover_ns += kSmoothing * (ns(look.now - turns.closed_at) - turns.handover_ns);
  open_turn(look, rules, jobs);
}

void hand_over(Look& look) {
  look.state.turns.closed_at = look.now;
  enter(look, Phase::kDraining);
}

// The turn goes on, or is over.
void step_open(Look& look, const TurnRules& rules, const Contenders& jobs) {
  Turns& turns = look.state.turns;
  const Contender& holder = jobs.at(turns.holder);
  turns.left_ns -= look.dt_ns;
  if (holder.at_work) turns.idle_since = look.now;
  const bool another = std::any_of(jobs.begin(), jobs.end(), [&](const auto& job) {
    return job.first != turns.holder && job.second.wants;
  });
  const bool idle = holder.barred || look.now - turns.idle_since >= kIdleEnds;
  if (another && (idle || turns.left_ns <= 0)) {
    if (!idle) look.state.jobs[turns.holder].overrun_ns += std::max(0.0, -turns.left_ns);
    hand_over(look);
  } else if (turns.left_ns <= 0) {
    open_turn(look, rules, jobs);
  }
}

void step_draining(Look& look, const TurnRules& rules, const Contenders& jobs) {
  Turns& turns = look.state.turns;
  const auto holder = jobs.find(turns.holder);
  const bool drained = holder == jobs.end() || holder->second.drained;
  if (!drained && look.now - turns.closed_at < kDrainAtMost) return;
  for (const Rider& rider : look.riders) {
    if (rider.job() != turns.holder) continue;
    // Until it got on for the last time it was running.
    const double ran = ns(rider.state->progressed_at - turns.closed_at);
    double& overrun = look.state.jobs[turns.holder].overrun_ns;
    overrun += std::max(0.0, ran);
  }
  turns.holder = next_of(jobs, turns.holder);
  const Rider* lowered = rules.short_slice ? shortable_holder(look) : nullptr;
  if (lowered != nullptr && lowered->view->sliceable) {
    enter(look, Phase::kSlicing);
  } else {
    finish_handover(look, rules, jobs);
  }
}

void step_slicing(Look& look, const TurnRules& rules, const Contenders& jobs) {
  Turns& turns = look.state.turns;
  const Rider* lowered = shortable_holder(look);
  const bool ready = !rules.short_slice || lowered == nullptr || !lowered->view->sliceable ||
                     lowered->view->slices_in_force;
  if (!ready && look.now - turns.phase_at < kSliceAtMost) return;
  finish_handover(look, rules, jobs);
}

void step(Look& look, const TurnRules& rules, const Contenders& jobs) {
  Turns& turns = look.state.turns;
  if (turns.phase == Phase::kNone) {
    // Who had the short slice goes on with it; it is open already.
    const auto last = std::find_if(look.riders.begin(), look.riders.end(), [&](const Rider& r) {
      return r.view->client == look.state.short_holder && jobs.contains(r.job());
    });
    // Else turns go on where they ended, or the first job would gain whenever the high one sleeps.
    turns.holder = last != look.riders.end() ? last->job() : next_of(jobs, turns.holder);
    open_turn(look, rules, jobs);
    return;
  }
  if (!jobs.contains(turns.holder) && turns.phase != Phase::kDraining) hand_over(look);
  if (turns.phase == Phase::kOpen) step_open(look, rules, jobs);
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
  look.again_in(jobs.at(turns.holder).busy ? kLookWhileOpen : kLookWhileIdle);
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
  const Contenders jobs = list_contenders(look, rules);
  if (jobs.size() < 2) {
    turns.phase = Phase::kNone;
    return false;
  }
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
    if (!jobs.contains(rider.job()) || (rider.high && !rules.highs)) continue;
    rider.arm(rules.spacing_us);
    const bool open = turns.phase == Phase::kOpen && rider.job() == turns.holder;
    if (!open) rider.close(abi::kClosedByTurn);
  }
  return true;
}

}  // namespace switchyard::monitor::policy
