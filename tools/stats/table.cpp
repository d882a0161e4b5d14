#include "tools/stats/table.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>
#include <vector>

#include "tools/base/output.h"
#include "tools/base/terminal.h"

namespace switchyard::tools {
namespace {

using enum Table::Align;

// On a screen they stand in this order, and what is cut to nothing is left out.
constexpr Field kFields[StatsTable::kColumns] = {
    {"name", "NAME", kLeft, nullptr, 12, 8},
    {"iterations", "IT/S", kRight, nullptr},
    {"gpu_time", "GPU", kRight, nullptr},
    {"waits", "WAITS", kLeft, nullptr, 20, 8},
    {"communication", "COMM", kLeft, nullptr, 12, 4},
    {"communicator", "COMMUNICATOR", kLeft, nullptr},
    {"ranks", "RANKS", kRight, nullptr},
    {"operations", "OPS/S", kRight, nullptr},
    {"bytes", "BYTES/S", kRight, nullptr},
    {"kinds", "BY KIND", kLeft, nullptr, 0, 0},
    {"behind", "BEHIND", kLeft, nullptr, 16, 0},
    {"slowest", "SLOWEST", kLeft, nullptr, 0, 0},
};
constexpr std::size_t kCommunicator = 5, kRanks = 6, kBehind = 10;

}  // namespace

void StatsTable::add_job(Texts row) {
  rows_.emplace_back(std::make_move_iterator(row.begin()), std::make_move_iterator(row.end()));
  is_first_ = true;
}

void StatsTable::add_communicator(Texts row) {
  if (paper_.columns == 0) return add_job(std::move(row));
  if (!std::exchange(is_first_, false)) {
    ++folded_;
    return;
  }
  for (const std::size_t at : {kRanks, kBehind}) rows_.back()[at].text = std::move(row[at]);
}

std::string StatsTable::render() const {
  const bool folds = paper_.columns != 0;
  Fields fields;
  for (std::size_t i = 0; i < kColumns; ++i) {
    if (!folds || i != kCommunicator) fields.push_back(&kFields[i]);
  }
  Cells cells = rows_;
  if (folds) {
    for (auto& row : cells) row.erase(row.begin() + kCommunicator);
  }
  std::vector<std::string> left_out;
  std::string out = fitted_table(fields, std::move(cells), paper_, &left_out).render();
  if (folded_ != 0) left_out.push_back(fmt::format("{} smaller communicators", folded_));
  if (left_out.empty()) return out;
  const std::string said =
      fmt::format("not shown here: {}; a pipe gets all, as by `| cat`", fmt::join(left_out, ", "));
  return out + paint(Tone::kFaint, filled(said, paper_.columns)) + "\n";
}

}  // namespace switchyard::tools
