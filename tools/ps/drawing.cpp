#include "tools/ps/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "tools/base/output.h"
#include "tools/base/selector.h"
#include "tools/base/terminal.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

// The first is cut first.
constexpr const char* kCut[] = {"command",       "kinds", "slowest", "behind", "waits",
                                "communication", "name",  "state",   "user",   "gpu"};

struct Widths {
  std::vector<std::size_t> of;
  std::size_t gap = 2;

  std::size_t all() const {
    std::size_t sum = of.empty() ? 0 : gap * (of.size() - 1);
    for (const std::size_t each : of) sum += each;
    return sum;
  }
};

Widths natural(const Fields& fields, const Cells& rows) {
  Widths widths;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    std::size_t width = width_of(fields[i]->heading);
    for (const auto& row : rows) width = std::max(width, width_of(row[i].text));
    widths.of.push_back(width);
  }
  return widths;
}

void shrink(const Fields& fields, std::size_t columns, bool hard, Widths& widths) {
  for (const char* name : kCut) {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (fields[i]->name != std::string_view(name) || widths.all() <= columns) continue;
      const std::size_t least = hard ? fields[i]->hard_least : fields[i]->soft_least;
      const std::size_t excess = widths.all() - columns;
      if (widths.of[i] > least) widths.of[i] -= std::min(excess, widths.of[i] - least);
    }
  }
}

void fit(const Fields& fields, std::size_t columns, Widths& widths) {
  if (columns == 0) return;
  shrink(fields, columns, false, widths);
  if (widths.all() > columns) widths.gap = 1;
  if (widths.all() > columns) shrink(fields, columns, true, widths);
}

bool has_text(const std::string& format, std::size_t at, const char* text) {
  return format.compare(at, 2, text) == 0;
}

Error no_field(const std::string& name) {
  return {kUsage, fmt::format("--format has no field '{}': there are {}", name,
                              fmt::join(field_names(), ", "))};
}

// "GPU 1 is free", "GPUs 1,4-7 are free"
std::string free_gpus(const json& listing, const json& gpus) {
  std::set<std::string> taken;
  for (const json& job : list_of(listing, "jobs")) {
    for (const json& gpu : list_of(job, "gpus")) {
      if (is_on(gpu)) taken.insert(text_of(gpu, "uuid"));
    }
  }
  for (const json& process : list_of(listing, "outside"))
    taken.insert(text_of(process, "gpu_uuid"));
  std::vector<std::uint64_t> free;
  for (const json& gpu : gpus) {
    if (!taken.contains(text_of(gpu, "uuid"))) free.push_back(number_of(gpu, "index"));
  }
  std::sort(free.begin(), free.end());
  if (gpus.empty()) return "";
  if (free.empty()) return "; no GPU is free";
  return fmt::format("; GPU{} {} {} free", free.size() == 1 ? "" : "s", compact_numbers(free),
                     free.size() == 1 ? "is" : "are");
}

std::string idle_jobs(const json& jobs) {
  std::string first;
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  for (const json& job : jobs) {
    std::uint64_t held = 0;
    for (const json& gpu : list_of(job, "gpus")) held += number_of(gpu, "memory_resident_bytes");
    if (text_of(job, "state") != "idle" || held == 0) continue;
    if (count++ == 0) first = text_of(job, "name", text_of(job, "job"));
    bytes += held;
  }
  if (count == 0) return "";
  return count == 1 ? fmt::format("; {} is idle and holds {}", first, compact_bytes(bytes))
                    : fmt::format("; {} and {} more are idle and hold {}", first, count - 1,
                                  compact_bytes(bytes));
}

std::string unmanaged(const json& outside) {
  if (outside.empty()) return "";
  std::set<std::uint64_t> pids;
  std::uint64_t bytes = 0;
  for (const json& process : outside) {
    pids.insert(number_of(process, "pid"));
    bytes += number_of(process, "memory_used_bytes");
  }
  return pids.size() == 1
             ? fmt::format("; 1 unmanaged process has {}", compact_bytes(bytes))
             : fmt::format("; {} unmanaged processes have {}", pids.size(), compact_bytes(bytes));
}

}  // namespace

std::vector<Row> rows_of(const json& jobs, bool per_gpu) {
  std::vector<Row> rows;
  for (const json& job : jobs) {
    const json& gpus = list_of(job, "gpus");
    if (!per_gpu || gpus.empty()) rows.push_back({&job, nullptr});
    for (const json& gpu : gpus) {
      if (per_gpu) rows.push_back({&job, &gpu});
    }
  }
  return rows;
}

Table fitted_table(const Fields& fields, Cells cells, const Paper& paper,
                   std::vector<std::string>* left_out) {
  for (auto& row : cells) {
    for (Table::Cell& cell : row) cell.text = in_locale(cell.text, paper.utf8);
  }
  Widths widths = natural(fields, cells);
  fit(fields, paper.columns, widths);
  std::vector<Table::Column> columns;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    columns.push_back({cut(fields[i]->heading, widths.of[i], paper.utf8), fields[i]->align});
  }
  for (std::size_t i = 0; left_out != nullptr && i < fields.size(); ++i) {
    if (widths.of[i] == 0) left_out->push_back(fields[i]->heading);
  }
  Table table(std::move(columns), widths.gap);
  for (auto& row : cells) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i].text = cut(row[i].text, widths.of[i], paper.utf8);
    }
    table.add(std::move(row));
  }
  return table;
}

std::string draw_table(const std::vector<Row>& rows, const Fields& fields, const Paper& paper) {
  Cells cells;
  for (const Row& row : rows) {
    cells.emplace_back();
    for (const Field* field : fields) cells.back().push_back(field->cell(row));
  }
  return fitted_table(fields, std::move(cells), paper).render();
}

Result<std::string> draw_format(const std::vector<Row>& rows, const std::string& format) {
  std::string out;
  // A format that is wrong is so without any job, too.
  static const json nothing = json::object();
  std::vector<Row> all = {{&nothing, nullptr}};
  all.insert(all.end(), rows.begin(), rows.end());
  for (const Row& row : all) {
    std::string line;
    for (std::size_t at = 0; at < format.size(); ++at) {
      const bool pair = has_text(format, at, "{{") || has_text(format, at, "}}");
      const std::size_t end = format[at] == '{' && !pair ? format.find('}', at) : format.npos;
      if (pair) {
        line += format[at++];
      } else if (has_text(format, at, "\\t") || has_text(format, at, "\\n")) {
        line += format[++at] == 't' ? '\t' : '\n';
      } else if (end != format.npos) {
        const std::string name = format.substr(at + 1, end - at - 1);
        const Field* field = field_named(name);
        if (field == nullptr) return no_field(name);
        line += field->cell(row).text;
        at = end;
      } else {
        line += format[at];
      }
    }
    if (row.job != &nothing) out += line + "\n";
  }
  return out;
}

std::string summary_of(const json& listing, const json& gpus) {
  const json& jobs = list_of(listing, "jobs");
  const auto run = std::count_if(
      jobs.begin(), jobs.end(), [](const json& job) { return text_of(job, "state") == "running"; });
  return fmt::format("{} of {} job{} run{}{}{}{}", run, jobs.size(), jobs.size() == 1 ? "" : "s",
                     run == 1 ? "s" : "", idle_jobs(jobs), free_gpus(listing, gpus),
                     unmanaged(list_of(listing, "outside")));
}

}  // namespace switchyard::tools
