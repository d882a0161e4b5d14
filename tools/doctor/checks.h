// The checks of `switchyard doctor`: each finds out one thing and says it with one remedy.
//
// Concept. A check is a value; nothing here prints. Checks that need the monitor get its listings,
// so they are pure and tested with made-up ones.
//
// Threading: call from the only thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/base/driver_report.h"
#include "tools/base/result.h"

namespace switchyard::tools {

enum class Verdict { kOk, kWarn, kFail };

struct Check {
  std::string name;  // stable, for --json: "library"
  Verdict verdict = Verdict::kOk;
  std::string what;
  std::string remedy;  // empty when all is well
};

const char* to_string(Verdict verdict);

Check check_library();                           // the preload loads into a program
Check check_driver(const DriverReport& report);  // libcuda is there and sees a GPU
// Whether the library knows the driver's calls. `known`: those of which CUDA (known_calls.h).
Check check_calls(const DriverReport& report, int known);
Check check_preloads(const std::string& variable,  // LD_PRELOAD
                     const std::string& file);     // what /etc/ld.so.preload says

// Why none of the monitors at `sockets` can be used.
Check check_no_monitor(const Error& error, const std::vector<std::string>& sockets);

// From the monitor's listings.
Check check_driver_version(const nlohmann::json& gpus);
Check check_means(const nlohmann::json& gpus);
Check check_mps(const nlohmann::json& gpus);
Check check_mig(const nlohmann::json& gpus);
Check check_outside(const nlohmann::json& outside);
// Jobs that would do more in an island (base/co_run.h), by their whole lives.
Check check_islands(const nlohmann::json& jobs);

}  // namespace switchyard::tools
