#include "monitor/core/job_settings.h"

#include <fmt/format.h>

#include <algorithm>

namespace switchyard::monitor {
namespace {

Time time_of(double span) {
  return std::chrono::duration_cast<Time>(std::chrono::duration<double>(span));
}

Priority priority_cap(const Caps& caps, uid_t uid) {
  return caps.may_be_high.count(uid) != 0 ? Priority::kHigh : caps.priority;
}

}  // namespace

std::optional<Knobs> parse_card(const JobCard& card, std::string& why) {
  const auto bad = [&why](const char* knob, const char* value, const char* forms) {
    why = fmt::format("invalid value '{}' for {}: expected {}", value, knob, forms);
    return std::nullopt;
  };
  Knobs out;
  if (card.job[0] != '\0' && !valid_name(card.job)) return bad("job", card.job, kNameForms);
  if (card.name[0] != '\0' && !valid_name(card.name)) return bad("name", card.name, kNameForms);
  if (card.priority[0] != '\0') {
    const auto priority = parse_priority(card.priority);
    if (!priority) return bad("priority", card.priority, kPriorityForms);
    out.priority = *priority;
  }
  if (card.share[0] != '\0') {
    const auto share = parse_share(card.share);
    if (!share) return bad("share", card.share, kShareForms);
    out.share = *share;
  }
  if (card.limit[0] != '\0') {
    const auto limit = parse_limit(card.limit);
    if (!limit) return bad("limit", card.limit, kLimitForms);
    // All of the GPU is no limit.
    out.limit = *limit < 1 ? *limit : 0;
  }
  if (card.deadline[0] != '\0') {
    const auto deadline = parse_deadline(card.deadline);
    if (!deadline) return bad("deadline", card.deadline, kDeadlineForms);
    out.deadline = time_of(*deadline);
  }
  if (card.memory[0] != '\0') {
    if (!parse_memory(card.memory, out.memory_bytes)) {
      return bad("memory", card.memory, kMemoryForms);
    }
  }
  if (card.on_oom[0] != '\0') {
    const std::string text = card.on_oom;
    if (text != "fail" && text != "wait") return bad("on-oom", card.on_oom, kOnOomForms);
    out.wait_on_oom = text == "wait";
  }
  if (card.oom_timeout[0] != '\0') {
    const auto timeout = parse_seconds(card.oom_timeout);
    if (!timeout) return bad("oom-timeout", card.oom_timeout, kSecondsForms);
    out.oom_timeout = time_of(*timeout);
  }
  if (card.swappable[0] != '\0') {
    const auto swappable = parse_swappable(card.swappable);
    if (!swappable) return bad("swappable", card.swappable, kSwappableForms);
    out.swappable = *swappable;
  }
  if (card.oversubscribe[0] != '\0') {
    const auto oversubscribe = parse_swappable(card.oversubscribe);
    if (!oversubscribe) return bad("oversubscribe", card.oversubscribe, kSwappableForms);
    out.oversubscribe = *oversubscribe;
    out.swappable = out.swappable || *oversubscribe;
  }
  if (card.idle_release[0] != '\0') {
    const auto idle = parse_pause(card.idle_release);
    if (!idle) return bad("idle-release", card.idle_release, kIdleReleaseForms);
    out.idle_release = time_of(*idle);
    out.swappable = out.swappable || *idle > 0;
  }
  return out;
}

std::string Caps::exceeded(uid_t uid, const Knobs& knobs) const {
  if (uid == 0) return {};
  if (knobs.priority > priority_cap(*this, uid)) {
    return fmt::format("priority {} is more than root allows here ({})", to_string(knobs.priority),
                       to_string(priority_cap(*this, uid)));
  }
  if (share && knobs.share > *share) {
    return fmt::format("share {} is more than root allows here ({})", knobs.share, *share);
  }
  if (memory_bytes && knobs.memory_bytes && *knobs.memory_bytes > *memory_bytes) {
    return fmt::format("memory of {} bytes is more than root allows here ({})", *knobs.memory_bytes,
                       *memory_bytes);
  }
  return {};
}

void Caps::lower(uid_t uid, Knobs& knobs, JobCard& card) const {
  if (uid == 0) return;
  if (knobs.priority > priority_cap(*this, uid)) {
    knobs.priority = priority_cap(*this, uid);
    set_text(card.priority, to_string(knobs.priority));
  }
  if (share && knobs.share > *share) {
    knobs.share = *share;
    set_text(card.share, fmt::format("{}", knobs.share));
  }
  if (memory_bytes && knobs.memory_bytes && *knobs.memory_bytes > *memory_bytes) {
    knobs.memory_bytes = memory_bytes;
    set_text(card.memory, fmt::format("{}B", *memory_bytes));
  }
}

}  // namespace switchyard::monitor
