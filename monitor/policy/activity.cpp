#include "monitor/policy/look.h"

namespace switchyard::monitor::policy {
namespace {

// A number that has not come by then never may: the process is stopped, or its context is dead.
constexpr double kLongestKernelNs = 10e9;

}  // namespace

void observe(const ClientView& view, Time now, double dt_ns, ClientState& state) {
  const bool moved = view.work != state.work;
  const std::uint64_t kernels = view.work - view.copies;
  if (kernels != state.kernels) state.last_computed = now;
  state.kernels = kernels;
  state.progressed = state.seen && view.progress != state.progress;
  state.seen = true;
  state.work = view.work;
  state.progress = view.progress;
  if (state.progressed) state.progressed_at = now;
  state.was_busy = state.busy || state.held;
  // The queue of a process that can't act is no work, and its wishes are no claim. Work that the
  // GPU still gets on with is an exception.
  const bool idles = view.stands && !moved && !state.progressed;
  if (moved || state.progressed || !view.busy) {
    state.stood_ns = 0;
  } else if (!state.closed && !view.held && !view.paused) {
    state.stood_ns += dt_ns;
  }
  state.busy = view.busy && !idles && state.stood_ns < kLongestKernelNs;
  state.held = view.held && !idles;
  if (view.slices_in_force) state.deaf = false;
  state.at_work = state.busy || moved;
  state.wants = state.at_work || state.held;
  // One that waits behind its gate launches nothing, and is active all the same.
  if (state.wants) {
    state.last_moved = now;
    state.moved = true;
  }
}

bool drained(const Rider& rider, Time now) {
  if (!rider.view->busy) return true;
  if (!rider.state->closed) return false;
  // Progress comes at least as often as waits stand in the stream, unless one kernel is longer.
  const std::uint32_t spacing =
      rider.state->spacing_us != 0 ? rider.state->spacing_us : abi::kDefaultSpacingUs;
  const Time stands_since = std::max(rider.state->progressed_at, rider.state->closed_at);
  return now - stands_since >= std::chrono::microseconds(2 * spacing);
}

}  // namespace switchyard::monitor::policy
