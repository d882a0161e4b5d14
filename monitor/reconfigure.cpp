// The part of Monitor that puts settings into force which were read anew while jobs run.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "monitor/monitor.h"

namespace switchyard::monitor {
namespace {

using config::Counts;
using config::Rule;
using config::Setting;
using config::Shown;

// Each cap and default of some users, by key: "group.students.caps.memory".
std::map<std::string, std::string> items_of(const config::Rules& rules) {
  std::map<std::string, std::string> out;
  for (const Rule& rule : rules.rules) {
    for (const bool caps : {true, false}) {
      for (const config::Item& item : caps ? rule.caps : rule.defaults) {
        if (caps && rule.scope == config::Scope::kAll) continue;  // a setting, too
        out[config::key_text(rule, caps ? "caps" : "defaults", item)] = item.text;
      }
    }
  }
  return out;
}

void note_items(const config::Rules& before, const config::Rules& after,
                std::vector<std::string>& changed) {
  const auto had = items_of(before), has = items_of(after);
  for (const auto& [key, text] : has) {
    const auto old = had.find(key);
    if (old != had.end() && old->second == text) continue;
    changed.push_back(
        fmt::format("{} {} -> {}", key, old != had.end() ? old->second : "unset", text));
  }
  for (const auto& [key, text] : had) {
    if (has.count(key) == 0) changed.push_back(fmt::format("{} {} -> unset", key, text));
  }
}

// Values for the next monitor are remembered beside those of this one.
std::vector<Shown> merged(const std::vector<Shown>& before, std::vector<Shown> after,
                          Monitor::Changes& changes) {
  for (Shown& fresh : after) {
    const auto old = std::find_if(before.begin(), before.end(),
                                  [&](const Shown& each) { return each.key == fresh.key; });
    if (old == before.end()) continue;
    const bool same = old->value == fresh.value;
    if (fresh.counts == Counts::kAtReload) {
      if (!same) {
        changes.now.push_back(fmt::format("{} {} -> {}", fresh.key, old->value, fresh.value));
      }
      continue;
    }
    if (same) continue;
    const std::string next = fresh.value;
    if (next != old->next) {
      changes.later.push_back(fmt::format("{} {} -> {}", fresh.key, old->value, next));
    }
    fresh = *old;
    fresh.next = next;
  }
  return after;
}

Users::Rules users_rules(const std::vector<Shown>& shown) {
  Users::Rules out;
  for (const Shown& each : shown) {
    const std::string text = fmt::format("{}, {}", each.key, each.origin);
    const bool in_file = each.origin.find(':') != std::string::npos;
    if (in_file && each.key == config::row_of(Setting::kConnections).key) out.connections = text;
    if (in_file && each.key == config::row_of(Setting::kJobs).key) out.jobs = text;
  }
  return out;
}

}  // namespace

Caps Monitor::caps_of(const Owner& owner) const {
  return settings_.user_rules.caps_of(owner, settings_.caps);
}

JobCard Monitor::default_card(const Owner& owner) const {
  JobCard card = settings_.user_rules.defaults_of(owner);
  remove_none(card);
  std::string why;
  // A cap below a default is no reason to refuse whoever did not ask for it.
  if (auto knobs = parse_card(card, why)) {
    caps_of(owner).lower(owner, *knobs, card, gpus_.largest());
  }
  return card;
}

void Monitor::bound(Job& job) {
  const Owner owner = owner_of(job);
  const Caps caps = caps_of(owner);
  job.ceiling_bytes = caps.ceiling(owner);
  job.ceiling_rule = caps.from.memory;
  job.most_weight = caps.most_weight(owner);
}

void Monitor::name_users_rules() { users_.set(settings_.users, users_rules(settings_.shown)); }

Monitor::Changes Monitor::reconfigure(Settings fresh, Time now) {
  Changes changes;
  note_items(settings_.user_rules, fresh.user_rules, changes.now);
  settings_.shown = merged(settings_.shown, std::move(fresh.shown), changes);
  policy::Rules rules = scheduler_.rules();
  if (fresh.rules.kind != settings_.rules.kind) rules.kind = fresh.rules.kind;
  if (fresh.rules.minimum != settings_.rules.minimum) rules.minimum = fresh.rules.minimum;
  if (fresh.rules.slice_us != settings_.rules.slice_us) rules.slice_us = fresh.rules.slice_us;
  if (fresh.rules.foresee != settings_.rules.foresee) rules.foresee = fresh.rules.foresee;
  scheduler_.choose(rules);
  if (fresh.means != settings_.means) scheduler_.choose(fresh.means);
  settings_.rules = fresh.rules;
  settings_.means = fresh.means;
  settings_.caps = std::move(fresh.caps);
  settings_.user_rules = std::move(fresh.user_rules);
  settings_.users = fresh.users;
  settings_.log_level = fresh.log_level;
  settings_.bills_of_all = fresh.bills_of_all;
  settings_.idle_exit = fresh.idle_exit;
  settings_.first_job = fresh.first_job;
  name_users_rules();
  for (auto& [key, job] : registry_.jobs()) {
    const auto had = job.ceiling_bytes;
    bound(job);
    std::string ignored;
    if (job.ceiling_bytes != had) memory_.reserve(job, now, ignored);
  }
  for (std::size_t gpu = 0; gpu < gpus_.all().size(); ++gpu) {
    gpus_.read_credits(gpu);
    memory_.rebalance(gpu);
    memory_.write_pages(gpu);
  }
  look(now);
  return changes;
}

}  // namespace switchyard::monitor
