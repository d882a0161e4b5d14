#include "tools/policy/policy.h"

#include <fmt/format.h>

#include <memory>

#include "switchyard/settings.h"
#include "tools/base/monitor_client.h"

namespace switchyard::tools {
namespace {

struct Options {
  std::string wanted;
  std::string minimum;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  switchyard policy
      says which is in force
  switchyard policy fair
      weights alone count, whatever the class
  switchyard policy exclusive
      one job at a time has the GPU, in turns; what the others do on the CPU goes on
  switchyard policy deadline
      first the job whose --deadline is the nearest
  switchyard policy priority --minimum 5%
      classes and weights, the default; however busy a high job is, the others keep 5 %

In force at once, for every GPU of the monitor. --limit and `pause` hold under each of them. Only the
monitor's owner and root may choose. Exit status: 0, 2 bad value, 3 no monitor, 5 not yours.)";

int policy(const Options& options) {
  nlohmann::json request = {{"op", "policy"}};
  if (!options.wanted.empty()) {
    if (!position_of(options.wanted, kPolicyNames)) {
      return fail(bad_value("the policy", options.wanted, kPolicyForms));
    }
    request["policy"] = options.wanted;
  }
  if (!options.minimum.empty()) {
    if (!parse_minimum(options.minimum)) {
      return fail(bad_value("--minimum", options.minimum, kMinimumForms));
    }
    request["minimum"] = options.minimum;
  }
  auto reply = MonitorClient::ask_any(request);
  if (!reply) return fail(reply.error());
  if (options.json) {
    print_json(*reply);
    return kOk;
  }
  fmt::print("{}, minimum {}\n", text_of(*reply, "policy"), percent_of(*reply, "minimum_ratio"));
  return kOk;
}

}  // namespace

void add_policy(CLI::App& app, Outcome& outcome) {
  CLI::App* sub = app.add_subcommand("policy", "choose the rules by which GPUs are shared");
  sub->footer(kExamples);
  const auto options = std::make_shared<Options>();
  sub->add_option("POLICY", options->wanted,
                  std::string(kPolicyForms) + "; without it, says what is in force");
  sub->add_option("--minimum", options->minimum, "what a busy high class leaves to the others")
      ->type_name("PART");
  sub->add_flag("--json", options->json, "as JSON");
  add_socket_option(*sub);
  sub->callback([options, &outcome] { outcome.code = policy(*options); });
}

}  // namespace switchyard::tools
