#include "tools/report/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tools/base/estimates.h"
#include "tools/base/output.h"
#include "tools/base/table.h"
#include "tools/report/span.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

constexpr double kGiBHour = 3600.0 * (1u << 30);
// A smaller part of a sum is not worth a mark.
constexpr double kWorthAMark = 0.005;

// A job's time on its GPUs, in what a person wants to know.
struct Times {
  double waited = 0, paused = 0, idle = 0;
};

Times times_of(const json& row) {
  Times out;
  for (const json& each : list_of(row, "times")) {
    const double seconds = real_of(each, "seconds").value_or(0);
    const std::string state = text_of(each, "state", "");
    const bool no_cuda = text_of(each, "reason", "") == "no CUDA";
    if (state == "idle" && !no_cuda) out.idle += seconds;
    if (state == "paused") out.paused += seconds;
    if (state == "held" || state == "waiting" || state == "swapped" || state == "moving") {
      out.waited += seconds;
    }
  }
  return out;
}

// "59 s", "3 min", "1.5 h", "250 h"
std::string short_time(double seconds) {
  if (seconds < 59.5) return fmt::format("{:.0f} s", seconds);
  if (seconds < 3570) return fmt::format("{:.0f} min", seconds / 60);
  const double hours = seconds / 3600;
  return hours < 99.95 ? fmt::format("{:.1f} h", hours) : fmt::format("{:.0f} h", hours);
}

std::string gpu_time(const json& row) {
  const double all = real_of(row, "gpu_seconds").value_or(0);
  const double estimated = real_of(row, "gpu_seconds_estimated").value_or(0);
  return (estimated > all * kWorthAMark ? "~" : "") + short_time(all);
}

std::string time_or_dash(const json& row, const char* key) {
  const auto seconds = real_of(row, key);
  return seconds ? short_time(*seconds) : "-";
}

// "+": it lives; "?": nobody saw its end.
std::string lived(const json& row) {
  const std::string exit = text_of(row, "exit", "+");
  return time_or_dash(row, "lived_seconds") + (exit == "+" ? "+" : exit == "lost" ? "?" : "");
}

std::string gib_hours(const json& row, const char* key) {
  return fmt::format("{:.1f}", real_of(row, key).value_or(0) / kGiBHour);
}

std::string idle_memory(const json& row) { return gib_hours(row, "memory_idle_byte_seconds"); }

// Names may have 63 characters, and a line has 80 columns.
std::string cut(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "~";
}

using Rows = std::vector<const json*>;

// Most GPU time first; days in their order.
Rows ordered(const std::string& by, const json& rows) {
  if (by == "day") {
    Rows out;
    for (const json& row : rows) out.push_back(&row);
    std::stable_sort(out.begin(), out.end(), [](const json* a, const json* b) {
      return text_of(*a, "day") < text_of(*b, "day");
    });
    return out;
  }
  // Each is looked up once, not with each comparison.
  std::vector<std::pair<double, const json*>> keyed;
  for (const json& row : rows) {
    keyed.emplace_back(by == "gpu" ? static_cast<double>(number_of(row, "index"))
                                   : -real_of(row, "gpu_seconds").value_or(0),
                       &row);
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Rows out;
  for (const auto& [key, row] : keyed) out.push_back(row);
  return out;
}

Table table_of_jobs(const Rows& rows) {
  using enum Table::Align;
  Table table({{"JOB"},
               {"USER"},
               {"STARTED"},
               {"LIVED", kRight},
               {"GPU TIME", kRight},
               {"WAITED", kRight},
               {"IDLE", kRight},
               {"PEAK MEM", kRight}});
  for (const json* row : rows) {
    const Times times = times_of(*row);
    const std::string started =
        minute_text(static_cast<std::int64_t>(number_of(*row, "started_unix_seconds")));
    table.add({cut(text_of(*row, "name"), 10), cut(text_of(*row, "user"), 8), started.substr(5),
               lived(*row), gpu_time(*row), short_time(times.waited + times.paused),
               short_time(times.idle), human_bytes(number_of(*row, "memory_peak_bytes"))});
  }
  return table;
}

// Users, or the jobs of Slurm with their users.
Table table_of_users(const std::string& by, const Rows& rows) {
  using enum Table::Align;
  const bool slurm = by == "slurmjob";
  std::vector<Table::Column> columns;
  if (slurm) columns.push_back({"SLURM JOB"});
  columns.push_back({"USER"});
  if (!slurm) columns.push_back({"JOBS", kRight});
  for (const char* heading : {"GPU TIME", "WAITED", "PAUSED", "IDLE", "IDLE MEM", "PEAK MEM"}) {
    columns.push_back({heading, kRight});
  }
  Table table(columns);
  for (const json* row : rows) {
    const Times times = times_of(*row);
    std::vector<Table::Cell> cells;
    if (slurm) cells.emplace_back(text_of(*row, "slurm_job"));
    cells.emplace_back(cut(text_of(*row, "user"), slurm ? 8 : 16));
    if (!slurm) cells.emplace_back(std::to_string(number_of(*row, "jobs")));
    cells.emplace_back(gpu_time(*row));
    cells.emplace_back(short_time(times.waited));
    cells.emplace_back(short_time(times.paused));
    cells.emplace_back(short_time(times.idle));
    cells.emplace_back(idle_memory(*row));
    cells.emplace_back(human_bytes(number_of(*row, "memory_peak_bytes")));
    table.add(std::move(cells));
  }
  return table;
}

// GPUs and days: what the jobs had of them, and what nobody had.
Table table_of_places(const std::string& by, const Rows& rows) {
  using enum Table::Align;
  const bool gpu = by == "gpu";
  std::vector<Table::Column> columns{{gpu ? "GPU" : "DAY"}};
  if (gpu) columns.push_back({"NAME"});
  for (const char* heading : {"JOBS", "GPU TIME", "NO JOB'S", "OF IT", "WAITED", "IDLE MEM"}) {
    columns.push_back({heading, kRight});
  }
  Table table(columns);
  for (const json* row : rows) {
    const auto idle = real_of(*row, "idle_seconds");
    const double observed = real_of(*row, "observed_seconds").value_or(0);
    std::vector<Table::Cell> cells;
    cells.emplace_back(gpu ? std::to_string(number_of(*row, "index")) : text_of(*row, "day"));
    if (gpu) cells.emplace_back(cut(text_of(*row, "name"), 20));
    cells.emplace_back(std::to_string(number_of(*row, "jobs")));
    cells.emplace_back(gpu_time(*row));
    cells.emplace_back(time_or_dash(*row, "idle_seconds"));
    cells.emplace_back(idle && observed > 0 ? fmt::format("{:.0f}%", *idle / observed * 100) : "-");
    cells.emplace_back(short_time(times_of(*row).waited));
    cells.emplace_back(idle_memory(*row));
    table.add(std::move(cells));
  }
  return table;
}

// Processes that had no job.
std::string table_of_unmanaged(const std::string& by, const json& rows) {
  using enum Table::Align;
  const bool users = by == "job" || by == "user";
  Table table({{users         ? "USER"
                : by == "gpu" ? "GPU"
                              : "DAY"},
               {"GPU TIME", kRight},
               {"MEMORY", kRight},
               {"IDLE MEM", kRight},
               {"PEAK MEM", kRight}});
  for (const json& row : rows) {
    const std::string whose = users         ? cut(text_of(row, "user", "unknown"), 16)
                              : by == "gpu" ? std::to_string(number_of(row, "index"))
                                            : text_of(row, "day");
    table.add({whose, "~" + time_or_dash(row, "gpu_seconds_estimated"),
               gib_hours(row, "memory_byte_seconds"), gib_hours(row, "memory_idle_byte_seconds"),
               human_bytes(number_of(row, "memory_peak_bytes"))});
  }
  return "\nunmanaged processes\n" + table.render();
}

std::string csv_cell(const json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  std::string out = "\"";
  for (const char c : value.get<std::string>()) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

// Keys of the listing, in the order of the columns.
std::vector<const char*> csv_keys(const std::string& by) {
  std::vector<const char*> keys;
  if (by == "job") {
    keys = {"job",
            "name",
            "user",
            "uid",
            "command",
            "started_unix_seconds",
            "ended_unix_seconds",
            "exit",
            "lived_seconds",
            "slurm_job",
            "exit_code",
            "exit_signal"};
  } else if (by == "slurmjob") {
    keys = {"slurm_job", "user", "uid", "jobs"};
  } else if (by == "user") {
    keys = {"user", "uid", "jobs"};
  } else if (by == "gpu") {
    keys = {"uuid", "index", "name", "jobs", "observed_seconds", "idle_seconds"};
  } else {
    keys = {"day", "jobs", "observed_seconds", "idle_seconds"};
  }
  for (const char* key : {"gpu_seconds", "gpu_seconds_estimated", "memory_mean_bytes",
                          "memory_peak_bytes", "memory_byte_seconds", "memory_idle_byte_seconds",
                          "copied_bytes", "swapped_bytes", "launches", "refusals"}) {
    keys.push_back(key);
  }
  return keys;
}

constexpr const char* kStates[] = {"running", "idle",   "held",    "waiting",   "paused",
                                   "swapped", "moving", "stopped", "unmanaged", "unknown"};

double in_state(const json& row, const char* state) {
  double sum = 0;
  for (const json& each : list_of(row, "times")) {
    if (text_of(each, "state", "") == state) sum += real_of(each, "seconds").value_or(0);
  }
  return sum;
}

}  // namespace

std::string report_table(const std::string& by, const json& reply) {
  const Rows rows = ordered(by, list_of(reply, "rows"));
  const auto point = [&](const char* key) {
    return minute_text(static_cast<std::int64_t>(number_of(reply, key)));
  };
  const std::string span =
      fmt::format("{} to {}\n", point("since_unix_seconds"), point("until_unix_seconds"));
  const json& unmanaged = list_of(reply, "unmanaged");
  if (rows.empty() && unmanaged.empty()) return span + "nothing was recorded in this time\n";
  std::string out = span;
  if (!rows.empty()) {
    const bool users = by == "user" || by == "slurmjob";
    out += (by == "job" ? table_of_jobs(rows)
            : users     ? table_of_users(by, rows)
                        : table_of_places(by, rows))
               .render();
  }
  return unmanaged.empty() ? out : out + table_of_unmanaged(by, unmanaged);
}

std::string report_csv(const std::string& by, const json& rows, const json& unmanaged) {
  const auto keys = csv_keys(by);
  std::string out;
  for (const char* key : keys) out += fmt::format("{}{}", out.empty() ? "" : ",", key);
  for (const char* state : kStates) out += fmt::format(",{}_seconds", state);
  out += ",managed\n";
  Rows all = ordered(by, rows);
  const std::size_t managed = all.size();
  for (const json& row : unmanaged) all.push_back(&row);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const json* row = all[i];
    std::string line;
    for (const char* key : keys) {
      if (key != keys.front()) line += ',';
      if (row->contains(key)) line += csv_cell((*row)[key]);
    }
    for (const char* state : kStates) line += fmt::format(",{}", in_state(*row, state));
    out += line + (i < managed ? ",true\n" : ",false\n");
  }
  return out;
}

void add_error(json& row) {
  row["gpu_seconds_error"] = error_of_estimate(real_of(row, "gpu_seconds_estimated").value_or(0));
}

std::string bill_text(const json& row) {
  const Times times = times_of(row);
  const auto code = real_of(row, "exit_code");
  const auto signal = real_of(row, "exit_signal");
  const std::string end = code     ? fmt::format("; exit code {:.0f}", *code)
                          : signal ? fmt::format("; ended by signal {:.0f}", *signal)
                                   : "";
  return fmt::format(
      "job {}: {} on the GPU, waited {}, paused {}, idle {}; memory {} at most, {} on average{}",
      text_of(row, "name"), gpu_time(row), short_time(times.waited), short_time(times.paused),
      short_time(times.idle), human_bytes(number_of(row, "memory_peak_bytes")),
      human_bytes(number_of(row, "memory_mean_bytes")), end);
}

}  // namespace switchyard::tools
