// The words for a status: keys that are stored and sent, and texts for people.
#include <fmt/format.h>

#include "monitor/platform/text.h"
#include "monitor/status/job_status.h"

namespace switchyard::monitor::status {
namespace {

// "GPU 1", "GPUs 0, 1"
std::string gpus_text(const std::vector<unsigned>& indices) {
  return fmt::format("GPU{} {}", indices.size() > 1 ? "s" : "", fmt::join(indices, ", "));
}

std::string memory_text(const Status& status) {
  return status.by.name.empty() ? "memory" : "memory of " + status.by.name;
}

// The swapped memory: how much of all it is, and where it lies instead.
std::string swapped_text(const Status& status, const std::string& why) {
  const std::string place = status.places.empty() ? "" : gpus_text(status.places);
  std::string out = place.empty() || why.empty() ? place + why : place + ": " + why;
  if (!status.parked_on.empty()) out += ", parked on " + gpus_text(status.parked_on);
  return out;
}

std::string goal_text(const Status& status) {
  return fmt::format("{} GPU {}", status.back ? "back to" : "to", status.goal);
}

std::string of(const std::string& what, const By& by) {
  return by.name.empty() ? what : what + " of " + by.name;
}

std::string by_person(const std::string& what, const std::string& person) {
  return person.empty() ? what : what + " by " + person;
}

std::string waiting_text(const Status& status) {
  if (status.code.reason == Reason::kTurn) return of("turn", status.by);
  return of(status.bytes != 0 ? bytes_text(status.bytes) : "memory", status.by);
}

std::string held_text(const Status& status) {
  switch (status.code.reason) {
    case Reason::kLimit:
      return status.limit > 0 ? fmt::format("held: limit {:.3g}%", status.limit * 100)
                              : "held: limit";
    case Reason::kGuard:
      return "held: " + of("guard", status.by);
    case Reason::kTurnEnds:
      return "stopping for another's turn";
    default:
      return status.leaves ? "stopping for a swap" : "stopping for a pause";
  }
}

}  // namespace

const char* key_of(State state) {
  switch (state) {
    case State::kRunning:
      return "running";
    case State::kIdle:
      return "idle";
    case State::kHeld:
      return "held";
    case State::kWaiting:
      return "waiting";
    case State::kPaused:
      return "paused";
    case State::kSwapped:
      return "swapped";
    case State::kMoving:
      return "moving";
    case State::kStopped:
      return "stopped";
    case State::kUnmanaged:
      return "unmanaged";
    case State::kUnknown:
      break;
  }
  return "unknown";
}

const char* key_of(Reason reason) {
  static constexpr const char* kKeys[] = {
      nullptr, "pause",         "signal",     "debugger",   "core dump", "frozen",
      "disk",  "move prepares", "move",       "room",       "swap-out",  "idle release",
      "yield", "returns",       "allocation", "cut",        "turn ends", "guard",
      "limit", "turn",          "no CUDA",    "old library"};
  static_assert(std::size(kKeys) == static_cast<std::size_t>(Reason::kOldLibrary) + 1);
  return kKeys[static_cast<std::size_t>(reason)];
}

std::string reason_text(const Status& status) {
  switch (status.code.reason) {
    case Reason::kPause:
      return status.where == ResidencyState::kResident ? "" : to_string(status.where);
    case Reason::kMovePrepares:
    case Reason::kMove:
      return goal_text(status);
    case Reason::kRoom:
    case Reason::kAllocation:
      return memory_text(status);
    case Reason::kNoCuda:
      return "no CUDA yet";
    case Reason::kTurnEnds:
      return "cut";
    default:
      break;
  }
  const char* key = key_of(status.code.reason);
  std::string why = key != nullptr ? key : "";
  if (status.code.state == State::kStopped) {
    return status.pid != 0 ? fmt::format("{}: pid {}", why, status.pid) : why;
  }
  if (status.code.state == State::kMoving) return swapped_text(status, "");
  if (status.code.reason == Reason::kIdleRelease) why = "idle";
  if (status.code.reason == Reason::kYield) why = "another job needs the memory";
  return status.code.state == State::kSwapped ? swapped_text(status, why) : why;
}

std::string text_of(const Status& status, const std::string& person) {
  const Reason reason = status.code.reason;
  switch (status.code.state) {
    case State::kPaused:
      return by_person("held: paused", person);
    case State::kHeld:
      return held_text(status);
    case State::kWaiting:
      return "waiting: " + waiting_text(status);
    case State::kMoving:
      if (reason == Reason::kMove || reason == Reason::kMovePrepares) {
        return "moving " + goal_text(status);
      }
      return reason == Reason::kReturns ? "moving in" : "moving out";
    case State::kSwapped: {
      const std::string why = reason == Reason::kSwapOut ? by_person("swap-out", person)
                              : reason == Reason::kYield && !status.by.name.empty()
                                  ? status.by.name + " needs the memory"
                                  : "";
      const std::string all = why.empty() ? reason_text(status) : swapped_text(status, why);
      return all.empty() ? "swapped" : "swapped: " + all;
    }
    case State::kUnmanaged:
      return fmt::format("unmanaged: old library (page layout {})", status.layout);
    case State::kIdle:
      return reason == Reason::kNoCuda ? "no CUDA yet" : "idle";
    case State::kStopped:
      return "stopped: " + reason_text(status);
    case State::kRunning:
    case State::kUnknown:
      break;
  }
  return key_of(status.code.state);
}

}  // namespace switchyard::monitor::status
