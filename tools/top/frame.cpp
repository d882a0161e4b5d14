#include "tools/top/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "tools/base/output.h"
#include "tools/base/terminal.h"
#include "tools/ps/drawing.h"

namespace switchyard::tools::top {
namespace {

using nlohmann::json;
using enum Table::Align;

// Headings without a name: what stands before them says what they are.
constexpr Field kShareBars = {"share_bars", "", kLeft, nullptr};
constexpr Field kMemoryBars = {"memory_bars", "", kLeft, nullptr};

constexpr const char* kHelp[] = {
    "arrows, Page Up, Page Down, Home, End   select a row",
    "p  r      pause or resume the job",
    "+  -      raise or lower its priority",
    "k         end it: SIGTERM to its processes",
    "s         sort by GPU%, memory, age or name",
    "q         quit          ?  this help",
    "",
    "Each change is asked for: y does it, any other key does not.",
    "GPU% is the mean of its GPUs; ~: estimated. Then its last samples.",
    "MEM/QUOTA is of all its GPUs; its bars are of the quota or the GPU.",
    "A name with ~ is a process that no job has.",
    "",
    "Any key goes back.",
};

std::size_t bar_columns(std::size_t columns) {
  if (columns < 76) return 0;
  return columns < 100 ? 6 : columns < 140 ? 10 : 20;
}

// A job's command is told by `ps`: here its past stands instead.
Fields fields_for(std::size_t bar) {
  Fields fields;
  for (const Field* field : default_fields()) {
    const std::string name = field->name;
    if (name == "command") continue;
    fields.push_back(field);
    if (bar > 0 && name == "gpu_percent") fields.push_back(&kShareBars);
    if (bar > 0 && name == "memory") fields.push_back(&kMemoryBars);
  }
  return fields;
}

// The heading, and `count` rows from `first` on.
std::vector<Table::Line> rows_from(const Model& model, std::size_t first, std::size_t count,
                                   std::size_t columns, std::size_t bar, bool utf8) {
  const Fields fields = fields_for(bar);
  Cells cells;
  for (std::size_t i = first; i < std::min(first + count, model.entries().size()); ++i) {
    const Model::Entry& entry = model.entries()[i];
    const Model::Past& past = model.past(entry.id);
    cells.emplace_back();
    for (const Field* field : fields) {
      if (field->cell != nullptr) cells.back().push_back(field->cell({&entry.job, nullptr}));
      if (field == &kShareBars) cells.back().emplace_back(bars(past.share, bar, utf8));
      if (field == &kMemoryBars) cells.back().emplace_back(bars(past.memory, bar, utf8));
    }
  }
  return fitted_table(fields, std::move(cells), {columns, utf8}).lines();
}

// In the columns that there are: even the narrowest table may be wider.
Table::Line clipped(Table::Line line, std::size_t columns, bool utf8) {
  Table::Line out;
  std::size_t left = columns;
  for (Table::Cell& piece : line) {
    piece.text = cut(piece.text, left, utf8);
    left -= width_of(piece.text);
    if (!piece.text.empty()) out.push_back(std::move(piece));
  }
  return out;
}

// How the lines of a screen are divided.
struct Plan {
  std::size_t gpus = 0;  // lines for GPUs; the last one counts those that have none
  std::size_t below = 3;
  std::size_t rows = 0;  // beneath the heading
};

Plan plan_of(const Model& model, const Size& size) {
  Plan plan;
  const std::size_t most = std::max<std::size_t>(1, size.lines > 8 ? (size.lines - 6) / 2 : 1);
  plan.gpus = std::min(model.gpus().size(), most);
  const auto fixed = [&] { return plan.gpus + 2 + plan.below; };  // the sentence and the heading
  while (plan.below > 1 && fixed() + 3 > size.lines) --plan.below;
  plan.rows = size.lines > fixed() ? size.lines - fixed() : 0;
  return plan;
}

std::string detail_of(const Model& model) {
  const Model::Entry* entry = model.selected();
  if (entry == nullptr) return kNoJobs;
  const Row row{&entry->job, nullptr};
  return fmt::format("{}: {}; pid {}", field_named("name")->cell(row).text,
                     field_named("state")->cell(row).text, field_named("pids")->cell(row).text);
}

std::vector<Line> below_of(const Model& model, std::size_t count, Time now) {
  std::vector<Line> out;
  const std::string notice = model.notice(now);
  if (count > 2) {
    out.push_back({{notice.empty() ? Table::Cell(detail_of(model), Tone::kFaint)
                                   : Table::Cell(notice, Tone::kBad)}});
  }
  if (model.question()) {
    out.push_back({{{text_of_order(*model.question()) + "? y/n", Tone::kBold}}});
  } else {
    const bool notices = model.message().empty() && count <= 2;
    out.push_back({{{notices ? notice : model.message(), Tone::kWarning}}});
  }
  if (count > 1) {
    out.push_back(
        {{{fmt::format("p pause  r resume  + - priority  k end  s sort: {}  ? help  q quit",
                       name_of(model.sort())),
           Tone::kFaint}}});
  }
  return out;
}

void add_top(const Model& model, const Size& size, std::size_t count, std::vector<Line>& out) {
  const auto lines = gpu_lines(model.gpus(), size.columns, size.utf8);
  for (std::size_t i = 0; i < count; ++i) {
    const bool more = i + 1 == count && lines.size() > count;
    out.push_back({{{more ? fmt::format("and {} more GPUs: `switchyard status` lists them",
                                        lines.size() - count + 1)
                          : lines[i],
                     Tone::kBold}}});
  }
  out.push_back({{{model.summary(), Tone::kFaint}}});
}

void add_rows(const Model& model, const Size& size, std::size_t count, std::vector<Line>& out) {
  // The selected row is always there.
  const std::size_t first = model.place() >= count && count > 0 ? model.place() - count + 1 : 0;
  const auto lines =
      rows_from(model, first, count, size.columns, bar_columns(size.columns), size.utf8);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    out.push_back({lines[i], i > 0 && first + i - 1 == model.place()});
  }
}

}  // namespace

std::string bars(const std::deque<std::optional<double>>& past, std::size_t width, bool utf8) {
  static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kPlain[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  std::string out(width - std::min(width, past.size()), ' ');
  for (std::size_t i = past.size() - std::min(width, past.size()); i < past.size(); ++i) {
    if (!past[i]) {
      out += ' ';
      continue;
    }
    const double ratio = std::clamp(*past[i], 0.0, 1.0);
    const auto level = static_cast<std::size_t>(std::lround(ratio * (std::size(kBars) - 1)));
    out += (utf8 ? kBars : kPlain)[level];
  }
  return out;
}

std::vector<std::string> gpu_lines(const json& gpus, std::size_t columns, bool utf8) {
  const auto known = [](const json& gpu, const char* key, double scale) {
    const auto value = real_of(gpu, key);
    return value ? fmt::format("{:.0f}", *value * scale) : std::string("-");
  };
  std::vector<std::string> heads, tails;
  std::size_t names = 0, widest = 0;
  for (const json& gpu : gpus) {
    heads.push_back(fmt::format("GPU {}  ", number_of(gpu, "index")));
    tails.push_back(fmt::format(
        "  {:>3}%  {:>5} of {:<5}  {:>3} C  {:>4} W", known(gpu, "utilisation_ratio", 100),
        compact_bytes(number_of(gpu, "memory_used_bytes")),
        compact_bytes(number_of(gpu, "memory_total_bytes")), known(gpu, "temperature_celsius", 1),
        known(gpu, "power_watts", 1)));
    names = std::max(names, width_of(text_of(gpu, "name")));
    widest = std::max(widest, heads.back().size() + tails.back().size());
  }
  if (columns > 0) names = std::min(names, columns - std::min(columns, widest));
  std::vector<std::string> out;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const std::string name = cut(in_locale(text_of(gpus[i], "name"), utf8), names, utf8);
    out.push_back(heads[i] + name + std::string(names - width_of(name), ' ') + tails[i]);
  }
  return out;
}

std::vector<Line> draw(const Model& model, const Size& size, Time now) {
  const Plan plan = plan_of(model, size);
  std::vector<Line> out;
  add_top(model, size, plan.gpus, out);
  if (model.helps()) {
    for (const char* line : kHelp) out.push_back({{{line}}});
  } else {
    add_rows(model, size, plan.rows, out);
  }
  out.resize(std::max(size.lines, plan.below) - plan.below);
  for (Line& line : below_of(model, plan.below, now)) out.push_back(std::move(line));
  out.resize(size.lines);
  for (Line& line : out) {
    for (Table::Cell& piece : line.pieces) piece.text = in_locale(piece.text, size.utf8);
    line.pieces = clipped(std::move(line.pieces), size.columns, size.utf8);
  }
  return out;
}

std::size_t page_of(const Model& model, const Size& size) { return plan_of(model, size).rows; }

std::string draw_once(const Model& model, std::size_t columns, bool utf8) {
  std::string out;
  for (const std::string& line : gpu_lines(model.gpus(), columns, utf8)) out += line + "\n";
  for (const Table::Line& line : rows_from(model, 0, model.entries().size(), columns, 0, utf8)) {
    for (const Table::Cell& piece : line) out += paint(piece.tone, piece.text);
    out += '\n';
  }
  return out + in_locale(filled(model.summary(), columns), utf8) + "\n";
}

}  // namespace switchyard::tools::top
