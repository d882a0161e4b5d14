#include "monitor/control/settings_commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "monitor/control/kept_choice.h"
#include "monitor/control/reply.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;

json not_yours(const std::string& what) {
  return refusal(kNoPermission, fmt::format("this monitor belongs to {}: only its owner or root "
                                            "may {}",
                                            user_name(::geteuid()), what));
}

}  // namespace

bool owns_the_monitor(const Peer& peer) {
  return peer.container.empty() && (peer.uid == 0 || peer.uid == ::geteuid());
}

static_assert(kPolicyNames[static_cast<std::size_t>(policy::Kind::kDeadline)] == "deadline" &&
                  kMeansNames[static_cast<std::size_t>(Means::kNone)] == "none" &&
                  kWaitsNames[1] == "foreseen",
              "the names are in the order of the enumerations");

std::string policy_name(policy::Kind kind) {
  return std::string(kPolicyNames[static_cast<std::size_t>(kind)]);
}

std::string waits_name(const policy::Rules& rules) {
  return std::string(kWaitsNames[rules.foresee ? 1 : 0]);
}

std::string means_name(Means means) {
  return std::string(kMeansNames[static_cast<std::size_t>(means)]);
}

json choose_means(Monitor& monitor, const Peer& peer, const json& request, Time now) {
  const std::string wanted = text_of(request, "means").value_or("");
  const auto means = position_of(wanted, kMeansNames);
  if (!means) return nonsense("the backend", wanted, kMeansForms);
  if (!owns_the_monitor(peer)) return not_yours("change its backend");
  monitor.scheduler().choose(static_cast<Means>(*means));
  keep_choice(monitor);
  monitor.look(now);
  json out = success();
  out["means"] = wanted;
  return out;
}

namespace {

// "'a', 'b', 'c' and 4 more"
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamed); ++i) {
    text += (i > 0 ? ", '" : "'") + names[i] + "'";
  }
  if (names.size() > kNamed) text += fmt::format(" and {} more", names.size() - kNamed);
  return text;
}

}  // namespace

json stop_monitor(Monitor& monitor, const Peer& peer, const json& request) {
  if (!owns_the_monitor(peer)) return not_yours("stop it");
  const auto& jobs = monitor.registry().jobs();
  const auto force = request.find("force");
  const bool forced = force != request.end() && force->is_boolean() && force->get<bool>();
  std::vector<std::string> names, paused;
  for (const auto& [key, job] : jobs) {
    names.push_back(job.name);
    if (job.pause->on) paused.push_back(job.name);
  }
  if (!jobs.empty() && !forced) {
    return refusal(kRefusedByPolicy,
                   fmt::format("jobs are running: {}; without a monitor they run unmanaged: end "
                               "them first, or use --force",
                               some_of(names)));
  }
  // A monitor of another version could not resume them.
  if (!paused.empty()) {
    return refusal(kRefusedByPolicy,
                   fmt::format("jobs are paused, and would stay so under a monitor of another "
                               "version: {}; resume them first, or use --force --resume",
                               some_of(paused)));
  }
  monitor.end();
  json out = success();
  out["pid"] = ::getpid();
  out["jobs"] = jobs.size();
  out["socket_passed"] = monitor.settings().socket_passed;
  return out;
}

json choose_policy(Monitor& monitor, const Peer& peer, const json& request, Time now) {
  policy::Rules rules = monitor.scheduler().rules();
  const auto wanted = text_of(request, "policy");
  const auto minimum = text_of(request, "minimum");
  const auto waits = text_of(request, "waits");
  if (wanted) {
    const auto kind = position_of(*wanted, kPolicyNames);
    if (!kind) return nonsense("policy", *wanted, kPolicyForms);
    rules.kind = static_cast<policy::Kind>(*kind);
  }
  if (minimum) {
    const auto ratio = parse_minimum(*minimum);
    if (!ratio) return nonsense("minimum", *minimum, kMinimumForms);
    rules.minimum = *ratio;
  }
  if (waits) {
    const auto position = position_of(*waits, kWaitsNames);
    if (!position) return nonsense("waits", *waits, kWaitsForms);
    rules.foresee = *position == 1;
  }
  if (wanted || minimum || waits) {
    if (!owns_the_monitor(peer)) return not_yours("change its policy");
    monitor.scheduler().choose(rules);
    keep_choice(monitor);
    monitor.look(now);
  }
  json out = success();
  out["policy"] = policy_name(rules.kind);
  out["minimum_ratio"] = rules.minimum;
  out["waits"] = waits_name(rules);
  return out;
}

}  // namespace switchyard::monitor
