#include "tools/base/stalls.h"

#include <fmt/format.h>

#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

double seconds_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string does_text(const std::string& does) {
  if (does == "gone") return "its process has ended";
  if (does == "stopped") return "it is stopped by a signal";
  if (does == "launching") return "it is in a call of NCCL";
  if (does == "waiting_for_gpu") return "its CPU waits for its GPU";
  if (does == "running") return "its CPU is at work";
  if (does == "sleeping") return "its CPU waits";
  if (does == "waiting_for_disk") return "it waits for a disk";
  return "nobody knows what it does";
}

std::string hold_text(const std::string& hold) {
  if (hold == "pause") return "paused by its owner";
  if (hold == "swap") return "its memory is in the host, or on its way";
  if (hold == "memory") return "it waits for memory of the GPU";
  if (hold == "cut") return "it is being paused or swapped out";
  if (hold == "limit") return "it has used up its --limit";
  if (hold == "guard") return "it is held back by another job's --guard";
  return "another job has the GPU";
}

// "all_reduce number 43 (4 B)"
std::string operation(const json& stall) {
  const std::string kind = text_of(stall, "kind", "operation");
  std::string text = fmt::format("{} number {}", kind, number_of(stall, "operation"));
  if (kind != "operation") {
    text += fmt::format(" ({})", human_bytes(number_of(stall, "bytes")));
  }
  return text;
}

}  // namespace

std::string stall_text(const json& stall) {
  const std::string who =
      fmt::format("rank {} (pid {})", number_of(stall, "rank"), number_of(stall, "pid"));
  const std::uint64_t waiting = number_of(stall, "waiting_ranks");
  const std::string ranks = fmt::format("{} rank{}", waiting, waiting == 1 ? "" : "s");
  const std::string hold = text_of(stall, "held_by", "");
  if (!hold.empty()) {
    return fmt::format("{}: {}, {}; {} wait{} for its {}", who, hold_text(hold),
                       human_seconds(seconds_of(stall, "held_seconds")), ranks,
                       waiting == 1 ? "s" : "", operation(stall));
  }
  const std::string age = human_seconds(seconds_of(stall, "seconds"));
  const std::string does = does_text(text_of(stall, "does"));
  if (text_of(stall, "reason") == "other_operation") {
    return fmt::format("{} launched another operation where {} launched {}, {} ago: {}", who, ranks,
                       operation(stall), age, does);
  }
  if (text_of(stall, "reason") == "stopped") {
    return fmt::format("{} has launched {} as {} did, and stands still, for {}: {}", who,
                       operation(stall), ranks, age, does);
  }
  return fmt::format("{} has not launched {}, which {} wait{} for, for {}: {}", who,
                     operation(stall), ranks, waiting == 1 ? "s" : "", age, does);
}

void print_stalls(const json& jobs) {
  for (const auto& job : jobs) {
    for (const auto& stall : list_of(job, "stalls")) {
      const Tone tone = text_of(stall, "held_by", "").empty() ? Tone::kBad : Tone::kWarning;
      fmt::print("{}\n",
                 paint(tone, fmt::format("{}: {}", text_of(job, "name"), stall_text(stall))));
    }
  }
}

}  // namespace switchyard::tools
