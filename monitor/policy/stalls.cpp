#include "monitor/policy/stalls.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace switchyard::monitor::stalls {
namespace {

using Member = State::Member;
using Ranks = State::Ranks;

void see(Member& member, const Process& process, const Place& place, Time now) {
  const bool fresh = member.pid != process.pid;
  if (fresh) member = {.pid = process.pid, .free_since = now};
  if (fresh || member.launched != place.launched) member.moved_at = now;
  member.present = true;
  member.launched = place.launched;
  member.last = place.last;
  member.last_at = place.last_at;
  if (process.hold != Hold::kNone) {
    member.free_since = now;
    if (member.hold != process.hold) member.held_since = now;
  }
  member.hold = process.hold;
  if (process.stopped && !member.stopped) member.stopped_at = now;
  member.stopped = process.stopped;
}

// A rank that isn't seen any more has ended, or its communicator has.
void forget(State& state, const std::set<pid_t>& living) {
  std::size_t gone = 0;
  for (auto& [id, ranks] : state.communicators) {
    std::erase_if(ranks, [&](const auto& rank) {
      return !rank.second.present && (living.contains(rank.second.pid) || ++gone > kMostGone);
    });
  }
  std::erase_if(state.communicators, [](const auto& each) {
    return std::none_of(each.second.begin(), each.second.end(),
                        [](const auto& rank) { return rank.second.present; });
  });
}

void look(State& state, const std::vector<Process>& processes, Time now) {
  for (auto& [id, ranks] : state.communicators) {
    for (auto& [number, member] : ranks) member.present = false;
  }
  std::set<pid_t> living;
  for (const Process& process : processes) {
    living.insert(process.pid);
    for (const Place& place : process.places) {
      Ranks& ranks = state.communicators[place.communicator];
      if (ranks.size() >= kMostRanks && !ranks.contains(place.rank)) continue;
      see(ranks[place.rank], process, place, now);
    }
  }
  forget(state, living);
}

std::uint64_t most_launched(const Ranks& ranks) {
  std::uint64_t most = 0;
  for (const auto& [number, member] : ranks) most = std::max(most, member.launched);
  return most;
}

// When the first of the others launched what this one lacks: known where it is their last.
Time lacking_since(const Ranks& ranks, const Member& late, Time now) {
  Time first = now;
  for (const auto& [number, member] : ranks) {
    if (member.launched == late.launched + 1) first = std::min(first, member.last_at);
  }
  return std::max(first, late.moved_at);
}

void time_late(Ranks& ranks, Time now) {
  const std::uint64_t most = most_launched(ranks);
  for (auto& [number, member] : ranks) {
    if (member.launched == most) {
      member.late_since = Time{0};
    } else if (member.late_since == Time{0} || member.late_since < member.moved_at) {
      member.late_since = lacking_since(ranks, member, now);
    }
  }
}

bool is_told(const Member& member, Time now) {
  if (member.late_since == Time{0} || now - member.late_since < kLateAfter) return false;
  return (member.present && member.hold != Hold::kNone) || now - member.free_since >= kLateAfter;
}

void tell_late(std::uint64_t id, const Ranks& ranks, Time now, std::vector<Stall>& out) {
  std::vector<std::uint64_t> counts;
  for (const auto& [number, member] : ranks) counts.push_back(member.launched);
  std::sort(counts.begin(), counts.end());
  for (const auto& [number, member] : ranks) {
    if (!is_told(member, now)) continue;
    Stall stall{What::kLate,      id, number, member.pid, !member.present, member.launched + 1,
                member.late_since};
    const auto ahead = std::upper_bound(counts.begin(), counts.end(), member.launched);
    stall.waiting = static_cast<std::uint32_t>(counts.end() - ahead);
    if (member.present && member.hold != Hold::kNone) {
      stall.hold = member.hold;
      stall.held_since = member.held_since;
    }
    out.push_back(stall);
  }
}

struct Usual {
  Operation last;
  std::uint32_t ranks = 0;
};

// What most of them did last; of several the one of the lowest rank.
Usual usual(const Ranks& ranks) {
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> counts;
  for (const auto& [number, member] : ranks) ++counts[{member.last.kind, member.last.bytes}];
  Usual out;
  for (const auto& [number, member] : ranks) {
    const std::uint32_t same = counts.at({member.last.kind, member.last.bytes});
    if (same > out.ranks) out = {member.last, same};
  }
  return out;
}

// When a count moved last, or a rank was held.
Time moved_last(const Ranks& ranks) {
  Time moved{0};
  for (const auto& [number, member] : ranks) {
    moved = std::max({moved, member.moved_at, member.free_since});
  }
  return moved;
}

// pre: none of them is late, and nothing has moved for kLateAfter.
void tell_stopped(std::uint64_t id, const Ranks& ranks, Time now, std::vector<Stall>& out) {
  const auto waiting = std::count_if(ranks.begin(), ranks.end(), [](const auto& rank) {
    return rank.second.present && !rank.second.stopped;
  });
  if (waiting == 0) return;
  for (const auto& [number, member] : ranks) {
    if (!member.present || !member.stopped || now - member.stopped_at < kLateAfter) continue;
    out.push_back({What::kStopped, id, number, member.pid, false, member.launched,
                   member.stopped_at, static_cast<std::uint32_t>(waiting)});
  }
}

// pre: none of them is late, and nothing has moved for kLateAfter.
void tell_other(std::uint64_t id, const Ranks& ranks, std::vector<Stall>& out) {
  for (const auto& [number, member] : ranks) {
    if (!member.present || member.last.kind == 0) return;
  }
  const Usual expected = usual(ranks);
  for (const auto& [number, member] : ranks) {
    if (member.last == expected.last) continue;
    out.push_back({What::kOther, id, number, member.pid, false, member.launched, member.last_at,
                   expected.ranks});
  }
}

// Those that wait themselves for one that is told of. Of each communicator the two lowest numbers
// of different processes tell: whoever has launched the lower one waits for another's.
std::set<pid_t> waiting(const State& state, const std::vector<Stall>& stalls) {
  struct Lowest {
    const Stall* first = nullptr;
    const Stall* of_another = nullptr;
  };
  std::map<std::uint64_t, Lowest> all;
  for (const Stall& stall : stalls) {
    auto& [first, of_another] = all[stall.communicator];
    if (first == nullptr || stall.number < first->number) {
      if (first != nullptr && first->pid != stall.pid) of_another = first;
      first = &stall;
    } else if (stall.pid != first->pid &&
               (of_another == nullptr || stall.number < of_another->number)) {
      of_another = &stall;
    }
  }
  std::set<pid_t> out;
  for (const auto& [communicator, lowest] : all) {
    for (const auto& [number, member] : state.communicators.at(communicator)) {
      const Stall* lacks = lowest.first->pid != member.pid ? lowest.first : lowest.of_another;
      if (member.present && lacks != nullptr && member.launched >= lacks->number) {
        out.insert(member.pid);
      }
    }
  }
  return out;
}

}  // namespace

const char* key_of(Hold hold) {
  switch (hold) {
    case Hold::kPause:
      return "pause";
    case Hold::kCut:
      return "cut";
    case Hold::kSwap:
      return "swap";
    case Hold::kMemory:
      return "memory";
    case Hold::kTurn:
      return "turn";
    case Hold::kLimit:
      return "limit";
    case Hold::kGuard:
      return "guard";
    case Hold::kNone:
      break;
  }
  return nullptr;
}

const char* key_of(What what) {
  switch (what) {
    case What::kLate:
      return "late";
    case What::kOther:
      return "other_operation";
    case What::kStopped:
      break;
  }
  return "stopped";
}

std::vector<Stall> next(State& state, const std::vector<Process>& processes, Time now) {
  look(state, processes, now);
  std::vector<Stall> all;
  for (auto& [id, ranks] : state.communicators) {
    time_late(ranks, now);
    const bool equal = std::all_of(ranks.begin(), ranks.end(), [](const auto& rank) {
      return rank.second.late_since == Time{0};
    });
    if (equal && now - moved_last(ranks) >= kLateAfter) {
      const std::size_t told = all.size();
      tell_other(id, ranks, all);
      if (all.size() == told) tell_stopped(id, ranks, now, all);
    } else if (!equal) {
      tell_late(id, ranks, now, all);
    }
  }
  const std::set<pid_t> innocent = waiting(state, all);
  const auto is_innocent = [&](const Stall& stall) { return innocent.contains(stall.pid); };
  if (!std::all_of(all.begin(), all.end(), is_innocent)) std::erase_if(all, is_innocent);
  if (all.size() > kMostTold) all.resize(kMostTold);
  return all;
}

}  // namespace switchyard::monitor::stalls
