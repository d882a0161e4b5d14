#include "tools/swap/swap.h"

#include <fmt/format.h>

#include <memory>

#include "tools/base/monitor_client.h"

namespace switchyard::tools {
namespace {

struct Options {
  std::string target;
  bool json = false;
};

constexpr char kOutExamples[] = R"(Examples:
  switchyard run --swappable --name train -- python train.py
  switchyard swap-out train
      its memory moves to the host, the GPU's is free for others; the job waits until swap-in
  switchyard swap-out train --json | jq '.gpus[].memory_swapped_bytes'

It answers when the memory has left. What moves is memory of 2 MiB and more by cuMemAlloc; pools,
arrays, managed memory and what is smaller stay. What was accepted before runs to its end first.
`switchyard pause --release` does the same, and the job stays paused when its memory is back. Exit
status: 0, 3 no monitor, 4 no such job, 5 not yours, 6 it cannot leave (and why), 7 not in time.)";

constexpr char kInExamples[] = R"(Examples:
  switchyard swap-in train
      its memory comes back, under the same addresses, and the job goes on

When the GPU has no room for it yet, the job waits: `switchyard ps` says so, and it comes as soon as
others have freed enough. It answers when it is back, or after 2 s with where it is. Exit status: 0,
3 no monitor, 4 no such job, 5 not yours, 6 not started with --swappable.)";

int ask(const Options& options, const char* op) {
  auto reply = MonitorClient::ask_any({{"op", op}, {"target", options.target}},
                                      MonitorClient::kLeavingLimit);
  if (!reply) return fail(reply.error());
  if (options.json) {
    print_json(*reply);
  } else {
    fmt::print("{}: {}\n", options.target, residency_text(*reply));
  }
  return kOk;
}

void add(CLI::App& app, Outcome& outcome, const char* op, const char* meaning,
         const char* examples) {
  const auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(op, meaning);
  sub->footer(examples);
  sub->add_option("NAME", options->target, "the job's name or id")->required();
  sub->add_flag("--json", options->json, "print the job as JSON");
  add_socket_option(*sub);
  sub->callback([options, op, &outcome] { outcome.code = ask(*options, op); });
}

}  // namespace

std::string residency_text(const nlohmann::json& job) {
  std::uint64_t away = 0;
  for (const auto& gpu : list_of(job, "gpus")) away += number_of(gpu, "memory_swapped_bytes");
  const std::string where = text_of(job, "residency");
  const std::string amount = human_bytes(away);
  if (where == "swapped" && away == 0) return "it has no memory that could leave the device";
  if (where == "swapped") return "its memory (" + amount + ") has left the device";
  if (where == "moving") return "its memory is on its way; " + amount + " are in the host";
  if (where == "waiting") {
    return amount +
           " of its memory wait in the host until the device has room; see `switchyard ps`";
  }
  return "its memory is on the device";
}

void add_swap_out(CLI::App& app, Outcome& outcome) {
  add(app, outcome, "swap-out", "move a swappable job's memory to the host", kOutExamples);
}

void add_swap_in(CLI::App& app, Outcome& outcome) {
  add(app, outcome, "swap-in", "bring a job's memory back to the device", kInExamples);
}

}  // namespace switchyard::tools
