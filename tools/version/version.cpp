#include "tools/version/version.h"

#include <fmt/format.h>

#include "switchyard/abi.h"
#include "tools/base/monitor_client.h"

namespace switchyard::tools {
namespace {

constexpr char kExamples[] = R"(Examples:
  switchyard version
  switchyard version --json | jq -r .version

Shows the monitor's version, too, when one answers. A library and a monitor work together when they
have the same page layout, as have all since version 0.2.0. Exit status: 0.)";

// "0.2.0 (page layout 11)"; monitors did not always tell the layout.
std::string version_text(const std::string& version, const nlohmann::json& layout) {
  return fmt::format("{} (page layout {})", version,
                     layout.is_number() ? std::to_string(layout.get<std::uint64_t>()) : "unknown");
}

int version(bool json) {
  nlohmann::json listing = {{"version", kVersion},
                            {"layout", abi::kLayoutVersion},
                            {"monitor_version", nullptr},
                            {"monitor_layout", nullptr}};
  if (auto monitor = MonitorClient::connect_any()) {
    if (auto reply = monitor->ask({{"op", "version"}})) {
      listing["monitor_version"] = text_of(*reply, "version");
      if (const auto layout = number_of(*reply, "layout")) listing["monitor_layout"] = layout;
    }
  }
  const auto& other = listing["monitor_version"];
  const auto& layout = listing["monitor_layout"];
  if (other.is_string() && (other != kVersion || layout != abi::kLayoutVersion)) {
    complain(fmt::format("the monitor has version {}, this program {}; restart the monitor",
                         version_text(other.get<std::string>(), layout),
                         version_text(kVersion, abi::kLayoutVersion)));
  }
  if (json) {
    print_json(listing);
  } else {
    fmt::print("switchyard {}\n", version_text(kVersion, abi::kLayoutVersion));
    if (other.is_string()) {
      fmt::print("monitor {}\n", version_text(other.get<std::string>(), layout));
    }
  }
  return kOk;
}

}  // namespace

void add_version(CommandLine& line) {
  line.add("version", "show the version of this program and of the monitor", kExamples)
      .acts_with_json(version);
}

}  // namespace switchyard::tools
