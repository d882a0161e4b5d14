#include "monitor/control/guard_listing.h"

#include <algorithm>
#include <string>

namespace switchyard::monitor {
namespace {

using guard::Measure;
using nlohmann::json;

const char* key_of(Measure measure) {
  switch (measure) {
    case Measure::kSlices:
      return "slices";
    case Measure::kCopies:
      return "copies";
    case Measure::kCeiling:
      return "ceiling";
    case Measure::kHold:
      break;
  }
  return "hold";
}

json list_answers(Monitor& monitor, const guard::State& state, Time now) {
  json out = json::array();
  for (const auto& [key, answer] : state.answers) {
    const Job* job = monitor.registry().find(key);
    if (job == nullptr) continue;
    json measures = json::array();
    for (const Measure each : guard::kMeasures) {
      if (answer.on.has(each)) measures.push_back(key_of(each));
    }
    out.push_back({{"job", job->id},
                   {"name", job->name},
                   {"measures", std::move(measures)},
                   {"seconds", seconds(std::max(now - answer.since, Time{0}))}});
  }
  return out;
}

json list_state(Monitor& monitor, const Job& job, Time now) {
  if (job.knobs.guard <= 0) return nullptr;
  const guard::State& state = monitor.guards().of(job);
  const auto usual = guard::usual_seconds(state);
  return {{"state", state_of(state)},
          {"iteration_seconds", usual ? json(*usual) : json(nullptr)},
          {"missing_ratio", std::max(state.missing, 0.0)},
          {"answers", list_answers(monitor, state, now)}};
}

}  // namespace

const char* state_of(const guard::State& state) {
  if (state.phase == guard::Phase::kTrying) return "trying";
  if (state.phase == guard::Phase::kEasing) return "easing";
  if (!state.answers.empty()) return "answering";
  return guard::usual_seconds(state) ? "quiet" : "learning";
}

void list_guard(Monitor& monitor, const Job& job, Time now, json& listing) {
  json guarded = json::array();
  for (const JobKey key : job.restraint->guarded) {
    const Job* other = monitor.registry().find(key);
    if (other != nullptr) guarded.push_back(other->name);
  }
  listing["guard_ratio"] = job.knobs.guard > 0 ? json(job.knobs.guard) : json(nullptr);
  listing["guard"] = list_state(monitor, job, now);
  listing["held_back_for"] = std::move(guarded);
}

}  // namespace switchyard::monitor
