#include "tools/pause/pause.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "switchyard/settings.h"
#include "tools/base/monitor_client.h"
#include "tools/base/move.h"
#include "tools/base/output.h"
#include "tools/base/targets.h"
#include "tools/pause/watchdogs.h"
#include "tools/swap/swap.h"

namespace switchyard::tools {
namespace {

struct Options {
  Selection selection;
  std::optional<std::string> timeout, within;
  bool release = false;
  bool contexts = false;
  bool json = false;
};

constexpr char kWithinForms[] = "a time such as 1500ms, 2s or 1m, above 0 and up to 24h";

constexpr char kPauseExamples[] = R"(Examples:
  switchyard pause train
      no new work of the job reaches the GPU; its memory stays
  switchyard pause train --timeout 60s
      resume automatically after a minute, even if the monitor has ended by then
  switchyard pause train --release
      also swap its memory out, for others to use; for jobs started with --swappable. Ctrl-C
      cancels the order.
  switchyard pause train --release --within 1500ms
      say after this time what is still on the GPU (exit 7); it goes on leaving
  switchyard pause train --release --contexts
      leave nothing of the job on the GPU, its contexts included; needs driver 570 or newer
  switchyard pause train --json | jq .drained
      true: nothing of it runs on the GPU; false: some work still ran after 1 s; null: unknown,
      because work was queued before it was counted

NAME is a job's name or id as `switchyard ps` shows it, or what `switchyard ps` takes. All its processes on all its GPUs are held,
also those that start during the pause. Pausing a paused job sets a new time-out. Watchdogs and
health checks (NCCL, load balancers) may consider a paused job dead after minutes. Of those that are
known the first is named. docs/guide/pausing.md has them all.

The ranks of a job that uses NCCL are stopped together, where none of them waits for another. If a
rank does not come within 5 s, the job goes on and the message names the rank.

Exit status: 0, 2 bad value, 3 no monitor, 4 no such job, 5 not yours, 6 a rank of it has ended or
its memory cannot be swapped out (and why), 7 its ranks could not be stopped together or its memory
was not swapped out in time.)";

constexpr char kResumeExamples[] = R"(Examples:
  switchyard resume train

Memory that was swapped out is swapped in first. That may have to wait for room on the GPU, which
`switchyard ps` shows. Resuming a job that is not paused changes nothing. Exit status: 0, 3 no
monitor, 4 no such job, 5 not yours, 7 the monitor does not answer in time.)";

// Says how far the work is that was queued before.
const char* drained_text(const nlohmann::json& job) {
  const auto found = job.find("drained");
  if (found == job.end() || !found->is_boolean()) {
    return "kernels queued before the pause will finish; no new ones start";
  }
  return found->get<bool>() ? "nothing of it runs on the GPU" : "some of its work still runs";
}

// A pause from before outlives an order that is cancelled.
bool is_paused(const std::string& target) {
  const auto listing = MonitorClient::ask_any({{"op", "ps"}});
  if (!listing) return false;
  for (const auto& job : list_of(*listing, "jobs")) {
    const bool meant = text_of(job, "name") == target || text_of(job, "job") == target;
    if (meant) return text_of(job, "state") == "paused";
  }
  return false;
}

// What `within` did not suffice for. The order stands: it goes on.
Error not_within(const std::string& within, const Target& target) {
  const auto listing = MonitorClient::ask_any({{"op", "ps"}});
  std::string left = "perhaps not all of its memory is out";
  if (listing) {
    for (const auto& job : list_of(*listing, "jobs")) {
      if (text_of(job, "job") != target.id && text_of(job, "name") != target.id) continue;
      if (text_of(job, "residency") == "swapped") left = "by now, " + residency_text(job);
      const auto move = move_of(job);
      if (move) left = human_bytes(move->all_bytes - move->done_bytes) + " are still on the GPU";
    }
  }
  return {kTimedOut, fmt::format("'{}' is paused, and {} after {}: see 'switchyard ps {}'",
                                 target.name, left, within, target.name)};
}

std::optional<Error> pause_one(const Options& options, nlohmann::json request,
                               const Target& target) {
  request["target"] = target.id;
  const auto ask = [&] {
    if (options.within) {
      return MonitorClient::ask_any(
          request,
          std::chrono::duration_cast<MonitorClient::Milliseconds>(*parse_pause(*options.within)));
    }
    return request.contains("release")
               ? ask_to_leave(request, is_paused(target.id) ? "swap-in" : "resume", target.name)
               : MonitorClient::ask_any(request, MonitorClient::kLeavingLimit);
  };
  auto reply = ask();
  if (!reply && options.within && reply.error().code == kTimedOut) {
    return not_within(*options.within, target);
  }
  if (!reply) return reply.error();
  const auto watchdog = first_watchdog(watched(*reply));
  if (options.json) {
    (*reply)["watchdog"] = as_json(watchdog);
    print_answer(*reply, target);
    return std::nullopt;
  }
  if (options.within) return std::nullopt;
  const bool timed = request.contains("timeout_seconds");
  const std::string limit = timed ? " for " + *options.timeout : "";
  fmt::print("{}: paused{}; {}{}\n", target.name, limit,
             request.contains("release") ? residency_text(*reply) : drained_text(*reply),
             watchdog ? "; " + safe_text(*watchdog) : "");
  if (watchdog && timed && request["timeout_seconds"].get<double>() > watchdog->seconds) {
    complain(fmt::format("--timeout {} is longer than the pause is safe for", *options.timeout));
  }
  if (truth_of(*reply, "pause_best_effort")) {
    complain(
        fmt::format("'{}' has several processes: each is held at its own next call, so their "
                    "collectives may stop halfway",
                    target.name));
  }
  return std::nullopt;
}

int pause(const Options& options) {
  nlohmann::json request = {{"op", "pause"}};
  if (options.timeout) {
    const auto span = parse_pause(*options.timeout);
    if (!span) return fail(bad_value("--timeout", *options.timeout, kPauseForms));
    const std::chrono::duration<double> seconds = *span;
    if (seconds.count() > 0) request["timeout_seconds"] = seconds.count();
  }
  if (options.release || options.contexts) request["release"] = true;
  if (options.contexts) request["contexts"] = true;
  if (options.within) {
    const auto span = parse_pause(*options.within);
    if (!span || span->count() == 0)
      return fail(bad_value("--within", *options.within, kWithinForms));
    if (!request.contains("release")) {
      return fail({kUsage, "--within is for --release: a pause alone is answered after a second"});
    }
  }
  return for_each_job(options.selection,
                      [&](const Target& target) { return pause_one(options, request, target); });
}

std::optional<Error> resume_one(const Options& options, const Target& target) {
  auto reply = MonitorClient::ask_any({{"op", "resume"}, {"target", target.id}});
  if (!reply) return reply.error();
  if (options.json) {
    print_answer(*reply, target);
    return std::nullopt;
  }
  fmt::print("{}\n", resumed_text(target.name, *reply));
  return std::nullopt;
}

int resume(const Options& options) {
  return for_each_job(options.selection,
                      [&](const Target& target) { return resume_one(options, target); });
}

// The common part of both.
Subcommand add(CommandLine& line, const char* name, const char* meaning, const char* examples,
               Options& options) {
  Subcommand sub = line.add(name, meaning, examples);
  take_jobs(sub, options.selection);
  return sub.monitor_options(options.json, "print the job as JSON");
}

}  // namespace

std::string paused_text(const std::string& name, const nlohmann::json& reply) {
  return fmt::format("{}: paused; {}", name, drained_text(reply));
}

std::string resumed_text(const std::string& name, const nlohmann::json& reply) {
  const bool back = text_of(reply, "residency", "resident") == "resident";
  const auto was = reply.find("was_paused");
  const bool ran = was != reply.end() && was->is_boolean() && !was->get<bool>();
  return fmt::format("{}: {}", name,
                     !back ? residency_text(reply)
                     : ran ? "it was not paused"
                           : "resumed");
}

void add_pause(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  add(line, "pause", "hold a running job", kPauseExamples, *options)
      .option("--timeout", "TIME", options->timeout, "resume automatically after this time")
      .flag("--release", options->release, "also swap its memory out")
      .option("--within", "TIME", options->within,
              "with --release: wait no longer, and say what is left; it goes on leaving")
      .flag("--contexts", options->contexts,
            "as --release, and take its contexts off the GPU: nothing of it is left there")
      .acts([options] { return pause(*options); });
}

void add_resume(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  add(line, "resume", "resume a paused job", kResumeExamples, *options).acts([options] {
    return resume(*options);
  });
}

}  // namespace switchyard::tools
