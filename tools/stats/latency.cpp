#include "tools/stats/latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

constexpr double kWidestBar = 40;

std::uint64_t more(std::uint64_t before, std::uint64_t after) {
  return after > before ? after - before : 0;
}

std::string most_text(const json& bucket) {
  const auto most = real_of(bucket, "most_seconds");
  return most ? fmt::format("up to {:.3g} ms", *most * 1000) : "longer";
}

}  // namespace

const char* const kLatencySees =
    "Waits are seen while a lower job works beside it, at most 8 of each 0.2 s and GPU. They "
    "contain the burst's own work.";

json rate_latency(const json& before, const json& after) {
  const auto now = after.find("burst_waits");
  if (now == after.end() || !now->is_object()) return nullptr;
  const auto was = before.find("burst_waits");
  const json earlier = was != before.end() && was->is_object() ? *was : json::object();
  const json& counted = list_of(earlier, "buckets");
  std::uint64_t waits = 0;
  json buckets = json::array();
  for (const json& bucket : list_of(*now, "buckets")) {
    const std::size_t at = buckets.size();
    const std::uint64_t count =
        more(at < counted.size() ? number_of(counted[at], "count") : 0, number_of(bucket, "count"));
    buckets.push_back({{"most_seconds", bucket.value("most_seconds", json())}, {"count", count}});
    waits += count;
  }
  const double sum =
      real_of(*now, "sum_seconds").value_or(0) - real_of(earlier, "sum_seconds").value_or(0);
  return {{"waits", waits}, {"sum_seconds", std::max(sum, 0.0)}, {"buckets", std::move(buckets)}};
}

std::string latency_text(const json& job) {
  const std::string name = text_of(job, "name");
  const auto latency = job.find("latency");
  if (latency == job.end() || !latency->is_object()) {
    return name + ": its waits are not counted: they are those of jobs of priority high\n";
  }
  const std::uint64_t waits = number_of(*latency, "waits");
  const double seconds = real_of(job, "interval_seconds").value_or(0);
  if (waits == 0) return fmt::format("{}: no burst was seen to wait in {:.1f} s\n", name, seconds);
  const double mean =
      real_of(*latency, "sum_seconds").value_or(0) / static_cast<double>(waits) * 1000;
  std::string text =
      fmt::format("{}: {} waits of bursts for the GPU in {:.1f} s, {:.3g} ms on average\n", name,
                  waits, seconds, mean);
  const json& buckets = list_of(*latency, "buckets");
  const auto counts = [](const json& bucket) { return number_of(bucket, "count") != 0; };
  const auto first = std::find_if(buckets.begin(), buckets.end(), counts);
  const auto last = std::find_if(buckets.rbegin(), buckets.rend(), counts).base();
  for (auto bucket = first; bucket < last; ++bucket) {
    const double part =
        static_cast<double>(number_of(*bucket, "count")) / static_cast<double>(waits);
    const auto width = static_cast<std::size_t>(std::ceil(part * kWidestBar));
    text += fmt::format("  {:<12} {:>8} {}\n", most_text(*bucket), number_of(*bucket, "count"),
                        std::string(width, '#'));
  }
  return text;
}

}  // namespace switchyard::tools
