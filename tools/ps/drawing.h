// `ps` as text: its table in the columns that there are, lines after a format, and the last line.
//
// Concept. A table that does not fit is cut in three steps. First its flexible columns shrink to
// their soft least, the command before others. Then the gaps shrink from two blanks to one. Last
// the columns shrink to their hard least, and the command to nothing. The terminal breaks a line
// that is still too long.
//
// Threading: pure functions.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/base/result.h"
#include "tools/ps/fields.h"

namespace switchyard::tools {

struct Paper {
  std::size_t columns = 0;  // 0: as many as it takes
  bool utf8 = true;
};

std::vector<Row> rows_of(const nlohmann::json& jobs, bool per_gpu);

// A row has a cell for each of `fields`.
using Cells = std::vector<std::vector<Table::Cell>>;
// `left_out`: the headings of columns that have something to say, and no room for it.
Table fitted_table(const Fields& fields, Cells cells, const Paper& paper,
                   std::vector<std::string>* left_out = nullptr);

std::string draw_table(const std::vector<Row>& rows, const Fields& fields, const Paper& paper);

// "{name} {memory}\t{state}": a line for each row. An error names what is no field.
Result<std::string> draw_format(const std::vector<Row>& rows, const std::string& format);

// "4 of 5 jobs run; nb holds 8.1G and is idle; GPUs 1,4-7 are free; 1 unmanaged process has 8M"
// `listing`: of all jobs. `gpus`: all that there are, as `status` has them.
std::string summary_of(const nlohmann::json& listing, const nlohmann::json& gpus);

}  // namespace switchyard::tools
