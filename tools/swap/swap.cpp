#include "tools/swap/swap.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "tools/base/interrupt.h"
#include "tools/base/monitor_client.h"
#include "tools/base/targets.h"

namespace switchyard::tools {
namespace {

struct Options {
  Selection selection;
  bool json = false;
};

constexpr char kOutExamples[] = R"(Examples:
  switchyard run --swappable --name train -- python train.py
  switchyard swap-out train
      copy its memory to the host, or as its --park says, and free it on the GPU; the job waits until
      swap-in
  switchyard swap-out train --json | jq '.gpus[].memory_swapped_bytes'

The command answers when the memory has been swapped out. Ctrl-C cancels the order. Work that the GPU has accepted ends first.
Allocations below 2 MiB, arrays, managed and shared memory stay on the GPU; `switchyard ps --memory`
shows them by reason. The ranks of a job that uses NCCL are stopped together first; if one does not
come within 5 s, the job goes on and the message names the rank. `switchyard pause --release` swaps
out, too, and the job stays paused after swap-in. Exit status: 0, 3 no monitor, 4 no such job, 5 not
yours, 6 its memory cannot be swapped out (and why), 7 not in time.)";

constexpr char kInExamples[] = R"(Examples:
  switchyard swap-in train
      copy its memory back, to the same addresses; then the job continues

While the GPU has no room for it, the job waits and `switchyard ps` says so. Its memory comes back
when other jobs have freed enough. The command answers when the memory is back, or after 2 s with
the present state. Exit status: 0, 3 no monitor, 4 no such job, 5 not yours, 6 not started with
--swappable, 7 the monitor does not answer in time.)";

std::optional<Error> ask(const Options& options, const char* op, const Target& target) {
  const nlohmann::json request = {{"op", op}, {"target", target.id}};
  auto reply = request["op"] == "swap-out"
                   ? ask_to_leave(request, "swap-in", target.name)
                   : MonitorClient::ask_any(request, MonitorClient::kLeavingLimit);
  if (!reply) return reply.error();
  if (options.json) {
    print_answer(*reply, target);
  } else {
    fmt::print("{}: {}\n", target.name, residency_text(*reply));
  }
  return std::nullopt;
}

void add(CommandLine& line, const char* op, const char* meaning, const char* examples) {
  const auto options = std::make_shared<Options>();
  Subcommand sub = line.add(op, meaning, examples);
  take_jobs(sub, options->selection);
  sub.monitor_options(options->json, "print the job as JSON").acts([options, op] {
    return for_each_job(options->selection,
                        [&](const Target& target) { return ask(*options, op, target); });
  });
}

}  // namespace

Result<nlohmann::json> ask_to_leave(const nlohmann::json& request, const char* undo,
                                    const std::string& name) {
  {
    const Interruptible until_answered;
    auto reply = MonitorClient::ask_any(request, MonitorClient::kLeavingLimit);
    if (reply || !Interruptible::came()) return reply;
  }
  const std::string target = text_of(request, "target");
  const auto back = MonitorClient::ask_any({{"op", undo}, {"target", target}});
  return Error{kInterrupted,
               back ? fmt::format("the {} of '{}' is cancelled: its memory stays, or comes back",
                                  text_of(request, "op"), name)
                    : fmt::format("the {} of '{}' goes on, because it could not be cancelled: {}",
                                  text_of(request, "op"), name, back.error().text)};
}

std::string residency_text(const nlohmann::json& job) {
  std::uint64_t away = 0;
  std::uint64_t parked = 0;
  for (const auto& gpu : list_of(job, "gpus")) {
    away += number_of(gpu, "memory_swapped_bytes");
    parked += number_of(gpu, "memory_parked_bytes");
  }
  const std::string where = text_of(job, "residency");
  const std::string amount = human_bytes(away);
  if (where == "swapped" && away == 0) return "it has no memory that can be swapped out";
  if (where == "swapped" && parked != 0) {
    return fmt::format("its memory ({}) is swapped out, {} of it to another GPU", amount,
                       human_bytes(parked));
  }
  if (where == "swapped") return "its memory (" + amount + ") is swapped out";
  if (where == "moving") return "its memory is being copied; " + amount + " are in the host";
  if (where == "waiting") {
    return amount + " of its memory wait in the host for room on the GPU; see `switchyard ps`";
  }
  return "its memory is on the GPU";
}

void add_swap_out(CommandLine& line) {
  add(line, "swap-out", "swap a job's memory out to the host", kOutExamples);
}

void add_swap_in(CommandLine& line) {
  add(line, "swap-in", "swap a job's memory in again", kInExamples);
}

}  // namespace switchyard::tools
