#include "tools/version/version.h"

#include <fmt/format.h>

#include "tools/base/monitor_client.h"

namespace switchyard::tools {
namespace {

constexpr char kExamples[] = R"(Examples:
  switchyard version
  switchyard version --json | jq -r .version

Shows the monitor's version, too, when one answers. Exit status: 0.)";

int version(bool json) {
  nlohmann::json listing = {{"version", kVersion}, {"monitor_version", nullptr}};
  if (auto monitor = MonitorClient::connect_any()) {
    if (auto reply = monitor->ask({{"op", "version"}})) {
      listing["monitor_version"] = text_of(*reply, "version");
    }
  }
  const auto& other = listing["monitor_version"];
  if (other.is_string() && other != kVersion) {
    complain(fmt::format("the monitor has version {}, this program {}; restart the monitor",
                         other.get<std::string>(), kVersion));
  }
  if (json) {
    print_json(listing);
  } else {
    fmt::print("switchyard {}\n", kVersion);
    if (other.is_string()) fmt::print("monitor {}\n", other.get<std::string>());
  }
  return kOk;
}

}  // namespace

void add_version(CommandLine& line) {
  line.add("version", "show the version of this program and of the monitor", kExamples)
      .acts_with_json(version);
}

}  // namespace switchyard::tools
