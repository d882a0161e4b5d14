#include "tools/means/means.h"

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
  switchyard means
      says which means are in force
  switchyard means none
      the driver's own scheduling for every job, from now on; quotas and pauses hold
  switchyard means gate
      gates alone, as under MPS or where the driver refuses slices; slice: slices alone
  switchyard means auto
      slices, and gates for what slices can't do: whatever works on each GPU

A monitor starts with SWITCHYARD_MEANS of its environment, else with auto. Only its owner and root may
choose. Exit status: 0, 2 bad value, 3 no monitor, 5 not yours.)";

int show(MonitorClient& monitor, bool json) {
  auto reply = monitor.ask({{"op", "status"}});
  if (!reply) return fail(reply.error());
  const auto about = reply->find("monitor");
  const std::string means =
      about != reply->end() && about->is_object() ? text_of(*about, "means", "auto") : "auto";
  nlohmann::json gpus = nlohmann::json::array();
  for (const auto& gpu : list_of(*reply, "gpus")) {
    gpus.push_back({{"uuid", text_of(gpu, "uuid")},
                    {"means", text_of(gpu, "means")},
                    {"means_reason", text_of(gpu, "means_reason")}});
  }
  if (json) {
    print_json({{"means", means}, {"gpus", gpus}});
    return kOk;
  }
  fmt::print("{}\n", means);
  for (const auto& gpu : gpus) {
    fmt::print("{}  {}  {}\n", text_of(gpu, "uuid"), text_of(gpu, "means"),
               text_of(gpu, "means_reason"));
  }
  return kOk;
}

int means(const Options& options) {
  if (!options.wanted.empty() && !position_of(options.wanted, kMeansNames)) {
    return fail(bad_value("means", options.wanted, kMeansForms));
  }
  auto monitor = MonitorClient::connect_any();
  if (!monitor) return fail(monitor.error());
  if (!options.wanted.empty()) {
    auto reply = monitor->ask({{"op", "means"}, {"means", options.wanted}});
    if (!reply) return fail(reply.error());
  }
  return show(*monitor, options.json);
}

}  // namespace

void add_means(CLI::App& app, Outcome& outcome) {
  CLI::App* sub = app.add_subcommand("means", "choose the means of sharing, or none");
  sub->footer(kExamples);
  const auto options = std::make_shared<Options>();
  sub->add_option("MEANS", options->wanted,
                  std::string(kMeansForms) + "; without it, says what is in force");
  sub->add_flag("--json", options->json, "as JSON");
  add_socket_option(*sub);
  sub->callback([options, &outcome] { outcome.code = means(*options); });
}

}  // namespace switchyard::tools
