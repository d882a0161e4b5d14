#include "tools/ps/ps.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "tools/base/guards.h"
#include "tools/base/known_gpus.h"
#include "tools/base/monitor_client.h"
#include "tools/base/stalls.h"
#include "tools/base/table.h"
#include "tools/base/targets.h"
#include "tools/base/terminal.h"
#include "tools/base/unserved.h"
#include "tools/ps/about.h"
#include "tools/ps/drawing.h"
#include "tools/ps/memory.h"
#include "tools/ps/unmanaged.h"

namespace switchyard::tools {
namespace {

constexpr char kExamples[] = R"(Examples:
  switchyard ps
  switchyard ps 'train-*' --state held,waiting
  switchyard ps --gpu 0 -o wide
  switchyard ps -a
  switchyard ps --format '{name} {memory}'
  switchyard pause $(switchyard ps -q --user alice)
  switchyard ps --json | jq '.jobs[] | {name, user, state}'

One row per job, in the columns of the terminal (or COLUMNS); a pipe gets it uncut. NAME is a job's
name or id, the beginning of an id, the PID of one of its processes, or a pattern. Each command that
takes a NAME takes these, and the options --user, --gpu and --state. A job must fit all of them.

GPU are the indices of those where it has work or memory. GPU% is what it got of their time lately,
on the mean; '~': time slices allot it and nothing measures it. MEM/QUOTA is on these GPUs together.
The last line counts all jobs. It names idle jobs that hold memory and GPUs that nobody uses.

-o wide has more columns: ERR%, by which GPU% may be wrong, ASKED% of the time that the settings ask
for, WEIGHT (--share), RESIDENT memory of swappable jobs, SLICE, the hardware time slice in force
('default' is the driver's own, '!': the driver refused it), and RANKS of its largest NCCL
communicator, of how many.

STATE says why a job does not run; `switchyard why NAME` says more:
  held: limit 30%           it has used up its --limit
  held: guard of NAME       it slows down a job that has a --guard; a line below names that
  stopping for a pause      its ranks are being stopped together, for a pause, a swap or a turn
  waiting: turn of NAME     another job has the GPU
  waiting: 8 GiB of NAME    it needs memory of the GPU, and that job has it
  stopped: signal           its process can't act: it is stopped by a signal, or by a debugger, in
                            a frozen cgroup, writes a core dump, or waits for a disk
  stalled: rank 1           its other ranks wait for this one; a line below tells more
  no CUDA yet               it has made no CUDA context
  unmanaged: old library    its library speaks another version than the monitor
  swapped: ..., moving in 42%
                            its memory is in the host, or is being copied; 'GPU 1' names where, if
                            that of another GPU is still there; 'parked on' names another GPU
                            that has it instead of the host

--memory shows which memory of each job can be swapped out, and why the rest cannot. USED is the sum
of SWAPPABLE, OVERHEAD (contexts, modules) and STAYS (not swappable, by reason). ON GPU is the part
of SWAPPABLE that is on the device. IPC-imported memory is charged to the job that made it. OUT and
IN are the bytes copied to the host and back; TIMES is how often the job was swapped out. SKIPPED
was not copied, because it was unchanged since the last swap or all zero.

-a shows GPU processes that no job has: user, container by its cgroup, memory by NVML. Their SHARE is
estimated from NVML's samples, so it has a '~'. COMMAND is for root and the owner of the process.
Without -a the last line counts them.

Without a monitor there are no jobs: the table is empty, and the GPUs' processes stand below it.
Exit status: 0, also without a monitor; 2 a bad value, an ambiguous id or a socket path that is too
long, 3 nothing listens at a socket that was named or left behind, 4 no such job or GPU, 5 that
monitor is not to be trusted, 7 it does not answer.)";

void print_best_effort(const nlohmann::json& jobs) {
  for (const auto& job : jobs) {
    if (!truth_of(job, "pause_best_effort")) continue;
    fmt::print("{}\n",
               paint(Tone::kWarning, fmt::format("{}: its pause is best effort: its processes are "
                                                 "held one by one",
                                                 text_of(job, "name"))));
  }
}

// What may still run of a paused job.
void print_undrained(const nlohmann::json& jobs) {
  for (const auto& job : jobs) {
    const auto drained = job.find("drained");
    if (text_of(job, "state") != "paused" || drained == job.end()) continue;
    if (drained->is_boolean() && drained->get<bool>()) continue;
    const char* what = drained->is_boolean()
                           ? "work that was queued before the pause still runs"
                           : "work that was queued before the pause may still run: it was not "
                             "counted";
    fmt::print("{}\n", paint(Tone::kWarning, fmt::format("{}: {}", text_of(job, "name"), what)));
  }
}

// Why memory is not where it was asked to be.
void print_stuck(const nlohmann::json& jobs) {
  for (const auto& job : jobs) {
    std::string why;
    bool waits = false;
    for (const auto& gpu : list_of(job, "gpus")) {
      why = text_of(gpu, "swap_error", why);
      waits = waits || truth_of(gpu, "swap_waits_for_room");
    }
    if (why.empty()) continue;
    fmt::print("{}\n", paint(Tone::kWarning, fmt::format("{}: {}{}", text_of(job, "name"),
                                                         waits ? "" : "swapping failed: ", why)));
  }
}

struct Options {
  Selection selection;
  std::string output, format;
  bool json = false, memory = false, quiet = false, per_gpu = false, watch = false, all = false;
};

// A listing goes on after so long.
constexpr std::chrono::seconds kAgain{1};

// NOLINTNEXTLINE(bugprone-exception-escape): to move JSON throws nothing
struct Listing {
  nlohmann::json selected;  // as the monitor has it, with the jobs that are selected
  std::string summary;      // of all jobs; empty: there is none
  bool unserved = false, observed = false;

  const nlohmann::json& jobs() const { return list_of(selected, "jobs"); }
};

// Of 300 jobs it saves the default table two thirds of the text, and of the time to read it.
nlohmann::json request_of(const Options& options, bool draws) {
  nlohmann::json out = {{"op", "ps"}};
  if ((options.quiet && !options.json) || (draws && !options.memory && options.output != "wide"))
    out["brief"] = true;
  return out;
}

// Two requests, however many jobs there are: the listing comes in parts of 128 KiB.
Result<Listing> look(const Options& options) {
  Listing out;
  const bool draws = !options.json && !options.quiet && options.format.empty();
  auto monitor = MonitorClient::connect_reader();
  auto reply = monitor ? monitor->ask(request_of(options, draws)) : monitor.error();
  out.unserved = !reply && is_unserved(reply.error());
  if (out.unserved) reply = list_unserved();
  if (!reply) return reply.error();
  out.selected = std::move(*reply);
  if (out.unserved && !options.selection.words.empty()) {
    return no_such_job(options.selection.words.front());
  }
  const bool narrowed = !out.unserved && !options.selection.gpus.empty();
  if (narrowed) {
    const auto status = monitor->ask({{"op", "status"}});
    const auto& gpus = status ? list_of(*status, "gpus") : list_of(nlohmann::json::object(), "");
    if (const auto unknown = unknown_gpu(options.selection, gpus, out.jobs())) return *unknown;
  }
  if (!draws) {
    // The listing says it by itself.
  } else if (out.unserved) {
    say_unserved();
  } else if ((out.observed = say_observed(out.selected))) {
    // It has no jobs.
  } else if (out.jobs().empty()) {
    complain(kNoJobs);
  } else if (!options.memory) {
    const auto status = monitor->ask({{"op", "status"}});
    out.summary =
        summary_of(out.selected, status ? list_of(*status, "gpus") : nlohmann::json::array());
  }
  if (const auto refused = keep_selected(out.selected, options.selection)) return *refused;
  return out;
}

void print_notes(const nlohmann::json& jobs) {
  print_best_effort(jobs);
  print_undrained(jobs);
}

void print_listing(const Options& options, const Listing& listing) {
  const Paper paper{options.output == "wide" ? 0 : terminal_columns(), utf8_locale()};
  if (options.memory) {
    print_memory(listing.jobs());
  } else {
    fmt::print("{}",
               draw_table(rows_of(listing.jobs(), options.per_gpu),
                          options.output == "wide" ? wide_fields() : default_fields(), paper));
    print_notes(listing.jobs());
  }
  print_stuck(listing.jobs());
  print_guards(listing.jobs());
  print_stalls(listing.jobs());
  if (!listing.summary.empty()) {
    fmt::print("{}\n", paint(Tone::kFaint, filled(listing.summary, paper.columns)));
  }
  const bool managed = !listing.unserved && !listing.observed;
  print_unmanaged(list_of(listing.selected, "outside"),
                  {.rows = options.all || !managed, .managed = managed});
}

std::optional<Error> show(const Options& options, Listing listing) {
  // Of 300 jobs this opens 300 files, which nobody needs for ids.
  if (!options.quiet || options.json) add_about(listing.selected, std::chrono::system_clock::now());
  if (options.json) {
    (options.watch ? print_json_line : print_json)(std::move(listing.selected));
    return std::nullopt;
  }
  if (options.quiet || !options.format.empty()) {
    const auto text = draw_format(rows_of(listing.jobs(), options.per_gpu),
                                  options.quiet ? "{id}" : options.format);
    if (!text) return text.error();
    fmt::print("{}", *text);
    return std::nullopt;
  }
  // The upper left corner, and nothing below.
  if (options.watch && colours(stdout)) fmt::print("\x1b[H\x1b[J");
  print_listing(options, listing);
  return std::nullopt;
}

int ps(Options& options) {
  if (!options.output.empty() && options.output != "wide" && options.output != "json") {
    return fail(bad_value("-o", options.output, "wide or json"));
  }
  options.json = options.json || options.output == "json";
  for (;;) {
    auto listing = look(options);
    if (!listing) return fail(listing.error());
    if (const auto refused = show(options, std::move(*listing))) return fail(*refused);
    if (!options.watch) return kOk;
    if (!output_written()) return kFailure;
    std::this_thread::sleep_for(kAgain);
  }
}

}  // namespace

void add_ps(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Subcommand sub = line.add("ps", "list the jobs: what they do, and what they use", kExamples);
  take_jobs_or_all(sub, options->selection);
  sub.flag("-a,--all", options->all, "show the unmanaged GPU processes, too")
      .option("-o,--output", "wide|json", options->output, "more columns, or JSON")
      .option("--format", "TEXT", options->format,
              "a line for each job, with {name}, {memory} and the like replaced")
      .flag("-q,--quiet", options->quiet, "only the ids")
      .flag("--per-gpu", options->per_gpu, "a row for each job and GPU")
      .flag("--watch", options->watch, "go on, with a listing each second")
      .flag("--memory", options->memory,
            "show which memory can be swapped out, and why the rest cannot")
      .monitor_options(options->json)
      .acts([options] { return ps(*options); });
}

}  // namespace switchyard::tools
