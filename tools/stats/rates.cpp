#include "tools/stats/rates.h"

#include <algorithm>

#include "tools/base/output.h"
#include "tools/stats/communication.h"
#include "tools/stats/ended.h"
#include "tools/stats/latency.h"
#include "tools/stats/progress.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

// The member of `list` with the same `key`; null: there is none.
const json& same_of(const json& list, const char* key, const json& value) {
  static const json none;
  for (const json& each : list) {
    const auto found = each.find(key);
    if (found != each.end() && *found == value) return each;
  }
  return none;
}

const json& value_of(const json& object, const char* key) {
  static const json none;
  const auto found = object.find(key);
  return found != object.end() ? *found : none;
}

// Counts go back where a process has been replaced: then nothing is known.
double per_second(std::uint64_t before, std::uint64_t after, double seconds) {
  return after > before && seconds > 0 ? static_cast<double>(after - before) / seconds : 0;
}

double rate_of(const json& before, const json& after, const char* key, double seconds) {
  if (!before.is_object()) return 0;
  return per_second(number_of(before, key), number_of(after, key), seconds);
}

json rate_communicator(const json& before, const json& after, double seconds) {
  double operations = 0;
  double bytes = 0;
  std::uint64_t most = 0;
  const json& earlier = before.is_object() ? list_of(before, "ranks") : json::array();
  for (const json& rank : list_of(after, "ranks")) {
    const json& same = same_of(earlier, "pid", value_of(rank, "pid"));
    operations = std::max(operations, rate_of(same, rank, "launched", seconds) +
                                          rate_of(same, rank, "point_to_point", seconds));
    bytes = std::max(bytes, rate_of(same, rank, "bytes", seconds));
    most = std::max(most, number_of(rank, "launched"));
  }
  json behind = json::array();
  for (const json& rank : list_of(after, "ranks")) {
    const std::uint64_t launched = number_of(rank, "launched");
    if (launched == most) continue;
    behind.push_back({{"rank", value_of(rank, "rank")},
                      {"pid", number_of(rank, "pid")},
                      {"operations", most - launched},
                      {"last_seconds", value_of(rank, "last_seconds")}});
  }
  return {{"id", text_of(after, "id")},
          {"size", value_of(after, "size")},
          {"collectives_per_second", operations},
          {"bytes_per_second", bytes},
          {"behind", std::move(behind)}};
}

// By kind, of one process: of the object `key` that counts.
json rate_kinds(const char* key, const json& before, const json& after, double seconds) {
  json kinds = json::object();
  const json& earlier = before.is_object() ? value_of(before, key) : json();
  for (const auto& [kind, count] : value_of(after, key).items()) {
    const std::uint64_t was = earlier.is_object() ? number_of(earlier, kind.c_str()) : 0;
    const double rate =
        before.is_object() ? per_second(was, count.get<std::uint64_t>(), seconds) : 0;
    if (rate > 0) kinds[kind] = rate;
  }
  return kinds;
}

// On the monitor's clock, by which it counts all that it lists of the job. The client's own clock
// would include the time of the answers. `elsewhere`: where that is not known, because another
// monitor has begun, say.
double window_of(const json& before, const json& after, double elsewhere) {
  const auto from = real_of(before, "since_seconds");
  const auto to = real_of(after, "since_seconds");
  return from && to && *to >= *from ? *to - *from : elsewhere;
}

json rate_job(const json& before, const json& after, double elsewhere) {
  const double seconds = window_of(before, after, elsewhere);
  json communicators = json::array();
  const json& earlier = list_of(before, "communicators");
  double bytes = 0;
  for (const json& each : list_of(after, "communicators")) {
    const json& same = same_of(earlier, "id", value_of(each, "id"));
    communicators.push_back(rate_communicator(same, each, seconds));
    bytes += communicators.back()["bytes_per_second"].get<double>();
  }
  json kinds = json::object();
  json kind_bytes = json::object();
  double operations = 0;
  for (const json& process : list_of(after, "processes")) {
    const json& same = same_of(list_of(before, "processes"), "pid", value_of(process, "pid"));
    json its = rate_kinds("collectives", same, process, seconds);
    double all = 0;
    for (const json& rate : its) all += rate.get<double>();
    if (all <= operations) continue;
    operations = all;
    kinds = std::move(its);
    kind_bytes = rate_kinds("collective_bytes", same, process, seconds);
  }
  json out = {{"job", text_of(after, "job")},
              {"name", text_of(after, "name")},
              {"ended", has_ended(after)},
              {"interval_seconds", seconds},
              {"collectives_per_second", operations},
              {"bytes_per_second", bytes},
              {"kinds_per_second", std::move(kinds)},
              {"kind_bytes_per_second", std::move(kind_bytes)},
              {"communicators", std::move(communicators)}};
  out.update(rate_progress(before, after, seconds));
  out.update(rate_communication(after));
  out["latency"] = rate_latency(before, after);
  return out;
}

}  // namespace

json rates(const json& before, const json& after, double seconds) {
  json jobs = json::array();
  for (const json& job : list_of(after, "jobs")) {
    const json& same = same_of(list_of(before, "jobs"), "job", value_of(job, "job"));
    if (same.is_object()) jobs.push_back(rate_job(same, job, seconds));
  }
  return {{"monitor", value_of(after, "monitor")},
          {"interval_seconds", seconds},
          {"jobs", std::move(jobs)}};
}

}  // namespace switchyard::tools
