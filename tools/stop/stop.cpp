#include "tools/stop/stop.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "switchyard/paths.h"
#include "tools/base/child.h"
#include "tools/base/monitor_client.h"

namespace switchyard::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kEndsWithin = std::chrono::seconds(10);
constexpr auto kResumedWithin = std::chrono::seconds(60);
// systemd kills what has not ended after 90 s.
constexpr auto kUnitsEndWithin = std::chrono::seconds(100);

struct Options {
  bool force = false;
  bool resume = false;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  switchyard stop
      end the monitor; the next `switchyard run` starts another
  switchyard stop --force
      end it although jobs run: they continue unmanaged until there is another monitor
  switchyard stop --force --resume
      the same where jobs are paused: resume them first, for a monitor of another version cannot

Where systemd listens for the monitor, its socket unit is stopped, too: else the next connection
would start another. `systemctl start switchyardd.socket` undoes that; `systemctl --user` for a
monitor of your own. Only the monitor's owner and root may stop it. Exit status: 0 once it has
ended, 1 the socket unit could not be stopped, 3 no monitor, 5 not yours, 6 jobs are running or
paused, 7 it or a job's resumption did not end in time.)";

// Another monitor can be started once this one listens no more; maybe it has been already.
bool has_ended(const std::string& socket, const nlohmann::json& pid) {
  const auto until = Clock::now() + kEndsWithin;
  while (Clock::now() < until) {
    auto still = MonitorClient::connect(socket);
    if (!still) return true;
    if (const auto who = still->ask({{"op", "version"}}); who && (*who)["pid"] != pid) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

// What a command said, or at least how it ended.
std::string first_line(const std::string& said, int status) {
  return said.empty() ? fmt::format("status {}", status) : said.substr(0, said.find('\n'));
}

// systemd goes on listening where it has passed its socket to the monitor. The service, too: a job
// that has lost its monitor may have started the next one by now.
std::optional<Error> stop_units(const std::string& socket) {
  std::vector<std::string> command = {"systemctl"};
  if (socket != kSystemSocket) {
    char own[kSocketPathBytes];
    if (!user_socket_path(own) || socket != own) {
      return Error{kFailure, fmt::format("the monitor has ended; what listens on {} starts another "
                                         "at the next connection: stop that socket unit",
                                         socket)};
    }
    command.emplace_back("--user");
  }
  for (const char* word : {"stop", "switchyardd.socket", "switchyardd.service"}) {
    command.emplace_back(word);
  }
  const auto end = Child::start(command).finish(kUnitsEndWithin);
  if (end.status == 0) return std::nullopt;
  return Error{kFailure,
               fmt::format("the monitor has ended; systemd starts another at the next connection, "
                           "for '{}' failed: {}",
                           fmt::join(command, " "),
                           end.exited ? first_line(end.err, end.status) : "it took too long")};
}

// The paused jobs, by name.
Result<std::vector<std::string>> paused_jobs(MonitorClient& monitor) {
  const auto listing = monitor.ask({{"op", "ps"}});
  if (!listing) return listing.error();
  std::vector<std::string> names;
  for (const auto& job : list_of(*listing, "jobs")) {
    if (text_of(job, "state") == "paused") names.push_back(text_of(job, "name"));
  }
  return names;
}

// Until none is paused: a job whose memory is away goes on once that is back.
std::optional<Error> resume_all(MonitorClient& monitor) {
  const auto until = Clock::now() + kResumedWithin;
  for (;;) {
    const auto names = paused_jobs(monitor);
    if (!names) return names.error();
    if (names->empty()) return std::nullopt;
    for (const std::string& name : *names) {
      const auto resumed = monitor.ask({{"op", "resume"}, {"target", name}});
      // One that has ended meanwhile is none that stays paused.
      if (!resumed && resumed.error().code != kNoSuchJobOrGpu) return resumed.error();
    }
    if (Clock::now() >= until) {
      return Error{kTimedOut, fmt::format("job '{}' is still being resumed: see `switchyard ps`",
                                          names->front())};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

int stop(const Options& options) {
  if (options.resume && !options.force) {
    return fail({kUsage, "--resume belongs to --force: a monitor with jobs is stopped by force"});
  }
  auto monitor = MonitorClient::connect_any();
  if (!monitor) return fail(monitor.error());
  if (options.resume) {
    if (const auto failed = resume_all(*monitor)) return fail(*failed);
  }
  auto reply = monitor->ask({{"op", "stop"}, {"force", options.force}});
  if (!reply) return fail(reply.error());
  const auto passed = reply->find("socket_passed");
  if (passed != reply->end() && *passed == true) {
    if (const auto failed = stop_units(monitor->socket())) return fail(*failed);
  }
  if (!has_ended(monitor->socket(), (*reply)["pid"])) {
    return fail({kTimedOut, fmt::format("the monitor at {} was told to stop and still listens; see "
                                        "its log",
                                        monitor->socket())});
  }
  if (options.json) {
    print_json(*reply);
  } else {
    fmt::print("the monitor at {} has ended\n", monitor->socket());
  }
  return kOk;
}

}  // namespace

void add_stop(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.add("stop", "end the monitor", kExamples)
      .flag("--force", options->force, "even while jobs run; they continue unmanaged")
      .flag("--resume", options->resume, "with --force: resume paused jobs first")
      .monitor_options(options->json)
      .acts([options] { return stop(*options); });
}

}  // namespace switchyard::tools
