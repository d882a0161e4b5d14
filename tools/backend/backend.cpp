#include "tools/backend/backend.h"

#include <fmt/format.h>

#include <memory>

#include "switchyard/settings.h"
#include "tools/base/monitor_client.h"

namespace switchyard::tools {
namespace {

struct Options {
  std::string wanted;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  switchyard backend
      shows what enforces shares on each GPU, and why
  switchyard backend none
      the driver's own scheduling for every job; memory quotas and pauses still hold
  switchyard backend gate
      gates alone, as under MPS or where the driver refuses slices
  switchyard backend slice
      hardware time slices alone
  switchyard backend auto
      slices, and gates for what slices cannot do: what works on each GPU

A monitor starts with SWITCHYARD_BACKEND of its environment, else with auto. Only the monitor's
owner and root may choose.
Exit status: 0, 2 bad value, 3 no monitor, 5 not yours, 7 the monitor does not answer in time.)";

// The monitor and its listings still use the earlier name, "means".
int show(MonitorClient& monitor, bool json) {
  auto reply = monitor.ask({{"op", "status"}});
  if (!reply) return fail(reply.error());
  const auto about = reply->find("monitor");
  const std::string chosen =
      about != reply->end() && about->is_object() ? text_of(*about, "means", "auto") : "auto";
  nlohmann::json gpus = nlohmann::json::array();
  for (const auto& gpu : list_of(*reply, "gpus")) {
    gpus.push_back({{"uuid", text_of(gpu, "uuid")},
                    {"means", text_of(gpu, "means")},
                    {"means_reason", text_of(gpu, "means_reason")}});
  }
  if (json) {
    print_json({{"means", chosen}, {"gpus", gpus}});
    return kOk;
  }
  fmt::print("{}\n", chosen);
  for (const auto& gpu : gpus) {
    fmt::print("{}  {}  {}\n", text_of(gpu, "uuid"), text_of(gpu, "means"),
               text_of(gpu, "means_reason"));
  }
  return kOk;
}

int backend(const Options& options) {
  if (!options.wanted.empty() && !position_of(options.wanted, kMeansNames)) {
    return fail(bad_value("the backend", options.wanted, kMeansForms));
  }
  auto monitor = MonitorClient::connect_any();
  if (!monitor) return fail(monitor.error());
  if (!options.wanted.empty()) {
    auto reply = monitor->ask({{"op", "means"}, {"means", options.wanted}});
    if (!reply) return fail(reply.error());
  }
  return show(*monitor, options.json);
}

Subcommand add(CommandLine& line, const char* name, Options& options) {
  return line.add(name, "show or choose what enforces shares", kExamples)
      .word("BACKEND", options.wanted,
            fmt::format("{}; without it, shows what is in force", kMeansForms))
      .monitor_options(options.json);
}

}  // namespace

void add_backend(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  add(line, "backend", *options).acts([options] { return backend(*options); });
  // The name until version 0.1. Scripts that use it still work, and people learn the new one.
  add(line, "means", *options).hide().acts([options] {
    complain("`switchyard means` is now `switchyard backend`; the next release drops the old name");
    return backend(*options);
  });
}

}  // namespace switchyard::tools
