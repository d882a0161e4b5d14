// The knobs of a job as command-line options: one row per knob, with its check and its forms.
//
// Concept. card.h lists the knobs and settings.h parses them. This is the list as a table, and the
// error that shows the value and the accepted forms.
//
// Threading: constants and pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/base/result.h"

namespace switchyard::tools {

struct Knob {
  const char* field;        // in card.h and in JSON: "on_oom"
  const char* environment;  // "SWITCHYARD_ON_OOM"
  const char* option;       // "--on-oom"; null when there is none
  const char* type_name;    // of its value, for --help; null: a flag, which means "yes";
                            // "[=N]": a flag that may have a value
  const char* fallback;     // the default text
  const char* forms;        // settings.h
  bool changeable;          // by `set`, while the job runs
  const char* meaning;      // for --help
  std::size_t capacity;     // of its text, with the terminating zero
  bool (*valid)(std::string_view);
  bool (*same)(std::string_view, std::string_view);  // 0.25GiB and 256MiB; empty is none

  bool is_flag() const { return type_name == nullptr; }
  bool may_be_flag() const { return is_flag() || type_name[0] == '['; }
};

// In the order of card.h.
const std::vector<Knob>& knobs();
const Knob& knob(std::string_view field);

// Why `text` is refused for `knob`, or nothing. `origin` is what the person wrote it for:
// "--memory" or "SWITCHYARD_MEMORY".
std::optional<Error> refuse(const Knob& knob, std::string_view origin, std::string_view text);

}  // namespace switchyard::tools
