// The one table printer: columns as wide as their widest cell, the heading bold on a terminal.
//
// Threading: a plain value.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/base/output.h"

namespace switchyard::tools {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string heading;
    Align align = Align::kLeft;
  };
  struct Cell {
    std::string text;
    Tone tone = Tone::kPlain;
    Cell(std::string t, Tone n = Tone::kPlain) : text(std::move(t)), tone(n) {}
    Cell(const char* t) : text(t) {}
  };

  // `gap`: the blanks between two columns.
  explicit Table(std::vector<Column> columns, std::size_t gap = 2)
      : columns_(std::move(columns)), gap_(gap) {}

  // A row may have fewer cells than there are columns; the rest are empty.
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }

  // Pieces that follow each other, without trailing blanks: the heading, then the rows.
  using Line = std::vector<Cell>;
  std::vector<Line> lines() const;
  // The same, painted; each line ends in '\n'.
  std::string render() const;

 private:
  template <typename Cells, typename Of>
  Line line_of(const Cells& cells, const std::vector<std::size_t>& widths, Of cell_of) const;

  std::vector<Column> columns_;
  std::size_t gap_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace switchyard::tools
