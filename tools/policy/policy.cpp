#include "tools/policy/policy.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "switchyard/settings.h"
#include "tools/base/monitor_client.h"

namespace switchyard::tools {
namespace {

struct Options {
  std::string wanted;
  std::optional<std::string> minimum;
  std::optional<std::string> slice;
  std::optional<std::string> waits;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  switchyard policy
      show the policy in force
  switchyard policy fair
      weights alone count, whatever the priority
  switchyard policy exclusive
      one job at a time has the GPU, in turns; the others' work on the CPU continues
  switchyard policy deadline
      the job with the nearest --deadline is scheduled first
  switchyard policy priority --minimum 5%
      priorities and weights, the default; a busy high job leaves 5 % to the others
  switchyard policy --slice 4ms
      equal jobs change places every 4 ms instead of 25: a service among them waits less for its
      turn, and the GPU loses some percent more in switches
  switchyard policy --waits slices
      a low job beside a high one that waits for its CPU has slices of at most 2 ms; by default it
      has longer ones, and its gate closes before the high job's CPU waits

The choice takes effect at once, on every GPU of the monitor. --limit and `pause` hold under each
policy. Only the monitor's owner and root may choose. Exit status: 0, 2 bad value, 3 no monitor,
5 not yours, 7 the monitor does not answer in time.)";

int policy(const Options& options) {
  nlohmann::json request = {{"op", "policy"}};
  if (!options.wanted.empty()) {
    if (!position_of(options.wanted, kPolicyNames)) {
      return fail(bad_value("the policy", options.wanted, kPolicyForms));
    }
    request["policy"] = options.wanted;
  }
  if (options.minimum) {
    if (!parse_minimum(*options.minimum)) {
      return fail(bad_value("--minimum", *options.minimum, kMinimumForms));
    }
    request["minimum"] = *options.minimum;
  }
  if (options.slice) {
    if (!parse_slice(*options.slice)) {
      return fail(bad_value("--slice", *options.slice, kSliceForms));
    }
    request["slice"] = *options.slice;
  }
  if (options.waits) {
    if (!position_of(*options.waits, kWaitsNames)) {
      return fail(bad_value("--waits", *options.waits, kWaitsForms));
    }
    request["waits"] = *options.waits;
  }
  auto reply = MonitorClient::ask_any(request);
  if (!reply) return fail(reply.error());
  if (options.json) {
    print_json(*reply);
    return kOk;
  }
  fmt::print("{}\n", rules_text(*reply));
  return kOk;
}

}  // namespace

void add_policy(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.add("policy", "show or choose the rules by which GPUs are shared", kExamples)
      .word("POLICY", options->wanted,
            fmt::format("{}; without it, shows the policy in force", kPolicyForms))
      .option("--minimum", "PART", options->minimum,
              "the part of the GPU's time that high jobs leave to the others")
      .option("--slice", "TIME", options->slice,
              "the time slice of each of some equal jobs, 2ms to 100ms (25ms unless chosen)")
      .option("--waits", "HOW", options->waits,
              fmt::format("how a high job that waits for its CPU is served: {}", kWaitsForms))
      .monitor_options(options->json)
      .acts([options] { return policy(*options); });
}

}  // namespace switchyard::tools
