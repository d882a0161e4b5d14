// The table of `stats`: a row for each job, and one for each of its communicators.
//
// Concept. A pipe gets all of it. A screen gets one row for each job: its communicators are folded
// into that, with the ranks of the largest one. The columns that fit least go first. A line below
// says what was folded and left out.
//
// Threading: a plain value.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "tools/ps/drawing.h"

namespace switchyard::tools {

class StatsTable {
 public:
  // NAME, IT/S, GPU, WAITS, COMM, COMMUNICATOR, RANKS, OPS/S, BYTES/S, BY KIND, BEHIND, SLOWEST
  static constexpr std::size_t kColumns = 12;
  using Texts = std::array<std::string, kColumns>;

  explicit StatsTable(const Paper& paper) : paper_(paper) {}

  void add_job(Texts row);
  // Of the last job; the largest one comes first.
  void add_communicator(Texts row);
  std::string render() const;

 private:
  Paper paper_;
  Cells rows_;
  bool is_first_ = true;  // the next communicator is the job's first
  std::size_t folded_ = 0;
};

}  // namespace switchyard::tools
