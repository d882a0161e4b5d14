// What an island gives its members, beside what slices would give them.
//
// Concept. A member that works alone shows its rate, in launches and copies, and the part of the
// time for which it keeps the GPU busy. Members that work at once show their rates then:
//
//     the island   the sum of each member's rate over its rate alone
//     slices       n members, or n over their busy parts together where these exceed one GPU
//
// Both are in what one member does alone. A look tells what each has done since the last one:
//
//     worked since the last look     somebody outside works    counts for
//     one member                     no                        its rate and busy part alone
//     the same members as before     no                        their rates together
//     others than before             -                         nothing: rates together begin anew
//     -                              yes                       nothing
//
// Nothing is said of members that were not seen alone and together for some looks. So an island
// whose members all begin at once has no figures. A rate is a mean of about the last ten looks.
//
// Threading: a plain value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "monitor/platform/time.h"

namespace switchyard::monitor::policy {

class IslandGain {
 public:
  struct Member {
    std::uint64_t job = 0;
    std::uint64_t work = 0;  // so far
    double busy = 0;         // the part of the GPU's time that it has, where that is known
  };
  struct Figures {
    double island = 0, slices = 0;
    bool operator==(const Figures&) const = default;
  };
  // A second after the last one, or later; sooner it does nothing.
  void look(const std::vector<Member>& members, bool others_work, Time now);
  // Of those that work at once now.
  std::optional<Figures> figures() const;

 private:
  struct Mean {
    double value = 0;
    unsigned looks = 0;
    void add(double sample);
  };
  struct Known {
    std::uint64_t work = 0;
    Mean alone, busy, together;
  };
  std::map<std::uint64_t, Known> known_;
  std::set<std::uint64_t> working_;
  Time looked_at_{0};
};

}  // namespace switchyard::monitor::policy
