#include "tools/run/restart.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "tools/base/command.h"
#include "tools/base/monitor_client.h"
#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

// As for its bill: the monitor learns of the end from the kernel, and processes may live on.
constexpr auto kEndsWithin = std::chrono::seconds(6);
constexpr auto kAskEvery = std::chrono::milliseconds(50);

bool is_of_island(const json& event) {
  const std::string kind = text_of(event, "kind");
  return kind == "island ended" || kind == "island fault";
}

}  // namespace

std::optional<std::string> why_island_failed(const std::string& socket, const std::string& job) {
  auto monitor = MonitorClient::connect(socket);
  if (!monitor) {
    complain(fmt::format("not run once more: {}", monitor.error().text));
    return std::nullopt;
  }
  const auto until = std::chrono::steady_clock::now() + kEndsWithin;
  std::optional<std::string> why;
  json request{{"op", "events"}, {"target", job}};
  for (bool ended = false; !ended && std::chrono::steady_clock::now() < until;) {
    const auto reply = monitor->ask(request);
    if (!reply) break;
    request["since"] = number_of(*reply, "last");
    for (const json& event : list_of(*reply, "events")) {
      if (is_of_island(event)) why = text_of(event, "name") + ": " + text_of(event, "text");
      ended = ended || text_of(event, "kind") == "job ends";
    }
    if (!ended) std::this_thread::sleep_for(kAskEvery);
  }
  return why;
}

}  // namespace switchyard::tools
