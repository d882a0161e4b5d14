#include "tools/ps/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/base/estimates.h"
#include "tools/base/move.h"
#include "tools/base/output.h"
#include "tools/base/selector.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;
using Cell = Table::Cell;

// Calls `each` with the GPU of the row, or with all that the job sees.
template <typename Each>
void for_gpus(const Row& row, Each each) {
  if (row.gpu != nullptr) return each(*row.gpu);
  for (const json& gpu : list_of(*row.job, "gpus")) each(gpu);
}

std::uint64_t sum_of(const Row& row, const char* key) {
  std::uint64_t sum = 0;
  for_gpus(row, [&](const json& gpu) { sum += number_of(gpu, key); });
  return sum;
}

bool is_placed(const Row& row) { return row.gpu != nullptr || !list_of(*row.job, "gpus").empty(); }

bool is_anywhere(const Row& row) {
  bool on = false;
  for_gpus(row, [&](const json& gpu) { on = on || is_on(gpu); });
  return on;
}

Cell name(const Row& row) { return text_of(*row.job, "name", text_of(*row.job, "job")); }
Cell id(const Row& row) { return text_of(*row.job, "job"); }
Cell user(const Row& row) { return text_of(*row.job, "user"); }
Cell container(const Row& row) {
  return text_of(*row.job, "container").substr(0, kContainerDigits);
}
Cell pod(const Row& row) { return text_of(*row.job, "pod"); }
Cell unit(const Row& row) { return text_of(*row.job, "unit"); }
Cell island(const Row& row) { return text_of(*row.job, "island"); }
Cell priority(const Row& row) { return text_of(*row.job, "priority"); }

Cell gpu(const Row& row) {
  std::vector<std::uint64_t> numbers;
  for_gpus(row, [&](const json& each) {
    if (row.gpu != nullptr || is_on(each)) numbers.push_back(number_of(each, "index"));
  });
  std::sort(numbers.begin(), numbers.end());
  return compact_numbers(numbers);
}

Cell uuid(const Row& row) {
  std::string text;
  for_gpus(row, [&](const json& each) {
    if (row.gpu != nullptr || is_on(each))
      text += (text.empty() ? "" : ",") + text_of(each, "uuid");
  });
  return text.empty() ? "-" : text;
}

Tone tone_of(const std::string& state) {
  if (state == "running") return Tone::kGood;
  return state == "idle" ? Tone::kFaint : Tone::kWarning;
}

// "moving out 42%", "held: paused by root, 42s left", "stalled: rank 1"
Cell state(const Row& row) {
  const json& from = row.gpu != nullptr ? *row.gpu : *row.job;
  const std::string key = text_of(from, "state");
  const std::string reason = text_of(from, "state_reason", "");
  std::string text = text_of(from, "state_text", reason.empty() ? key : key + ": " + reason);
  const json& stalls = list_of(*row.job, "stalls");
  if (!stalls.empty() && (key == "running" || key == "idle")) {
    return {fmt::format("stalled: rank {}", number_of(stalls[0], "rank")), Tone::kBad};
  }
  const auto move = key == "moving" ? move_of(*row.job) : std::nullopt;
  if (move) text += fmt::format(" {}%", move->percent());
  const auto left = key == "paused" ? real_of(*row.job, "pause_seconds") : std::nullopt;
  if (left) text += fmt::format(", {} left", compact_seconds(*left));
  return {text, tone_of(key)};
}

Cell reason(const Row& row) {
  return text_of(row.gpu != nullptr ? *row.gpu : *row.job, "state_reason");
}

Cell gpu_percent(const Row& row) {
  const auto share = share_of(row);
  if (!share) return "-";
  return fmt::format("{}{:.0f}", share->estimated ? "~" : "", 100 * share->ratio);
}

Cell error_percent(const Row& row) {
  const auto share = share_of(row);
  if (!share) return "-";
  return fmt::format("{:.0f}", share->estimated ? 100 * error_of_estimate(share->ratio) : 0);
}

Cell asked_percent(const Row& row) {
  double most = -1;
  for_gpus(row, [&](const json& each) {
    most = std::max(most, real_of(each, "share_asked_ratio").value_or(-1));
  });
  return most < 0 ? "-" : fmt::format("{:.0f}", 100 * most);
}

std::uint64_t quota_of(const Row& row) {
  const std::uint64_t on_gpus = sum_of(row, "memory_quota_bytes");
  return on_gpus != 0 ? on_gpus : number_of(*row.job, "memory_quota_bytes");
}

Cell memory(const Row& row) {
  const auto [used, quota] = memory_of(row);
  // A part of a GPU is so many bytes once there is a GPU.
  const double part = real_of(*row.job, "memory_quota_ratio").value_or(0);
  return fmt::format("{}/{}", is_anywhere(row) ? compact_bytes(used) : "-",
                     quota != 0 ? compact_bytes(quota)
                     : part > 0 ? fmt::format("{:.0f}%", 100 * part)
                                : "-");
}

Cell resident(const Row& row) {
  if (!truth_of(*row.job, "swappable") || !is_placed(row)) return "-";
  return compact_bytes(sum_of(row, "memory_resident_bytes"));
}

Cell limit(const Row& row) { return percent_of(*row.job, "limit_ratio"); }
Cell weight(const Row& row) {
  const auto value = real_of(*row.job, "share_weight");
  return value ? fmt::format("{:.3g}", *value) : "-";
}

// The time left until its deadline; late ones count upwards.
Cell deadline(const Row& row) {
  const auto left = real_of(*row.job, "deadline_seconds");
  if (!left) return "-";
  return *left < 0 ? compact_seconds(-*left) + " late" : compact_seconds(*left);
}

// Of the first GPU where the driver was asked; '!': it refused.
Cell slice(const Row& row) {
  std::string text = "-";
  for_gpus(row, [&](const json& each) {
    const std::string status = text_of(each, "slice_status", "none");
    if (text != "-" || status == "none") return;
    text = human_micros(number_of(each, "slice_in_force_us")) + (status == "refused" ? " !" : "");
  });
  return text;
}

Cell launches(const Row& row) {
  if (!is_placed(row)) return "-";
  return std::to_string(sum_of(row, "launches") + sum_of(row, "graph_launches"));
}

Cell refused(const Row& row) {
  return is_placed(row) ? std::to_string(sum_of(row, "refusals")) : "-";
}

// Those of its largest communicator, and how many there are: "0/2" or "2,3/4".
Cell ranks(const Row& row) {
  const json& communicators = list_of(*row.job, "communicators");
  if (communicators.empty()) return "-";
  std::string text;
  for (const json& rank : list_of(communicators[0], "ranks")) {
    if (row.gpu != nullptr && text_of(rank, "gpu_uuid") != text_of(*row.gpu, "uuid")) continue;
    const auto number = rank.find("rank");
    const bool known = number != rank.end() && number->is_number_unsigned();
    text +=
        (text.empty() ? "" : ",") + (known ? std::to_string(number->get<std::uint64_t>()) : "?");
  }
  return text.empty() ? "-" : fmt::format("{}/{}", text, number_of(communicators[0], "size"));
}

Cell age(const Row& row) { return compact_seconds(real_of(*row.job, "since_seconds").value_or(0)); }

Cell pids(const Row& row) {
  constexpr std::size_t kShown = 4;
  const json& processes = list_of(*row.job, "processes");
  std::string text;
  for (std::size_t i = 0; i < std::min(processes.size(), kShown); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(number_of(processes[i], "pid"));
  }
  if (processes.size() > kShown) text += fmt::format(" +{}", processes.size() - kShown);
  return text.empty() ? "-" : text;
}

// A command line is for the job's owner and root; the name of its process is for all.
Cell command(const Row& row) {
  const json& processes = list_of(*row.job, "processes");
  return text_of(*row.job, "command", processes.empty() ? "-" : text_of(processes[0], "name"));
}

using enum Table::Align;
constexpr Field kFields[] = {
    {"name", "NAME", kLeft, &name, 12, 6},
    {"id", "ID", kLeft, &id},
    {"user", "USER", kLeft, &user, 8, 4},
    {"container", "CONTAINER", kLeft, &container},
    {"pod", "POD", kLeft, &pod},
    {"unit", "UNIT", kLeft, &unit},
    {"island", "ISLAND", kLeft, &island},
    {"gpu", "GPU", kLeft, &gpu, 7, 3},
    {"uuid", "UUID", kLeft, &uuid},
    {"priority", "PRIO", kLeft, &priority},
    {"state", "STATE", kLeft, &state, 18, 9},
    {"reason", "REASON", kLeft, &reason},
    {"gpu_percent", "GPU%", kRight, &gpu_percent},
    {"error_percent", "ERR%", kRight, &error_percent},
    {"asked_percent", "ASKED%", kRight, &asked_percent},
    {"weight", "WEIGHT", kRight, &weight},
    {"limit", "LIMIT", kRight, &limit},
    {"deadline", "DEADLINE", kRight, &deadline},
    {"memory", "MEM/QUOTA", kRight, &memory},
    {"resident", "RESIDENT", kRight, &resident},
    {"slice", "SLICE", kRight, &slice},
    {"launches", "LAUNCHES", kRight, &launches},
    {"refused", "REFUSED", kRight, &refused},
    {"ranks", "RANKS", kRight, &ranks},
    {"age", "AGE", kRight, &age},
    {"pids", "PIDS", kLeft, &pids},
    {"command", "COMMAND", kLeft, &command, 10, 0},
};

Fields fields_of(std::initializer_list<const char*> names) {
  Fields fields;
  for (const char* each : names) fields.push_back(field_named(each));
  return fields;
}

}  // namespace

std::optional<Share> share_of(const Row& row) {
  Share out;
  int known = 0;
  for_gpus(row, [&](const json& each) {
    const auto got = real_of(each, "share_got_ratio");
    if (!got || (row.gpu == nullptr && !is_on(each))) return;
    out.ratio += *got;
    ++known;
    out.estimated = out.estimated || truth_of(each, "share_got_estimated");
  });
  if (known == 0) return std::nullopt;
  out.ratio /= known;
  return out;
}

MemoryUse memory_of(const Row& row) {
  MemoryUse out;
  for_gpus(row, [&](const json& each) {
    out.used += number_of(each, "memory_used_bytes");
    // A quota holds for each GPU.
    if (row.gpu != nullptr || is_on(each)) out.quota += number_of(each, "memory_quota_bytes");
  });
  if (out.quota == 0) out.quota = quota_of(row);
  return out;
}

const Field* field_named(const std::string& wanted) {
  for (const Field& field : kFields) {
    if (wanted == field.name) return &field;
  }
  return nullptr;
}

std::vector<std::string> field_names() {
  std::vector<std::string> names;
  for (const Field& field : kFields) names.emplace_back(field.name);
  return names;
}

const Fields& default_fields() {
  static const Fields fields = fields_of(
      {"name", "user", "gpu", "priority", "state", "gpu_percent", "memory", "age", "command"});
  return fields;
}

const Fields& wide_fields() {
  static const Fields fields = fields_of(
      {"name",     "id",          "user",          "container",     "gpu",      "priority",
       "state",    "gpu_percent", "error_percent", "asked_percent", "weight",   "limit",
       "deadline", "memory",      "resident",      "slice",         "launches", "refused",
       "ranks",    "age",         "pids",          "command"});
  return fields;
}

std::string compact_bytes(std::uint64_t bytes) {
  static constexpr char kUnits[] = "BKMGTPE";
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.5 && kUnits[unit + 1] != '\0') {
    value /= 1024;
    ++unit;
  }
  if (bytes == 0) return "0";
  const std::string text = fmt::format("{:.{}f}", value, unit == 0 || value >= 99.95 ? 0 : 1);
  const bool whole = text.size() > 2 && text.substr(text.size() - 2) == ".0";
  return (whole ? text.substr(0, text.size() - 2) : text) + kUnits[unit];
}

std::string compact_seconds(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds < 0 ? 0 : seconds);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m", whole / 60);
  if (whole < 86400) return fmt::format("{}h{:02}", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d{:02}", whole / 86400, whole / 3600 % 24);
}

std::string compact_numbers(const std::vector<std::uint64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (last > i) text += (last == i + 1 ? "," : "-") + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text.empty() ? "-" : text;
}

}  // namespace switchyard::tools
