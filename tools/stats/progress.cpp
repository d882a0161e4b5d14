#include "tools/stats/progress.h"

#include <algorithm>
#include <optional>

#include "tools/base/output.h"
#include "tools/stats/communication.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

const json* process_of(const json& job, std::uint64_t pid) {
  for (const json& each : list_of(job, "processes")) {
    if (number_of(each, "pid") == pid) return &each;
  }
  return nullptr;
}

// When the last iteration began, on the clock of the job's age.
std::optional<double> last_of(const json& job, const json& process) {
  const auto since = real_of(job, "since_seconds");
  const auto ago = real_of(process, "last_iteration_seconds");
  return since && ago ? std::optional(*since - *ago) : std::nullopt;
}

struct Rate {
  std::optional<double> per_second;
  bool estimated = false;  // it is the monitor's, of the last ten seconds
};

// Where no iteration began in the interval: 0 if two should have, else what is known from before.
Rate without_iterations(std::optional<double> known, double seconds) {
  if (known && *known * seconds >= 2) return {0.0, false};
  return {known, known.has_value()};
}

Rate iterations_of(const json& before, const json& after, const json& process, double seconds) {
  const auto known = real_of(process, "iterations_per_second");
  const json* earlier = process_of(before, number_of(process, "pid"));
  if (earlier == nullptr || number_of(*earlier, "iterations_counted_anew") !=
                                number_of(process, "iterations_counted_anew")) {
    return {known, known.has_value()};
  }
  const std::uint64_t from = number_of(*earlier, "iterations");
  const std::uint64_t to = number_of(process, "iterations");
  const auto began = last_of(before, *earlier);
  const auto ended = last_of(after, process);
  if (to <= from) return without_iterations(known, seconds);
  if (!began || !ended || *ended <= *began) return {known, known.has_value()};
  return {static_cast<double>(to - from) / (*ended - *began), false};
}

// The rank that launches the same collectives last; null: nobody knows, or there is one alone.
json slowest_of(const json& job) {
  const json* slowest = nullptr;
  double most = -1;
  for (const json& each : list_of(job, "processes")) {
    const auto late = real_of(each, "late_seconds");
    if (!late || *late <= most) continue;
    most = *late;
    slowest = &each;
  }
  if (slowest == nullptr) return nullptr;
  const std::uint64_t pid = number_of(*slowest, "pid");
  return {{"rank", rank_of(job, pid)}, {"pid", pid}, {"late_seconds", most}};
}

// Of the waits for slices, whose they were.
json shares_of_others(const json& before, const json& after, double seconds) {
  json out = json::array();
  for (const json& each : list_of(after, "slices_of")) {
    double was = 0;
    for (const json& earlier : list_of(before, "slices_of")) {
      if (text_of(earlier, "job") == text_of(each, "job"))
        was = real_of(earlier, "seconds").value_or(0);
    }
    const double came = real_of(each, "seconds").value_or(0) - was;
    if (came <= 0 || seconds <= 0) continue;
    out.push_back({{"job", text_of(each, "job")},
                   {"name", text_of(each, "name")},
                   {"ratio", std::min(came / seconds, 1.0)}});
  }
  return out;
}

json share_of_waits(const json& before, const json& after, double seconds) {
  json out = json::object();
  const auto waits = after.find("waits_seconds");
  const auto earlier = before.find("waits_seconds");
  if (waits == after.end() || !waits->is_object()) return out;
  for (const auto& [reason, sum] : waits->items()) {
    const double was = earlier != before.end() ? real_of(*earlier, reason.c_str()).value_or(0) : 0;
    const double now = sum.is_number() ? sum.get<double>() : 0;
    out[reason] = seconds > 0 ? std::clamp((now - was) / seconds, 0.0, 1.0) : 0.0;
  }
  return out;
}

// What copies moved on all its GPUs, per second; 0 where a process has ended and took its count.
double copied_of(const json& before, const json& after, const char* key, double seconds) {
  double out = 0;
  for (const json& gpu : list_of(after, "gpus")) out += real_of(gpu, key).value_or(0);
  for (const json& gpu : list_of(before, "gpus")) out -= real_of(gpu, key).value_or(0);
  return seconds > 0 ? std::max(out / seconds, 0.0) : 0;
}

}  // namespace

json rate_progress(const json& before, const json& after, double seconds) {
  Rate best;
  json source = nullptr;
  bool launches = false;
  for (const json& process : list_of(after, "processes")) {
    const Rate rate = iterations_of(before, after, process, seconds);
    if (!rate.per_second || (best.per_second && *rate.per_second <= *best.per_second)) continue;
    best = rate;
    launches = truth_of(process, "iterations_are_launches");
    source = text_of(process, "iterations_source");
  }
  const auto came = [&](const char* key) {
    return std::max(real_of(after, key).value_or(0) - real_of(before, key).value_or(0), 0.0);
  };
  const auto stalls = after.find("stalls");
  const auto guard = after.find("guard");
  const auto noise = after.find("gradient_noise");
  return {
      {"iterations_per_second", best.per_second ? json(*best.per_second) : json(nullptr)},
      {"iterations_are_launches", launches},
      {"iterations_estimated", best.estimated},
      {"iterations_source", source},
      {"slowest_rank", slowest_of(after)},
      {"gpu_seconds", came("gpu_seconds")},
      {"gpu_seconds_estimated", came("gpu_seconds_estimated")},
      {"copied_link_bytes_per_second", copied_of(before, after, "copied_link_bytes", seconds)},
      {"copied_device_bytes_per_second", copied_of(before, after, "copied_device_bytes", seconds)},
      {"guard", guard != after.end() ? *guard : json(nullptr)},
      {"held_back_for", list_of(after, "held_back_for")},
      {"waits_ratio", share_of_waits(before, after, seconds)},
      {"slices_of", shares_of_others(before, after, seconds)},
      {"stalls", stalls != after.end() ? *stalls : json::array()},
      {"gradient_noise", noise != after.end() ? *noise : json(nullptr)}};
}

bool still_measuring(const json& job) {
  bool measuring = false;
  for (const json& process : list_of(job, "processes")) {
    const bool works = text_of(job, "state") == "running" && !truth_of(process, "observer");
    const bool known = real_of(process, "iterations_per_second") &&
                       text_of(process, "communication_state") != "measuring";
    measuring = measuring || (works && !known);
  }
  return measuring;
}

}  // namespace switchyard::tools
