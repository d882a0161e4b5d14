#include "tools/stats/stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "switchyard/settings.h"
#include "tools/base/guards.h"
#include "tools/base/known_gpus.h"
#include "tools/base/monitor_client.h"
#include "tools/base/sockets.h"
#include "tools/base/stalls.h"
#include "tools/base/targets.h"
#include "tools/base/terminal.h"
#include "tools/base/unserved.h"
#include "tools/stats/communication.h"
#include "tools/stats/ended.h"
#include "tools/stats/latency.h"
#include "tools/stats/noise.h"
#include "tools/stats/progress.h"
#include "tools/stats/rates.h"
#include "tools/stats/table.h"
#include "tools/stats/waits.h"

namespace switchyard::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  Selection selection;
  std::optional<std::string> interval;
  bool watch = false;
  bool latency = false;
  bool json = false;
};

constexpr std::chrono::seconds kInterval{1};
// Where nobody asked before, the monitor begins to look for iterations now. A program that repeats
// nothing has no end of that.
constexpr std::chrono::seconds kPatience{3};
constexpr std::chrono::milliseconds kAskAgain{250};

constexpr char kExamples[] = R"(Examples:
  switchyard stats
      what all jobs did within one second
  switchyard stats train --interval 10s
  switchyard stats train --watch
  switchyard stats train --json | jq '.jobs[].iterations_per_second'
  switchyard stats chat --latency --interval 10s
      how long its bursts of work waited for the GPU, as a histogram

IT/S are iterations, by what repeats in the sequence of a job's collectives, or of its kernels and
graphs where it has none. Kernels are looked at while somebody asks and for a minute after that,
which costs some nanoseconds for each launch. '-': nothing repeats (yet). Without --interval the
command looks for up to 3 s for that, and says so. A step of several micro-batches is one iteration if its optimizer
launches enough. Else each micro-batch is one.

GPU is GPU time per second, and WAITS is what the job lacked of it, by reason; on one GPU both are 1
at most. 'slices 70% (a 67%)': it had work while the time slices of others, mostly of a, had the
GPU. What is left its CPU brought no work for. All figures of a row are of the same interval, on the
monitor's clock. '~' marks a GPU time that slices allot and nothing measures, and an IT/S of the last
10 s, where too few iterations began in the interval. '*' marks launches of one kernel: no step was
found.

COMM is the part of the time in which collectives run on the GPU. Of that, "hidden" is the part in
which the stream that computes did not wait; "for peers" is the part of the time in which a rank
waits in its collectives for ranks that come later. They are timed while somebody asks and for a
minute after that, and not in graphs.

The other rates are those of a job's busiest process, and of a communicator's busiest rank: all
ranks of one launch the same operations. BYTES are those of the buffers, as nccl-tests counts them.
BEHIND names the ranks that have launched less than others, for a moment in any job. A rank that
others have waited for longer than 3 s is named below the table, with what it lacks and what it
does. A job with --gradient-noise has a line with its critical batch below the table, or with why
there is none. SLOWEST is the rank that launches the same collectives last, and by how much.

A terminal gets one row for each job, with the ranks of its largest communicator, in the columns that
fit. A line below says what is not shown. A pipe gets all columns, and a row for each communicator.

Without a monitor there are no jobs, and the table is empty.
Exit status: 0, also without a monitor; 2 a bad value or a socket path that is too long, 3 nothing
listens at a socket that was named or left behind, 4 no such job or GPU, also without a monitor, 5
that monitor is not to be trusted, 7 it does not answer.)";

std::string rate_text(double rate) {
  return rate < 10 ? fmt::format("{:.1f}", rate) : fmt::format("{:.0f}", rate);
}

// To a hundredth of it, or finer.
std::string iterations(const nlohmann::json& job) {
  const auto found = job.find("iterations_per_second");
  if (found == job.end() || !found->is_number()) return "-";
  const auto rate = found->get<double>();
  return fmt::format("{}{:.{}f}{}", truth_of(job, "iterations_estimated") ? "~" : "", rate,
                     rate < 10     ? 3
                     : rate < 1000 ? 1
                                   : 0,
                     truth_of(job, "iterations_are_launches") ? "*" : "");
}

double number(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

// "rank 1 (pid 4711) by 3"
std::string behind(const nlohmann::json& communicator) {
  std::string text;
  for (const auto& rank : list_of(communicator, "behind")) {
    text +=
        fmt::format("{}rank {} (pid {}) by {}", text.empty() ? "" : ", ", number_of(rank, "rank"),
                    number_of(rank, "pid"), number_of(rank, "operations"));
  }
  return text.empty() ? "-" : text;
}

// "all_reduce 120 (3.0 GiB)", of each second
std::string kinds(const nlohmann::json& job) {
  std::string text;
  const auto found = job.find("kinds_per_second");
  if (found == job.end() || !found->is_object()) return "-";
  const nlohmann::json bytes = job.value("kind_bytes_per_second", nlohmann::json::object());
  for (const auto& [kind, rate] : found->items()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind, rate_text(rate.get<double>()));
    if (!bytes.is_object() || !bytes.contains(kind)) continue;
    text +=
        fmt::format(" ({})", human_bytes(static_cast<std::uint64_t>(number(bytes, kind.c_str()))));
  }
  return text.empty() ? "-" : text;
}

// "rank 1 by 3.1 ms"
std::string slowest(const nlohmann::json& job) {
  const auto found = job.find("slowest_rank");
  if (found == job.end() || !found->is_object()) return "-";
  return fmt::format("rank {} by {:.1f} ms", number_of(*found, "rank"),
                     number(*found, "late_seconds") * 1000);
}

std::string gpu_time(const nlohmann::json& job) {
  const double seconds = number(job, "interval_seconds");
  if (seconds <= 0) return "-";
  const double gpu = number(job, "gpu_seconds");
  const bool estimated = number(job, "gpu_seconds_estimated") > 0.05 * gpu;
  return fmt::format("{}{:.2f}", estimated ? "~" : "", gpu / seconds);
}

// What the marks in the table mean, where there are any.
void print_legend(const nlohmann::json& jobs) {
  bool estimated = false, longer = false, launches = false;
  for (const auto& job : jobs) {
    estimated = estimated || gpu_time(job).rfind('~', 0) == 0;
    longer = longer || truth_of(job, "iterations_estimated");
    launches = launches || truth_of(job, "iterations_are_launches");
  }
  const auto say = [](const char* text) { fmt::print("{}\n", paint(Tone::kFaint, text)); };
  if (estimated) say("GPU ~: an estimate, wrong by up to two thirds; of all jobs by a tenth");
  if (longer) say("IT/S ~: of the last 10 s, because too few iterations began in the interval");
  if (launches) say("IT/S *: launches of one kernel; no step was found");
}

void print(const nlohmann::json& listing) {
  const Paper paper{terminal_columns(), utf8_locale()};
  StatsTable table(paper);
  for (const auto& job : list_of(listing, "jobs")) {
    table.add_job({text_of(job, "name") + (has_ended(job) ? " (ended)" : ""), iterations(job),
                   gpu_time(job), waits_text(job), communication_text(job), "", "",
                   rate_text(number(job, "collectives_per_second")),
                   human_bytes(static_cast<std::uint64_t>(number(job, "bytes_per_second"))),
                   kinds(job), "", slowest(job)});
    for (const auto& each : list_of(job, "communicators")) {
      table.add_communicator(
          {"", "", "", "", "", text_of(each, "id"), std::to_string(number_of(each, "size")),
           rate_text(number(each, "collectives_per_second")),
           human_bytes(static_cast<std::uint64_t>(number(each, "bytes_per_second"))), "",
           behind(each), ""});
    }
  }
  fmt::print("{}", table.render());
  print_legend(list_of(listing, "jobs"));
  print_guards(list_of(listing, "jobs"));
  print_stalls(list_of(listing, "jobs"));
  for (const auto& job : list_of(listing, "jobs")) {
    const std::string noise = noise_text(job);
    if (!noise.empty()) fmt::print("{}: {}\n", text_of(job, "name"), noise);
  }
}

void print_latency(const nlohmann::json& jobs) {
  for (const auto& job : jobs) fmt::print("{}", latency_text(job));
  if (!jobs.empty()) fmt::print("{}\n", paint(Tone::kFaint, kLatencySees));
}

// 'train', or as many as there are.
std::string named(const Options& options) {
  return fmt::format("'{}'", fmt::join(options.selection.words, "', '"));
}

struct Look {
  nlohmann::json listing;
  Clock::time_point at;
};

// `earlier`: the last look, whose jobs may have ended since, and the monitor with the last of them.
Result<Look> ask(const Options& options, const Look* earlier = nullptr) {
  nlohmann::json request{{"op", "ps"}, {"iterations", true}};
  if (options.latency) request["latency"] = true;
  auto reply = MonitorClient::ask_any(request);
  const bool ended =
      !reply && earlier != nullptr && reply.error().code == kMonitorUnreachable && monitor_absent();
  if (ended || (!reply && is_unserved(reply.error()))) {
    // A command that names a job expects one, unless it has seen that job already.
    const auto& words = options.selection.words;
    if (!words.empty() && earlier == nullptr) return no_such_job(words.front());
    reply = nlohmann::json{{"monitor", nullptr}, {"jobs", nlohmann::json::array()}};
  }
  if (!reply) return reply.error();
  if (earlier == nullptr && !options.selection.gpus.empty()) {
    const auto status = MonitorClient::ask_any({{"op", "status"}});
    const auto unknown =
        status ? unknown_gpu(options.selection, list_of(*status, "gpus"), list_of(*reply, "jobs"))
               : std::nullopt;
    if (unknown) return *unknown;
  }
  const auto refused =
      keep_selected(*reply, options.selection, earlier != nullptr ? &earlier->listing : nullptr);
  if (refused) return *refused;
  if (earlier != nullptr) keep_ended(earlier->listing, *reply);
  return Look{std::move(*reply), Clock::now()};
}

double between(const Look& before, const Look& after) {
  return std::chrono::duration<double>(after.at - before.at).count();
}

// Those that were asked for by name have ended: there is nothing to wait for.
bool all_ended(const Options& options, const Look& look) {
  const auto& jobs = list_of(look.listing, "jobs");
  return !options.selection.words.empty() && !jobs.empty() &&
         std::all_of(jobs.begin(), jobs.end(), has_ended);
}

// "'a', 'b'": those of which something is not known yet; empty: all is.
std::string still_unknown(const Look& look) {
  std::string names;
  for (const auto& job : list_of(look.listing, "jobs")) {
    if (!still_measuring(job)) continue;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", text_of(job, "name"));
  }
  return names;
}

// The second look: after the interval, or a little later if it is not known yet what repeats. In
// between it looks, too: what a job that ends did last is known from there.
Result<Look> ask_later(const Options& options, const Look& before, Clock::duration interval) {
  auto until = before.at + interval;
  bool said = false;
  Look last = before;
  for (;;) {
    std::this_thread::sleep_until(std::min(until, Clock::now() + kAskAgain));
    auto next = ask(options, &last);
    if (!next) return next;
    last = std::move(*next);
    if (all_ended(options, last)) return last;
    if (last.at < until) continue;
    const std::string unknown = still_unknown(last);
    if (unknown.empty() || last.at - before.at >= kPatience || options.interval || options.watch) {
      return last;
    }
    if (!std::exchange(said, true)) {
      complain(
          fmt::format("nothing that repeats is known of {} yet: looking for at most {} s more; "
                      "--interval 1s does not wait",
                      unknown, kPatience / std::chrono::seconds(1) - 1));
    }
    until = std::min(Clock::now() + kAskAgain, before.at + kPatience);
  }
}

// False: it could not be written, and neither can the next one.
bool show(const Options& options, nlohmann::json listing) {
  if (options.json) {
    (options.watch ? print_json_line : print_json)(std::move(listing));
  } else {
    // The upper left corner, and nothing below.
    if (options.watch && colours(stdout)) fmt::print("\x1b[H\x1b[J");
    print(listing);
    if (options.latency) print_latency(list_of(listing, "jobs"));
  }
  return output_written();
}

int stats(const Options& options) {
  Clock::duration interval = kInterval;
  if (options.interval) {
    const auto given = parse_seconds(*options.interval);
    if (!given || given->count() <= 0) {
      return fail(bad_value("--interval", *options.interval, "a time such as 1s or 500ms"));
    }
    interval = *given;
  }
  auto before = ask(options);
  if (before && !options.json && list_of(before->listing, "jobs").empty()) {
    const auto monitor = before->listing.find("monitor");
    const bool unserved = monitor != before->listing.end() && monitor->is_null();
    if (unserved) {
      say_unserved();
    } else {
      complain(options.selection.means_all() ? kNoJobs
                                             : "no job fits; `switchyard ps` lists the jobs");
    }
  }
  while (before) {
    auto after = ask_later(options, *before, interval);
    if (!after) return fail(after.error());
    const auto said = rates(before->listing, after->listing, between(*before, *after));
    if (!show(options, said)) return kFailure;
    if (all_ended(options, *after)) {
      const auto& rows = list_of(said, "jobs");
      complain(fmt::format("job {} has ended", named(options)) +
               (rows.empty() ? std::string()  // it came and went between two looks
                             : fmt::format(": these figures are of its last {:.1f} s",
                                           number(rows[0], "interval_seconds"))));
      return kOk;
    }
    if (!options.watch) return kOk;
    forget_ended(after->listing);
    before = std::move(after);
  }
  return fail(before.error());
}

}  // namespace

void add_stats(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Subcommand sub =
      line.add("stats", "show what the jobs do: iterations, collectives, waits", kExamples);
  take_jobs_or_all(sub, options->selection);
  sub.option("--interval", "TIME", options->interval, "count for so long (1s)")
      .flag("--watch", options->watch, "go on, with one listing for each interval")
      .flag("--latency", options->latency, "how long bursts of high jobs waited for the GPU")
      .monitor_options(options->json)
      .acts([options] { return stats(*options); });
}

}  // namespace switchyard::tools
