#include "monitor/policy/wait_history.h"

#include <algorithm>
#include <utility>

#include "monitor/policy/policy.h"

namespace switchyard::monitor::policy {
namespace {

constexpr unsigned kEnough = 6;    // bursts
constexpr double kFades = 0.95;    // a burst keeps this part of its weight at each new one
constexpr unsigned kRepeats = 3;   // of one number in a row are kept
constexpr double kInOrder = 0.75;  // of the launches: their order recurs
constexpr unsigned kRecurs = 3;    // times
constexpr std::uint16_t kGap = 0;  // stands for bursts of which nothing is known

// Two bursts with so many launches are the same step of the program.
std::uint32_t slack(std::uint32_t launches) { return 2 + launches / 32; }

bool same(std::uint32_t a, std::uint32_t b) {
  return a != kGap && b != kGap && a + slack(a) >= b && b + slack(b) >= a;
}

// What came last after the two newest numbers, else after the newest.
std::optional<std::uint32_t> by_order(const WaitHistory& history) {
  const auto at = [&history](unsigned i) { return history.launches[i]; };
  const unsigned newest = history.kept - 1;
  std::optional<std::uint32_t> after_one;
  for (unsigned i = newest; i-- > 0;) {
    if (!same(at(i), at(newest)) || at(i + 1) == kGap) continue;
    if (i > 0 && same(at(i - 1), at(newest - 1))) return at(i + 1);
    if (!after_one) after_one = at(i + 1);
  }
  return after_one;
}

// The smallest recurring number whose span ends above `launched`.
std::optional<std::uint32_t> by_size(const WaitHistory& history, std::uint32_t launched) {
  std::optional<std::uint32_t> least;
  for (unsigned i = 0; i < history.kept; ++i) {
    const std::uint32_t each = history.launches[i];
    if (each == kGap || each + slack(each) <= launched || (least && each >= *least)) continue;
    const auto begin = history.launches.begin();
    const auto times = std::count_if(begin, begin + history.kept,
                                     [each](std::uint16_t other) { return same(each, other); });
    if (times >= static_cast<std::ptrdiff_t>(kRecurs)) least = each;
  }
  return least;
}

bool foreseen(const WaitHistory& history, std::uint32_t launches, std::uint32_t margin) {
  std::uint32_t closed = 0;
  std::uint32_t at = 0;
  auto span = next_span(history, 0, margin);
  for (; span && span->to <= launches; span = next_span(history, at, margin)) {
    closed += span->to - std::max(at, span->from);
    at = span->to;
  }
  if (!span || launches < span->from) return false;
  closed += launches - std::max(at, span->from);
  return closed <= kMostClosed * launches;
}

// A burst that is shorter than the margin is behind the closed gate from its begin, so there is
// nothing to foresee.
void judge(WaitHistory& history, std::uint16_t launches, std::uint32_t margin) {
  if (history.kept < 2 || launches <= margin) return;
  const auto expected = by_order(history);
  const bool in_order = expected && same(*expected, launches);
  const bool was_foreseen = foreseen(history, launches, margin);
  history.all = kFades * history.all + launches;
  history.in_order = kFades * history.in_order + (in_order ? launches : 0);
  history.foreseen = kFades * history.foreseen + (was_foreseen ? launches : 0);
  history.judged = std::min(history.judged + 1, kEnough);
}

// A server that replays a graph for each token has hundreds of bursts with one launch. The few with
// many must not be forgotten for them.
bool repeats(const WaitHistory& history, std::uint16_t launches) {
  const auto end = history.launches.begin() + history.kept;
  return launches != kGap && history.kept >= kRepeats &&
         std::all_of(end - kRepeats, end,
                     [launches](std::uint16_t each) { return same(each, launches); });
}

void add(WaitHistory& history, std::uint16_t launches, std::uint32_t margin) {
  judge(history, launches, margin);
  if (repeats(history, launches)) return;
  if (history.kept == WaitHistory::kKept) {
    std::move(history.launches.begin() + 1, history.launches.end(), history.launches.begin());
    --history.kept;
  }
  history.launches[history.kept++] = launches;
}

}  // namespace

std::optional<Span> next_span(const WaitHistory& history, std::uint32_t launched,
                              std::uint32_t margin) {
  if (history.kept < 2) return std::nullopt;
  const auto around = [margin](std::uint32_t candidate) {
    return Span{candidate - std::min(candidate, margin), candidate + slack(candidate)};
  };
  if (history.in_order >= kInOrder * history.all) {
    const auto expected = by_order(history);
    if (expected && around(*expected).to > launched) return around(*expected);
  }
  const auto recurring = by_size(history, launched);
  return recurring ? std::optional(around(*recurring)) : std::nullopt;
}

std::uint32_t learn(WaitHistory& history, const Bursts& seen, std::uint32_t margin) {
  const auto last = static_cast<std::uint32_t>(seen.last.size());
  std::uint32_t fresh = seen.count - history.count;
  if (!history.began || fresh > last) {
    add(history, kGap, 0);
    history.began = true;
  }
  fresh = std::min({fresh, seen.count, last});
  for (std::uint32_t i = fresh; i-- > 0;) {
    const Burst& burst = seen.number(seen.count - i);
    if (burst.launches != 0 && burst.cpu_us != 0) add(history, burst.launches, margin);
  }
  history.count = seen.count;
  return fresh;
}

double trust(const WaitHistory& history) {
  return history.judged < kEnough ? 0 : history.foreseen / history.all;
}

}  // namespace switchyard::monitor::policy
