#include "tools/inspect/inspect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <fstream>
#include <memory>

#include "switchyard/printable.h"
#include "tools/base/monitor_client.h"
#include "tools/base/targets.h"
#include "tools/ps/about.h"
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

// What happened to the job, oldest first, as far as the monitor remembers it.
json events_of(const std::string& id) {
  json out = json::array();
  json request = {{"op", "events"}, {"target", id}};
  for (bool more = true; more;) {
    auto reply = MonitorClient::ask_any(request);
    if (!reply) return out;  // none of it
    request["since"] = number_of(*reply, "last");
    more = truth_of(*reply, "more");
    for (const json& event : list_of(*reply, "events")) {
      out.push_back({{"time", text_of(event, "time")},
                     {"kind", text_of(event, "kind")},
                     {"text", text_of(event, "text")}});
      if (out.size() > kMostEvents) out.erase(out.begin());
    }
  }
  return out;
}

int inspect(const Selection& selection) {
  auto look = look_at(selection);
  if (!look) return fail(look.error());
  for (Told& told : look->told) {
    json listing = {{"jobs", json::array({std::move(told.job)})}};
    add_about(listing, std::chrono::system_clock::now());
    json& job = listing["jobs"][0];
    json out = {{"time", listing["time"]},
                {"monitor", look->listing.value("monitor", json())},
                {"why", told.why},
                {"processes", processes_of(job)},
                {"events", events_of(text_of(job, "job"))}};
    out["job"] = std::move(job);
    look->told.size() == 1 ? print_json(std::move(out)) : print_json_line(std::move(out));
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
