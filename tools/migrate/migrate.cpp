#include "tools/migrate/migrate.h"

#include <fmt/format.h>

#include <memory>

#include "tools/base/interrupt.h"
#include "tools/base/monitor_client.h"
#include "tools/base/targets.h"
#include "tools/swap/swap.h"

namespace switchyard::tools {
namespace {

struct Options {
  Selection selection;
  std::string to;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  switchyard run --swappable --gpus 0 --name train -- python train.py
  switchyard migrate train --to 1
      the job goes on with GPU 1 where it had GPU 0, under the same addresses and handles
  switchyard migrate train --to GPU-6a1c
      the GPU by the beginning of its UUID

The job's memory is swapped out to the host, its contexts leave the GPU, and both come back on the
other one. The job waits meanwhile. If that fails anywhere, the job goes on where it was, and the
message says why. Processes that start later see the GPUs that they are given when they start.

All processes of the job must use the same GPU, and the driver must be 580 or newer. A job that is
paused or swapped out stays so on the other GPU.

Exit status: 0, 2 bad value, 3 no monitor, 4 no such job or GPU, 5 not yours, 6 it cannot go there
(and why), 7 not in time.)";

std::optional<Error> migrate_one(const Options& options, const Target& target) {
  const Interruptible until_answered;
  auto reply = MonitorClient::ask_any(
      {{"op", "migrate"}, {"target", target.id}, {"to", options.to}}, MonitorClient::kLeavingLimit);
  if (!reply && Interruptible::came()) {
    return Error{
        kInterrupted,
        fmt::format("the migration of '{}' goes on: `switchyard ps` shows it", target.name)};
  }
  if (!reply) return reply.error();
  if (options.json) {
    print_answer(*reply, target);
  } else {
    fmt::print("{}: moved to {}{}; {}\n", target.name,
               options.to.rfind("GPU-", 0) == 0 ? "" : "GPU ", options.to, residency_text(*reply));
  }
  return std::nullopt;
}

int migrate(const Options& options) {
  if (options.to.empty()) {
    return fail({kUsage,
                 "migrate: --to GPU is missing: the index or the UUID of a GPU, as "
                 "`switchyard status` shows them"});
  }
  return for_each_job(options.selection,
                      [&](const Target& target) { return migrate_one(options, target); });
}

}  // namespace

void add_migrate(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Subcommand sub = line.add("migrate", "move a running job to another GPU", kExamples);
  take_jobs(sub, options->selection);
  sub.option("--to", "GPU", options->to, "index or UUID of the GPU")
      .monitor_options(options->json, "print the job as JSON")
      .acts([options] { return migrate(*options); });
}

}  // namespace switchyard::tools
