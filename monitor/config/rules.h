// What the file allows users at most, and what their jobs get when they ask for nothing.
//
// Concept. [caps] and [defaults] are for all. [group.NAME.caps], [user.NAME.caps] and
// [container.NAME.caps] are rules for some, and likewise with defaults. Each key is looked up by
// itself, from left to right, and the first rule that has it counts:
//
//                 container   user   group   all
//     a default       1         2      3      4
//     a cap        lowers       1      2      3
//
// A user may make a container of any name, so the cap of a container never raises: it holds where
// it is the lower one. Of two groups of one user, the group that stands first in the file counts.
// Caps do not bind the host's root (owner.h); its jobs have defaults, too.
//
// Names of users and groups are asked for by whoever reads the file (reader.h), never here.
//
// Threading: pure functions.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/config/document.h"
#include "monitor/config/settings.h"
#include "monitor/core/job_settings.h"
#include "monitor/platform/owner.h"

namespace switchyard::monitor::config {

enum class Scope : std::uint8_t { kAll, kGroup, kUser, kContainer };

// One cap or default of the file.
struct Item {
  std::string key;   // "memory"
  std::string text;  // as it was written
  unsigned line = 0;
  bool operator==(const Item&) const = default;
};

struct Rule {
  Scope scope = Scope::kAll;
  std::string name;        // as it was written; empty: all
  std::optional<id_t> id;  // of the user or group; none: nobody has that name
  std::vector<Item> caps, defaults;
  unsigned line = 0;
  bool operator==(const Rule&) const = default;
};

struct Rules {
  std::string file;         // empty: there is none
  std::vector<Rule> rules;  // in the order of the file

  // `base`: the caps for all.
  Caps caps_of(const Owner& owner, Caps base) const;
  // The texts that a job of that owner has by default; empty: the program's own default.
  JobCard defaults_of(const Owner& owner) const;
  bool concerns(const Rule& rule, const Owner& owner) const;
};

// "group.students.caps.memory"
std::string key_text(const Rule& rule, const char* what, const Item& item);
// "caps.memory of group 'students', /etc/switchyard/switchyard.toml:12"
std::string item_text(const Rules& rules, const Rule& rule, const char* what, const Item& item);

// Whether a rule for containers of that name holds in this one (owner.h). "*" is each; else the
// name is the beginning of an id, at least 12 digits.
bool is_container(const std::string& name, const std::string& container);

// The key of a job's setting, by its option. "" for one without: it has no default in the file.
constexpr std::string_view default_key(const char* option) {
  const std::string_view word = option != nullptr ? option : "";
  // A name is unique, the library reads the second from its own environment, and nobody runs
  // together with others without having asked for it.
  const bool none =
      word.empty() || word == "--name" || word == "--gradient-noise" || word == "--co-run";
  return none ? std::string_view() : word.substr(2);
}

// Reads the document into `texts` and `rules`. Unknown keys and bad values of rules become problems
// of the document; the values of settings are left to options.cpp. A text that is said already
// stays.
void read_document(Document& document, Texts& texts, Rules& rules);

}  // namespace switchyard::monitor::config
