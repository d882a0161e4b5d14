// Iterations that each client of a job has begun since it was read last.
//
// Threading: one thread, the monitor's.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "monitor/core/registry.h"
#include "monitor/statistics/progress.h"

namespace switchyard::monitor {

class IterationReader {
 public:
  struct Begun {
    std::uint32_t marker = 0;
    bool broken = false;  // the first does not follow on what was read last
    std::vector<Time> at;
  };
  // Nothing: its iterations are not known.
  std::optional<Begun> read(Progress& progress, const Client& client, Time now);
  void forget_all_but(const std::set<ClientId>& clients);

 private:
  struct Read {
    std::uint64_t count = 0;
    std::uint32_t generation = 0;
  };
  std::map<ClientId, Read> read_;
};

}  // namespace switchyard::monitor
