// Keys and values of the file: which there are, and what is wrong with others.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "monitor/config/rules.h"
#include "switchyard/printable.h"
#include "switchyard/suggest.h"

namespace switchyard::monitor::config {
namespace {

using Keys = std::vector<std::string>;

const Keys& cap_keys() {
  static const Keys kKeys = {"priority", "share", "memory"};
  return kKeys;
}

const Keys& default_keys() {
  static const Keys kKeys = [] {
    Keys keys;
#define SWITCHYARD_LIST_DEFAULT(field, env, capacity, fallback, Kind, option, ...) \
  keys.emplace_back(default_key(option));
    SWITCHYARD_KNOBS(SWITCHYARD_LIST_DEFAULT)
#undef SWITCHYARD_LIST_DEFAULT
    std::erase(keys, "");
    return keys;
  }();
  return kKeys;
}

const std::pair<const char*, Scope> kScopes[] = {
    {"group", Scope::kGroup}, {"user", Scope::kUser}, {"container", Scope::kContainer}};

// The keys that `section` may have, of settings.h.
Keys setting_keys(const std::string& section) {
  Keys keys;
  for (const Row& row : kRows) {
    const std::string_view key = row.key;
    const std::size_t dot = key.find('.');
    if (key.substr(0, dot) == section) keys.emplace_back(key.substr(dot + 1));
  }
  return keys;
}

Keys sections() {
  Keys keys = {"defaults", "group", "user", "container"};
  for (const Row& row : kRows) {
    std::string section(std::string_view(row.key).substr(0, std::string_view(row.key).find('.')));
    if (std::find(keys.begin(), keys.end(), section) == keys.end()) keys.push_back(section);
  }
  return keys;
}

std::string joined(const Keys& keys) {
  std::string out;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    out += (i == 0 ? "" : i + 1 == keys.size() ? " and " : ", ") + keys[i];
  }
  return out;
}

class Reader {
 public:
  Reader(Document& document, Texts& texts, Rules& rules)
      : document_(document), texts_(texts), rules_(rules) {}

  void read() {
    rules_.file = document_.file;
    const std::vector<Entry> entries = document_.entries;
    for (const Entry& entry : entries) {
      if (document_.problems.size() >= kMostProblems) return;
      if (!inside_of_a_problem(entry)) take(entry);
    }
  }

 private:
  // True: a table above it is a problem already.
  bool inside_of_a_problem(const Entry& entry) const {
    return std::any_of(wrong_.begin(), wrong_.end(), [&](const auto& path) {
      return path.size() <= entry.path.size() &&
             std::equal(path.begin(), path.end(), entry.path.begin());
    });
  }

  void complain(const Entry& entry, std::size_t parts, const std::string& what) {
    wrong_.insert({entry.path.begin(), entry.path.begin() + static_cast<std::ptrdiff_t>(parts)});
    document_.complain(entry.line, what);
  }

  // Whether the part of the path at `at` is one of `keys`.
  bool known(const Entry& entry, std::size_t at, const Keys& keys) {
    const std::string& part = entry.path[at];
    if (std::find(keys.begin(), keys.end(), part) != keys.end()) return true;
    const Keys above(entry.path.begin(), entry.path.begin() + static_cast<std::ptrdiff_t>(at));
    const std::string meant = nearest(part, keys);
    complain(
        entry, at + 1,
        fmt::format("unknown key '{}'{}; {}", printable(part),
                    above.empty() ? "" : " in [" + path_text(above) + "]",
                    meant.empty() ? "there are " + joined(keys) : "did you mean '" + meant + "'?"));
    return false;
  }

  // Tables stand where tables are expected, and values where values are.
  bool is_value(const Entry& entry) {
    if (!entry.is_table) return true;
    complain(entry, entry.path.size(),
             fmt::format("{} is a table: expected a value, {} = ...", path_text(entry.path),
                         entry.path.back()));
    return false;
  }
  bool is_table(const Entry& entry, std::size_t parts) {
    if (entry.path.size() > parts || entry.is_table) return true;
    complain(entry, parts,
             fmt::format("{} is a value: expected a table, [{}]", path_text(entry.path),
                         path_text(entry.path)));
    return false;
  }

  void take(const Entry& entry) {
    if (!known(entry, 0, sections()) || !is_table(entry, 1)) return;
    const std::string& section = entry.path[0];
    for (const auto& [name, scope] : kScopes) {
      if (section == name) return take_of_scope(entry, scope);
    }
    if (entry.path.size() == 1) return;
    if (section == "defaults") return take_item(entry, 1, Scope::kAll, "");
    if (!known(entry, 1, setting_keys(section)) || !is_value(entry)) return;
    if (section == "caps" && !is_good(entry, entry.path[1])) return;
    const std::string key = section + "." + entry.path[1];
    for (std::size_t i = 0; i < kSettings; ++i) {
      if (kRows[i].key != key || !texts_.all[i].origin.empty()) continue;
      texts_.all[i] = {entry.text, document_.at(entry.line), true};
    }
  }

  void take_of_scope(const Entry& entry, Scope scope) {
    if (entry.path.size() == 1) return;
    if (!is_table(entry, 2)) return;
    if (scope == Scope::kContainer && !names_a_container(entry)) return;
    if (entry.path.size() == 2) return;
    if (!known(entry, 2, {"caps", "defaults"}) || !is_table(entry, 3)) return;
    if (entry.path.size() > 3) take_item(entry, 3, scope, entry.path[1]);
  }

  bool names_a_container(const Entry& entry) {
    const std::string& name = entry.path[1];
    const bool digits = name.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (name == "*" || (digits && name.size() >= 12 && name.size() <= 64)) return true;
    complain(entry, 2,
             fmt::format("'{}' names no container: expected 12 to 64 digits of its id, or \"*\" "
                         "for each",
                         printable(name)));
    return false;
  }

  // `at`: where the path has its key.
  void take_item(const Entry& entry, std::size_t at, Scope scope, const std::string& name) {
    const bool caps = entry.path[at - 1] == "caps";
    if (!known(entry, at, caps ? cap_keys() : default_keys()) || !is_value(entry)) return;
    if (caps ? !is_good(entry, entry.path[at]) : !is_good_default(entry, entry.path[at])) return;
    Rule& rule = rule_of(scope, name, entry.line);
    (caps ? rule.caps : rule.defaults).push_back({entry.path[at], entry.text, entry.line});
  }

  bool expected(const Entry& entry, bool good, const std::string& forms) {
    if (!good) {
      complain(entry, entry.path.size(),
               fmt::format("invalid value '{}' for {}: expected {}", printable(entry.text),
                           path_text(entry.path), forms));
    }
    return good;
  }

  bool is_good(const Entry& entry, const std::string& key) {
    if (key == "priority") return expected(entry, bool(parse_priority(entry.text)), kPriorityForms);
    const bool none = is_none(entry.text);
    if (key == "share") {
      return expected(entry, none || parse_weight(entry.text),
                      std::string(kWeightForms) + ", or none");
    }
    return expected(entry, none || parse_bytes(entry.text), kMemoryForms);
  }

  bool is_good_default(const Entry& entry, const std::string& key) {
#define SWITCHYARD_CHECK_DEFAULT(field, env, capacity, fallback, Kind, option, ...)               \
  if (key == default_key(option)) {                                                               \
    return expected(entry, entry.text.size() < (capacity) && bool(kind::Kind::parse(entry.text)), \
                    kind::Kind::kForms);                                                          \
  }
    SWITCHYARD_KNOBS(SWITCHYARD_CHECK_DEFAULT)
#undef SWITCHYARD_CHECK_DEFAULT
    return false;
  }

  Rule& rule_of(Scope scope, const std::string& name, unsigned line) {
    for (Rule& rule : rules_.rules) {
      if (rule.scope == scope && rule.name == name) return rule;
    }
    Rule rule;
    rule.scope = scope;
    rule.name = name;
    rule.line = line;
    return rules_.rules.emplace_back(std::move(rule));
  }

  Document& document_;
  Texts& texts_;
  Rules& rules_;
  std::set<Keys> wrong_;
};

}  // namespace

void read_document(Document& document, Texts& texts, Rules& rules) {
  Reader(document, texts, rules).read();
}

}  // namespace switchyard::monitor::config
