#include "monitor/policy/provision.h"

#include <algorithm>
#include <cmath>

namespace switchyard::monitor::provision {
namespace {

void open_window(State& state, Time from) {
  state.opens = from;
  state.first = state.last = Time{0};
  state.iterations = 0;
}

// The rate, once the window has lasted.
std::optional<double> rate(const State& state) {
  const Time span = state.last - state.first;
  if (state.iterations < kIterations || span < kWindow) return std::nullopt;
  return state.iterations / seconds(span);
}

void count(State& state, const Look& look) {
  bool follows = !look.broken;
  for (const Time at : look.began) {
    if (at < state.opens) continue;
    if (state.first == Time{0} || !follows) {
      open_window(state, state.opens);
      state.first = at;
    } else {
      ++state.iterations;
    }
    state.last = at;
    follows = true;
    if (rate(state)) return;
  }
}

int most_level(const Look& look) {
  const int allowed = static_cast<int>(std::floor(2 * std::log2(std::max(look.most, 1e-3))));
  return std::clamp(allowed, kLeast, kMost);
}

void go_to(State& state, Phase phase, int level, Time now) {
  if (phase == Phase::kSettled) {
    state.since = now;
    state.reference = 0;
    state.moved = false;
  }
  state.phase = phase;
  state.level = level;
}

void begin(State& state, int level) {
  state.phase = Phase::kStart;
  state.level = level;
  state.best = 0;
}

void go_up(State& state, double rate, const Look& look, Time now) {
  state.reference = rate;
  state.reference_level = state.level;
  state.best = std::max(state.best, rate);
  const int up = std::min(state.level + 2, most_level(look));
  if (up > state.level) return go_to(state, Phase::kUp, up, now);
  go_to(state, Phase::kDown, std::max(state.level - 2, kLeast), now);
}

// `enough` at this level, on the way down.
void go_down(State& state, bool enough, Time now) {
  if (!enough) return go_to(state, Phase::kFine, state.level + 1, now);
  if (state.level == kLeast) return go_to(state, Phase::kSettled, kLeast, now);
  go_to(state, Phase::kDown, std::max(state.level - 2, kLeast), now);
}

void judge_settled(State& state, double rate, Time now) {
  if (state.reference == 0) state.reference = rate;
  const bool moved = std::abs(rate - state.reference) > kMoved * state.reference;
  if ((moved && state.moved) || now - state.since >= kProbeEvery) {
    return begin(state, state.level);
  }
  state.moved = moved;
}

void judge(State& state, double rate, const Look& look, Time now) {
  const bool enough = rate >= (1 - kLoss) * state.best;
  switch (state.phase) {
    case Phase::kStart:
      return go_up(state, rate, look, now);
    case Phase::kUp:
      if (rate >= (1 + kGain) * state.reference) return go_up(state, rate, look, now);
      state.best = std::max(state.best, rate);
      return go_to(state, Phase::kDown, std::max(state.reference_level - 2, kLeast), now);
    case Phase::kDown:
      return go_down(state, enough, now);
    case Phase::kFine:
      return go_to(state, Phase::kSettled, enough ? state.level : state.level + 1, now);
    case Phase::kSettled:
      return judge_settled(state, rate, now);
  }
}

}  // namespace

double weight_of(int level) { return std::exp2(level / 2.0); }

void next(State& state, const Look& look, Time now) {
  const int most = most_level(look);
  if (state.level > most) begin(state, most);
  if (look.held || !look.contended) {
    if (state.phase != Phase::kSettled) begin(state, state.level);
    return open_window(state, now + kSettles);
  }
  if (state.opens == Time{0}) open_window(state, now);
  count(state, look);
  const auto seen = rate(state);
  if (!seen) return;
  const int before = state.level;
  judge(state, *seen, look, now);
  open_window(state, state.level == before ? now : now + kSettles);
}

}  // namespace switchyard::monitor::provision
