#include <cmath>
#include <utility>

#include "monitor/policy/look.h"

namespace switchyard::monitor::policy {
namespace {

constexpr double kSmoothOverNs = 1e9;

// The part of the time since the last look in which it had work on the GPU.
double part_at_work(const ClientState& state, const ClientView& view) {
  if (state.closed)
    return state.progressed || (state.was_busy && !view.busy && !view.held) ? 0.5 : 0;
  if (!state.watched) return state.at_work ? 1 : 0;
  // One that waited for its gate to open began at once. What came and went in between is not
  // counted, and what is seen counts for more than it was: that evens out.
  return 0.5 * (state.was_busy + state.busy);
}

double slice_us(const Rider& rider) {
  const std::uint32_t us = rider.state->slices.compute_us;
  return (us != 0 && rider.view->sliceable ? us : abi::kDefaultSliceUs) *
         static_cast<double>(rider.groups());
}

}  // namespace

void account(const std::vector<Rider>& everybody, double dt_ns) {
  double sum = 0;
  double idle = 1;
  for (const Rider& rider : everybody) {
    const double part = part_at_work(*rider.state, *rider.view);
    rider.state->had_ns = part;
    sum += part * slice_us(rider);
    idle *= 1 - part;
  }
  for (const Rider& rider : everybody) {
    ClientState& state = *rider.state;
    const double mine = slice_us(rider);
    const double part = state.had_ns;
    state.had_ns = part > 0 ? dt_ns * (1 - idle) * part * mine / sum : 0;
    if (!state.closed) {
      state.unproven_ns = 0;
    } else if (part > 0) {
      // A kernel that outlived the gate's closing has just ended: all the time was its own.
      state.had_ns += std::exchange(state.unproven_ns, 0);
    } else if (rider.view->busy) {
      state.unproven_ns += dt_ns * mine / (sum + mine);
    }
    if (!state.watched || dt_ns <= 0) {
      if (!state.watched) state.share = -1;
      continue;
    }
    const double now = std::min(1.0, state.had_ns / dt_ns);
    const double gain = state.share < 0 ? 1 : 1 - std::exp(-dt_ns / kSmoothOverNs);
    state.share = std::max(0.0, state.share) + gain * (now - std::max(0.0, state.share));
  }
}

}  // namespace switchyard::monitor::policy
