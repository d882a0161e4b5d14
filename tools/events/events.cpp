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
#include "tools/report/span.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

// The monitor remembers some thousand events, so a reader that asks so often misses none unless
// tens of thousands come within a second.
constexpr std::chrono::milliseconds kAskAgain{200};

struct Options {
  std::optional<std::string> since;
  std::optional<std::string> job;
  bool follow = false;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  switchyard events
      all that the monitor remembers, oldest first
  switchyard events --since yesterday --job train
      also from before the monitor's last start
  switchyard events --follow
      from now on, until Ctrl-C
  switchyard events --since 10m --follow --json | jq '.events[].text'

An event is rare: a job begins or ends, is paused, swapped or moved, waits for memory, is stopped or
refused memory; a command changes a setting, or is refused. Whoever caused it is named with the
process. What changes with each turn on a GPU is no event.

The monitor remembers its last 16384 events. With --since, those that it has forgotten come from its
history on the disk, as do those of monitors before it: up to 100000, of 90 days (`switchyardd
--history-days`). stderr has the number of those that were asked for and are lost. A killed monitor
takes its last 5 s of events along. A job that has ended is known by its name as long as its events
are.

Exit status: 0; 2 a bad value, 3 no monitor, also when it ends while it is followed, 4 no event is
about that job, 7 the monitor does not answer.)";

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

json request_of(const Options& options, std::optional<double> seconds) {
  json out{{"op", "events"}};
  if (options.job) out["target"] = *options.job;
  if (options.follow && !seconds) seconds = 0;
  if (seconds) out["seconds"] = *seconds;
  return out;
}

// All that there is now. `request` then asks for what comes after it.
std::optional<Error> read_all(MonitorClient& monitor, const Options& options, json& request,
                              json& events, std::uint64_t& lost) {
  for (bool more = true; more;) {
    auto reply = monitor.ask(request);
    if (!reply) return reply.error();
    lost += number_of(*reply, "lost");
    request["since"] = number_of(*reply, "last");
    request.erase("seconds");
    more = truth_of(*reply, "more");
    for (const json& event : list_of(*reply, "events")) events.push_back(event);
    // A reader who follows sees each part at once.
    if (options.follow && !events.empty()) return std::nullopt;
  }
  return std::nullopt;
}

// Events that the monitor has forgotten, and those of monitors before it. `request` then asks for
// what comes after them.
std::optional<Error> read_past(MonitorClient& monitor, double seconds, json& request, json& events,
                               std::uint64_t& lost) {
  json part{{"op", "past events"}, {"seconds", seconds}, {"after", 0}};
  if (request.contains("target")) part["target"] = request["target"];
  for (;;) {
    auto reply = monitor.ask(part);
    if (!reply) return reply.error();
    lost += number_of(*reply, "lost");
    for (const json& event : list_of(*reply, "events")) events.push_back(event);
    const std::uint64_t more = number_of(*reply, "more_after");
    if (more <= number_of(part, "after")) {
      request["since"] = number_of(*reply, "last");
      return std::nullopt;
    }
    part["after"] = more;
  }
}

// Nullopt: it has one. The monitor knows jobs by the events that it remembers.
std::optional<Error> why_none(MonitorClient& monitor, const Options& options, const json& events) {
  if (!options.job || !events.empty()) return std::nullopt;
  auto reply = monitor.ask({{"op", "events"}, {"target", *options.job}, {"seconds", 0}});
  return reply ? std::nullopt : std::optional(reply.error());
}

int events(const Options& options) {
  std::optional<double> seconds;
  if (options.since) {
    seconds = seconds_since(*options.since);
    if (!seconds) return fail(bad_value("--since", *options.since, kSpanForms));
  }
  auto monitor = MonitorClient::connect_reader();
  if (!monitor) return fail(monitor.error());
  json request = request_of(options, seconds);
  json came = json::array();
  std::uint64_t lost = 0;
  if (seconds) {
    if (const auto failed = read_past(*monitor, *seconds, request, came, lost)) {
      if (failed->code == kMonitorUnreachable) return fail(*failed);
      // An older monitor has no events on the disk.
      if (failed->code != kUsage) complain("earlier events are not known: " + failed->text);
      came = json::array();
      lost = 0;
    }
  }
  for (bool first = true;; first = false) {
    if (const auto failed = read_all(*monitor, options, request, came, lost)) return fail(*failed);
    if (const auto failed = first && seconds ? why_none(*monitor, options, came) : std::nullopt) {
      return fail(*failed);
    }
    show(options, came, lost, first);
    if (!options.follow) return kOk;
    if (!output_written()) return kFailure;
    if (came.empty()) std::this_thread::sleep_for(kAskAgain);
    came = json::array();
    lost = 0;
  }
}

}  // namespace

std::string event_line(const json& event) {
  const double at = real_of(event, "unix_seconds").value_or(0);
  return fmt::format("{}  {:<16} {}", local_text(at), text_of(event, "name"),
                     text_of(event, "text"));
}

void add_events(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.add("events", "show what happened, and who caused it", kExamples)
      .option("--since", "TIME", options->since,
              "only the events since then: 1h, 7d, yesterday, 2026-11-27")
      .option("--job", "NAME", options->job, "only those of one job, by name or id")
      .flag("--follow", options->follow, "go on with those that come; alone, with these only")
      .monitor_options(options->json)
      .acts([options] { return events(*options); });
}

}  // namespace switchyard::tools
