// Ceilings. A job with a limit has a budget of GPU time that fills at the limit's rate. While its
// gate is open it is spent; at nothing the gate closes, at full it opens. The depth is such that
// a job that always works opens and closes once in a period, however high its limit is. Where jobs
// take turns, a period is no shorter than a turn of each. The budget accumulates during other jobs'
// turns, or the job would lose its part to them. A job that is held for one that guards itself is
// closed as one that has used up its budget.
#include <algorithm>
#include <map>
#include <utility>

#include "monitor/policy/look.h"

namespace switchyard::monitor::policy {
namespace {

constexpr double kPeriodNs = 50e6;
// A job saves up at most so much during another's turn. That is 2 points over two seconds, or its
// part of so many rounds of turns. It may want its turn just after the turn would have been its.
constexpr double kSavedNs = 40e6;
constexpr double kSavedCycles = 2;
constexpr double kLongestPeriodNs = 1e9;
// A debt is forgotten beyond what a window of so long could show.
constexpr double kWindowNs = 2e9;
constexpr double kSoonestNs = 0.5e6;
constexpr double kLatestNs = 5e6;
constexpr double kRounding = 1e3;

struct Metered {
  double limit = 0;
  double had_ns = 0;
  bool at_work = false;
  bool kept_waiting = false;  // by another's turn
  bool draining = false;      // or would be, if its gate closed now
  bool held = false;          // for a job that guards itself
  std::vector<Rider*> riders;
};

std::map<std::uint64_t, Metered> list_metered(Tick& tick) {
  std::map<std::uint64_t, Metered> out;
  for (Rider& rider : tick.riders) {
    if (!rider.limited()) continue;
    Metered& job = out[rider.job()];
    job.limit = rider.view->limit;
    // Below a guard's ceiling the time counts in which it has work, for all its processes once.
    job.had_ns = rider.view->limited_by_guard ? std::max(job.had_ns, rider.state->had_ns)
                                              : job.had_ns + rider.state->had_ns;
    job.at_work = job.at_work || rider.state->at_work;
    job.kept_waiting = job.kept_waiting || (rider.state->closed && rider.state->wants);
    job.draining = job.draining || !drained(rider, tick.now);
    job.held = rider.view->held_by_guard;
    job.riders.push_back(&rider);
  }
  return out;
}

double cycle_ns(const Tick& tick) {
  const Turns& turns = tick.state.turns;
  return turns.phase == Turns::Phase::kNone ? 0 : std::min(turns.cycle_ns, kLongestPeriodNs);
}

double depth_ns(const Tick& tick, double limit) {
  return std::max(kPeriodNs, cycle_ns(tick)) * limit * (1 - limit);
}

// How soon the answer may change.
double next_look_ns(const Tick& tick, const Metered& job, const JobState& state) {
  if (state.spent) {
    const double full = (depth_ns(tick, job.limit) - state.budget_ns) / job.limit;
    return job.draining ? kSoonestNs : std::max(kSoonestNs, full + kRounding);
  }
  return std::clamp(state.budget_ns / (1 - job.limit) / 2, kSoonestNs, kLatestNs);
}

void meter(Tick& tick, const Metered& job, JobState& state) {
  if (job.held) {
    // It begins anew with a full budget.
    state.metered = false;
    state.spent = true;
    return;
  }
  const double full = depth_ns(tick, job.limit);
  if (!std::exchange(state.metered, true)) {
    state.budget_ns = full;
    state.spent = false;
  }
  const double saved = std::max(kSavedNs, kSavedCycles * job.limit * cycle_ns(tick));
  const double most = job.kept_waiting && !state.spent ? std::max(full, saved) : full;
  state.budget_ns = std::clamp(state.budget_ns + job.limit * tick.dt_ns - job.had_ns,
                               -kWindowNs * job.limit, std::max(most, state.budget_ns));
  if (state.budget_ns <= 0) state.spent = true;
  if (state.budget_ns >= full) state.spent = false;
}

}  // namespace

void hold_limits(Tick& tick) {
  const auto metered = list_metered(tick);
  for (auto& [key, job] : tick.state.jobs) {
    if (!metered.contains(key)) job.metered = false;
  }
  for (const auto& [key, job] : metered) {
    JobState& state = tick.state.jobs[key];
    meter(tick, job, state);
    for (const Rider* rider : job.riders) {
      rider->arm();
      // A gang is closed on all its GPUs at once (grants.h).
      const bool may_close = !rider->view->gang || rider->view->grant == Grant::kClosed;
      const bool by_guard = rider->view->limited_by_guard;
      if (state.spent && may_close)
        rider->close(by_guard ? abi::kClosedByGuard : abi::kClosedByLimit);
      // One that works again after a rest would have the GPU for itself until the next look.
      rider->plan->wake = !rider->state->at_work;
    }
    if (!job.held && (state.spent || job.at_work)) tick.again_in_ns(next_look_ns(tick, job, state));
  }
  // Its part of the GPU depends on which others work.
  if (!metered.empty()) {
    for (const Rider& rider : tick.riders) rider.plan->watch = true;
  }
}

}  // namespace switchyard::monitor::policy
