#include "monitor/policy/gang_slices.h"

#include <algorithm>

namespace switchyard::monitor::gang_slices {
namespace {

void begin_window(State& state, std::uint64_t launched, Time now) {
  state.begun = now;
  state.at_begin = launched;
}

void enter(State& state, Phase phase, Time now) {
  state.phase = phase;
  state.since = now;
}

// Long slices made the gang slow, or it does something else now.
void give_up(State& state, Time now) {
  const bool failed = now - state.since < kProven;
  state.rest = failed ? std::clamp(2 * state.rest, kLeastRest, kMostRest) : Time{0};
  enter(state, Phase::kShort, now);
}

// It does not take a whole window to see.
bool has_collapsed(const State& state, double came, Time span) {
  const double expected = state.expected * std::chrono::duration<double>(span).count();
  return state.phase == Phase::kLong && span >= kShortWindow && expected >= kPlenty &&
         came < expected / 2;
}

}  // namespace

bool next(State& state, std::uint64_t launched, Time now) {
  if (state.begun == Time{0} || launched < state.at_begin) {
    begin_window(state, launched, now);
    return false;
  }
  const Time span = now - state.begun;
  const std::uint64_t came = launched - state.at_begin;
  const bool collapsed = has_collapsed(state, static_cast<double>(came), span);
  if (span < kWindow && !collapsed) return false;
  begin_window(state, launched, now);
  if (came < kEnough && !collapsed) return false;
  const Phase before = state.phase;
  state.last_rate = static_cast<double>(came) / std::chrono::duration<double>(span).count();
  if (before == Phase::kShort) {
    state.expected = state.last_rate;
    if (now - state.since >= state.rest) enter(state, Phase::kLong, now);
  } else if (state.last_rate < kCollapsed * state.expected) {
    give_up(state, now);
  } else {
    state.expected = std::max(state.expected, state.last_rate);
  }
  return state.phase != before;
}

void interrupt(State& state) { state.begun = Time{0}; }

}  // namespace switchyard::monitor::gang_slices
