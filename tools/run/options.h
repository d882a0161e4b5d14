// What a person asks of `switchyard run`.
//
// Threading: the process has one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/run/request.h"

namespace switchyard::tools {

struct RunOptions {
  Card card;
  std::optional<std::string> gpus;
  bool require = false;
  const char* require_origin = "--require was given";
  bool best_effort = false;
  bool separate = false;
  bool report = false;
  std::string report_how;  // "yes" or "after"; empty: no bill
  std::string restart;     // empty: never
  int tells = -1;          // where the parent waits to hear of the job
  std::vector<std::string> command;
  std::vector<Promise> promises;  // what `card` asks for and only a monitor keeps
};

}  // namespace switchyard::tools
