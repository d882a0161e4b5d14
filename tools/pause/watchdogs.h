// How long a paused job is safe from the watchdogs of its framework.
//
// Concept. A watchdog takes a job that is paused for one that hangs. Which ones a job has is told
// by its ranks, by the names of its processes, and by the environment that these began with. A
// script's own time-out (that of init_process_group) can't be seen from outside: then the default
// counts. The figures are the defaults of PyTorch and of vLLM; docs/guide/pausing.md has them all.
//
// Threading: any thread.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace switchyard::tools {

struct Watchdog {
  std::string name;
  std::string changed_by;  // what sets another time
  double seconds = 0;
  bool known = true;  // false: the environment of a process could not be read: defaults count
};

// One process. `environment`: its variables, each NAME=VALUE; none: it could not be read.
struct Watched {
  bool ranks = false;     // it is a rank of NCCL beside others
  std::string name = {};  // of the process
  std::optional<std::vector<std::string>> environment = std::vector<std::string>();
};

// The one that gives up first. Nullopt: none is known.
std::optional<Watchdog> first_watchdog(const std::vector<Watched>& processes);

// The processes of a job as `ps` lists it. Environments are read for processes of the caller alone:
// to read another's may take for ever.
std::vector<Watched> watched(const nlohmann::json& job);

// "safe for 8 min, then ... may end it (...)"
std::string safe_text(const Watchdog& watchdog);
// What `pause --json` says of it; null without one.
nlohmann::json as_json(const std::optional<Watchdog>& watchdog);

}  // namespace switchyard::tools
