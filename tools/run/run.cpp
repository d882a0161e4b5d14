#include "tools/run/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>

#include "tools/base/driver_report.h"
#include "tools/base/knobs.h"
#include "tools/base/places.h"
#include "tools/run/autostart.h"
#include "tools/run/environment.h"
#include "tools/run/program.h"
#include "tools/run/request.h"

namespace switchyard::tools {
namespace {

struct Options {
  Card card;
  bool require = false;
};

struct Job {
  std::string id;
  std::string name;
  std::string socket;
  std::string library;
};

constexpr char kExamples[] = R"(Examples:
  switchyard run -- python train.py
      shares the GPU with whoever else is there
  switchyard run --name chat --priority high -- python serve.py
      latency first: others yield while it works
  switchyard run --priority low --memory 40GiB -- python train.py
      takes what is left; 40 GiB per GPU are reserved for it
  switchyard run --limit 30% --deadline 10m -- python eval.py
      at most 30 % of the GPU's time; under `switchyard policy deadline`, first while it is due first
  switchyard run --share 4 --on-oom wait --oom-timeout 10m -- ./job.sh
      four times the weight of a job with 1; waits for memory instead of failing
  switchyard run --swappable --name train -- python train.py
      `switchyard swap-out train` and `pause --release train` give its device memory to others
  switchyard run --idle-release 10m -- jupyter lab
      its device memory leaves when it idles, and comes back at its next call
  switchyard run --oversubscribe -- python train.py
      takes turns on the GPU with others like it, when their memory does not fit together

Exit status: the job's own (128+N for signal N), 2 for a usage error, 125 when Switchyard refuses to
start it, 126 and 127 when the command can't be executed or found.)";

// Replaces this process by the command; returns only when that failed.
int become(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  return fail(exec_failed(command[0], errno));
}

// What `status` says against sharing, if anything.
struct Doubt {
  std::string text;
  bool no_gpu = false;
};

std::optional<Doubt> doubt(MonitorClient& monitor) {
  const auto status = monitor.ask({{"op", "status"}});
  if (!status) return std::nullopt;
  const auto& gpus = list_of(*status, "gpus");
  if (gpus.empty()) return Doubt{why_no_gpu(), true};
  for (const auto& gpu : gpus) {
    if (text_of(gpu, "means") != "none") return std::nullopt;
  }
  return Doubt{fmt::format("shares and priorities cannot be enforced on this machine ({}); memory "
                           "quotas hold",
                           text_of(gpus.front(), "means_reason", "no means")),
               false};
}

// One attempt. Any failure but a policy's "no" leaves the choice to run unshared, which `unshared`
// then tells.
Result<Job> try_job(const Options& options, const std::string& library, bool& unshared) {
  unshared = true;
  auto monitor = connect_or_start();
  if (!monitor) return monitor.error();
  const auto against = doubt(*monitor);
  if (against && against->no_gpu) return Error{kRunRefused, against->text};
  auto made = monitor->ask(create_request(options.card));
  if (!made) {
    unshared = made.error().code == kMonitorUnreachable || made.error().code == kTimedOut;
    return made.error();
  }
  if (against) complain(against->text);
  Job job{text_of(*made, "job", ""), text_of(*made, "name", ""), monitor->socket(), library};
  if (job.id.empty()) return Error{kFailure, "the monitor made a job but did not name it"};
  return job;
}

// The job as the monitor made it, or why there will be none.
Result<Job> make_job(const Options& options, bool& unshared) {
  unshared = true;
  auto library = find_library();
  if (!library) return library.error();
  // A monitor whose last job has just gone may end between our question and its answer.
  constexpr int kAttempts = 3;
  for (int i = 1;; ++i) {
    auto job = try_job(options, *library, unshared);
    if (job || i == kAttempts || job.error().code != kMonitorUnreachable) return job;
  }
}

int start_unshared(const Options& options, const std::string& why,
                   const std::vector<std::string>& command) {
  if (options.require) {
    complain(fmt::format("{}; not started, for --require was given", why));
    return kRunRefused;
  }
  complain(fmt::format("{}; starting unshared", why));
  leave_job();
  return become(command);
}

int run(const Options& options, const std::vector<std::string>& command) {
  if (command.empty()) {
    return fail({kUsage, "run needs a command: switchyard run [OPTIONS] -- COMMAND [ARGUMENTS]"});
  }
  Options checked = options;
  auto card = make_card(options.card);
  if (!card) return fail(card.error());
  checked.card = *card;
  if (auto refused = refuse_program(command[0])) return fail(*refused);
  const char* off = std::getenv("SWITCHYARD_DISABLE");
  if (off != nullptr && std::string_view(off) == "1") {
    return start_unshared(checked, "SWITCHYARD_DISABLE is set", command);
  }
  bool unshared = false;
  auto job = make_job(checked, unshared);
  if (!job && unshared) return start_unshared(checked, job.error().text, command);
  if (!job) {
    // A bad value that only the monitor could see is still the caller's mistake.
    const int code = job.error().code == kUsage ? int{kUsage} : int{kRunRefused};
    return fail({code, job.error().text});
  }
  if (!job->name.empty()) checked.card["name"] = job->name;
  enter_job(job->id, checked.card, job->socket, job->library, checked.require);
  return become(command);
}

}  // namespace

void split_command(std::vector<std::string>& arguments, std::vector<std::string>& command) {
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool marker = word == "--";
    const bool option = word.size() > 1 && word[0] == '-';
    if (marker || !option) {
      const auto first = arguments.begin() + static_cast<std::ptrdiff_t>(i);
      command.assign(first + (marker ? 1 : 0), arguments.end());
      arguments.erase(first, arguments.end());
      return;
    }
    const bool alone = word == "-h" || word == "--help" || word == "--require" ||
                       word == "--swappable" || word == "--oversubscribe" ||
                       word.find('=') != std::string::npos;
    if (!alone) ++i;  // its value
  }
}

void add_run(CLI::App& app, Outcome& outcome) {
  CLI::App* sub = app.add_subcommand(
      "run", "start a job that shares the GPU: run [OPTIONS] -- COMMAND [ARGUMENTS]");
  sub->footer(kExamples);
  const auto options = std::make_shared<Options>();
  for (const Knob& knob : knobs()) {
    if (knob.option == nullptr) continue;
    const std::string field = knob.field;
    const std::string help = knob.fallback[0] != '\0'
                                 ? fmt::format("{} [{}]", knob.meaning, knob.fallback)
                                 : std::string(knob.meaning);
    if (knob.type_name == nullptr) {
      sub->add_flag_callback(
          knob.option, [options, field] { options->card[field] = "yes"; }, help);
      continue;
    }
    sub->add_option_function<std::string>(
           knob.option, [options, field](const std::string& text) { options->card[field] = text; },
           help)
        ->type_name(knob.type_name);
  }
  sub->add_flag("--require", options->require, "refuse to start unshared (exit 125)");
  add_socket_option(*sub);
  sub->callback([options, &outcome] { outcome.code = run(*options, outcome.command); });
}

}  // namespace switchyard::tools
