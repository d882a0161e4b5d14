// The reading of a job that is governed by its iterations. It has those that each client has begun
// since it was read last, and where the job is.
//
// Threading: one thread, the monitor's.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "monitor/core/registry.h"
#include "monitor/statistics/progress.h"

namespace switchyard::monitor {

// Whether it has a context on one of these.
bool is_on(const Registry& registry, const Job& job, const std::set<std::size_t>& gpus);

// Something holds it, but the turns that jobs take: its iterations say nothing now.
bool is_held(const Registry& registry, const Job& job);
// Likewise, but for all gates that close for a time: a limit's and a guard's as well.
bool is_held_beyond_gates(const Registry& registry, const Job& job);

class IterationReader {
 public:
  struct Begun {
    std::uint32_t marker = 0;
    bool broken = false;  // the first does not follow on what was read last
    std::vector<Time> at;
  };
  // Nothing: its iterations are not known.
  std::optional<Begun> read(const Registry& registry, Progress& progress, const Client& client,
                            Time now);
  void forget_all_but(const std::set<ClientId>& clients);

 private:
  struct Read {
    std::uint64_t count = 0;
    std::uint32_t generation = 0;
  };
  std::map<ClientId, Read> read_;
};

}  // namespace switchyard::monitor
