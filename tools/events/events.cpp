#include "tools/events/events.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "switchyard/settings.h"
#include "tools/base/knobs.h"
#include "tools/base/monitor_client.h"
#include "tools/base/targets.h"
#include "tools/events/filter.h"
#include "tools/events/past.h"
#include "tools/report/span.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

// The monitor remembers some thousand events, so a reader that asks so often misses none unless
// tens of thousands come within a second.
constexpr std::chrono::milliseconds kAskAgain{200};

struct Options {
  Selection selection;
  std::optional<std::string> since;
  std::optional<std::string> job;
  bool follow = false;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  switchyard events
      all that the monitor remembers, oldest first
  switchyard events train --since yesterday
      also from before the monitor's last start
  switchyard events 'train-*' --user alice --gpu 0
  switchyard events --follow
      from now on, until Ctrl-C
  switchyard events --since 10m --follow --json | jq '.events[].text'

An event is rare: a job begins or ends, is paused, swapped or moved, waits for memory, is stopped or
refused memory; a command changes a setting, or is refused. Whoever caused it is named with the
process. What changes with each turn on a GPU is no event.

NAME is a job's name or id, the beginning of an id, the PID of a process that lives, or a pattern; a
job must fit all of the options. --state is about jobs as they are when the command starts. An ended
job is on the GPUs that its events name.

The monitor remembers its last 16384 events. With --since, those that it has forgotten come from its
history on the disk, as do those of monitors before it: up to 100000, of 90 days (`switchyardd
--history-days`). stderr has the number of those that were asked for and are lost. A killed monitor
takes its last 5 s of events along. A job that has ended is known by its name as long as its events
are.

Exit status: 0; 2 a bad value, 3 no monitor, also when it ends while it is followed, 4 no such GPU,
or no event is about that job, 7 the monitor does not answer.)";

// "2026-11-27 12:00:01.123", where the reader is.
std::string local_text(double unix_seconds) {
  const auto whole = static_cast<time_t>(std::floor(unix_seconds));
  tm parts{};
  ::localtime_r(&whole, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts);
  const double rest = unix_seconds - std::floor(unix_seconds);
  return fmt::format("{}.{:03}", std::string(text, size), static_cast<int>(rest * 1000));
}

void show(const Options& options, const json& events, std::uint64_t lost, bool first) {
  if (options.json) {
    if (options.follow && events.empty() && lost == 0) return;
    const json listing{{"schema_version", kSchemaVersion}, {"events", events}, {"lost", lost}};
    options.follow ? print_json_line(listing) : print_json(listing);
    return;
  }
  for (const json& event : events) fmt::print("{}\n", event_line(event));
  if (lost == 0) return;
  complain(first ? fmt::format("{} earlier events are forgotten", lost)
                 : fmt::format("{} events are lost: they came faster than they were read", lost));
}

// Seconds before now. Nullopt: the text is no such point.
std::optional<double> seconds_since(const std::string& text) {
  if (const auto span = parse_seconds(text)) return std::chrono::duration<double>(*span).count();
  const std::int64_t now = std::time(nullptr);
  const auto point = parse_point(text, now);
  if (!point) return std::nullopt;
  return static_cast<double>(std::max<std::int64_t>(now - *point, 0));
}

json request_of(const Options& options, std::optional<double> seconds, const std::string& target) {
  json out{{"op", "events"}};
  if (!target.empty()) out["target"] = target;
  if (options.follow && !seconds) seconds = 0;
  if (seconds) out["seconds"] = *seconds;
  return out;
}

// All that there is now. `request` then asks for what comes after it.
std::optional<Error> read_all(MonitorClient& monitor, const Options& options, json& request,
                              json& events, std::uint64_t& lost) {
  for (;;) {
    const auto more = read_remembered(monitor, request, events, lost);
    if (!more) return more.error();
    // A reader who follows sees each part at once.
    if (!*more || (options.follow && !events.empty())) return std::nullopt;
  }
}

// Nullopt: it has one. The monitor knows jobs by the events that it remembers.
std::optional<Error> why_none(MonitorClient& monitor, const std::string& target,
                              const json& events) {
  if (target.empty() || !events.empty()) return std::nullopt;
  auto reply = monitor.ask({{"op", "events"}, {"target", target}, {"seconds", 0}});
  return reply ? std::nullopt : std::optional(reply.error());
}

// Earlier events, in front of those that the monitor remembers. `request` then asks for the rest.
std::optional<Error> begin_with_past(MonitorClient& monitor, double seconds,
                                     const std::string& target, json& request, json& events,
                                     std::uint64_t& lost) {
  auto past = read_past_events(monitor, seconds, target);
  if (past) {
    events = std::move(past->events);
    lost = past->lost;
    request["since"] = past->last;
    return std::nullopt;
  }
  if (past.error().code == kMonitorUnreachable) return past.error();
  // An older monitor has no events on the disk.
  if (past.error().code != kUsage) complain("earlier events are not known: " + past.error().text);
  return std::nullopt;
}

// `target`: the name or id of the one job that is asked for; empty: `filter` knows which.
Result<int> tell(const Options& options, std::optional<double> seconds, const std::string& target,
                 Filter& filter) {
  auto monitor = MonitorClient::connect_reader();
  if (!monitor) return monitor.error();
  json request = request_of(options, seconds, target);
  json came = json::array();
  std::uint64_t lost = 0;
  if (seconds) {
    const auto failed = begin_with_past(*monitor, *seconds, target, request, came, lost);
    if (failed) return *failed;
  }
  for (bool first = true;; first = false) {
    if (const auto failed = read_all(*monitor, options, request, came, lost)) return *failed;
    const auto none = first && seconds ? why_none(*monitor, target, came) : std::nullopt;
    if (none) return *none;
    const bool nothing = came.empty();
    const auto unknown = target.empty() ? filter.keep(*monitor, came) : std::nullopt;
    if (unknown) return *unknown;
    show(options, came, lost, first);
    if (!options.follow) return int{kOk};
    if (!output_written()) return int{kFailure};
    if (nothing) std::this_thread::sleep_for(kAskAgain);
    came = json::array();
    lost = 0;
  }
}

int events(Options& options) {
  if (options.job) options.selection.words.push_back(*std::exchange(options.job, std::nullopt));
  std::optional<double> seconds;
  if (options.since) {
    seconds = seconds_since(*options.since);
    if (!seconds) return fail(bad_value("--since", *options.since, kSpanForms));
  }
  const Selection& selection = options.selection;
  Filter filter(selection, options.follow);
  std::optional<Error> unknown;
  // Most often it is one name: then the monitor sends that job's events alone.
  if (selection.words.size() == 1 && !selection.is_pattern()) {
    const auto told = tell(options, seconds, selection.words.front(), filter);
    if (told) return *told;
    if (told.error().code != kNoSuchJobOrGpu) return fail(told.error());
    unknown = told.error();
  }
  const auto told = tell(options, seconds, "", filter);
  if (told) return *told;
  return fail(unknown && told.error().code == kNoSuchJobOrGpu ? *unknown : told.error());
}

}  // namespace

std::string event_line(const json& event) {
  const double at = real_of(event, "unix_seconds").value_or(0);
  return fmt::format("{}  {:<16} {}", local_text(at), text_of(event, "name"),
                     text_of(event, "text"));
}

void add_events(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Subcommand sub = line.add("events", "show what happened, and who caused it", kExamples);
  take_jobs_or_all(sub, options->selection);
  sub.option("--since", "TIME", options->since,
             "only the events since then: 1h, 7d, yesterday, 2026-11-27")
      .option("--job", "NAME", options->job, "the same as NAME")
      .flag("--follow", options->follow, "go on with those that come; alone, with these only")
      .monitor_options(options->json)
      .acts([options] { return events(*options); });
}

}  // namespace switchyard::tools
