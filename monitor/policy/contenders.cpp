#include "monitor/policy/contenders.h"

#include <iterator>
#include <utility>

namespace switchyard::monitor::policy {
namespace {

constexpr double kShortestTurnNs = 50e6;
constexpr double kLongestTurnNs = 2e9;
// Whatever the weights are: the others are shut out for so long.
constexpr double kMostTurnNs = 5e9;
constexpr double kTurnPerHandover = 50;  // 2 %
// Beside highs that never rest a holder has one slice in each round of theirs. A turn that is
// shorter than a round may pass without one.
constexpr double kRoundsPerTurn = 2;
// Of a turn, when it is of the lower classes' minimum: rare, so that it may be short.
constexpr double kMinimumTurn = 0.25;
constexpr double kBriefPauseNs = 5e6;
constexpr double kBriefPerHandover = 2;
// A debt is forgotten beyond what a window of so long could show.
constexpr double kDebtAtMostNs = 2e9;

}  // namespace

double brief_pause_ns(const Turns& turns) {
  return std::max(kBriefPauseNs, kBriefPerHandover * turns.handover_ns);
}

TurnQueue::TurnQueue(Tick& tick, const TurnRules& rules) : tick_(tick), rules_(rules) {
  for (const Rider& rider : tick.riders) {
    if (!rider.active || !rider.view->gateable || (rider.high && !rules.highs)) continue;
    Contender& job = jobs_[rider.job()];
    job.weight = rider.weight;
    if (rules.by_class) job.rank = static_cast<int>(rider.view->priority);
    job.barred = rider.shut(abi::kClosedByLimit | abi::kClosedByGuard);
    job.wants = !job.barred && (job.wants || rider.state->wants);
    job.at_work = job.at_work || rider.state->at_work;
    job.busy = job.busy || rider.state->busy;
    job.drained = job.drained && drained(rider, tick.now);
  }
  for (const auto& [key, job] : jobs_) {
    Rank& rank = ranks_[static_cast<std::size_t>(job.rank)];
    rank.lightest = rank.heaviest == 0 ? job.weight : std::min(rank.lightest, job.weight);
    rank.heaviest = std::max(rank.heaviest, job.weight);
  }
}

const Contender* TurnQueue::find(std::uint64_t job) const {
  const auto at = jobs_.find(job);
  return at == jobs_.end() ? nullptr : &at->second;
}

bool TurnQueue::are_equal() const {
  return std::all_of(std::begin(ranks_), std::end(ranks_),
                     [](const Rank& rank) { return rank.heaviest <= rank.lightest * 1.01; });
}

double TurnQueue::turn_ns(std::uint64_t job) const {
  const Contender& mine = jobs_.at(job);
  const auto& [lightest, heaviest] = ranks_[static_cast<std::size_t>(mine.rank)];
  const double rounds = rules_.long_turns ? kRoundsPerTurn * tick_.state.high.round_us * 1e3 : 0;
  const double longest = std::max({kShortestTurnNs, kLongestTurnNs * lightest / heaviest, rounds});
  const double wanted =
      rules_.long_turns ? longest : kTurnPerHandover * tick_.state.turns.handover_ns;
  const double turn = std::clamp(wanted, kShortestTurnNs, longest) * mine.weight / lightest;
  return std::min(turn, std::max(kMostTurnNs, rounds));
}

double TurnQueue::this_turn_ns(std::uint64_t job) const {
  return turn_ns(job) * (tick_.state.turns.repaying ? kMinimumTurn : 1);
}

double TurnQueue::cycle_ns() const {
  double sum = tick_.state.turns.handover_ns * static_cast<double>(size());
  for (const auto& [key, job] : jobs_) sum += turn_ns(key);
  return sum;
}

int TurnQueue::highest_wanting() const {
  int highest = -1;
  for (const auto& [key, job] : jobs_) {
    if (job.wants) highest = std::max(highest, job.rank);
  }
  return highest;
}

// The lower classes wait below this one: the holder's, too, though its work may pause just now.
int TurnQueue::top() const {
  const Contender* const holder = find(tick_.state.turns.holder);
  return std::max(highest_wanting(), holder != nullptr ? holder->rank : -1);
}

bool TurnQueue::lower_due() const {
  if (!rules_.by_class || tick_.state.turns.lower_owed_ns <= 0) return false;
  const int above = top();
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
    return entry.second.wants && entry.second.rank < above &&
           tick_.state.turns.lower_owed_ns >= kMinimumTurn * turn_ns(entry.first);
  });
}

std::uint64_t TurnQueue::choose(std::uint64_t holder) {
  const int highest = highest_wanting();
  const bool lower = lower_due();
  Turns& turns = tick_.state.turns;
  const bool was_repaying = std::exchange(turns.repaying, lower);
  if (lower && !was_repaying) turns.interrupted = holder;
  // Each order goes on where it ended.
  auto at = jobs_.upper_bound(lower ? turns.repaid : was_repaying ? turns.interrupted : holder);
  const auto next = [&] {
    if (at == jobs_.end()) at = jobs_.begin();
    return at++;
  };
  if (highest < 0) return next()->first;
  // Each round pays a turn of every debt, and debts have a bound.
  for (;;) {
    const auto& [key, job] = *next();
    if (!job.wants || (lower ? job.rank >= top() : job.rank < highest)) continue;
    double& credit = tick_.state.jobs[key].credit_ns;
    const double turn = turn_ns(key);
    if (credit > -turn) {
      if (lower) turns.repaid = key;
      return key;
    }
    credit += turn;
  }
}

void TurnQueue::note_lower() {
  if (!rules_.by_class) return;
  Turns& turns = tick_.state.turns;
  const int above = top();
  const Contender* const holder = find(turns.holder);
  const bool has = turns.phase == Turns::Phase::kOpen && holder != nullptr && holder->rank < above;
  const bool waits = std::any_of(jobs_.begin(), jobs_.end(), [above](const auto& entry) {
    return entry.second.wants && entry.second.rank < above;
  });
  const double minimum = std::clamp(tick_.rules.minimum, 0.0, 0.5);
  const double change = has ? -tick_.dt_ns : waits ? minimum * tick_.dt_ns : 0;
  turns.lower_owed_ns = std::clamp(turns.lower_owed_ns + change, 0.0, kDebtAtMostNs);
}

void TurnQueue::settle() {
  const Turns& turns = tick_.state.turns;
  for (const Rider& rider : tick_.riders) {
    // Behind its gate it can only have had what outlived the gate's closing.
    const bool open = turns.phase == Turns::Phase::kOpen && rider.job() == turns.holder;
    if (open || !rider.state->closed || rider.state->had_ns <= 0) continue;
    double& credit = tick_.state.jobs[rider.job()].credit_ns;
    credit = std::max(-kDebtAtMostNs, credit - rider.state->had_ns);
  }
  for (auto& [key, state] : tick_.state.jobs) {
    if (state.unused_ns <= 0) continue;
    const Contender* const job = find(key);
    if (job == nullptr || !job->wants) continue;
    const double pause = ns(tick_.now - state.idle_since);
    const double unused = std::exchange(state.unused_ns, 0);
    // A job that was away for long had no use for it.
    if (pause > brief_pause_ns(turns)) continue;
    state.credit_ns = std::min(turn_ns(key), state.credit_ns + unused);
  }
  note_lower();
}

}  // namespace switchyard::monitor::policy
