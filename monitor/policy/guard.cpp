#include "monitor/policy/guard.h"

#include <algorithm>

namespace switchyard::monitor::guard {
namespace {

using Events = std::vector<Event>;

// One look, as the functions below pass it on.
struct Tick {
  State& state;
  const Look& look;
  Time now;
  Suspects::Activities activities;
  Events& events;

  void tell(What what, std::uint64_t job, Measure measure = Measure::kSlices, double missing = 0) {
    events.push_back({what, job, measure, missing, {}});
  }
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename Test>
bool most_ranks(const State& state, Test test) {
  std::size_t count = 0;
  for (const auto& [id, rank] : state.ranks) count += test(rank.pace) ? 1 : 0;
  return 2 * count > state.ranks.size();
}

void forgive(State& state) {
  for (auto& [id, rank] : state.ranks) rank.pace.forgive();
}

void see_ranks(Tick& tick) {
  State& state = tick.state;
  std::set<std::uint64_t> there;
  for (const Rank& seen : tick.look.ranks) {
    there.insert(seen.id);
    State::Member& rank = state.ranks[seen.id];
    if (rank.marker != seen.marker) rank = {{}, seen.marker};
    if (seen.broken) rank.pace.interrupt();
    for (const Time at : seen.began) {
      rank.pace.add(at, tick.look.guard, state.answers.empty());
      state.iterated_at = std::max(state.iterated_at, at);
    }
  }
  std::erase_if(state.ranks, [&](const auto& each) { return !there.contains(each.first); });
}

bool ceased(const State& state, Time now) {
  const Time four(static_cast<Time::rep>(4e9 * usual_seconds(state).value_or(0)));
  return state.iterated_at != Time{0} && now - state.iterated_at > std::max(kCeases, four);
}

void end_answer(Tick& tick, std::uint64_t job, What why) {
  State& state = tick.state;
  state.answers.erase(job);
  state.suspects.forget(job);
  if (state.phase != Phase::kQuiet && state.about == job) {
    state.phase = Phase::kQuiet;
    forgive(state);
  }
  tick.tell(why, job, state.measure, state.missing);
}

// By another marker, or in another process, the usual pace must be learnt anew. It is not learnt
// while something is done for its sake.
bool cannot_judge(const State& state) {
  return !state.answers.empty() &&
         !most_ranks(state, [](const Pace& pace) { return pace.known(); });
}

// All is undone; what is known of its pace and of others stays.
void stop(Tick& tick) {
  while (!tick.state.answers.empty()) {
    end_answer(tick, tick.state.answers.begin()->first, What::kStopped);
  }
  tick.state.suspects.disturbed();
  forgive(tick.state);
  for (auto& [id, rank] : tick.state.ranks) rank.pace.interrupt();
}

void follow_interferers(Tick& tick) {
  std::vector<std::uint64_t> gone;
  for (auto& [job, answer] : tick.state.answers) {
    const auto other = tick.look.others.find(job);
    if (other == tick.look.others.end() || !other->second.answerable) {
      gone.push_back(job);
    } else if (other->second.wants) {
      answer.idle_since = Time{0};
    } else if (answer.idle_since == Time{0}) {
      answer.idle_since = tick.now;
    } else if (tick.now - answer.idle_since >= kIdle) {
      gone.push_back(job);
    }
  }
  for (const std::uint64_t job : gone) end_answer(tick, job, What::kGone);
  std::erase_if(tick.state.cleared,
                [&](const auto& each) { return !tick.look.others.contains(each.first); });
}

void judge_from(State& state, Time from) {
  for (auto& [id, rank] : state.ranks) rank.pace.measure(from);
  forgive(state);
}

// The mildest that has not been tried. A job that only computes gains nothing by its copies'
// slices, and the other way round. A hold only while more is missing than the guard allows.
std::optional<Measure> mildest(const Tick& tick, Measures possible, Measures tried,
                               const Growth& growth, double missing) {
  for (const Measure each : kMeasures) {
    if (!possible.has(each) || tried.has(each)) continue;
    if (each == Measure::kSlices && !growth.kernels) continue;
    if (each == Measure::kCopies && !growth.copies) continue;
    if (each == Measure::kHold && missing <= tick.look.guard) continue;
    return each;
  }
  return std::nullopt;
}

void try_measure(Tick& tick, Answer& answer, Measure measure) {
  State& state = tick.state;
  answer.on = answer.on.with(measure);
  answer.tried = answer.tried.with(measure);
  state.measure = measure;
  state.phase = Phase::kTrying;
  judge_from(state, tick.now + kSettles);
}

bool is_cleared(const State& state, std::uint64_t job, Time now) {
  const auto found = state.cleared.find(job);
  return found != state.cleared.end() && now < found->second.until;
}

struct Suspect {
  std::uint64_t job = 0;
  Growth growth;
  Measure measure = Measure::kSlices;
};

std::optional<Suspect> find_suspect(const Tick& tick, double missing) {
  std::optional<Suspect> out;
  for (const auto& [job, other] : tick.look.others) {
    if (!other.answerable || is_cleared(tick.state, job, tick.now)) continue;
    const auto growth = tick.state.suspects.grown(job, tick.activities, tick.now);
    if (!growth || (out && out->growth.score() >= growth->score())) continue;
    const auto answer = tick.state.answers.find(job);
    const Measures on = answer != tick.state.answers.end() ? answer->second.on : Measures{};
    const auto measure = mildest(tick, other.possible, on, *growth, missing);
    if (measure) out = {job, *growth, *measure};
  }
  return out;
}

double missing_now(const State& state) {
  std::vector<double> all;
  for (const auto& [id, rank] : state.ranks) all.push_back(rank.pace.slowdown());
  return median(std::move(all));
}

void be_disturbed(Tick& tick) {
  State& state = tick.state;
  const double missing = missing_now(state);
  const auto suspect = find_suspect(tick, missing);
  if (!suspect) {
    // Nobody has grown, or nothing can be done about those who have: so it is, from now on.
    for (auto& [id, rank] : state.ranks) {
      state.answers.empty() ? rank.pace.excuse() : rank.pace.forgive();
    }
    return;
  }
  state.missing = state.before = state.at_first = missing;
  state.about = suspect->job;
  state.growth = suspect->growth;
  state.suspects.disturbed();
  Answer& answer = state.answers[suspect->job];
  answer.tried = answer.on;
  answer.since = tick.now;
  tick.events.push_back(
      {What::kDisturbed, suspect->job, suspect->measure, missing, suspect->growth});
  try_measure(tick, answer, suspect->measure);
}

// The part missing by the rounds since a measure was taken; nothing: they have not ended.
std::optional<double> judged(const State& state) {
  if (!most_ranks(state, [](const Pace& pace) { return pace.measured().has_value(); })) {
    return std::nullopt;
  }
  std::vector<double> all;
  for (const auto& [id, rank] : state.ranks) {
    if (const auto one = rank.pace.measured()) all.push_back(*one);
  }
  return median(std::move(all));
}

double accident(const State& state) {
  std::vector<double> all;
  for (const auto& [id, rank] : state.ranks) all.push_back(rank.pace.accident());
  return median(std::move(all));
}

void rest(Tick& tick, Answer& answer) {
  tick.state.phase = Phase::kQuiet;
  tick.state.suspects.accept(tick.state.about, tick.activities, tick.now);
  answer.since = tick.now;
  forgive(tick.state);
}

void clear(Tick& tick) {
  State& state = tick.state;
  State::Cleared& cleared = state.cleared[state.about];
  cleared.span = cleared.span == Time{0} ? kCleared : std::min(2 * cleared.span, kLongestCleared);
  cleared.until = tick.now + cleared.span;
  end_answer(tick, state.about, What::kCleared);
}

void judge_trial(Tick& tick) {
  State& state = tick.state;
  const auto missing = judged(state);
  if (!missing) return;
  state.missing = *missing;
  Answer& answer = state.answers[state.about];
  if (*missing <= std::max(kBack * tick.look.guard, accident(state) / 2)) {
    tick.tell(What::kAnswered, state.about, state.measure, *missing);
    return rest(tick, answer);
  }
  const bool helped = *missing <= (1 - kHelped) * state.before;
  if (helped) {
    state.before = *missing;
  } else {
    answer.on = answer.on.without(state.measure);
  }
  const Measures possible = tick.look.others.at(state.about).possible;
  if (const auto more = mildest(tick, possible, answer.tried, state.growth, *missing)) {
    tick.tell(helped ? What::kNext : What::kInstead, state.about, *more, *missing);
    return try_measure(tick, answer, *more);
  }
  if (answer.on.none() || *missing > (1 - kHelped) * state.at_first) return clear(tick);
  tick.tell(What::kAnswered, state.about, state.measure, *missing);
  rest(tick, answer);
}

Measure strongest(Measures on) {
  return *std::find_if(kMeasures.rbegin(), kMeasures.rend(),
                       [&](Measure each) { return on.has(each); });
}

void ease(Tick& tick, std::uint64_t job, Answer& answer) {
  State& state = tick.state;
  const Measure measure = strongest(answer.on);
  answer.before = answer.on;
  answer.on = answer.on.without(measure);
  const bool milder = tick.look.others.at(job).possible.has(Measure::kCeiling);
  if (measure == Measure::kHold && milder) answer.on = answer.on.with(Measure::kCeiling);
  state.about = job;
  state.measure = measure;
  state.phase = Phase::kEasing;
  judge_from(state, tick.now + kSettles);
  tick.tell(What::kEases, job, measure, state.missing);
}

void judge_easing(Tick& tick) {
  State& state = tick.state;
  const auto missing = judged(state);
  if (!missing) return;
  state.missing = *missing;
  Answer& answer = state.answers[state.about];
  if (*missing > std::max(tick.look.guard, accident(state))) {
    answer.on = answer.before;
    answer.stay = std::min(2 * answer.stay, kLongestStay);
    tick.tell(What::kNeeded, state.about, state.measure, *missing);
    return rest(tick, answer);
  }
  if (answer.on.none()) return end_answer(tick, state.about, What::kOver);
  answer.stay = kStay;
  rest(tick, answer);
}

std::set<std::uint64_t> answered(const State& state) {
  std::set<std::uint64_t> out;
  for (const auto& [job, answer] : state.answers) out.insert(job);
  return out;
}

void be_quiet(Tick& tick) {
  State& state = tick.state;
  if (most_ranks(state, [](const Pace& pace) { return pace.slow(); })) be_disturbed(tick);
  if (state.phase != Phase::kQuiet) return;
  std::size_t rounds = 0;
  for (const auto& [id, rank] : state.ranks) rounds += rank.pace.rounds();
  const bool usual = !most_ranks(state, [](const Pace& pace) { return pace.begins_to_be_slow(); });
  if (usual && rounds != state.rounds) {
    state.suspects.usual(tick.activities, answered(state), tick.now);
  }
  state.rounds = rounds;
  for (auto& [job, answer] : state.answers) {
    if (tick.now - answer.since >= answer.stay) return ease(tick, job, answer);
  }
}

}  // namespace

std::vector<Event> next(State& state, const Look& look, Time now) {
  Events events;
  Tick tick{state, look, now, {}, events};
  for (const auto& [job, other] : look.others) tick.activities[job] = other.activity;
  see_ranks(tick);
  if (look.guard <= 0 || look.held || state.ranks.empty() || ceased(state, now) ||
      cannot_judge(state)) {
    stop(tick);
    return events;
  }
  follow_interferers(tick);
  if (state.phase == Phase::kTrying) {
    judge_trial(tick);
  } else if (state.phase == Phase::kEasing) {
    judge_easing(tick);
  } else {
    be_quiet(tick);
  }
  return events;
}

std::optional<double> usual_seconds(const State& state) {
  std::vector<double> all;
  for (const auto& [id, rank] : state.ranks) {
    if (rank.pace.known()) all.push_back(rank.pace.usual_ns() * 1e-9);
  }
  if (all.empty()) return std::nullopt;
  return median(std::move(all));
}

}  // namespace switchyard::monitor::guard
