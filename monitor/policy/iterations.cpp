#include "monitor/policy/iterations.h"

#include <algorithm>
#include <map>

namespace switchyard::monitor::iterations {
namespace {

constexpr std::size_t kMostMarks = 64;
constexpr std::size_t kFewestEvents = 8;
// However short iterations are, they have not ceased before.
constexpr Time kCeases = std::chrono::seconds(3);

struct Candidate {
  std::uint32_t what = 0;
  std::size_t count = 0;
  std::uint64_t weight = 0;
  std::size_t regular = 0;   // events in distances that are about the same
  std::size_t distance = 0;  // from one to the next: the median
};

struct Seen {
  std::vector<std::size_t> places;
  std::uint64_t weight = 0;
};
using AllSeen = std::map<std::uint32_t, Seen>;
using Events = std::deque<Event>::const_iterator;

AllSeen places_of(Events first, Events last) {
  AllSeen all;
  for (Events event = first; event != last; ++event) {
    Seen& seen = all[event->what];
    seen.places.push_back(static_cast<std::size_t>(event - first));
    seen.weight += event->weight;
  }
  return all;
}

Candidate measure(std::uint32_t what, const Seen& seen) {
  Candidate out{what, seen.places.size(), seen.weight};
  if (out.count < kFewestMarkers) return out;
  std::vector<std::size_t> distances;
  for (std::size_t i = 1; i < seen.places.size(); ++i) {
    distances.push_back(seen.places[i] - seen.places[i - 1]);
  }
  const auto middle = distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2);
  std::nth_element(distances.begin(), middle, distances.end());
  out.distance = *middle;
  for (const std::size_t each : distances) {
    const std::size_t off = each > out.distance ? each - out.distance : out.distance - each;
    if (4 * off <= out.distance) out.regular += each;
  }
  return out;
}

bool is_candidate(const Candidate& measured, std::size_t events) {
  return measured.regular != 0 && 2 * measured.regular >= events;
}

std::vector<Candidate> candidates(const AllSeen& all, std::size_t events) {
  std::vector<Candidate> out;
  for (const auto& [what, seen] : all) {
    const Candidate candidate = measure(what, seen);
    if (is_candidate(candidate, events)) out.push_back(candidate);
  }
  std::sort(out.begin(), out.end(),
            [](const Candidate& a, const Candidate& b) { return a.count < b.count; });
  return out;
}

// `present` if it is one of them. Else one whose distances are about as regular as any's: the first
// by its hash, so that all ranks choose the same.
const Candidate& best(const std::vector<Candidate>& all, std::size_t from, std::size_t to,
                      std::optional<std::uint32_t> present) {
  std::size_t regular = 0;
  for (std::size_t i = from; i < to; ++i) {
    if (all[i].what == present) return all[i];
    regular = std::max(regular, all[i].regular);
  }
  std::size_t out = to;
  for (std::size_t i = from; i < to; ++i) {
    if (10 * all[i].regular < 9 * regular) continue;
    if (out == to || all[i].what < all[out].what) out = i;
  }
  return all[out];
}

bool is_enough(std::uint64_t weight, std::uint64_t total, Weight what) {
  return weight * (what == Weight::kBytes ? 500 : 50) >= total;
}

std::optional<Candidate> choose_among(Events first, Events last, Weight what,
                                      std::optional<std::uint32_t> present) {
  const AllSeen seen = places_of(first, last);
  std::uint64_t total = 0;
  for (const auto& [what, each] : seen) total += each.weight;
  const auto all = candidates(seen, static_cast<std::size_t>(last - first));
  for (std::size_t from = 0, to = 0; from < all.size(); from = to) {
    std::uint64_t weight = 0;
    for (; to < all.size() && 5 * all[to].count <= 6 * all[from].count; ++to) {
      weight += all[to].weight;
    }
    if (is_enough(weight, total, what)) return best(all, from, to, present);
  }
  return std::nullopt;
}

// Of the last `size` events; else of the later half of these, and so on.
std::optional<Candidate> choose_latest(const std::deque<Event>& events, std::size_t size,
                                       Weight what, std::optional<std::uint32_t> present) {
  for (; size >= kFewestEvents; size /= 2) {
    const auto first = events.end() - static_cast<std::ptrdiff_t>(size);
    if (auto found = choose_among(first, events.end(), what, present)) return found;
  }
  return std::nullopt;
}

bool is_candidate(const std::deque<Event>& events, std::uint32_t what) {
  Seen seen;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (events[i].what == what) seen.places.push_back(i);
  }
  return is_candidate(measure(what, seen), events.size());
}

// Whether `marker` comes in most distances from one `choice` to the next.
bool comes_between(const std::deque<Event>& events, std::uint32_t marker, std::uint32_t choice) {
  std::size_t distances = 0, with_marker = 0;
  bool begun = false, seen = false;
  for (const Event& event : events) {
    if (event.what == choice) {
      if (begun) ++distances;
      if (begun && seen) ++with_marker;
      begun = true;
      seen = false;
    } else if (event.what == marker) {
      seen = true;
    }
  }
  return 2 * with_marker > distances;
}

}  // namespace

std::optional<std::uint32_t> marker_of(const std::vector<Event>& events) {
  const auto found =
      choose_latest({events.begin(), events.end()}, events.size(), Weight::kLaunches, std::nullopt);
  return found ? std::optional(found->what) : std::nullopt;
}

void Finder::mark(const Event& event) {
  since_marker_ = 0;
  ++count_;
  marks_.push_back({event.at, event.number});
  if (marks_.size() > kMostMarks) marks_.pop_front();
}

void Finder::add(const Event& event) {
  events_.push_back(event);
  while (events_.size() > most_) events_.pop_front();
  ++since_look_;
  ++since_marker_;
  if (marker_ == event.what) mark(event);
}

void Finder::lost() {
  if (events_.empty() && marks_.empty()) return;
  events_.clear();
  marks_.clear();
  since_look_ = 0;
  since_marker_ = 0;
  count_ = 0;
  ++generation_;
}

// One that came often is missed later.
bool Finder::missed() const {
  const std::size_t most = std::clamp<std::size_t>(count_ / 2, kFewestMarkers, kMostMissed);
  return since_marker_ > most * distance_;
}

void Finder::choose(std::uint32_t marker) {
  marker_ = marker;
  count_ = 0;
  ++generation_;
  marks_.clear();
  since_marker_ = 0;
  for (const Event& event : events_) {
    ++since_marker_;
    if (event.what == marker) mark(event);
  }
}

void Finder::look() {
  if (since_look_ == 0) return;
  const bool missing = marker_ && missed();
  if (!missing && 2 * since_look_ < events_.size()) return;
  since_look_ = 0;
  const bool doubted = marker_ && !missing && !is_candidate(events_, *marker_);
  // Events before the last marker are of the program that has ended.
  const std::size_t size = missing ? std::min(since_marker_, events_.size()) : events_.size();
  const auto found = doubted ? choose_among(events_.begin(), events_.end(), weight_, marker_)
                             : choose_latest(events_, size, weight_, marker_);
  if (doubted && !(found && comes_between(events_, *marker_, found->what))) return;
  if (found) {
    distance_ = found->distance;
    if (marker_ != found->what) choose(found->what);
  } else if (missing) {
    marker_.reset();
    marks_.clear();
  }
}

std::optional<double> Finder::per_second(Time now) const {
  if (!marker_ || marks_.size() < 2) return std::nullopt;
  const Time last = marks_.back().at;
  std::size_t first = marks_.size() - std::min(marks_.size(), kFewestMarkers + 1);
  while (first > 0 && now - marks_[first - 1].at <= kRateOf) --first;
  const Time span = last - marks_[first].at;
  const auto between = static_cast<Time::rep>(marks_.size() - 1 - first);
  if (span <= Time{0} || now - last > std::max(kCeases, 4 * span / between)) return 0;
  const double rate = static_cast<double>(between) / seconds(span);
  if (rate > kMostPerSecond) return std::nullopt;
  return rate;
}

}  // namespace switchyard::monitor::iterations
