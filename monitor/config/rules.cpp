#include "monitor/config/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "switchyard/printable.h"

namespace switchyard::monitor::config {
namespace {

constexpr const char* kScopeNames[] = {"", "group", "user", "container"};
constexpr std::size_t kLeastOfId = 12;  // digits, as people abbreviate them

// What a cap becomes of one item. Its text was read before.
void apply_cap(const Item& item, const std::string& origin, Caps& caps) {
  if (item.key == "priority") {
    caps.priority = parse_priority(item.text).value_or(caps.priority);
    caps.from.priority = origin;
  } else if (item.key == "share") {
    caps.share = is_none(item.text) ? std::nullopt : parse_weight(item.text);
    caps.from.share = origin;
  } else {
    caps.memory_bytes = is_none(item.text) ? std::nullopt : parse_bytes(item.text);
    caps.from.memory = origin;
  }
}

// The same where it makes the caps of `uid` lower.
void lower_cap(const Item& item, const std::string& origin, uid_t uid, Caps& caps) {
  Caps other;
  apply_cap(item, origin, other);
  if (item.key == "priority" && other.priority < caps.priority_of(uid)) {
    caps.priority = other.priority;
    caps.may_be_high.erase(uid);
    caps.from.priority = origin;
  }
  if (other.share && other.share < caps.share.value_or(kMostWeight + 1)) {
    caps.share = other.share;
    caps.from.share = origin;
  }
  if (other.memory_bytes && *other.memory_bytes < caps.memory_bytes.value_or(~std::uint64_t{0})) {
    caps.memory_bytes = other.memory_bytes;
    caps.from.memory = origin;
  }
}

void set_default(const Item& item, JobCard& card) {
#define SWITCHYARD_SET_DEFAULT(field, env, capacity, fallback, Kind, option, ...) \
  if (item.key == default_key(option)) set_text(card.field, item.text);
  SWITCHYARD_KNOBS(SWITCHYARD_SET_DEFAULT)
#undef SWITCHYARD_SET_DEFAULT
}

// The least specific rule first, and of several groups the last in the file.
template <typename Each>
void for_rules_of(const Rules& rules, const Owner& owner, Each each) {
  for (const Scope scope : {Scope::kAll, Scope::kGroup, Scope::kUser, Scope::kContainer}) {
    for (auto rule = rules.rules.rbegin(); rule != rules.rules.rend(); ++rule) {
      if (rule->scope == scope && rules.concerns(*rule, owner)) each(*rule);
    }
  }
}

}  // namespace

bool is_container(const std::string& name, const std::string& container) {
  if (container.empty()) return false;
  if (name == "*") return true;
  if (name.size() < kLeastOfId) return false;
  const std::string last = container.substr(container.rfind('/') + 1);
  return container_name(last).substr(0, name.size()) == name;
}

bool Rules::concerns(const Rule& rule, const Owner& owner) const {
  switch (rule.scope) {
    case Scope::kAll:
      return true;
    case Scope::kGroup:
      return rule.id &&
             std::find(owner.groups.begin(), owner.groups.end(), *rule.id) != owner.groups.end();
    case Scope::kUser:
      return rule.id == owner.uid;
    case Scope::kContainer:
      return is_container(rule.name, owner.container);
  }
  return false;
}

std::string key_text(const Rule& rule, const char* what, const Item& item) {
  if (rule.scope == Scope::kAll) return path_text({what, item.key});
  return path_text({kScopeNames[static_cast<std::size_t>(rule.scope)], rule.name, what, item.key});
}

std::string item_text(const Rules& rules, const Rule& rule, const char* what, const Item& item) {
  const std::string of =
      rule.scope == Scope::kAll
          ? ""
          : fmt::format(" of {} '{}'", kScopeNames[static_cast<std::size_t>(rule.scope)],
                        printable(rule.name));
  return fmt::format("{}.{}{}, {}:{}", what, item.key, of, rules.file, item.line);
}

Caps Rules::caps_of(const Owner& owner, Caps base) const {
  for_rules_of(*this, owner, [&](const Rule& rule) {
    if (rule.scope == Scope::kAll) return;  // `base` has them, or what an option said instead
    for (const Item& item : rule.caps) {
      const std::string origin = item_text(*this, rule, "caps", item);
      if (rule.scope == Scope::kContainer) {
        lower_cap(item, origin, owner.uid, base);
      } else {
        apply_cap(item, origin, base);
      }
    }
  });
  return base;
}

JobCard Rules::defaults_of(const Owner& owner) const {
  JobCard card{};
  for_rules_of(*this, owner, [&](const Rule& rule) {
    for (const Item& item : rule.defaults) set_default(item, card);
  });
  return card;
}

}  // namespace switchyard::monitor::config
