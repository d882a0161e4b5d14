#include "tools/inspect/inspect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "switchyard/printable.h"
#include "tools/base/monitor_client.h"
#include "tools/base/targets.h"
#include "tools/events/past.h"
#include "tools/ps/about.h"
#include "tools/report/past_jobs.h"
#include "tools/report/tables.h"
#include "tools/why/ended.h"
#include "tools/why/why.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

// Of the events of a job, the last ones.
constexpr std::size_t kMostEvents = 100;

constexpr char kExamples[] = R"(Examples:
  switchyard inspect train
  switchyard inspect train | jq -r .why
  switchyard inspect 4711 | jq '.events[] | .time + " " + .text'
      the job of the process 4711

All that is known about a job: as `ps --json` lists it, the answer of `why`, its processes with
command line, working folder and cgroup, and its last events. Command lines and folders are for the
job's owner and root. Of several jobs, each has a line. NAME is as for `switchyard why`.

A job that has ended has no "job", but a "bill" with its times and how it ended, as far as the
monitor's history goes back. Of several that had the name it is the last; ids name earlier ones.

Exit status: 0, 2 a bad value or an ambiguous id, 3 no monitor, 4 no such job, 7 the monitor does
not answer.)";

json link_of(const std::string& path) {
  char text[PATH_MAX];
  const ssize_t size = ::readlink(path.c_str(), text, sizeof(text));
  return size < 0 ? json(nullptr)
                  : json(printable(std::string(text, static_cast<std::size_t>(size))));
}

// "0::/system.slice/docker-1f3c.scope" of a unified hierarchy; else the first line.
json cgroup_of(std::uint64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/cgroup", pid));
  std::string found, line;
  while (std::getline(file, line)) {
    const bool unified = line.rfind("0::", 0) == 0;
    if (found.empty() || unified) found = unified ? line.substr(3) : line;
  }
  return found.empty() ? json(nullptr) : json(printable(found));
}

json processes_of(const json& job) {
  json out = json::array();
  for (const json& process : list_of(job, "processes")) {
    const std::uint64_t pid = number_of(process, "pid");
    json command = command_of(pid, number_of(job, "uid"));
    // In another namespace the number may be somebody else's: then there is no command either.
    const bool known = !command.is_null();
    out.push_back({{"pid", pid},
                   {"command", std::move(command)},
                   {"directory", known ? link_of(fmt::format("/proc/{}/cwd", pid)) : json()},
                   {"cgroup", known ? cgroup_of(pid) : json()}});
  }
  return out;
}

// The last of what happened to the job, oldest first.
json shown(const json& events) {
  json out = json::array();
  for (std::size_t i = std::max(events.size(), kMostEvents) - kMostEvents; i < events.size(); ++i) {
    out.push_back({{"time", text_of(events[i], "time")},
                   {"kind", text_of(events[i], "kind")},
                   {"text", text_of(events[i], "text")}});
  }
  return out;
}

json events_of(const std::string& id) {
  auto monitor = MonitorClient::connect_reader();
  return shown(monitor ? remembered_events_of(*monitor, id) : json::array());
}

// Those that live.
Result<std::vector<json>> inspect_living(const Selection& selection) {
  auto look = look_at(selection);
  if (!look) return look.error();
  std::vector<json> out;
  for (Told& told : look->told) {
    json listing = {{"jobs", json::array({std::move(told.job)})}};
    add_about(listing, std::chrono::system_clock::now());
    json& job = listing["jobs"][0];
    out.push_back({{"time", listing["time"]},
                   {"monitor", look->listing.value("monitor", json())},
                   {"why", told.why},
                   {"processes", processes_of(job)},
                   {"events", events_of(text_of(job, "job"))},
                   {"bill", nullptr}});
    out.back()["job"] = std::move(job);
  }
  return out;
}

// `row`: of the history, by job. Null: it is not there any more.
json inspect_ended(MonitorClient& monitor, const json& row) {
  const std::string id = text_of(row, "job");
  const auto reply = monitor.ask({{"op", "report"}, {"by", "job"}, {"since", 0}, {"job", id}});
  if (!reply) return nullptr;
  json bill;
  // An id may come again.
  for (const json& each : list_of(*reply, "rows")) {
    if (each["started_unix_seconds"] == row["started_unix_seconds"]) bill = each;
  }
  if (bill.is_null()) return nullptr;
  add_error(bill);
  const json events = events_of_ended(monitor, id);
  const std::string told = ended_text(text_of(row, "name"), events);
  return {{"time", utc_text(std::chrono::system_clock::now())},
          {"monitor", nullptr},
          {"why", told.empty() ? ended_text_of_bill(bill) : told},
          {"processes", json::array()},
          {"events", shown(events)},
          {"bill", std::move(bill)}};
}

// Of several with the same name that are selected, the last.
json last_of_each_name(const json& jobs, const std::vector<std::size_t>& places) {
  std::map<std::string, std::size_t> last;
  for (const std::size_t place : places) last[text_of(jobs[place], "name")] = place;
  json out = json::array();
  for (const auto& [name, place] : last) out.push_back(jobs[place]);
  return out;
}

// Of jobs of which at least one does not live. `unknown`: what is said where the history has none.
Result<std::vector<json>> inspect_past(const Selection& selection, const Error& unknown) {
  const auto jobs = past_jobs({{"since", 0}});
  if (!jobs) return unknown;
  const auto found = select(*jobs, selection);
  if (!found) return found.error().code == kNoSuchJobOrGpu ? unknown : found.error();
  auto monitor = MonitorClient::connect_reader();
  if (!monitor) return monitor.error();
  std::vector<json> out;
  Selection living;
  for (const json& row : last_of_each_name(*jobs, *found)) {
    if (row["exit"].is_null()) {
      living.words.push_back(text_of(row, "job"));
    } else if (json ended = inspect_ended(*monitor, row); !ended.is_null()) {
      out.push_back(std::move(ended));
    }
  }
  if (!living.words.empty()) {
    auto rest = inspect_living(living);
    if (!rest) return rest.error();
    out.insert(out.end(), rest->begin(), rest->end());
  }
  if (out.empty()) return unknown;
  return out;
}

int inspect(const Selection& selection) {
  auto all = inspect_living(selection);
  if (!all && all.error().code == kNoSuchJobOrGpu && !selection.words.empty()) {
    all = inspect_past(selection, all.error());
  }
  if (!all) return fail(all.error());
  for (json& each : *all) {
    all->size() == 1 ? print_json(std::move(each)) : print_json_line(std::move(each));
  }
  return kOk;
}

}  // namespace

void add_inspect(CommandLine& line) {
  const auto selection = std::make_shared<Selection>();
  Subcommand sub = line.add("inspect", "print all that is known about a job, as JSON", kExamples);
  take_jobs(sub, *selection);
  sub.socket_option().acts([selection] { return inspect(*selection); });
}

}  // namespace switchyard::tools
