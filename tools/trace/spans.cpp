#include "tools/trace/spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "tools/base/output.h"
#include "tools/trace/lane.h"

namespace switchyard::tools::trace {
namespace {

bool runs(const Span& span) { return span.code.state == State::kRunning; }
bool waits_for_turn(const Span& span) {
  return span.code.state == State::kWaiting && span.code.reason == "turn";
}
bool waits_for_memory(const Span& span) {
  return span.code.state == State::kWaiting && !waits_for_turn(span);
}

// A span of a lane.
struct Place {
  std::int64_t at = 0;
  std::size_t lane = 0, span = 0;
  bool operator<(const Place& other) const { return at < other.at; }
};

// The running spans of one GPU, by their beginning, or by their end.
std::vector<Place> running_on(const Timeline& timeline, std::size_t gpu, std::int64_t Span::*when) {
  std::vector<Place> out;
  for (std::size_t lane = 0; lane < timeline.lanes.size(); ++lane) {
    if (timeline.lanes[lane].gpu != gpu) continue;
    const auto& spans = timeline.lanes[lane].spans;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (runs(spans[i])) out.push_back({spans[i].*when, lane, i});
    }
  }
  std::stable_sort(out.begin(), out.end());
  return out;
}

// A job waits for the turn of the one that runs next, at the latest when the wait ends.
void name_turns(Timeline& timeline, std::size_t gpu) {
  const std::vector<Place> begins = running_on(timeline, gpu, &Span::from);
  const std::vector<Place> ends = running_on(timeline, gpu, &Span::to);
  for (std::size_t lane = 0; lane < timeline.lanes.size(); ++lane) {
    if (timeline.lanes[lane].gpu != gpu) continue;
    for (Span& span : timeline.lanes[lane].spans) {
      if (!waits_for_turn(span)) continue;
      // It runs already, or begins to.
      auto next = std::upper_bound(ends.begin(), ends.end(), Place{.at = span.from});
      while (next != ends.end() && next->lane == lane) ++next;
      if (next == ends.end()) continue;
      const Lane& other = timeline.lanes[next->lane];
      if (other.spans[next->span].from < span.to) span.by = other.job;
    }
  }
}

// The running span of `lane`, or with none of any lane but `except`, that ended last until `until`.
std::optional<Place> ended_before(const std::vector<Place>& ends, std::int64_t until,
                                  std::optional<std::size_t> lane, std::size_t except) {
  auto at = std::upper_bound(ends.begin(), ends.end(), Place{.at = until});
  while (at != ends.begin()) {
    --at;
    if (at->lane != except && (!lane || at->lane == *lane)) return *at;
  }
  return std::nullopt;
}

std::optional<std::size_t> lane_of(const Timeline& timeline, JobKey job, std::size_t gpu) {
  for (std::size_t lane = 0; lane < timeline.lanes.size(); ++lane) {
    if (timeline.lanes[lane].job == job && timeline.lanes[lane].gpu == gpu) return lane;
  }
  return std::nullopt;
}

void add_arrows(Timeline& timeline, std::size_t gpu) {
  const std::vector<Place> ends = running_on(timeline, gpu, &Span::to);
  for (std::size_t lane = 0; lane < timeline.lanes.size(); ++lane) {
    if (timeline.lanes[lane].gpu != gpu) continue;
    const auto& spans = timeline.lanes[lane].spans;
    const Span* waited = nullptr;  // since it ran last
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (waits_for_turn(spans[i]) || waits_for_memory(spans[i])) {
        if (waited == nullptr) waited = &spans[i];
      }
      if (!runs(spans[i]) || waited == nullptr) continue;
      std::optional<std::size_t> of;
      if (waits_for_memory(*waited) && waited->by != 0) of = lane_of(timeline, waited->by, gpu);
      const auto from = ended_before(ends, spans[i].from, of, lane);
      if (from && from->at >= waited->from) {
        timeline.arrows.push_back({gpu, from->lane, from->span, lane, i});
      }
      waited = nullptr;
    }
  }
}

// Begins or ends of running spans, in order, make spans of equal users.
void add_users(Timeline& timeline, std::size_t gpu) {
  struct Edge {
    std::int64_t at = 0;
    bool begins = false;
    std::size_t lane = 0;
  };
  std::vector<Edge> edges;
  for (const Place& place : running_on(timeline, gpu, &Span::from)) {
    const Span& span = timeline.lanes[place.lane].spans[place.span];
    edges.push_back({span.from, true, place.lane});
    edges.push_back({span.to, false, place.lane});
  }
  std::stable_sort(edges.begin(), edges.end(),
                   [](const Edge& a, const Edge& b) { return a.at < b.at; });
  std::set<std::size_t> running;
  auto& users = timeline.users[gpu];
  for (std::size_t i = 0; i < edges.size();) {
    const std::int64_t at = edges[i].at;
    for (; i < edges.size() && edges[i].at == at; ++i) {
      if (edges[i].begins) {
        running.insert(edges[i].lane);
      } else {
        running.erase(edges[i].lane);
      }
    }
    if (!users.empty() && users.back().to == 0) users.back().to = at;
    if (!running.empty()) users.push_back({at, 0, {running.begin(), running.end()}});
  }
}

// The samples of each lane and each GPU, within the time that is drawn.
void hand_out_samples(const Recording& recording, Timeline& timeline) {
  std::map<std::pair<JobKey, std::size_t>, std::size_t> places;
  for (std::size_t lane = 0; lane < timeline.lanes.size(); ++lane) {
    places[{timeline.lanes[lane].job, timeline.lanes[lane].gpu}] = lane;
  }
  for (const Sample& sample : recording.samples) {
    if (sample.at < timeline.from || sample.at > timeline.to || sample.gpu == 0) continue;
    const std::size_t gpu = sample.gpu - std::size_t{1};
    if (sample.job == 0 && gpu < timeline.samples.size()) timeline.samples[gpu].push_back(sample);
    const auto lane = places.find({sample.job, gpu});
    if (lane != places.end()) timeline.lanes[lane->second].samples.push_back(sample);
  }
}

std::string name_of(const Timeline& timeline, JobKey job) {
  const auto found = timeline.jobs.find(job);
  return found != timeline.jobs.end() ? found->second.name : fmt::format("job {}", job);
}

std::string with_job(const Timeline& timeline, const std::string& text, const Span& span) {
  return span.by != 0 ? text + " of " + name_of(timeline, span.by) : text;
}

std::string with_reason(const char* text, const Span& span) {
  if (span.code.reason.empty()) return text;
  const bool yields = span.code.reason == "yield";
  return std::string(text) + ": " + (yields ? "another job needs the memory" : span.code.reason);
}

std::string moving_text(const Span& span) {
  const std::string& reason = span.code.reason;
  if (reason == "returns") return "swapping in";
  if (reason != "move" && reason != "move prepares") return with_reason("swapping out", span);
  return span.value > 0 ? fmt::format("moving to GPU {}", span.value - 1) : "moving to another GPU";
}

}  // namespace

Timeline timeline_of(const Recording& recording) {
  Timeline out{.from = recording.from,
               .to = recording.to,
               .unix_seconds = recording.unix_seconds,
               .gpus = recording.gpus,
               .jobs = recording.jobs,
               .people = recording.people};
  out.users.resize(out.gpus.size());
  out.samples.resize(out.gpus.size());
  std::map<JobKey, LaneTeller::Events> events;
  for (const Event& event : recording.events) events[event.job].push_back(&event);
  std::set<std::pair<JobKey, unsigned>> sampled;
  for (const Sample& sample : recording.samples) sampled.emplace(sample.job, sample.gpu);
  for (std::size_t gpu = 0; gpu < out.gpus.size(); ++gpu) {
    for (const auto& [key, job] : recording.jobs) {
      LaneTeller teller(recording, key, gpu, events[key]);
      if (!teller.used() && sampled.count({key, static_cast<unsigned>(gpu + 1)}) == 0) continue;
      Lane lane = std::move(teller).lane();
      if (!lane.spans.empty()) out.lanes.push_back(std::move(lane));
    }
    name_turns(out, gpu);
    add_arrows(out, gpu);
    add_users(out, gpu);
  }
  hand_out_samples(recording, out);
  return out;
}

std::string label_of(const Timeline& timeline, const Span& span) {
  const auto who = timeline.people.find(span.person);
  const std::string person = who != timeline.people.end() ? " by " + who->second : std::string();
  switch (span.code.state) {
    case State::kPaused:
      return "paused" + person;
    case State::kHeld:
      if (span.code.reason == "limit" && span.value != 0) {
        return fmt::format("held: limit {:.3g}%", static_cast<double>(span.value) / 1e4);
      }
      return with_job(timeline, with_reason("held", span), span);
    case State::kWaiting:
      if (waits_for_turn(span)) return with_job(timeline, "waiting: turn", span);
      return "waiting: " +
             with_job(timeline, span.value != 0 ? human_bytes(span.value) : "memory", span);
    case State::kSwapped:
      return with_reason("swapped out", span) +
             (span.code.reason == "swap-out" ? person : std::string());
    case State::kMoving:
      return moving_text(span);
    case State::kIdle:
      return span.code.reason == "no CUDA" ? "no CUDA yet" : "idle";
    case State::kUnknown:
      return "begins";
    default:
      return with_reason(key_of(span.code.state), span);
  }
}

std::string label_of(const Timeline& timeline, const Users& users) {
  constexpr std::size_t kMostNames = 4;
  std::string out;
  for (std::size_t i = 0; i < users.lanes.size() && i < kMostNames; ++i) {
    out += (i > 0 ? " + " : "") + name_of(timeline, timeline.lanes[users.lanes[i]].job);
  }
  const std::size_t more = users.lanes.size() - std::min(users.lanes.size(), kMostNames);
  return more > 0 ? fmt::format("{} + {} more", out, more) : out;
}

}  // namespace switchyard::tools::trace
