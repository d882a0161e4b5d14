#include "tools/stop/stop.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>

#include "tools/base/monitor_client.h"

namespace switchyard::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kEndsWithin = std::chrono::seconds(10);

constexpr char kExamples[] = R"(Examples:
  switchyard stop
      end the monitor; the next `switchyard run` starts another
  switchyard stop --force
      end it although jobs run: they continue unmanaged until there is another monitor

`systemctl` starts and stops a monitor of systemd. Only the monitor's owner and root may stop it.
Exit status: 0 once it has ended, 3 no monitor, 5 not yours, 6 jobs are running, 7 it did not end in
time.)";

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

int stop(bool force, bool json) {
  auto monitor = MonitorClient::connect_any();
  if (!monitor) return fail(monitor.error());
  auto reply = monitor->ask({{"op", "stop"}, {"force", force}});
  if (!reply) return fail(reply.error());
  if (!has_ended(monitor->socket(), (*reply)["pid"])) {
    return fail({kTimedOut, fmt::format("the monitor at {} was told to stop and still listens; see "
                                        "its log",
                                        monitor->socket())});
  }
  if (json) {
    print_json(*reply);
  } else {
    fmt::print("the monitor at {} has ended\n", monitor->socket());
  }
  return kOk;
}

}  // namespace

void add_stop(CommandLine& line) {
  const auto force = std::make_shared<bool>(false);
  line.add("stop", "end the monitor", kExamples)
      .flag("--force", *force, "even while jobs run; they continue unmanaged")
      .acts_with_json([force](bool json) { return stop(*force, json); });
}

}  // namespace switchyard::tools
