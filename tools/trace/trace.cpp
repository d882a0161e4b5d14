#include "tools/trace/trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "switchyard/settings.h"
#include "tools/base/monitor_client.h"
#include "tools/base/targets.h"
#include "tools/trace/only.h"
#include "tools/trace/page.h"
#include "tools/trace/perfetto.h"
#include "tools/trace/recording.h"
#include "tools/trace/spans.h"

namespace switchyard::tools {
namespace {

// As long as the monitor has room for turns of a millisecond on two GPUs.
constexpr double kMostSeconds = 60;

struct Options {
  Selection selection;
  std::optional<std::string> last;
  std::optional<std::string> seconds;
  std::string file;
  bool html = false;
};

constexpr char kExamples[] = R"(Examples:
  switchyard trace -o t.pftrace
      the last 60 s, for https://ui.perfetto.dev
  switchyard trace --html -o t.html
      the same as a page that a browser opens by itself
  switchyard trace --seconds 10 -o t.pftrace
      the next 10 s
  switchyard trace 'train-*' --gpu 0 -o t.pftrace
  switchyard trace --last 5s -o - | gzip > t.pftrace.gz

A track per GPU, and under it one per job: running, waiting and for whom, held, swapped, paused; its
share of the GPU, its memory and its processes at work. An arrow leads from the job that ran to the
one that runs next. The monitor always records the last 60 s. With many short turns on several GPUs
they may be fewer, which stderr says.

NAME is a job's name or id, the beginning of an id, the PID of a process that lives, or a pattern; a
job must fit all of the options. The tracks of other jobs are left out, and the GPUs' tracks have
the selected jobs alone. --state is about jobs that live.

Turns at gates are exact, other states are seen five times a second. Where time slices divide a GPU,
nobody sees which job has it at an instant: all of them are running there.

Exit status: 0; 1 the file can't be written; 2 a bad value, 3 no monitor, 4 no such job or
GPU, 7 the monitor does not answer.)";

// Nullopt: `error` is why.
std::optional<double> span_of(const char* option, const std::string& text, Error& error) {
  const auto span = parse_seconds(text);
  const double seconds = span ? std::chrono::duration<double>(*span).count() : 0;
  if (span && seconds > 0 && seconds <= kMostSeconds) return seconds;
  error = bad_value(option, text, "a time such as 10s or 500ms, of 60 s at most");
  return std::nullopt;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// Zero, or what stands in the way.
int write_file(const std::string& path, const std::string& bytes) {
  if (path == "-") {
    return std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() ? 0 : errno;
  }
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return errno;
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const int error = written ? 0 : errno;
  return std::fclose(file) != 0 && error == 0 ? errno : error;
}

void say_what_it_is(const Options& options, const trace::Timeline& timeline, std::size_t bytes) {
  std::size_t spans = 0;
  std::set<trace::JobKey> jobs;
  for (const trace::Lane& lane : timeline.lanes) {
    spans += lane.spans.size();
    jobs.insert(lane.job);
  }
  const double seconds = static_cast<double>(timeline.to - timeline.from) / 1e9;
  complain(fmt::format("{:.1f} s of {} job{} on {} GPU{}, {} spans, {}: open {} {}", seconds,
                       jobs.size(), jobs.size() == 1 ? "" : "s", timeline.gpus.size(),
                       timeline.gpus.size() == 1 ? "" : "s", spans, human_bytes(bytes),
                       options.file == "-" ? "it" : options.file,
                       options.html ? "in a browser" : "at https://ui.perfetto.dev"));
}

int trace_to_file(const Options& options) {
  Error error;
  if (options.file.empty()) {
    return fail({kUsage, "where to? Give a file, as in `switchyard trace -o t.pftrace`"});
  }
  if (options.last && options.seconds) {
    return fail({kUsage, "--last is about what was, and --seconds about what comes: give one"});
  }
  if (options.file == "-" && ::isatty(STDOUT_FILENO) == 1) {
    return fail({kUsage, "a trace is no text for a terminal: give a file, or pipe it"});
  }
  const char* option = options.seconds ? "--seconds" : "--last";
  const auto span = span_of(option, options.seconds.value_or(options.last.value_or("60s")), error);
  if (!span) return fail(error);
  auto monitor = MonitorClient::connect_reader();
  if (!monitor) return fail(monitor.error());
  if (options.seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(*span));
    monitor = MonitorClient::connect_reader();
    if (!monitor) return fail(monitor.error());
  }
  const auto recording = trace::read_recording(*monitor, *span);
  if (!recording) return fail(recording.error());
  if (recording->shortened) {
    complain(fmt::format("the monitor had no room for more than the last {:.1f} s",
                         static_cast<double>(recording->to - recording->from) / 1e9));
  }
  trace::Timeline timeline = trace::timeline_of(*recording);
  if (!options.selection.means_all()) {
    const auto listing = monitor->ask({{"op", "ps"}});
    if (!listing) return fail(listing.error());
    const auto refused = trace::keep_only(timeline, options.selection, list_of(*listing, "jobs"));
    if (refused) return fail(*refused);
  }
  const std::string bytes =
      options.html ? trace::page_of(timeline, host_name()) : trace::perfetto_of(timeline);
  if (const int failed = write_file(options.file, bytes); failed != 0) {
    return fail(
        {kFailure, fmt::format("cannot write {}: {}", options.file, std::strerror(failed))});
  }
  say_what_it_is(options, timeline, bytes.size());
  return kOk;
}

}  // namespace

void add_trace(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Subcommand sub = line.add("trace", "draw who used each GPU in the last minute", kExamples);
  take_jobs_or_all(sub, options->selection);
  sub.option("--last", "TIME", options->last, "how much of what was; 60s without it")
      .option("--seconds", "TIME", options->seconds, "wait so long, and draw that time")
      .option("-o,--output", "FILE", options->file, "where to; '-' is stdout, if that is a pipe")
      .flag("--html", options->html, "a page of HTML instead of a trace for Perfetto")
      .socket_option()
      .acts([options] { return trace_to_file(*options); });
}

}  // namespace switchyard::tools
