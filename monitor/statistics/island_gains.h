// What each island gives its members (policy/island_gain.h), by what pages count.
//
// Threading: one thread, the monitor's.
#pragma once

#include <map>
#include <optional>

#include "monitor/core/registry.h"
#include "monitor/policy/island_gain.h"

namespace switchyard::monitor {

class IslandGains {
 public:
  void tick(const Registry& registry, Time now);
  // Of the island of that job; nullopt: it is in none, or nothing is known.
  std::optional<policy::IslandGain::Figures> of(const Job& job) const;

 private:
  std::map<std::uint64_t, policy::IslandGain> islands_;
};

}  // namespace switchyard::monitor
