#include "tools/base/table.h"

#include <algorithm>

#include "tools/base/terminal.h"

namespace switchyard::tools {

std::string Table::render() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(width_of(column.heading));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(row[i].text));
    }
  }
  std::string out;
  const auto line = [&](const auto& cells, auto tone_of, auto text_of_cell) {
    std::string pending;  // blanks that only count when something follows
    for (std::size_t i = 0; i < cells.size() && i < columns_.size(); ++i) {
      const std::string& text = text_of_cell(cells[i]);
      const std::string blanks(widths[i] - width_of(text), ' ');
      if (i > 0) pending += std::string(gap_, ' ');
      if (columns_[i].align == Align::kRight) pending += blanks;
      if (!text.empty()) {
        out += pending + paint(tone_of(cells[i]), text);
        pending.clear();
      }
      if (columns_[i].align == Align::kLeft) pending += blanks;
    }
    out += '\n';
  };
  line(
      columns_, [](const Column&) { return Tone::kBold; },
      [](const Column& c) -> const std::string& { return c.heading; });
  for (const auto& row : rows_) {
    line(
        row, [](const Cell& c) { return c.tone; },
        [](const Cell& c) -> const std::string& { return c.text; });
  }
  return out;
}

}  // namespace switchyard::tools
