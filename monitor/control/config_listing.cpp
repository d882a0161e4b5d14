#include "monitor/control/config_listing.h"

#include <fmt/format.h>

#include "monitor/control/reply.h"
#include "monitor/control/settings_commands.h"

namespace switchyard::monitor {
namespace {

using config::Setting;
using config::Shown;
using nlohmann::json;

// A person may have chosen something else since the monitor began.
Shown in_force(Monitor& monitor, Shown shown) {
  const policy::Rules& now = monitor.scheduler().rules();
  const policy::Rules& began = monitor.settings().rules;
  const auto chosen = [&shown](Setting setting, bool other, const std::string& value,
                               const char* command) {
    if (!other || shown.key != row_of(setting).key) return;
    shown.value = value;
    shown.origin = command;
  };
  chosen(Setting::kPolicy, now.kind != began.kind, policy_name(now.kind), "`switchyard policy`");
  chosen(Setting::kMinimum, now.minimum != began.minimum, fmt::format("{:.4g}%", now.minimum * 100),
         "`switchyard policy`");
  chosen(Setting::kSlice, now.slice_us != began.slice_us, slice_text(now), "`switchyard policy`");
  chosen(Setting::kWaits, now.foresee != began.foresee, waits_name(now), "`switchyard policy`");
  const Means means = monitor.scheduler().chosen();
  chosen(Setting::kBackend, means != monitor.settings().means, means_name(means),
         "`switchyard backend`");
  return shown;
}

json line(const std::string& key, const std::string& value, const std::string& origin) {
  return {{"key", key}, {"value", value}, {"from", origin}, {"next_start", nullptr}};
}

}  // namespace

json list_config(Monitor& monitor, const Peer& peer) {
  const Settings& settings = monitor.settings();
  json listed = json::array();
  for (const Shown& each : settings.shown) {
    const Shown shown = in_force(monitor, each);
    json entry = line(shown.key, shown.value, shown.origin);
    if (!shown.next.empty()) entry["next_start"] = shown.next;
    listed.push_back(std::move(entry));
  }
  const config::Rules& rules = settings.user_rules;
  for (const config::Rule& rule : rules.rules) {
    if (!owns_the_monitor(peer) && !rules.concerns(rule, peer.owner())) continue;
    for (const bool caps : {true, false}) {
      if (caps && rule.scope == config::Scope::kAll) continue;  // a setting, too
      for (const config::Item& item : caps ? rule.caps : rule.defaults) {
        listed.push_back(line(config::key_text(rule, caps ? "caps" : "defaults", item), item.text,
                              fmt::format("{}:{}", rules.file, item.line)));
      }
    }
  }
  json out = success();
  out["file"] = rules.file.empty() ? json() : json(rules.file);
  out["settings"] = std::move(listed);
  return out;
}

}  // namespace switchyard::monitor
