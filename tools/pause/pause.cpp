#include "tools/pause/pause.h"

#include <fmt/format.h>

#include <memory>

#include "switchyard/settings.h"
#include "tools/base/monitor_client.h"
#include "tools/swap/swap.h"

namespace switchyard::tools {
namespace {

struct Options {
  std::string target;
  std::string timeout;
  bool release = false;
  bool json = false;
};

constexpr char kPauseExamples[] = R"(Examples:
  switchyard pause train
      no new work of it reaches the GPU; its memory stays
  switchyard pause train --timeout 60s
      goes on by itself after a minute, also when the monitor is gone by then
  switchyard pause train --release
      its memory moves to the host, too, and others can have the GPU's; for jobs that were started
      with --swappable
  switchyard pause train --json | jq .drained
      true: nothing of it runs on the GPU any more; false: something did after 1 s; null: not known,
      because it had queued work before anybody counted it

NAME is a job's name or id as `switchyard ps` shows it; all its processes on all its GPUs are held,
also those that start while it is paused. Pausing a paused job sets its time anew. A job that talks
to others (NCCL, a server with health checks) is missed by them after minutes: docs/guide/pausing.md.
Exit status: 0, 2 bad value, 3 no monitor, 4 no such job, 5 not yours; with --release also 6 its
memory can't leave (and why), 7 it did not leave in time.)";

constexpr char kResumeExamples[] = R"(Examples:
  switchyard resume train

Memory that has left the device comes back first, which may have to wait for room: `switchyard ps`
shows it. Resuming a job that is not paused changes nothing. Exit status: 0, 3 no monitor, 4 no such job,
5 not yours.)";

// What is known of the work that was queued before.
const char* drained(const nlohmann::json& job) {
  const auto found = job.find("drained");
  if (found == job.end() || !found->is_boolean()) {
    return "kernels queued before the pause will finish; no new ones start";
  }
  return found->get<bool>() ? "nothing of it runs on the GPU" : "something of it still runs";
}

int pause(const Options& options) {
  nlohmann::json request = {{"op", "pause"}, {"target", options.target}};
  if (!options.timeout.empty()) {
    const auto seconds = parse_pause(options.timeout);
    if (!seconds) return fail(bad_value("--timeout", options.timeout, kPauseForms));
    if (*seconds > 0) request["timeout_seconds"] = *seconds;
  }
  if (options.release) request["release"] = true;
  auto reply = MonitorClient::ask_any(request, MonitorClient::kLeavingLimit);
  if (!reply) return fail(reply.error());
  if (options.json) {
    print_json(*reply);
    return kOk;
  }
  const bool timed = request.contains("timeout_seconds");
  const std::string limit = timed ? " for " + options.timeout : "";
  fmt::print("{}: paused{}; {}\n", options.target, limit,
             options.release ? residency_text(*reply) : drained(*reply));
  if (truth_of(*reply, "pause_best_effort")) {
    complain(
        fmt::format("'{}' has several processes: each is held by itself, so what they do "
                    "together may stop in the middle",
                    options.target));
  }
  return kOk;
}

int resume(const Options& options) {
  auto reply = MonitorClient::ask_any({{"op", "resume"}, {"target", options.target}});
  if (!reply) return fail(reply.error());
  if (options.json) {
    print_json(*reply);
  } else {
    const bool back = text_of(*reply, "residency", "resident") == "resident";
    fmt::print("{}: {}\n", options.target, back ? "resumed" : residency_text(*reply));
  }
  return kOk;
}

// What both have in common.
CLI::App* add(CLI::App& app, const char* name, const char* meaning, const char* examples,
              Options& options) {
  CLI::App* sub = app.add_subcommand(name, meaning);
  sub->footer(examples);
  sub->add_option("NAME", options.target, "the job's name or id")->required();
  sub->add_flag("--json", options.json, "print the job as JSON");
  add_socket_option(*sub);
  return sub;
}

}  // namespace

void add_pause(CLI::App& app, Outcome& outcome) {
  const auto options = std::make_shared<Options>();
  CLI::App* sub = add(app, "pause", "hold a running job back", kPauseExamples, *options);
  sub->add_option("--timeout", options->timeout, "go on by itself after so long")
      ->type_name("TIME");
  sub->add_flag("--release", options->release, "move its memory off the device meanwhile");
  sub->callback([options, &outcome] { outcome.code = pause(*options); });
}

void add_resume(CLI::App& app, Outcome& outcome) {
  const auto options = std::make_shared<Options>();
  CLI::App* sub = add(app, "resume", "let a paused job go on", kResumeExamples, *options);
  sub->callback([options, &outcome] { outcome.code = resume(*options); });
}

}  // namespace switchyard::tools
