#include "monitor/core/job_settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "monitor/platform/text.h"

namespace switchyard::monitor {
std::optional<Knobs> parse_card(const JobCard& card, std::string& why) {
  Knobs out;
#define SWITCHYARD_PARSE_KNOB(field, env, capacity, fallback, Kind, ...)              \
  if (card.field[0] != '\0') {                                                        \
    const auto value = kind::Kind::parse(card.field);                                 \
    if (!value) {                                                                     \
      why = fmt::format("invalid value '{}' for " #field ": expected {}", card.field, \
                        kind::Kind::kForms);                                          \
      return std::nullopt;                                                            \
    }                                                                                 \
    out.field = *value;                                                               \
  }
  SWITCHYARD_KNOBS(SWITCHYARD_PARSE_KNOB)
#undef SWITCHYARD_PARSE_KNOB
  out.swappable = out.swappable || out.oversubscribe || out.idle_release.after > Time{0};
  return out;
}

namespace {

// A setting without a value has its default.
template <typename Kind>
bool asks_for_another(std::string_view said, std::string_view asked, std::string_view fallback) {
  const std::string_view before = asked.empty() ? fallback : asked;
  return !said.empty() && !same_value<Kind>(said, before) && !same_value<Kind>(said, fallback);
}

}  // namespace

std::string other_settings(const JobCard& asked, const JobCard& said) {
  std::string others;
  const auto add = [&others](const std::string& name, const char* text) {
    if (name == "job" || name == "name") return;
    others += fmt::format("{}{} {}", others.empty() ? "" : ", ", name, text);
  };
#define SWITCHYARD_COMPARE(field, env, capacity, fallback, Kind, ...)    \
  if (asks_for_another<kind::Kind>(said.field, asked.field, fallback)) { \
    add(#field, said.field);                                             \
  }
  SWITCHYARD_KNOBS(SWITCHYARD_COMPARE)
#undef SWITCHYARD_COMPARE
  return others;
}

void fill_empty(JobCard& card, const JobCard& defaults) {
#define SWITCHYARD_FILL_EMPTY(field, ...) \
  if (card.field[0] == '\0') set_text(card.field, defaults.field);
  SWITCHYARD_KNOBS(SWITCHYARD_FILL_EMPTY)
#undef SWITCHYARD_FILL_EMPTY
}

void remove_none(JobCard& card) {
  // A name may be "none"; it is then the name.
  const auto means_nothing = [](const auto& none) {
    return none && *none == std::decay_t<decltype(*none)>();
  };
#define SWITCHYARD_REMOVE_NONE(field, env, capacity, fallback, Kind, ...) \
  if (is_none(card.field) && means_nothing(kind::Kind::parse("none"))) {  \
    set_text(card.field, "");                                             \
  }
  SWITCHYARD_KNOBS(SWITCHYARD_REMOVE_NONE)
#undef SWITCHYARD_REMOVE_NONE
}

namespace {

std::string rule_text(const std::string& rule) { return rule.empty() ? "" : ": " + rule; }

}  // namespace

std::string Caps::exceeded(const Owner& owner, const Knobs& knobs, std::uint64_t gpu_bytes) const {
  if (owner.is_root()) return {};
  if (knobs.priority > priority_of(owner.uid)) {
    return fmt::format("priority {} is more than root allows here ({}){}",
                       to_string(knobs.priority), to_string(priority_of(owner.uid)),
                       rule_text(from.priority));
  }
  if (share && !knobs.share.automatic && knobs.share.weight > *share) {
    return fmt::format("share {} is more than root allows here ({}){}", knobs.share.weight, *share,
                       rule_text(from.share));
  }
  const std::uint64_t memory = knobs.memory ? knobs.memory->of(gpu_bytes) : 0;
  if (memory_bytes && memory > *memory_bytes) {
    return fmt::format("memory of {} is more than root allows here ({}){}", bytes_text(memory),
                       bytes_text(*memory_bytes), rule_text(from.memory));
  }
  return {};
}

void Caps::lower(const Owner& owner, Knobs& knobs, JobCard& card, std::uint64_t gpu_bytes) const {
  if (owner.is_root()) return;
  if (knobs.priority > priority_of(owner.uid)) {
    knobs.priority = priority_of(owner.uid);
    set_text(card.priority, to_string(knobs.priority));
  }
  if (share && !knobs.share.automatic && knobs.share.weight > *share) {
    knobs.share.weight = *share;
    set_text(card.share, fmt::format("{}", knobs.share.weight));
  }
  if (memory_bytes && knobs.memory && knobs.memory->of(gpu_bytes) > *memory_bytes) {
    knobs.memory = MemoryQuota{*memory_bytes};
    set_text(card.memory, fmt::format("{}B", *memory_bytes));
  }
}

}  // namespace switchyard::monitor
