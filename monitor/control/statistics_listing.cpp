#include "monitor/control/statistics_listing.h"

#include <fmt/format.h>

#include <algorithm>

#include "switchyard/collectives.h"
#include "switchyard/norms.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;

const char* source_of(const Progress::Process& process) {
  return process.source == Progress::Source::kCollectives ? "collectives" : "launches";
}

json age(Time at, Time now) { return seconds(std::max(now - at, Time{0})); }

json list_stall(const ToldStall& told, Time now) {
  const stalls::Stall& stall = told.stall;
  const char* kind = told.expected ? collective_key(told.expected->kind) : nullptr;
  const char* held = stalls::key_of(stall.hold);
  return {
      {"communicator", fmt::format("{:016x}", stall.communicator)},
      {"rank", stall.rank},
      {"pid", stall.pid},
      {"reason", stalls::key_of(stall.what)},
      {"operation", stall.number},
      {"kind", kind != nullptr ? json(kind) : json(nullptr)},
      {"bytes", told.expected ? json(told.expected->bytes) : json(nullptr)},
      {"waiting_ranks", stall.waiting},
      {"seconds", age(stall.since, now)},
      {"does", key_of(told.doing)},
      {"held_by", held != nullptr ? json(held) : json(nullptr)},
      {"held_seconds", held != nullptr ? age(stall.held_since, now) : json(nullptr)},
  };
}

json or_null(bool known, double value) { return known ? json(value) : json(nullptr); }

// Null: the job doesn't ask for it.
json list_noise(Monitor& monitor, const Job& job) {
  if (job.knobs.gradient_noise == 0) return nullptr;
  const GradientNoise::Report said = monitor.statistics().noise.of(monitor.registry(), job);
  json unmeasured = json::array();
  for (std::uint32_t why = 0; why < std::size(kUnmeasured); ++why) {
    if ((said.unmeasured >> why & 1) != 0) unmeasured.push_back(kUnmeasured[why].key);
  }
  const noise::Result result = said.result.value_or(noise::Result{});
  const bool known = said.result.has_value();
  return {
      {"state", key_of(said.state)},
      {"every", job.knobs.gradient_noise},
      {"communicator",
       said.communicator != 0 ? json(fmt::format("{:016x}", said.communicator)) : json(nullptr)},
      {"ranks", said.ranks},
      {"telling_ranks", said.telling},
      {"steps", result.steps},
      {"critical_batch_ratio", or_null(result.ratio.has_value(), result.ratio.value_or(0))},
      {"critical_batch_spread", or_null(result.ratio.has_value(), result.spread)},
      {"gradient_square", or_null(known, result.smoothed.gradient)},
      {"gradient_variance", or_null(known, result.smoothed.variance)},
      {"unmeasured", std::move(unmeasured)},
  };
}

}  // namespace

json list_progress(Monitor& monitor, const std::map<ClientId, Time>& late, ClientId id, Time now) {
  json out = {{"iterations_source", nullptr},     {"iterations", nullptr},
              {"iterations_counted_anew", 0},     {"iterations_per_second", nullptr},
              {"iterations_are_launches", false}, {"last_iteration_seconds", nullptr},
              {"late_seconds", nullptr}};
  const Progress::Process* process = monitor.statistics().progress.find(id);
  if (process == nullptr || !process->records) return out;
  const iterations::Finder& finder = process->finder;
  out["iterations_source"] = source_of(*process);
  out["iterations_counted_anew"] = finder.generation();
  if (!finder.known()) return out;
  out["iterations"] = finder.count();
  out["iterations_are_launches"] = process->counts_launches();
  if (const auto rate = finder.per_second(now)) out["iterations_per_second"] = *rate;
  if (!finder.marks().empty()) {
    out["last_iteration_seconds"] = age(finder.marks().back().at, now);
  }
  if (const auto found = late.find(id); found != late.end()) {
    out["late_seconds"] = seconds(found->second);
  }
  return out;
}

json list_communication(const std::map<ClientId, Communication::Known>& known, ClientId id) {
  json out = {{"communication_state", nullptr},
              {"communication_ratio", nullptr},
              {"communication_hidden_ratio", nullptr},
              {"communication_peers_ratio", nullptr}};
  const auto found = known.find(id);
  if (found == known.end()) return out;
  const auto& [state, shares, meetings] = found->second;
  if (const char* key = key_of(state)) out["communication_state"] = key;
  if (state != Communication::State::kTimed) return out;
  const double ratio = seconds(shares.communicating) / seconds(shares.span);
  out["communication_ratio"] = ratio;
  if (shares.known > Time{0}) {
    out["communication_hidden_ratio"] = 1 - seconds(shares.exposed) / seconds(shares.known);
  }
  if (meetings.took > Time{0}) {
    out["communication_peers_ratio"] = ratio * seconds(meetings.waited) / seconds(meetings.took);
  }
  return out;
}

json list_burst_waits(Monitor& monitor, const Job& job) {
  if (job.knobs.priority != Priority::kHigh) return nullptr;
  BurstWaits all;
  for (const auto& [gpu, sums] : monitor.statistics().counters.of(job.key)) all += sums.waits;
  json buckets = json::array();
  for (std::size_t i = 0; i < all.counts.size(); ++i) {
    const bool last = i == BurstWaits::kMostUs.size();
    buckets.push_back({{"most_seconds", last ? json() : json(BurstWaits::kMostUs[i] / 1e6)},
                       {"count", all.counts[i]}});
  }
  return {{"sum_seconds", static_cast<double>(all.sum_us) / 1e6}, {"buckets", std::move(buckets)}};
}

json list_stalls(Monitor& monitor, const Job& job, Time now) {
  json stalled = json::array();
  for (const ToldStall& each : monitor.statistics().stalls.of(job)) {
    if (stalled.size() == kMostListedStalls) break;
    stalled.push_back(list_stall(each, now));
  }
  return stalled;
}

void list_usage(Monitor& monitor, const Job& job, json& listing) {
  const Usage::Sums& sums = monitor.statistics().usage.of(job);
  json waits = json::object();
  for (const stalls::Hold reason : Usage::kReasons) {
    const auto found = sums.waits.find(reason);
    waits[stalls::key_of(reason)] = found != sums.waits.end() ? seconds(found->second) : 0.0;
  }
  waits["slices"] = sums.slices_seconds;
  json slices_of = json::array();
  for (const auto& [key, had] : sums.slices_of) {
    const Job* other = monitor.registry().find(key);
    if (other == nullptr) continue;
    slices_of.push_back({{"job", other->id}, {"name", other->name}, {"seconds", had}});
  }
  listing["gpu_seconds"] = sums.gpu_seconds;
  listing["gpu_seconds_estimated"] = sums.estimated_seconds;
  listing["waits_seconds"] = std::move(waits);
  listing["slices_of"] = std::move(slices_of);
  listing["gradient_noise"] = list_noise(monitor, job);
}

}  // namespace switchyard::monitor
