#include "tools/stop/stop.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tools/base/monitor_client.h"

namespace switchyard::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kEndsWithin = std::chrono::seconds(10);
constexpr auto kResumedWithin = std::chrono::seconds(60);

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

`systemctl` starts and stops a monitor of systemd. Only the monitor's owner and root may stop it.
Exit status: 0 once it has ended, 3 no monitor, 5 not yours, 6 jobs are running or paused, 7 it or a
job's resumption did not end in time.)";

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
