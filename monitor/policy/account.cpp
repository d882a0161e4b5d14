#include <cmath>
#include <utility>

#include "monitor/policy/look.h"

namespace switchyard::monitor::policy {
namespace {

constexpr double kSmoothOverNs = 1e9;

// The time since the last look has two halves: what was seen then counts for the first, what is
// seen now for the second. Processes that came and went in between are not counted, and one that is
// seen counts for more than it was: that evens out. It would not where the work itself has us look.
struct Presence {
  bool early = false, late = false;
};

Presence presence(const ClientState& state, const ClientView& view) {
  // Behind its closed gate it went on for a moment.
  if (state.closed)
    return {state.progressed || (state.was_busy && !view.busy && !view.held), false};
  const bool silent = state.only_sampled && !state.heard;
  if (!state.watched || silent) return {state.at_work, state.at_work};
  // One that waited for its gate to open began at once. One that was to ring when it works again
  // has rung: before that it did nothing.
  const bool rang = state.rings && !state.was_busy;
  return {state.was_busy, state.busy && !rang};
}

// The part of the time of one that is there; `sum`: of all their slices. Below a guard's ceiling
// that is all of it. In the gaps of others it has more than its slices say, and its cost to the
// guarded job beyond them cannot be seen.
double part_of_time(const Rider& rider, double mine, double sum) {
  return rider.view->limited_by_guard ? 1 : mine / sum;
}

double slice_us(const Rider& rider) {
  const std::uint32_t us = rider.state->slices.compute_us;
  return (us != 0 && rider.view->sliceable ? us : abi::kDefaultSliceUs) *
         static_cast<double>(rider.groups());
}

// The figures for people. Time of work that has not got on is told once it has. A process that is
// stopped, or whose context hangs, has work on the GPU and does nothing there.
void tell(const Rider& rider) {
  ClientState& state = *rider.state;
  const bool got_on = !rider.view->numbered || state.progressed || !rider.view->busy;
  state.untold_ns += state.had_ns;
  state.untold_divided = state.untold_divided || (state.lost_ns > 0 && state.had_ns > 0);
  state.told_ns = got_on ? std::exchange(state.untold_ns, 0) : 0;
  state.divided = got_on && std::exchange(state.untold_divided, false);
}

// As much as windows say (sampling.cpp), once it has brought work again: one that has ended its
// work has no more of it. Without them nothing tells what it has, and what was untold never will
// be.
void tell_sampled(const Rider& rider, double dt_ns) {
  ClientState& state = *rider.state;
  const bool known = state.sampled >= 0;
  state.share = !known ? -1 : rider.active ? state.sampled : 0;
  state.untold_ns = known && rider.active ? state.untold_ns + state.sampled * dt_ns : 0;
  state.told_ns = state.at_work ? std::exchange(state.untold_ns, 0) : 0;
  state.divided = state.told_ns > 0;
  state.untold_divided = false;
  state.lost_ns = known && state.at_work ? state.sampled_lost * dt_ns : 0;
}

}  // namespace

void account(const std::vector<Rider>& everybody, double dt_ns, double part, Sampling& sampling) {
  const bool counts = sampling.on && sampling.settled != Time{0};
  if (counts) sampling.span_ns += dt_ns;
  double early_sum = 0;
  double late_sum = 0;
  for (const Rider& rider : everybody) {
    const Presence there = presence(*rider.state, *rider.view);
    if (there.early) early_sum += slice_us(rider);
    if (there.late) late_sum += slice_us(rider);
  }
  for (const Rider& rider : everybody) {
    ClientState& state = *rider.state;
    const double mine = slice_us(rider);
    const Presence there = presence(state, *rider.view);
    state.had_ns = part * ((there.early ? dt_ns / 2 * part_of_time(rider, mine, early_sum) : 0) +
                           (there.late ? dt_ns / 2 * part_of_time(rider, mine, late_sum) : 0));
    state.worked_ns = (there.early ? dt_ns / 2 : 0) + (there.late ? dt_ns / 2 : 0);
    if (!state.closed) {
      state.unproven_ns = 0;
    } else if (there.early) {
      // A kernel that outlived the gate's closing has just ended: all the time was its own.
      state.had_ns += std::exchange(state.unproven_ns, 0);
    } else if (rider.view->busy) {
      state.unproven_ns += part * dt_ns * part_of_time(rider, mine, late_sum + mine);
    }
    state.lost_ns = (there.early ? dt_ns / 2 * (1 - mine / early_sum) : 0) +
                    (there.late ? dt_ns / 2 * (1 - mine / late_sum) : 0);
    if (counts) {
      state.window_had_ns += state.had_ns;
      state.window_lost_ns += state.lost_ns;
    }
    if (!state.watched || state.only_sampled) {
      tell_sampled(rider, dt_ns);
      continue;
    }
    tell(rider);
    if (dt_ns <= 0) continue;
    const double now = std::min(1.0, state.had_ns / dt_ns);
    const double gain = state.share < 0 ? 1 : 1 - std::exp(-dt_ns / kSmoothOverNs);
    state.share = std::max(0.0, state.share) + gain * (now - std::max(0.0, state.share));
  }
}

}  // namespace switchyard::monitor::policy
