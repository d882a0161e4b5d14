#include "monitor/policy/cut.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace switchyard::monitor::cut {
namespace {

using Why = Blame::Why;

bool raise_targets(State& state, const std::vector<Process>& processes) {
  bool raised = false;
  for (const Process& process : processes) {
    for (const Place& place : process.places) {
      const auto [target, fresh] = state.targets.try_emplace(place.communicator, 0);
      raised = raised || fresh || target->second < place.launched;
      target->second = std::max(target->second, place.launched);
      state.pids[{place.communicator, place.rank}] = process.pid;
    }
  }
  return raised;
}

// What one process lacks; kNobody: it is there. pre: all its communicators have targets.
Blame lacks(const State& state, const Process& process) {
  Blame worst;
  for (const Place& place : process.places) {
    const std::uint64_t target = state.targets.at(place.communicator);
    const std::uint64_t lacking = target - std::min(target, place.launched);
    if (worst.pid == 0 || lacking > worst.lacks) {
      worst = {Why::kNobody, process.pid, place.rank, place.communicator, lacking};
    }
  }
  if (worst.pid == 0) return {};
  if (worst.lacks != 0) {
    worst.why = Why::kBelow;
  } else if (process.launching) {
    worst.why = Why::kLaunching;
  } else if (process.sends && !process.stopped) {
    worst.why = Why::kNotStopped;
  }
  worst.stands = process.stands;
  return worst.why == Why::kNobody ? Blame{} : worst;
}

// The one to name first: who can't act, else by the reason. The order of the reasons is that of the
// enumeration.
Blame who_lacks_most(const State& state, const std::vector<Process>& processes) {
  Blame worst;
  const auto weight = [](const Blame& blame) {
    return std::tuple(blame.why != Why::kNobody, blame.stands != Standstill::kNone,
                      -static_cast<int>(blame.why), blame.lacks);
  };
  for (const Process& process : processes) {
    const Blame blame = lacks(state, process);
    if (weight(blame) > weight(worst)) worst = blame;
  }
  return worst;
}

std::string hex(std::uint64_t id) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = text.size(); i-- != 0; id >>= 4) text[i] = kDigits[id & 15];
  return text;
}

}  // namespace

Blame missing(const std::vector<Process>& processes) {
  std::map<std::uint64_t, std::pair<std::uint32_t, std::set<std::uint32_t>>> seen;
  for (const Process& process : processes) {
    for (const Place& place : process.places) {
      auto& [ranks, present] = seen[place.communicator];
      ranks = std::max(ranks, place.ranks);
      present.insert(place.rank);
    }
  }
  for (const auto& [id, place] : seen) {
    const auto& [ranks, present] = place;
    std::uint32_t absent = 0;
    for (const std::uint32_t rank : present) absent += rank == absent ? 1 : 0;
    if (absent < ranks) return {Why::kGone, 0, absent, id, 0};
  }
  return {};
}

bool next(State& state, const std::vector<Process>& processes, Time now) {
  if (state.phase == Phase::kThere || state.phase == Phase::kFailed) return false;
  if (Blame gone = missing(processes); gone.why != Why::kNobody) {
    const auto was = state.pids.find({gone.communicator, gone.rank});
    if (was != state.pids.end()) gone.pid = was->second;
    state.phase = Phase::kFailed;
    state.blame = gone;
    return false;
  }
  const bool raised = raise_targets(state, processes);
  const Blame blame = who_lacks_most(state, processes);
  if (!raised && state.asked && blame.why == Why::kNobody) {
    state.phase = Phase::kThere;
  } else if (now - state.since >= kComesWithin ||
             (state.asked && blame.stands != Standstill::kNone)) {
    state.phase = Phase::kFailed;
    state.blame = blame;
  } else {
    state.phase = raised || !state.asked ? Phase::kSettling : Phase::kGathering;
  }
  const bool tell = raised || !state.asked;
  state.asked = true;
  return tell && state.phase != Phase::kFailed;
}

std::string text_of(const Blame& blame) {
  const std::string who =
      "rank " + std::to_string(blame.rank) + " of communicator " + hex(blame.communicator) +
      (blame.pid != 0 ? " (pid " + std::to_string(blame.pid) + ")" : std::string());
  const std::string stands = blame.stands == Standstill::kNone
                                 ? std::string()
                                 : std::string(": it ") + monitor::text_of(blame.stands);
  switch (blame.why) {
    case Why::kBelow:
      return who + " did not launch " + std::to_string(blame.lacks) +
             (blame.lacks == 1 ? " collective that others have launched"
                               : " collectives that others have launched") +
             stands;
    case Why::kLaunching:
      return who + " did not return from launching a collective" + stands;
    case Why::kNotStopped:
      return who + " did not come to its next collective" + stands;
    case Why::kGone:
      return who + " is no process of the job here";
    case Why::kNobody:
      break;
  }
  return "its ranks went on launching collectives";
}

}  // namespace switchyard::monitor::cut
