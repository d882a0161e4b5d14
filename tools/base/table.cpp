#include "tools/base/table.h"

#include <algorithm>

namespace switchyard::tools {
namespace {

// Characters as a terminal counts them: continuation bytes of UTF-8 take no room.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string Table::render() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(width(column.heading));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], width(row[i].text));
    }
  }
  std::string out;
  const auto line = [&](const auto& cells, auto tone_of, auto text_of_cell) {
    std::string pending;  // blanks that only count when something follows
    for (std::size_t i = 0; i < cells.size() && i < columns_.size(); ++i) {
      const std::string& text = text_of_cell(cells[i]);
      const std::string blanks(widths[i] - width(text), ' ');
      if (i > 0) pending += "  ";
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
