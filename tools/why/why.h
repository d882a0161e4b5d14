// `switchyard why`: why a job does not run, or is slow, in one paragraph.
//
// Threading: call from the only thread.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "tools/base/command.h"
#include "tools/base/result.h"
#include "tools/base/selector.h"

namespace switchyard::tools {

void add_why(CommandLine& line);

// A job that is asked about, with what is said of it.
struct Told {
  nlohmann::json job;
  std::string why;
  nlohmann::json lately;  // as rates() lists it; null: nobody looked
};
// NOLINTNEXTLINE(bugprone-exception-escape): to move JSON throws nothing
struct Look {
  nlohmann::json listing;  // of all jobs
  std::vector<Told> told;  // of those selected
};
// Looks at the selected jobs; twice, a second apart, where what they had lately is a part of it.
Result<Look> look_at(const Selection& selection);

}  // namespace switchyard::tools
