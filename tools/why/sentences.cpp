#include "tools/why/sentences.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/base/move.h"
#include "tools/base/output.h"
#include "tools/base/stalls.h"
#include "tools/why/running.h"
#include "tools/why/seen.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

constexpr char kByItself[] = "Nothing needs to be done: it goes on by itself.";

// "GPU 0", "GPUs 0, 1"; "the GPU" where no index is known.
std::string gpus_text(const json& job) {
  std::string text;
  int count = 0;
  for (const json& gpu : list_of(job, "gpus")) {
    if (number_of(gpu, "memory_used_bytes") == 0 || !gpu.contains("index")) continue;
    text += fmt::format("{}{}", count++ == 0 ? "" : ", ", number_of(gpu, "index"));
  }
  return count == 0 ? "the GPU" : fmt::format("GPU{} {}", count > 1 ? "s" : "", text);
}

std::uint64_t away_bytes(const json& job) {
  std::uint64_t bytes = 0;
  for (const json& gpu : list_of(job, "gpus")) bytes += number_of(gpu, "memory_swapped_bytes");
  return bytes;
}

// The processes that stand for this reason: "process 4711", "processes 4711, 4712".
struct Standing {
  std::string pids, text;
};
Standing standing(const Seen& seen) {
  Standing out;
  int count = 0;
  std::string listed;
  for (const json& process : list_of(seen.job, "processes")) {
    if (text_of(process, "standstill", "") != text_of(seen.job, "reason", "")) continue;
    const auto pid = number_of(process, "pid");
    listed += fmt::format("{}{}", count == 0 ? "" : ", ", pid);
    out.pids += fmt::format("{}{}", count++ == 0 ? "" : " ", pid);
  }
  if (count == 0) out.pids = "PID";
  out.text =
      count == 0 ? "its process" : fmt::format("process{} {}", count > 1 ? "es" : "", listed);
  return out;
}

// --- the rows ---

std::string paused(const Seen& seen) {
  const std::string person = text_of(seen.by(), "user", "");
  std::string text = fmt::format("{} has been paused for {}{}: no new work of it reaches the GPU.",
                                 seen.name(), seen.since(), person.empty() ? "" : ", by " + person);
  const auto left = real_of(seen.job, "pause_seconds");
  if (left) text += fmt::format(" The pause ends by itself in {}.", human_seconds(*left));
  if (const std::uint64_t away = away_bytes(seen.job); away != 0) {
    text +=
        fmt::format(" {} of its memory are off the GPU, and come back first.", human_bytes(away));
  }
  return text +
         fmt::format(" `switchyard resume {}` lets it go on{}.", seen.name(), left ? " now" : "");
}

std::string stopped(const Seen& seen, const std::string& by, const std::string& help) {
  return fmt::format("{} has been stopped for {}: {}. {}", seen.name(), seen.since(), by, help);
}

std::string stopped_by_signal(const Seen& seen) {
  const Standing who = standing(seen);
  return stopped(
      seen, "a signal, as of Ctrl-Z, stops " + who.text,
      fmt::format("`kill -CONT {}` lets it go on, and so does `fg` in its shell.", who.pids));
}

std::string stopped_by_debugger(const Seen& seen) {
  return stopped(seen, "a debugger holds " + standing(seen).text,
                 "It goes on when the debugger continues it or detaches.");
}

std::string stopped_by_freezer(const Seen& seen) {
  return stopped(seen, standing(seen).text + " is in a frozen cgroup",
                 "It goes on when that is thawed, as by `docker unpause` or `systemctl thaw`.");
}

std::string stopped_by_dump(const Seen& seen) {
  return stopped(seen, standing(seen).text + " writes a core dump", "It ends after that.");
}

std::string stopped_by_disk(const Seen& seen) {
  return stopped(seen, standing(seen).text + " waits for a disk or a file server",
                 "It goes on when that answers.");
}

// "42% of 8 GiB are copied."
std::string progress(const Seen& seen) {
  const auto move = move_of(seen.job);
  return move ? fmt::format(" {}% of {} are {}.", move->percent(), human_bytes(move->all_bytes),
                            move->in ? "back" : "out")
              : "";
}

std::string migrates(const Seen& seen) {
  const std::string goal = text_of(seen.job, "state_reason", "to another GPU");
  const bool prepares = text_of(seen.job, "reason") == "move prepares";
  return fmt::format("{} has been on its way {} for {}{}.{} {}", seen.name(), goal, seen.since(),
                     prepares ? " and still works where it is" : "", progress(seen), kByItself);
}

// What makes room: the other job's memory out, or its end.
std::string room_help(const json* other) {
  if (other == nullptr) return "`switchyard ps --memory` shows which jobs have the memory.";
  const std::string name = text_of(*other, "name");
  const std::string ends = fmt::format("Room comes when {} frees memory or ends", name);
  return truth_of(*other, "swappable")
             ? fmt::format("{}; `switchyard swap-out {}` makes room now.", ends, name)
             : ends + ".";
}

// "waiting: 8.1 GiB of serve": the amount, as the monitor knows it.
std::string amount(const Seen& seen) {
  const std::string text = text_of(seen.job, "state_text", "");
  const std::size_t from = text.find(": ");
  if (from == text.npos) return "memory";
  const std::string what = text.substr(from + 2);
  return what.substr(0, what.find(" of "));
}

std::string waits_for_room(const Seen& seen) {
  return fmt::format(
      "{} has waited for room on {} for {}: {} of its memory are off the GPU and are wanted back. "
      "{} has the memory. {}",
      seen.name(), gpus_text(seen.job), seen.since(), amount(seen),
      capital(causer(seen, "another job or an unmanaged process")), room_help(seen.other()));
}

std::string quota_text(const json& job) {
  if (const auto part = real_of(job, "memory_quota_ratio")) {
    return fmt::format("{:.0f} % of each GPU", 100 * *part);
  }
  const std::uint64_t bytes = number_of(job, "memory_quota_bytes");
  return bytes != 0 ? human_bytes(bytes) : "";
}

std::string waits_for_allocation(const Seen& seen) {
  std::string text = fmt::format("{} has waited for {} in an allocation, of {}.", seen.name(),
                                 seen.since(), amount(seen));
  const json* other = seen.other();
  if (other != nullptr) {
    return fmt::format("{} {} has the memory. {}", text, capital(causer(seen, "")),
                       room_help(other));
  }
  if (const std::string quota = quota_text(seen.job); !quota.empty()) {
    text += fmt::format(" Its quota is {}; `switchyard set {} --memory SIZE` raises that.", quota,
                        seen.name());
  }
  return text + " " + room_help(nullptr);
}

std::string swap_help(const Seen& seen) {
  const std::string reason = text_of(seen.job, "reason", "");
  if (reason == "swap-out") {
    return fmt::format(" `switchyard swap-in {}` brings it back.", seen.name());
  }
  if (reason == "idle release") return " It comes back by itself with the job's next work.";
  if (reason != "yield") return "";
  return fmt::format(" {} needs it. {}", capital(causer(seen, "another job")),
                     seen.other() != nullptr ? room_help(seen.other())
                                             : "It comes back by itself when there is room.");
}

std::string swapped(const Seen& seen) {
  const std::string reason = text_of(seen.job, "reason", "");
  const std::string person = text_of(seen.by(), "user", "");
  std::string why;
  if (reason == "swap-out")
    why = person.empty() ? ", by swap-out" : ", for a swap-out by " + person;
  if (reason == "idle release") {
    why = fmt::format(", because it brought no work for {}",
                      human_seconds(real_of(seen.job, "idle_release_seconds").value_or(0)));
  }
  return fmt::format("{} has been off the GPU for {}{}: {} of its memory are swapped out.{}",
                     seen.name(), seen.since(), why, human_bytes(away_bytes(seen.job)),
                     swap_help(seen));
}

std::string moves_out(const Seen& seen) {
  return fmt::format("The memory of {} has been on its way out for {}, and it waits meanwhile.{}{}",
                     seen.name(), seen.since(), progress(seen), swap_help(seen));
}

std::string moves_in(const Seen& seen) {
  return fmt::format("The memory of {} has been on its way in for {}, and it waits meanwhile.{} {}",
                     seen.name(), seen.since(), progress(seen), kByItself);
}

std::string cut(const Seen& seen) {
  const bool turn = text_of(seen.job, "reason") == "turn ends";
  const bool swap = text_of(seen.job, "state_text").find("swap") != std::string::npos;
  return fmt::format(
      "The ranks of {} are being stopped together for {}, for {}. That ends within "
      "5 s, or is given up.",
      seen.name(),
      turn   ? "another job's turn"
      : swap ? "a swap"
             : "a pause",
      seen.since());
}

std::string held_by_guard(const Seen& seen) {
  const json* other = seen.other();
  return fmt::format("{} is held, for {}: it slows down {}, which has a --guard. {}", seen.name(),
                     seen.since(), causer(seen, "another job"),
                     guard_help(other != nullptr ? text_of(*other, "name") : ""));
}

std::string held_by_limit(const Seen& seen) {
  const double limit = limit_of(seen);
  return fmt::format("{} is held, for {}: it has used up {}. {}", seen.name(), seen.since(),
                     limit > 0
                         ? fmt::format("its --limit of {:.3g}% of the GPU's time", 100 * limit)
                         : "its part of the GPU's time",
                     limit_help(seen));
}

std::string waits_for_turn(const Seen& seen) {
  return fmt::format("{} waits for its turn, for {}: {} has the GPU. {}", seen.name(), seen.since(),
                     causer(seen, "another job"), share_help(seen, seen.other()));
}

std::string no_cuda(const Seen& seen) {
  const json& processes = list_of(seen.job, "processes");
  return fmt::format("{} has made no CUDA context yet, for {}{}. Nothing of Switchyard's holds it.",
                     seen.name(), seen.since(),
                     processes.empty() ? ", and none of its processes has called CUDA" : "");
}

std::string idle(const Seen& seen) {
  return fmt::format("{} has brought no work to the GPU for {}. Nothing of Switchyard's holds it.",
                     seen.name(), seen.since());
}

std::string unmanaged(const Seen& seen) {
  return fmt::format(
      "{} is unmanaged, for {}: its library is of another version than the monitor, so no setting "
      "of it counts. A restart of the job gives it this version's library.",
      seen.name(), seen.since());
}

struct Row {
  const char* state;
  const char* reason;
  std::string (*says)(const Seen&);
  bool lately = false;  // what it had lately follows
};

constexpr Row kRows[] = {
    {"paused", "pause", &paused},
    {"stopped", "signal", &stopped_by_signal},
    {"stopped", "debugger", &stopped_by_debugger},
    {"stopped", "frozen", &stopped_by_freezer},
    {"stopped", "core dump", &stopped_by_dump},
    {"stopped", "disk", &stopped_by_disk},
    {"moving", "move prepares", &migrates},
    {"moving", "move", &migrates},
    {"waiting", "room", &waits_for_room},
    {"waiting", "allocation", &waits_for_allocation},
    {"swapped", "swap-out", &swapped},
    {"swapped", "idle release", &swapped},
    {"swapped", "yield", &swapped},
    {"swapped", "", &swapped},
    {"moving", "swap-out", &moves_out},
    {"moving", "idle release", &moves_out},
    {"moving", "yield", &moves_out},
    {"moving", "", &moves_out},
    {"moving", "returns", &moves_in},
    {"held", "cut", &cut},
    {"held", "turn ends", &cut},
    {"held", "guard", &held_by_guard, true},
    {"held", "limit", &held_by_limit, true},
    {"waiting", "turn", &waits_for_turn, true},
    {"running", "", &running},
    {"idle", "no CUDA", &no_cuda},
    {"idle", "", &idle},
    {"unmanaged", "old library", &unmanaged},
};

const Row* row_of(const json& job) {
  for (const Row& row : kRows) {
    if (text_of(job, "state") == row.state && text_of(job, "reason", "") == row.reason) return &row;
  }
  return nullptr;
}

// "At work then were a and b, one of which may be the cause."
std::string suspects_text(const json& failure) {
  const std::vector<std::string> names = list_of(failure, "suspects");
  if (real_of(failure, "error").value_or(0) == 0) return "";
  if (names.empty()) return " No job of it was at work then.";
  if (names.size() == 1) return fmt::format(" Only {} was at work then.", names[0]);
  return fmt::format(" At work then were {}: the driver does not tell which of them it was.",
                     fmt::join(names, ", "));
}

std::string island_failed(const Seen& seen) {
  const auto failure = seen.job.find("island_failure");
  if (failure == seen.job.end() || !failure->is_object()) return "";
  return fmt::format(
      " Its island failed {} ago: {}.{} Its CUDA calls fail until it is started anew.",
      human_seconds(real_of(*failure, "ago_seconds").value_or(0)), text_of(*failure, "text"),
      suspects_text(*failure));
}

// Where its memory is not as it should be, its island has failed, and ranks that others wait for.
std::string troubles(const Seen& seen) {
  std::string text = island_failed(seen);
  for (const json& gpu : list_of(seen.job, "gpus")) {
    const std::string why = text_of(gpu, "swap_error", "");
    if (why.empty() || truth_of(gpu, "swap_waits_for_room")) continue;
    text += fmt::format(" Its last swap failed: {}.", why);
    break;
  }
  for (const json& stall : list_of(seen.job, "stalls")) {
    text += fmt::format(" {}.", capital(stall_text(stall)));
  }
  return text;
}

}  // namespace

bool needs_lately(const json& job) {
  const Row* row = row_of(job);
  return row != nullptr && (row->lately || row->says == &running);
}

std::string why_text(const json& jobs, const json& job, const json& lately) {
  const Seen seen{jobs, job, lately};
  const Row* row = row_of(job);
  // A newer monitor may know more states.
  std::string text =
      row != nullptr ? row->says(seen)
                     : fmt::format("{} is {}, for {}.", seen.name(),
                                   text_of(job, "state_text", text_of(job, "state")), seen.since());
  if (row != nullptr && row->lately) text += lately_text(seen);
  return text + troubles(seen);
}

}  // namespace switchyard::tools
