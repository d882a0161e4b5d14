#include "monitor/policy/communication.h"

#include <algorithm>
#include <map>
#include <set>

namespace switchyard::monitor::communication {
namespace {

using What = Timing::What;

struct Interval {
  Time from{0};
  Time to{0};
};
using Intervals = std::vector<Interval>;

Interval overlap(const Interval& a, const Interval& b) {
  return {std::max(a.from, b.from), std::min(a.to, b.to)};
}

// As few as there can be, in their order.
Intervals united(Intervals all) {
  std::sort(all.begin(), all.end(),
            [](const Interval& a, const Interval& b) { return a.from < b.from; });
  Intervals out;
  for (const Interval& each : all) {
    if (!out.empty() && each.from <= out.back().to) {
      out.back().to = std::max(out.back().to, each.to);
    } else {
      out.push_back(each);
    }
  }
  return out;
}

// pre: both are united.
Intervals common(const Intervals& a, const Intervals& b) {
  Intervals out;
  for (auto left = a.begin(), right = b.begin(); left != a.end() && right != b.end();) {
    const Interval both = overlap(*left, *right);
    if (both.from < both.to) out.push_back(both);
    left->to < right->to ? ++left : ++right;
  }
  return out;
}

Time length(const Intervals& all) {
  Time sum{0};
  for (const Interval& each : all) sum += each.to - each.from;
  return sum;
}

struct Stretch {
  Intervals collectives;
  Intervals stalls;
};

Interval of(const Timing& timing) { return {timing.began, timing.began + timing.took}; }

std::vector<Stretch> stretches(const std::deque<Timing>& timings, unsigned lane) {
  std::vector<Stretch> out(1);
  for (const Timing& each : timings) {
    if (each.lane != lane && each.lane != kAllLanes) continue;
    if (each.what == What::kUntimed) out.emplace_back();
    if (each.what == What::kCollective) out.back().collectives.push_back(of(each));
    if (each.what == What::kStalled) out.back().stalls.push_back(of(each));
  }
  return out;
}

// From the first beginning to the last. pre: there is one.
Interval span_of(const Intervals& all) {
  const auto [first, last] = std::minmax_element(
      all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.from < b.from; });
  return {first->from, last->from};
}

// Where the busiest stream never waited it may have computed all the time. Where it did in other
// stretches, this one is too short to tell.
Intervals known_of(const Stretch& stretch, const Intervals& communicating, bool waits) {
  if (!waits) return communicating;
  if (stretch.stalls.empty()) return {};
  Interval known = {stretch.stalls.front().from, stretch.stalls.front().to};
  for (const Interval& each : stretch.stalls) {
    known = {std::min(known.from, each.from), std::max(known.to, each.to)};
  }
  return common(communicating, {known});
}

void add(Shares& sum, const Stretch& stretch, bool waits) {
  if (stretch.collectives.empty()) return;
  const Interval span = span_of(stretch.collectives);
  const Intervals communicating = common(united(stretch.collectives), {span});
  const Intervals known = known_of(stretch, communicating, waits);
  sum.span += span.to - span.from;
  sum.communicating += length(communicating);
  sum.known += length(known);
  sum.exposed += length(common(known, united(stretch.stalls)));
}

// Of one collective, at all ranks that timed it.
struct Meeting {
  std::uint32_t came = 0;
  Time shortest{0};
};
using Place = std::pair<std::uint64_t, std::uint64_t>;

}  // namespace

void History::add(const Timing& timing) {
  timings_.push_back(timing);
  while (timings_.size() > most_) timings_.pop_front();
}

void History::forget(Time now) {
  while (!timings_.empty() && now - timings_.front().seen > kShareOf) timings_.pop_front();
}

bool History::has(What what) const {
  return std::any_of(timings_.begin(), timings_.end(),
                     [&](const Timing& each) { return each.what == what; });
}

Shares shares_of(const History& history) {
  std::set<unsigned> lanes;
  for (const Timing& each : history.timings()) {
    if (each.what == What::kCollective) lanes.insert(each.lane);
  }
  Shares sum;
  for (const unsigned lane : lanes) {
    const std::vector<Stretch> all = stretches(history.timings(), lane);
    const bool waits = std::any_of(all.begin(), all.end(),
                                   [](const Stretch& each) { return !each.stalls.empty(); });
    for (const Stretch& each : all) add(sum, each, waits);
  }
  return sum;
}

std::vector<Meetings> meetings_of(const std::vector<Rank>& ranks) {
  std::map<Place, Meeting> meetings;
  std::map<std::uint64_t, std::uint32_t> sizes;
  for (const Rank& rank : ranks) {
    for (const auto& [communicator, size] : rank.sizes) sizes[communicator] = size;
    for (const Timing& each : rank.history->timings()) {
      if (each.what != What::kCollective || !each.meets) continue;
      Meeting& meeting = meetings[{each.communicator, each.number}];
      meeting.shortest = meeting.came++ == 0 ? each.took : std::min(meeting.shortest, each.took);
    }
  }
  std::vector<Meetings> out;
  for (const Rank& rank : ranks) {
    Meetings& sum = out.emplace_back();
    for (const Timing& each : rank.history->timings()) {
      if (each.what != What::kCollective || !each.meets) continue;
      const Meeting& meeting = meetings[{each.communicator, each.number}];
      if (meeting.came < 2 || meeting.came != sizes[each.communicator]) continue;
      sum.took += each.took;
      sum.waited += each.took - meeting.shortest;
    }
  }
  return out;
}

std::uint32_t Allowance::next(std::uint32_t timed, std::uint32_t look) {
  const auto left = static_cast<std::int32_t>(until_ - timed);
  // Those on their way count as left.
  const bool exhausted = left < static_cast<std::int32_t>(kPerLook / 4);
  if (!exhausted) {
    until_ = timed + std::clamp(static_cast<std::uint32_t>(left), kPerLook, kPerStretch);
  } else if ((look * 0x9E3779B9u >> 16) % kMostPauses == 0) {
    until_ = timed + kPerStretch;
  }
  return until_;
}

}  // namespace switchyard::monitor::communication
