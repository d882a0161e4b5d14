#include "tools/base/table.h"

#include <algorithm>
#include <utility>

#include "tools/base/terminal.h"

namespace switchyard::tools {

template <typename Cells, typename Of>
Table::Line Table::line_of(const Cells& cells, const std::vector<std::size_t>& widths,
                           Of cell_of) const {
  Line out;
  std::string pending;  // blanks that only count when something follows
  for (std::size_t i = 0; i < cells.size() && i < columns_.size(); ++i) {
    const Cell cell = cell_of(cells[i]);
    const std::string blanks(widths[i] - width_of(cell.text), ' ');
    if (i > 0) pending += std::string(gap_, ' ');
    if (columns_[i].align == Align::kRight) pending += blanks;
    if (!cell.text.empty()) {
      if (!pending.empty()) out.emplace_back(std::exchange(pending, ""));
      out.push_back(cell);
    }
    if (columns_[i].align == Align::kLeft) pending += blanks;
  }
  return out;
}

std::vector<Table::Line> Table::lines() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(width_of(column.heading));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(row[i].text));
    }
  }
  std::vector<Line> out = {line_of(
      columns_, widths, [](const Column& column) { return Cell(column.heading, Tone::kBold); })};
  for (const auto& row : rows_) {
    out.push_back(line_of(row, widths, [](const Cell& cell) { return cell; }));
  }
  return out;
}

std::string Table::render() const {
  std::string out;
  for (const Line& line : lines()) {
    for (const Cell& piece : line) out += paint(piece.tone, piece.text);
    out += '\n';
  }
  return out;
}

}  // namespace switchyard::tools
