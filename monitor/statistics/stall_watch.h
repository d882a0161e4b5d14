// Ranks that others wait for: what pages and /proc say, brought into the rule (policy/stalls.h),
// and what comes of it as people are told it.
//
// Concept. Each job is looked at five times a second. What is told first, and when it is over, goes
// to the log as well. That we hold a rank ourselves goes there once it lasts.
//
// Threading: one thread, the monitor's.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "monitor/core/registry.h"
#include "monitor/policy/stalls.h"

namespace switchyard::monitor {

// What a rank that is late does.
enum class Doing : std::uint8_t {
  kUnknown,
  kGone,
  kStopped,    // by a signal, or a debugger
  kLaunching,  // in NCCL
  kHeld,       // by us
  kWaitsForGpu,
  kRuns,
  kSleeps,
  kWaitsForDisk,
};
const char* key_of(Doing doing);  // for JSON

struct ToldStall {
  stalls::Stall stall;
  Doing doing = Doing::kUnknown;
  std::optional<stalls::Operation> expected;  // what the others launched as this number
  bool lasts = true;                          // so it goes to the log,
  bool logged = false;                        // and is there
};

class StallWatch {
 public:
  void tick(const Registry& registry, Time now);
  const std::vector<ToldStall>& of(const Job& job) const;

 private:
  struct Watched {
    stalls::State state;
    std::vector<ToldStall> told;
  };
  std::map<JobKey, Watched> jobs_;
};

}  // namespace switchyard::monitor
