#include "tools/set/set.h"

#include <fmt/format.h>

#include <map>
#include <memory>

#include "tools/base/knobs.h"
#include "tools/base/monitor_client.h"
#include "tools/base/targets.h"

namespace switchyard::tools {
namespace {

struct Options {
  Selection selection;
  std::map<std::string, std::string> changes;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  switchyard set chat --priority high
  switchyard set train --share 4 --memory 30GiB
  switchyard set train --memory none
      remove the quota and its reservation; the job may use all unreserved memory
  switchyard set train --limit 30%
      at most 30 % of the GPU's time; none removes the limit
  switchyard set train --deadline 1h30m
      90 minutes after the job's start, for `switchyard policy deadline`; none removes it

NAME is a job's name or id as `switchyard ps` shows it, or what `switchyard ps` takes. Changes take effect at once; no job is
restarted. A quota below the job's present use refuses new allocations only. Exit status: 0, 2 bad
value or nothing to set, 3 no monitor, 4 no such job, 5 not yours, 6 refused: not enough memory is
unreserved, 7 the monitor does not answer in time.)";

// What a quota below what the job uses means; empty: it is not below.
std::string quota_text(const nlohmann::json& job) {
  for (const auto& gpu : list_of(job, "gpus")) {
    const std::uint64_t used = number_of(gpu, "memory_used_bytes");
    const std::uint64_t quota = number_of(gpu, "memory_quota_bytes");
    if (quota == 0 || used <= quota) continue;
    return fmt::format(
        "{} are in use on GPU {}: nothing is taken from it; it gets no more until "
        "it has freed {}",
        human_bytes(used), number_of(gpu, "index"), human_bytes(used - quota));
  }
  return "";
}

// "--priority, --share, --limit, --deadline or --memory"
std::string changeable_options() {
  std::vector<std::string> options;
  for (const Knob& knob : knobs()) {
    if (knob.changeable) options.emplace_back(knob.option);
  }
  const std::string last = options.back();
  options.pop_back();
  return fmt::format("{} or {}", fmt::join(options, ", "), last);
}

std::optional<Error> set_one(const Options& options, nlohmann::json request, const Target& target) {
  request["target"] = target.id;
  auto reply = MonitorClient::ask_any(request);
  if (!reply) return reply.error();
  if (options.json) {
    print_answer(*reply, target);
    return std::nullopt;
  }
  fmt::print("{}: {}\n", target.name, changes_text(options.changes, *reply));
  const std::string quota = options.changes.contains("memory") ? quota_text(*reply) : "";
  if (!quota.empty()) complain(target.name + ": " + quota);
  return std::nullopt;
}

int set(const Options& options) {
  if (options.changes.empty() && !options.selection.means_all()) {
    return fail(
        {kUsage, fmt::format("nothing to set for '{}': give {}",
                             fmt::join(options.selection.words, "', '"), changeable_options())});
  }
  nlohmann::json request = {{"op", "set"}};
  for (const auto& [field, text] : options.changes) {
    if (auto refused = refuse(knob(field), knob(field).option, text)) return fail(*refused);
    request[field] = text;
  }
  return for_each_job(options.selection,
                      [&](const Target& target) { return set_one(options, request, target); });
}

}  // namespace

// A monitor of an older version does not say what was before.
std::string changes_text(const std::map<std::string, std::string>& changes,
                         const nlohmann::json& reply) {
  const auto before = reply.find("before");
  std::string said;
  for (const auto& [field, text] : changes) {
    const std::string old = before != reply.end() ? text_of(*before, field.c_str(), "") : "";
    said += fmt::format("{}{} {}{}", said.empty() ? "" : ", ", field,
                        old.empty() ? "" : fmt::format("{} {} ", old, arrow()), text);
  }
  return said;
}

void add_set(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Subcommand sub = line.add("set", "change a running job", kExamples);
  take_jobs(sub, options->selection);
  for (const Knob& knob : knobs()) {
    if (!knob.changeable) continue;
    const auto take = [options, &knob](const std::string& text) {
      options->changes[knob.field] = text;
    };
    sub.option(knob.option, knob.type_name, take, knob.meaning);
  }
  sub.monitor_options(options->json, "print the job as JSON").acts([options] {
    return set(*options);
  });
}

}  // namespace switchyard::tools
