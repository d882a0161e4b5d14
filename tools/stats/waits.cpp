#include "tools/stats/waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;
using Parts = std::vector<std::pair<std::string, double>>;

// Others that are named, at most.
constexpr std::size_t kMostNamed = 3;

// "a 67%, b 3%": each part of 1 or more percent, the largest first.
std::string percents(Parts parts, const std::string& after_first = "") {
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  double sum = 0;
  for (const auto& [name, part] : parts) {
    const double before = std::round(100 * sum);
    sum += part;
    const double percent = std::round(100 * std::min(sum, 1.0)) - before;
    if (part < 0.005 || percent < 1) continue;
    text += fmt::format("{}{} {:.0f}%{}", text.empty() ? "" : ", ", name, percent,
                        name == "slices" ? after_first : "");
  }
  return text;
}

std::string others_text(const json& job) {
  Parts others;
  for (const json& each : list_of(job, "slices_of")) {
    others.emplace_back(text_of(each, "name"), real_of(each, "ratio").value_or(0));
  }
  const std::size_t all = others.size();
  const std::size_t named = std::min(all, kMostNamed);
  std::partial_sort(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(named),
                    others.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  others.resize(named);
  const std::string text = percents(std::move(others));
  if (text.empty()) return "";
  return all > named ? fmt::format(" ({} and {} more)", text, all - named)
                     : fmt::format(" ({})", text);
}

}  // namespace

std::string waits_text(const json& job) {
  const auto found = job.find("waits_ratio");
  if (found == job.end() || !found->is_object()) return "-";
  Parts parts;
  for (const auto& [reason, share] : found->items()) {
    parts.emplace_back(reason, share.is_number() ? share.get<double>() : 0);
  }
  const std::string text = percents(std::move(parts), others_text(job));
  return text.empty() ? "-" : text;
}

}  // namespace switchyard::tools
