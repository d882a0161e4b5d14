#include "tools/run/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>

#include "switchyard/settings.h"
#include "switchyard/variables.h"
#include "tools/base/knobs.h"
#include "tools/base/places.h"
#include "tools/run/autostart.h"
#include "tools/run/bill.h"
#include "tools/run/environment.h"
#include "tools/run/gpus.h"
#include "tools/run/island/island.h"
#include "tools/run/options.h"
#include "tools/run/program.h"
#include "tools/run/refuse.h"
#include "tools/run/request.h"
#include "tools/run/supervise.h"

namespace switchyard::tools {
namespace {

struct Job {
  std::string id;
  std::string name;
  std::string socket;
  std::string library;
};

constexpr char kOnIslandFailure[] = "on-island-failure";

constexpr char kExamples[] = R"(Examples:
  switchyard run -- python train.py
      share the GPU equally with the other jobs
  switchyard run --name chat --priority high -- python serve.py
      low latency: other jobs yield while this one works
  switchyard run --priority low --memory 40GiB -- python train.py
      use the GPU time that others leave; 40 GiB per GPU are reserved for this job
  switchyard run --limit 30% --deadline 10m -- python eval.py
      at most 30 % of the GPU's time; `switchyard policy deadline` puts the nearest deadline first
  switchyard run --share 4 --on-oom wait --oom-timeout 10m -- ./job.sh
      four times the weight of a job with 1; allocations wait for memory instead of failing
  switchyard run --swappable --name train -- python train.py
      `switchyard swap-out train` and `pause --release train` free its device memory for others
  switchyard run --idle-release 10m -- jupyter lab
      its memory is swapped out after 10 idle minutes, and in again at its next CUDA call
  switchyard run --oversubscribe -- python train.py
      alternate on the GPU with other such jobs when their memory does not fit together
  switchyard run --co-run --priority low -- python train.py
      its kernels run at once with those of the user's other jobs with --co-run, by MPS
  switchyard run --gpus 0,2 --memory 40GiB -- torchrun train.py
      the job sees GPUs 0 and 2 alone; 40 GiB are reserved on each of them

A job without settings starts unmanaged, with a message, where Switchyard cannot manage it: without
a monitor or a GPU. A job with --memory, --priority, --limit or another setting is refused there
(125), unless --best-effort is given. --require refuses every job there. A job that was started with
--require finds no CUDA device while there is no monitor. --gpus is refused where the GPUs cannot be
listed (125). With --best-effort, CUDA_VISIBLE_DEVICES is then set to the list as given.

Inside another `run`, the command joins the outer job and shares its settings. Settings that differ
from the outer job's are refused (125). `switchyard run --separate ...` starts a separate job there,
with none of the outer job's settings. Without --gpus it sees the same GPUs as the outer job.

Exit status: the job's own (128+N for signal N), 2 for a usage error, 125 when Switchyard refuses to
start it, 126 and 127 when the command can't be executed or found.)";

// Replaces this process by the command; returns only when that failed.
int become(const std::vector<std::string>& command) { return fail(execute(command)); }

// One attempt. Any failure but a policy's "no" leaves the choice to run unmanaged, which
// `unmanaged` then tells.
Result<Job> try_job(const RunOptions& options, const std::string& library, bool& unmanaged) {
  unmanaged = true;
  auto monitor = connect_or_start();
  if (!monitor) return monitor.error();
  const auto against = doubt(*monitor);
  if (against && against->no_gpu) return Error{kRunRefused, against->text};
  if (against) {
    if (auto refused = refuse_shares(options, *against)) {
      unmanaged = false;
      return *refused;
    }
  }
  auto made = monitor->ask(create_request(options.card, options.command));
  if (!made) {
    unmanaged = made.error().code == kMonitorUnreachable || made.error().code == kTimedOut;
    return made.error();
  }
  if (against) complain(against->text);
  Job job{text_of(*made, "job", ""), text_of(*made, "name", ""), monitor->socket(), library};
  if (job.id.empty()) return Error{kFailure, "the monitor made a job but did not name it"};
  return job;
}

// The job as the monitor made it, or why there will be none.
Result<Job> make_job(const RunOptions& options, bool& unmanaged) {
  unmanaged = true;
  auto library = find_library();
  if (!library) return library.error();
  // A monitor whose last job has just gone may end between our question and its answer.
  constexpr int kAttempts = 3;
  for (int i = 1;; ++i) {
    auto job = try_job(options, *library, unmanaged);
    if (job || i == kAttempts || job.error().code != kMonitorUnreachable) return job;
  }
}

int start_unmanaged(const RunOptions& options, const std::string& why,
                    const std::vector<std::string>& command) {
  if (auto refused = refuse_unmanaged(options, why)) return fail(*refused);
  complain(fmt::format("{}; starting unmanaged{}", why, options.report ? ", without a bill" : ""));
  leave_job();
  return become(command);
}

// Inside another run: the command becomes a process of the outer job.
int join_outer_job(const RunOptions& options, const std::vector<std::string>& command) {
  const char* name = std::getenv("SWITCHYARD_NAME");
  const std::string outer = name != nullptr ? name : std::getenv("SWITCHYARD_JOB");
  const auto beyond = beyond_outer_job(options.card);
  if (!beyond.empty()) {
    const std::string text = fmt::format(
        "inside job '{}' a nested run belongs to that job, which was started without {} {}", outer,
        beyond.front().origin, beyond.front().text);
    if (!options.best_effort) {
      return fail({kRunRefused, text + "; leave the option out, or start a separate job: "
                                       "switchyard run --separate"});
    }
    complain(text + "; the option is ignored");
  }
  if (const auto given = options.card.find("name");
      given != options.card.end() && given->second != outer) {
    complain(
        fmt::format("inside job '{}' a nested run belongs to that job; --name is ignored", outer));
  }
  if (options.report) complain(fmt::format("job '{}' has one bill: --report is ignored", outer));
  auto library = find_library();
  if (!library) return fail({kRunRefused, library.error().text});
  if (auto monitor = connect_or_start(); !monitor) {
    if (auto refused = refuse_unmanaged(options, monitor.error().text)) return fail(*refused);
    complain(monitor.error().text + "; starting unmanaged until a monitor answers");
  }
  stay_in_job(*library, options.require);
  return become(command);
}

void warn_of_unknown_variables() {
  char names[512];
  if (!list_unknown_variables(environ, names)) return;
  complain(
      fmt::format("unknown to Switchyard, and ignored: {}; see `switchyard run --help`", names));
}

// The island that is asked for, if any. An error: there is none for this job.
std::optional<Error> choose_island(RunOptions& options, std::optional<island::Island>& out) {
  const auto name = parse_island(options.card["co_run"]);
  if (!name || name->empty()) return std::nullopt;
  auto island = island::choose(*name);
  if (island) {
    out = *island;
    return std::nullopt;
  }
  if (!options.best_effort) return island.error();
  complain(island.error().text + "; the job starts in no island");
  options.card["co_run"].clear();
  return std::nullopt;
}

int run(const RunOptions& options, const std::vector<std::string>& command) {
  if (command.empty()) {
    return fail({kUsage, "run needs a command: switchyard run [OPTIONS] -- COMMAND [ARGUMENTS]"});
  }
  if (options.require && options.best_effort) {
    return fail({kUsage, "--require and --best-effort exclude each other: give one of them"});
  }
  if (options.separate && inside_job()) leave_job();  // the variables are the outer job's
  auto card = make_card(options.card);
  if (!card) return fail(card.error());
  RunOptions checked = options;
  checked.command = command;
  checked.promises = promises_of(options.card);
  if (inside_job() && options.gpus) {
    return fail({kRunRefused,
                 "inside a job --gpus cannot be given: the outer run has chosen the "
                 "GPUs; set CUDA_VISIBLE_DEVICES to use some of them, or start a separate job: "
                 "switchyard run --separate"});
  }
  // A user who throws this switch wants every program to start, also if SWITCHYARD_REQUIRE is set.
  const bool off = flag_variable("SWITCHYARD_DISABLE");
  if (options.gpus) {
    if (auto refused = show_gpus(*options.gpus, options.best_effort || off)) return fail(*refused);
  }
  if (auto refused = refuse_program(command[0])) return fail(*refused);
  warn_of_unknown_variables();
  if (off) {
    checked.promises.clear();
    return start_unmanaged(checked, "SWITCHYARD_DISABLE is set", command);
  }
  if (!checked.require && !checked.best_effort && flag_variable("SWITCHYARD_REQUIRE")) {
    checked.require = true;
    checked.require_origin = "SWITCHYARD_REQUIRE is set";
  }
  if (inside_job()) return join_outer_job(checked, command);
  if (auto refused = refuse_swapping(checked)) return fail(*refused);
  checked.card = *card;
  std::optional<island::Island> island;
  if (auto refused = choose_island(checked, island)) return fail(*refused);
  bool unmanaged = false;
  auto job = make_job(checked, unmanaged);
  if (!job && unmanaged) return start_unmanaged(checked, job.error().text, command);
  if (!job) {
    // A bad value that only the monitor could see is still the caller's mistake.
    const int code = job.error().code == kUsage ? int{kUsage} : int{kRunRefused};
    return fail({code, job.error().text});
  }
  if (!job->name.empty()) checked.card["name"] = job->name;
  if (island) {
    const auto failed = island::enter(*island, job->socket, job->library);
    if (failed && !checked.best_effort) return fail(*failed);
    if (failed) complain(failed->text + "; the job starts outside of its island");
  }
  enter_job(job->id, checked.card, job->socket, job->library, checked.require);
  if (options.tells != -1) tell_job(options.tells, job->id, job->socket);
  return become(command);
}

// Whether `word` is an option of `run` that takes no value.
bool is_flag(const std::string& word) {
  for (const char* flag :
       {"-h", "--help", "--require", "--best-effort", "--separate", "--report"}) {
    if (word == flag) return true;
  }
  return std::any_of(knobs().begin(), knobs().end(), [&](const Knob& knob) {
    return knob.option != nullptr && knob.may_be_flag() && word == knob.option;
  });
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
    const bool alone = is_flag(word) || word.find('=') != std::string::npos;
    if (!alone) ++i;  // its value
  }
}

namespace {

// In the order of --help: what most jobs need, and what few do. All others stand below the last.
struct Heading {
  const char* text;
  std::initializer_list<std::string_view> fields;
  bool has(const Knob& knob) const {
    return std::find(fields.begin(), fields.end(), knob.field) != fields.end();
  }
};
const Heading kHeadings[] = {
    {"What a job gets", {"name", "priority", "share", "limit", "memory"}},
    {"Memory that doesn't fit",
     {"on_oom", "oom_timeout", "swappable", "idle_release", "oversubscribe", "park"}},
    {"For some jobs", {}},
};

bool belongs(const Knob& knob, const Heading& heading) {
  const bool named = std::any_of(std::begin(kHeadings), std::end(kHeadings),
                                 [&](const Heading& each) { return each.has(knob); });
  return named ? heading.has(knob) : heading.fields.size() == 0;
}

void add_knobs(Subcommand& sub, const std::shared_ptr<RunOptions>& options,
               const Heading& heading) {
  sub.heading(heading.text);
  for (const Knob& knob : knobs()) {
    if (knob.option == nullptr || !belongs(knob, heading)) continue;
    const std::string help = knob.fallback[0] != '\0'
                                 ? fmt::format("{} [{}]", knob.meaning, knob.fallback)
                                 : std::string(knob.meaning);
    const auto take = [options, &knob](const std::string& text) {
      options->card[knob.field] = text;
    };
    if (knob.may_be_flag()) {
      // A flag takes a value, too: the check of the knob refuses a bad one with the forms.
      sub.flag_or_option(knob.option, knob.is_flag() ? "" : knob.type_name, take, help);
      continue;
    }
    sub.option(knob.option, knob.type_name, take, help);
  }
}

// Refuses values of --report and --restart that make no sense.
std::optional<Error> refuse_to_stay(const RunOptions& options) {
  const std::string& how = options.report_how;
  if (!how.empty() && how != "yes" && how != "after") {
    return bad_value("--report", how, "no value, or 'after'");
  }
  if (options.restart.empty()) return std::nullopt;
  if (options.restart != kOnIslandFailure) {
    return bad_value("--restart", options.restart, kOnIslandFailure);
  }
  if (how == "after") {
    return Error{kUsage,
                 "--restart and --report=after exclude each other: --report tells the bill"};
  }
  const auto card = make_card(options.card);
  const auto island = card ? parse_island(card->at("co_run")) : std::nullopt;
  if (card && (!island || island->empty())) {
    return Error{kUsage,
                 "--restart on-island-failure needs --co-run: no other job is in an island"};
  }
  return std::nullopt;
}

int start(const std::shared_ptr<RunOptions>& options, const std::vector<std::string>& command) {
  if (const auto refused = refuse_to_stay(*options)) return fail(*refused);
  options->report = !options->report_how.empty();
  if (!options->report && options->restart.empty()) return run(*options, command);
  const auto told = [options, &command](int tells) {
    options->tells = tells;
    return run(*options, command);
  };
  if (options->report_how == "after") return run_and_tell_bill_after(told);
  return run_and_stay(told, {.bill = options->report, .restart = !options->restart.empty()});
}

}  // namespace

void add_run(CommandLine& line) {
  const auto options = std::make_shared<RunOptions>();
  Subcommand sub = line.add("run", "start a job", kExamples);
  sub.takes_command();
  for (const Heading& heading : kHeadings) add_knobs(sub, options, heading);
  sub.heading("Where and how it starts");
  sub.option(
      "--gpus", "LIST", [options](const std::string& text) { options->gpus = text; },
      "the GPUs that it sees, by index or UUID, as in 0,2; sets CUDA_VISIBLE_DEVICES");
  sub.flag("--require", options->require, "fail (exit 125) instead of running unmanaged")
      .flag("--best-effort", options->best_effort,
            "start unmanaged where the settings cannot be enforced")
      .flag("--separate", options->separate,
            "inside another run: start a separate job with none of the outer job's settings")
      .flag_or_option(
          "--report", "[=after]",
          [options](const std::string& text) { options->report_how = text; },
          "stay, and tell what the job had when it ends, on stderr; after: another process tells "
          "it")
      .option(
          "--restart", kOnIslandFailure,
          [options](const std::string& text) { options->restart = text; },
          "stay, and run it once more, up to 10 times, when it fails with its island (--co-run)")
      .socket_option()
      .acts([options, &line] { return start(options, line.command); });
}

}  // namespace switchyard::tools
