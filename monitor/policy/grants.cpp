#include "monitor/policy/grants.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;
using Phase = Unit::Phase;
using Key = Grants::Key;

// No work for so long ends a turn: to end it takes longer than a brief pause.
constexpr Time kIdleEnds = milliseconds(10);
// A pause up to here is brief: who comes back from it is still owed what it was owed.
constexpr Time kBriefPause = milliseconds(50);
// Of a turn, when it is of the lower classes' minimum: rare, so that it may be short.
constexpr double kMinimumTurn = 0.25;
constexpr double kOwedAtMostNs = 2e9;
// A turn is so long that to end it takes at most a tenth of it.
constexpr double kTurnPerEnd = 10;
constexpr double kLongestTurnNs = 2e9;
constexpr double kSmoothing = 0.2;
constexpr unsigned kMissedAtMost = 6;
// A reserved GPU goes to no job for less.
constexpr double kWorthATurnNs = 5e6;

void enter(Unit& unit, Phase phase, Time now) {
  unit.phase = phase;
  unit.since = now;
}

bool overlap(const Unit& a, const Unit& b) {
  return std::any_of(a.gpus.begin(), a.gpus.end(), [&](std::size_t gpu) {
    return std::find(b.gpus.begin(), b.gpus.end(), gpu) != b.gpus.end();
  });
}

// One that takes no turns is only ever closed by its limit.
bool in_line(const Unit& unit) {
  const bool wants = unit.claim.wants || unit.gpus.empty();
  return unit.phase == Phase::kWaiting && wants && !unit.claim.spent;
}

// --- who there is ---

// Turns are taken there, and a gang is among those who take them.
bool is_shared(const std::vector<Claim>& claims) {
  const auto takes = [](const Claim& claim) { return claim.takes_turns; };
  return std::count_if(claims.begin(), claims.end(), takes) > 1 &&
         std::any_of(claims.begin(), claims.end(),
                     [](const Claim& claim) { return claim.takes_turns && claim.gang; });
}

void add(Unit& unit, const Claim& claim, std::size_t gpu, bool shared) {
  Claim& all = unit.claim;
  const bool turns = shared && claim.takes_turns;
  if (turns) unit.gpus.push_back(gpu);
  all.job = claim.job;
  all.gang = claim.gang;
  all.stops = claim.stops;
  all.stopped = claim.stopped;
  all.rank = std::max(all.rank, claim.rank);
  all.turn_ns = std::max(all.turn_ns, claim.turn_ns);
  all.wants = all.wants || claim.wants;
  all.drained = all.drained && claim.drained;
  all.spent = all.spent || claim.spent;
}

// Those that are decided about here; what is remembered of the others is forgotten.
void gather(Grants& grants) {
  std::map<Key, Unit> now;
  for (const auto& [gpu, claims] : grants.claims) {
    const bool shared = is_shared(claims);
    for (const Claim& claim : claims) {
      if (!(shared && claim.takes_turns) && !(claim.gang && claim.metered)) continue;
      const Key key{claim.job, claim.gang ? Grants::kAllGpus : gpu};
      const auto [at, fresh] = now.try_emplace(key);
      if (const auto was = grants.units.find(key); fresh && was != grants.units.end()) {
        at->second = was->second;
        at->second.gpus.clear();
        at->second.claim = {};
      }
      add(at->second, claim, gpu, shared);
    }
  }
  grants.units = std::move(now);
}

// --- what time has changed ---

// Of who wants a GPU or has it, whether somebody of a higher class does so where this one does.
bool is_below(const Grants& grants, const Unit& unit) {
  return std::any_of(grants.units.begin(), grants.units.end(), [&](const auto& each) {
    const Unit& other = each.second;
    const bool there = other.phase != Phase::kWaiting || in_line(other);
    return there && other.claim.rank > unit.claim.rank && overlap(other, unit);
  });
}

double waiting_below(const Grants& grants, const Unit& unit) {
  return static_cast<double>(
      std::count_if(grants.units.begin(), grants.units.end(), [&](const auto& each) {
        return in_line(each.second) && each.second.claim.rank <= unit.claim.rank &&
               overlap(each.second, unit);
      }));
}

void note_minimum(const Grants& grants, Unit& unit, double minimum, double dt_ns) {
  if (!is_below(grants, unit)) {
    unit.owed_ns = 0;
  } else if (unit.phase == Phase::kOpen) {
    unit.owed_ns = std::max(0.0, unit.owed_ns - dt_ns);
  } else if (in_line(unit)) {
    const double part = std::clamp(minimum, 0.0, 0.5) / waiting_below(grants, unit);
    unit.owed_ns = std::min(kOwedAtMostNs, unit.owed_ns + part * dt_ns);
  }
}

bool counts(const Unit& unit) { return unit.wants_since != Time{0} && unit.claim.wants; }

// The fewest turns of those of its class that it takes turns with, itself included; less than
// nothing: nobody counts. Counts of others have nothing to do with its own.
double fewest_beside(const Grants& grants, const Unit& unit) {
  double fewest = -1;
  for (const auto& [key, other] : grants.units) {
    if (!counts(other) || other.claim.rank != unit.claim.rank) continue;
    if (fewest >= 0 && other.turns >= fewest) continue;
    if (overlap(other, unit)) fewest = other.turns;
  }
  return fewest;
}

// A lead is kept in time, not in turns: a turn is short beside a busy high job, and long beside an
// idle one.
void note_turn(Unit& unit, double fewest) {
  const double turn_ns = unit.claim.turn_ns;
  if (turn_ns <= 0 || (fewest < 0 && unit.turn_ns > 0)) return;
  if (unit.turn_ns > 0) unit.turns = fewest + (unit.turns - fewest) * unit.turn_ns / turn_ns;
  unit.turn_ns = turn_ns;
}

// In another class its turns are nobody's measure.
void note_class(Unit& unit) {
  if (std::exchange(unit.rank, unit.claim.rank) == unit.claim.rank) return;
  unit.wants_since = Time{0};
  unit.turns = 0;
}

// A unit that is new, was away or was kept out by its own limit begins beside those that had least.
void note_wish(Unit& unit, double fewest, Time now) {
  const bool away = !unit.claim.wants && now - unit.worked_at > kBriefPause;
  if (away || unit.claim.spent) unit.wants_since = Time{0};
  if (!unit.claim.wants) return;
  unit.worked_at = now;
  if (unit.claim.spent || unit.wants_since != Time{0}) return;
  unit.wants_since = now;
  unit.turns = std::max(unit.turns, fewest);
}

void pass_time(Grants& grants, double minimum, Time now) {
  const double dt_ns = grants.looked_at == Time{0} ? 0 : counted_ns(now - grants.looked_at);
  grants.looked_at = now;
  for (auto& [key, unit] : grants.units) {
    if (unit.phase != Phase::kWaiting) {
      unit.left_ns -= dt_ns;
      const double turn_ns = unit.turn_ns > 0 ? unit.turn_ns : unit.claim.turn_ns;
      if (turn_ns > 0) unit.turns += dt_ns / turn_ns;
    }
    note_minimum(grants, unit, minimum, dt_ns);
    note_class(unit);
  }
  // All as of now, before the first one changes.
  std::map<Key, double> fewest;
  for (const auto& [key, unit] : grants.units) fewest[key] = fewest_beside(grants, unit);
  for (auto& [key, unit] : grants.units) {
    note_turn(unit, fewest[key]);
    note_wish(unit, fewest[key], now);
  }
}

// --- turns end ---

bool pauses(const Unit& unit, Time now) {
  return !unit.claim.wants && now - unit.worked_at >= kIdleEnds;
}

bool is_due(const Unit& unit) {
  return unit.owed_ns > 0 && unit.owed_ns >= kMinimumTurn * unit.claim.turn_ns;
}

// How long `holder` goes on before it makes way for `unit`. Less than nothing counts as nothing.
double goes_on_ns(const Unit& holder, const Unit& unit, Time now) {
  if (holder.phase != Phase::kOpen || holder.claim.spent || pauses(holder, now)) return 0;
  const bool higher = unit.claim.rank > holder.claim.rank && !holder.repaying;
  if (higher) return 0;
  const bool lower = unit.claim.rank < holder.claim.rank && !is_due(unit);
  return lower ? kOwedAtMostNs : std::max(0.0, holder.left_ns);
}

void stop(Unit& unit, Time now) {
  if (unit.phase != Phase::kOpen) return;
  unit.ends_since = now;
  enter(unit, Phase::kStopping, now);
}

bool is_at_cut(const Unit& unit) { return unit.claim.stops && unit.claim.stopped; }

Time drains_within(const Unit& unit) { return is_at_cut(unit) ? kEndsWithin : kDrainsWithin; }

// How long it took to wait in vain is no measure of what an end costs.
void note_missed(Unit& unit, Time now) {
  unit.ends_since = now;
  if (unit.unwaited != 0) {
    --unit.unwaited;
    return;
  }
  unit.missed = std::min(unit.missed + 1, kMissedAtMost);
  unit.unwaited = (1u << unit.missed) - 1;
}

// False: its ranks are on their way to a cut.
bool has_stopped(Unit& unit, Time now) {
  if (is_at_cut(unit)) unit.missed = unit.unwaited = 0;
  if (!unit.claim.stops || unit.claim.stopped) return true;
  if (unit.unwaited == 0 && now - unit.since < kStopsWithin) return false;
  note_missed(unit, now);
  return true;
}

void step(Unit& unit, Time now) {
  if (unit.phase == Phase::kOpen && unit.claim.spent) stop(unit, now);
  if (unit.phase == Phase::kStopping) {
    if (has_stopped(unit, now)) enter(unit, Phase::kDraining, now);
  } else if (unit.phase == Phase::kDraining &&
             (unit.claim.drained || now - unit.since >= drains_within(unit))) {
    unit.ends_ns += kSmoothing * (ns(now - unit.ends_since) - unit.ends_ns);
    enter(unit, Phase::kWaiting, now);
  }
}

// --- turns begin ---

std::vector<Unit*> line_of(Grants& grants) {
  std::vector<std::pair<Key, Unit*>> line;
  for (auto& [key, unit] : grants.units) {
    if (in_line(unit)) line.emplace_back(key, &unit);
  }
  std::sort(line.begin(), line.end(), [](const auto& a, const auto& b) {
    const auto place = [](const auto& each) {
      const Unit& unit = *each.second;
      return std::tuple(!is_due(unit), -unit.claim.rank, unit.turns, unit.wants_since, each.first);
    };
    return place(a) < place(b);
  });
  std::vector<Unit*> out;
  for (const auto& [key, unit] : line) out.push_back(unit);
  return out;
}

void open(Unit& unit, double at_most_ns, Time now) {
  unit.repaying = is_due(unit);
  const double turn =
      std::max(unit.claim.turn_ns, std::min(kLongestTurnNs, kTurnPerEnd * unit.ends_ns));
  unit.left_ns = std::min(at_most_ns, unit.repaying ? kMinimumTurn * unit.claim.turn_ns : turn);
  enter(unit, Phase::kOpen, now);
}

Grant grant_of(const Unit& unit) {
  if (unit.phase == Phase::kOpen) return Grant::kOpen;
  const bool ends = unit.phase == Phase::kDraining && is_at_cut(unit);
  return ends || unit.phase == Phase::kStopping ? Grant::kStopping : Grant::kClosed;
}

// Of each GPU: for how long its present holders, or who comes after `unit`, may use it.
using Reserved = std::map<std::size_t, double>;

double free_for_ns(const Unit& unit, const Reserved& reserved) {
  double out = kOwedAtMostNs;
  for (const std::size_t gpu : unit.gpus) {
    if (const auto at = reserved.find(gpu); at != reserved.end()) out = std::min(out, at->second);
  }
  return out;
}

void serve(Grants& grants, Unit& unit, Reserved& reserved, Time now) {
  const double free_ns = free_for_ns(unit, reserved);
  const bool behind = free_ns < kOwedAtMostNs;
  std::vector<Unit*> in_the_way;
  double wait_ns = 0;
  for (auto& [key, other] : grants.units) {
    if (other.phase == Phase::kWaiting || !overlap(other, unit)) continue;
    if (pauses(other, now)) stop(other, now);
    in_the_way.push_back(&other);
    wait_ns = std::max(wait_ns, goes_on_ns(other, unit, now));
  }
  if (in_the_way.empty() && (!behind || free_ns >= kWorthATurnNs)) {
    open(unit, free_ns, now);
    return;
  }
  if (!behind && wait_ns <= 0) {
    for (Unit* const other : in_the_way) stop(*other, now);
  }
  if (behind) return;
  for (const std::size_t gpu : unit.gpus) reserved[gpu] = wait_ns;
}

}  // namespace

Grant Grants::of(std::uint64_t job, std::size_t gpu) const {
  auto at = units.find({job, kAllGpus});
  if (at == units.end()) at = units.find({job, gpu});
  return at == units.end() ? Grant::kLocal : grant_of(at->second);
}

std::vector<Grants::Key> decide_grants(Grants& grants, double minimum, Time now) {
  std::map<Key, Grant> before;
  for (const auto& [key, unit] : grants.units) before[key] = grant_of(unit);
  gather(grants);
  pass_time(grants, minimum, now);
  for (auto& [key, unit] : grants.units) step(unit, now);
  Reserved reserved;
  for (Unit* const unit : line_of(grants)) serve(grants, *unit, reserved, now);
  for (auto& [key, unit] : grants.units) step(unit, now);
  std::vector<Key> changed;
  for (const auto& [key, unit] : grants.units) {
    const auto was = before.extract(key);
    if (was.empty() || was.mapped() != grant_of(unit)) changed.push_back(key);
  }
  for (const auto& [key, grant] : before) changed.push_back(key);
  return changed;
}

}  // namespace switchyard::monitor::policy
