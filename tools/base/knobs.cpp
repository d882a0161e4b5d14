#include "tools/base/knobs.h"

#include "switchyard/card.h"
#include "switchyard/settings.h"

namespace switchyard::tools {
namespace {

struct Side {  // what card.h doesn't say
  const char* option;
  const char* type_name;
  const char* forms;
  const char* meaning;
  bool (*valid)(std::string_view);
};

constexpr Side kJobSide{nullptr, "ID", kNameForms, "",
                        [](std::string_view t) { return valid_name(t); }};
constexpr Side kNameSide{
    "--name", "NAME", kNameForms,
    "the job's name for `ps`, `set` and other commands; unique among live jobs",
    [](std::string_view t) { return valid_name(t); }};
constexpr Side kPrioritySide{
    "--priority", "CLASS", kPriorityForms,
    "high: low latency, others yield while it works; low: uses the time that others leave",
    [](std::string_view t) { return parse_priority(t).has_value(); }};
constexpr Side kShareSide{"--share", "WEIGHT", kShareForms,
                          "weight among the jobs of one priority; unused time goes to the others",
                          [](std::string_view t) { return parse_share(t).has_value(); }};
constexpr Side kLimitSide{"--limit", "PART", kLimitForms,
                          "the most of the GPU's time that it may use, even when the GPU is free",
                          [](std::string_view t) { return parse_limit(t).has_value(); }};
constexpr Side kDeadlineSide{"--deadline", "TIME", kDeadlineForms,
                             "time from its start until it should be done; see `policy deadline`",
                             [](std::string_view t) { return parse_deadline(t).has_value(); }};
constexpr Side kMemorySide{
    "--memory", "SIZE", kMemoryForms,
    "device memory per GPU: reserved for the job and its quota, contexts included",
    [](std::string_view t) {
      std::optional<std::uint64_t> quota;
      return parse_memory(t, quota);
    }};
constexpr Side kOnOomSide{"--on-oom", "fail|wait", kOnOomForms,
                          "beyond the quota: the driver's out-of-memory error, or wait for memory",
                          [](std::string_view t) { return t == "fail" || t == "wait"; }};
constexpr Side kOomTimeoutSide{"--oom-timeout", "TIME", kSecondsForms,
                               "how long an allocation waits under --on-oom wait",
                               [](std::string_view t) { return parse_seconds(t).has_value(); }};

constexpr Side kSwappableSide{
    "--swappable", nullptr, kSwappableForms,
    "its memory can be swapped out (`swap-out`, `pause --release`); fixed while it runs",
    [](std::string_view t) { return parse_swappable(t).has_value(); }};
constexpr Side kIdleReleaseSide{"--idle-release", "TIME", kIdleReleaseForms,
                                "swappable; swapped out automatically after this time without work",
                                [](std::string_view t) { return parse_pause(t).has_value(); }};

constexpr Side kOversubscribeSide{
    "--oversubscribe", nullptr, kSwappableForms,
    "swappable; alternates with other such jobs when their memory does not fit",
    [](std::string_view t) { return parse_swappable(t).has_value(); }};

constexpr const Side& side_of(std::string_view field) {
  if (field == "name") return kNameSide;
  if (field == "priority") return kPrioritySide;
  if (field == "share") return kShareSide;
  if (field == "limit") return kLimitSide;
  if (field == "deadline") return kDeadlineSide;
  if (field == "memory") return kMemorySide;
  if (field == "on_oom") return kOnOomSide;
  if (field == "oom_timeout") return kOomTimeoutSide;
  if (field == "swappable") return kSwappableSide;
  if (field == "idle_release") return kIdleReleaseSide;
  if (field == "oversubscribe") return kOversubscribeSide;
  return kJobSide;
}

Knob make_knob(const char* field, const char* environment, std::size_t capacity,
               const char* fallback) {
  const Side& side = side_of(field);
  return {field,      environment,  side.option, side.type_name, fallback,
          side.forms, side.meaning, capacity,    side.valid};
}

}  // namespace

const std::vector<Knob>& knobs() {
  static const std::vector<Knob> kAll = {
#define SWITCHYARD_TOOL_KNOB(field, env, capacity, fallback) \
  make_knob(#field, "SWITCHYARD_" env, capacity, fallback),
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
  if (knob.valid(text) && text.size() < knob.capacity) return std::nullopt;
  return bad_value(std::string(origin), std::string(text), knob.forms);
}

}  // namespace switchyard::tools
