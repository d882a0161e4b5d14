#include "tools/base/knobs.h"

#include <fmt/format.h>

#include "switchyard/card.h"
#include "switchyard/settings.h"

namespace switchyard::tools {

namespace {}  // namespace

const std::vector<Knob>& knobs() {
  static const std::vector<Knob> kAll = {
#define SWITCHYARD_TOOL_KNOB(field_, env, capacity_, fallback_, Kind, option_, type, changeable_, \
                             meaning_)                                                            \
  {.field = #field_,                                                                              \
   .environment = "SWITCHYARD_" env,                                                              \
   .option = option_,                                                                             \
   .type_name = type,                                                                             \
   .fallback = fallback_,                                                                         \
   .forms = kind::Kind::kForms,                                                                   \
   .changeable = changeable_,                                                                     \
   .meaning = meaning_,                                                                           \
   .capacity = capacity_,                                                                         \
   .valid = [](std::string_view text) { return kind::Kind::parse(text).has_value(); },            \
   .same = same_value<kind::Kind>},
      SWITCHYARD_KNOBS(SWITCHYARD_TOOL_KNOB)
#undef SWITCHYARD_TOOL_KNOB
  };
  return kAll;
}

const Knob& knob(std::string_view field) {
  for (const Knob& candidate : knobs()) {
    if (candidate.field == field) return candidate;
  }
  return knobs().front();  // not reached: callers name fields of card.h
}

std::optional<Error> refuse(const Knob& knob, std::string_view origin, std::string_view text) {
  const bool valid = knob.valid(text);
  if (valid && text.size() < knob.capacity) return std::nullopt;
  return bad_value(
      std::string(origin), std::string(text),
      valid ? fmt::format("at most {} characters", knob.capacity - 1) : std::string(knob.forms));
}

}  // namespace switchyard::tools
